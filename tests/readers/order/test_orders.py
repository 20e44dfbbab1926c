from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from readers.order.orders import BLOCK, GlobalOrder, InOrder, InterleavedOrder, dealt

COUNTS = st.lists(st.integers(0, 70), min_size=1, max_size=40)


def dealt_by_hand(counts):
    """Which shard and which of its records comes, a block of each shard in turn."""
    done, found = [0] * len(counts), []
    while any(d < c for d, c in zip(done, counts, strict=True)):
        for shard, count in enumerate(counts):
            for _ in range(min(BLOCK, count - done[shard])):
                found.append((shard, done[shard]))
                done[shard] += 1
    return found


@given(st.lists(st.integers(0, 70), min_size=1, max_size=9))
@settings(deadline=None)
def test_shards_give_a_block_in_turn(counts):
    turn, within = dealt(np.array(counts), np.arange(sum(counts)))
    assert list(zip(turn.tolist(), within.tolist(), strict=True)) == dealt_by_hand(counts)


@given(COUNTS, st.integers(0, 9), st.integers(0, 3), st.integers(1, 300))
@settings(deadline=None)
def test_an_interleaved_epoch_holds_every_record_once(counts, seed, epoch, window):
    order = InterleavedOrder(counts, seed, window)
    numbers = order(epoch, np.arange(sum(counts)))
    assert np.array_equal(np.sort(numbers), np.arange(sum(counts)))
    places = np.arange(0, sum(counts), 3)[::-1]
    assert order(epoch, places).tolist() == numbers[places].tolist()


@given(COUNTS, st.integers(0, 3), st.data())
@settings(deadline=None)
def test_what_is_left_of_a_stream_is_its_end(counts, epoch, data):
    place = data.draw(st.integers(0, sum(counts)))
    order = InterleavedOrder(counts, 1, 1)  # Windows of one record: the stream itself.
    firsts = np.cumsum([0, *counts])
    found = []
    groups, over = order.rest(epoch, place)
    for shards, done in groups:
        left = [counts[shard] - d for shard, d in zip(shards, done, strict=True)]
        for turn, within in dealt_by_hand(left):
            found.append(int(firsts[shards[turn]] + done[turn]) + within)
    assert found[over:] == order(epoch, np.arange(place, sum(counts))).tolist()
    assert over < BLOCK * 16


def test_windows_bound_how_far_a_record_moves():
    order = InterleavedOrder([1000], 3, 50)
    numbers = order(0, np.arange(1000))
    assert (np.abs(numbers // 50 - np.arange(1000) // 50) == 0).all()
    assert (numbers != np.arange(1000)).mean() > 0.9


@pytest.mark.parametrize("order", [GlobalOrder(3000, 5), InterleavedOrder([150] * 20, 5, 500)])
def test_sorted_classes_are_mixed(order):
    """Ten classes that lie one after another come in short runs, and in each tenth of an epoch."""
    for epoch in range(3):
        labels = order(epoch, np.arange(3000)) // 300
        assert len(labels) / (1 + np.count_nonzero(np.diff(labels))) < 1.3
        for tenth in np.split(labels, 10):
            assert len(np.unique(tenth)) >= 7


def test_epochs_and_seeds_have_orders_of_their_own():
    places = np.arange(200)
    for make in (
        lambda seed: GlobalOrder(200, seed),
        lambda seed: InterleavedOrder([50] * 4, seed, 64),
    ):
        orders = {tuple(make(seed)(epoch, places)) for seed in (0, 1) for epoch in (0, 1)}
        assert len(orders) == 4
        assert tuple(make(0)(1, places)) in orders
    assert InOrder()(7, places) is places
