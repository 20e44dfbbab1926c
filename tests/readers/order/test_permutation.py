from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from readers.order.permutation import Permutation, record_keys

GOLDEN = [
    [6, 9, 2, 0, 8, 5, 7, 4, 3, 1],
    [8, 7, 0, 1, 6, 4, 9, 2, 5, 3],
    [114314085607, 84292199822, 67565206151],
]
GOLDEN_KEYS = [1999170314072070476, 884364697943566979, 8193605468440527892, 6995245087726120781]

SIZES = [0, 1, 2, 3, 10, 257]


def whole(n, *key):
    return Permutation(n, *key)(np.arange(n))


@given(st.integers(0, 3000), st.lists(st.integers(0, 2**63 - 1), max_size=3))
@settings(max_examples=50, deadline=None)
def test_every_number_has_exactly_one_place(n, key):
    assert np.array_equal(np.sort(whole(n, *key)), np.arange(n))


def hashed(number):
    """`lowbias32` of Chris Wellons' hash-prospector."""
    low = number % 2**32
    low = (low ^ low >> 16) * 0x7FEB352D % 2**32
    low = (low ^ low >> 15) * 0x846CA68B % 2**32
    return low ^ low >> 16


def number_at(place, n, *key):
    """The number at a place of an order, in integers of any size."""
    state = 0
    for part in key:
        state = hashed(state ^ part)
        state = hashed(state + part // 2**32 + 1)
    width = math.isqrt(n - 1) + 1
    height = -(-n // width)
    while True:
        left, right = divmod(place, height)
        for number in range(8):
            word = hashed((right, left)[number % 2] ^ hashed(state + number * 0x9E3779B9))
            if number % 2:
                right = (right + word) % height
            else:
                left = (left + word) % width
        place = left * height + right
        if place < n:
            return place


@given(
    st.integers(1, 2**61), st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=3), st.data()
)
@settings(max_examples=60, deadline=None)
def test_an_order_is_that_of_its_definition(n, epochs, data):
    drawn = st.tuples(st.integers(0, n - 1), st.integers(0, len(epochs) - 1))
    places, orders = zip(*data.draw(st.lists(drawn, min_size=1, max_size=9)), strict=True)
    expected = [number_at(p, n, 7, epochs[order]) for p, order in zip(places, orders, strict=True)]
    several = Permutation(n, 7, np.array(epochs)[:, None])
    assert several(np.array(places), np.array(orders)).tolist() == expected
    one = Permutation(n, 7, epochs[orders[0]])(np.array(places[:1]))
    assert one.tolist() == expected[:1]


def test_the_order_is_the_same_in_every_version():
    assert whole(10, 7, 0).tolist() == GOLDEN[0]
    assert whole(10, 7, 1).tolist() == GOLDEN[1]
    assert Permutation(10**12, 7, 1)(np.array([0, 1, 10**12 - 1])).tolist() == GOLDEN[2]


def test_every_part_of_the_key_changes_the_order():
    keys = [(), (0,), (1,), (0, 0), (0, 1), (1, 0), (2**32,), (2**32, 0), (0, 2**32), (0, 0, 0)]
    assert len({tuple(whole(100, *key).tolist()) for key in keys}) == len(keys)


@pytest.mark.parametrize("n", [2, 3, 6, 13])
def test_every_number_is_equally_likely_at_every_place(n):
    """Chi-squared tests of (place, number), and of the numbers at the first two places."""
    trials = 2_500
    orders = np.array([whole(n, seed, 3) for seed in range(trials)])
    counts = np.array([np.bincount(orders[:, place], minlength=n) for place in range(n)])
    expected = trials / n
    assert ((counts - expected) ** 2 / expected).sum() < 2 * (n - 1) ** 2 + 12
    pairs = np.bincount(orders[:, 0] * n + orders[:, 1], minlength=n * n).reshape(n, n)
    expected = trials / (n * (n - 1))
    apart = ~np.eye(n, dtype=bool)
    assert ((pairs[apart] - expected) ** 2 / expected).sum() < 2 * n * (n - 1) + 12
    assert not pairs[~apart].any()


def test_a_long_order_passes_tests_of_randomness():
    n = 50_000
    for epoch in range(3):
        order = whole(n, 1, epoch)
        places = np.arange(n)
        bound = 4.5 / np.sqrt(n)
        # Neither places nor earlier numbers are correlated with numbers.
        assert abs(np.corrcoef(places, order)[0, 1]) < bound
        for lag in (1, 2, 7):
            assert abs(np.corrcoef(order[:-lag], order[lag:])[0, 1]) < bound
        # Half of the steps are downwards; a class of a tenth makes runs of 10/9 on average.
        assert abs((np.diff(order) < 0).mean() - 0.5) < bound
        labels = order * 10 // n
        runs = n / (1 + np.count_nonzero(np.diff(labels)))
        assert abs(runs - 10 / 9) < 3 * bound


def test_keys_of_records_never_change_and_look_random():
    places = np.array([0, 1, 2, 2**40])
    assert record_keys(places, (7, 0, 0)).tolist() == GOLDEN_KEYS
    many = record_keys(np.arange(100_000), (7, 0, 0))
    assert len(np.unique(many)) == 100_000
    assert many.min() >= 0
    # Each bit is set in half of them: 100,000 coin tosses, within six standard deviations.
    ones = (many[:, None] >> np.arange(63) & 1).sum(axis=0)
    assert np.abs(ones - 50_000).max() < 6 * 158
