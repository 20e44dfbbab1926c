from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from readers.order.orders import BLOCK, GlobalOrder, InterleavedOrder, as_stored, round_robin

COUNTS = st.lists(st.integers(0, 70), min_size=1, max_size=40)


def round_robin_by_hand(counts):
    """The (shard, record in it) at each place, taking a block from each shard in turn."""
    done, found = [0] * len(counts), []
    while any(d < c for d, c in zip(done, counts, strict=True)):
        for shard, count in enumerate(counts):
            for _ in range(min(BLOCK, count - done[shard])):
                found.append((shard, done[shard]))
                done[shard] += 1
    return found


@given(st.lists(st.integers(0, 70), min_size=1, max_size=9))
@settings(max_examples=30, deadline=None)
def test_records_come_from_each_shard_in_turn_by_blocks(counts):
    turn, within = round_robin(np.array(counts), np.arange(sum(counts)))
    assert list(zip(turn.tolist(), within.tolist(), strict=True)) == round_robin_by_hand(counts)


@given(COUNTS, st.integers(0, 9), st.integers(0, 3), st.integers(1, 300))
@settings(max_examples=30, deadline=None)
def test_an_interleaved_epoch_contains_every_record_once(counts, seed, epoch, window):
    order = InterleavedOrder(counts, seed, window)
    numbers = order(epoch, np.arange(sum(counts)))
    assert np.array_equal(np.sort(numbers), np.arange(sum(counts)))
    places = np.arange(0, sum(counts), 3)[::-1]
    assert order(epoch, places).tolist() == numbers[places].tolist()


def test_records_stay_within_their_window():
    order = InterleavedOrder([1000], 3, 50)
    numbers = order(0, np.arange(1000))
    assert (np.abs(numbers // 50 - np.arange(1000) // 50) == 0).all()
    assert (numbers != np.arange(1000)).mean() > 0.9


@pytest.mark.parametrize("order", [GlobalOrder(3000, 5), InterleavedOrder([150] * 20, 5, 500)])
def test_sorted_classes_are_mixed(order):
    """Ten classes stored one after another come in short runs, and in each tenth of an epoch."""
    for epoch in range(3):
        labels = order(epoch, np.arange(3000)) // 300
        assert len(labels) / (1 + np.count_nonzero(np.diff(labels))) < 1.3
        for tenth in np.split(labels, 10):
            assert len(np.unique(tenth)) >= 7


def test_each_epoch_and_seed_has_its_own_order():
    places = np.arange(200)
    for make in (
        lambda seed: GlobalOrder(200, seed),
        lambda seed: InterleavedOrder([50] * 4, seed, 64),
    ):
        orders = {tuple(make(seed)(epoch, places)) for seed in (0, 1) for epoch in (0, 1)}
        assert len(orders) == 4
        assert tuple(make(0)(1, places)) in orders
    assert as_stored(7, places) is places
