"""Pairs of sketches are those of comparing each with each."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from readers.format.similarity import likeness as module
from readers.format.similarity.likeness import Likeness, Sketches
from readers.format.similarity.pairs import popcount

PICTURES = Likeness("picture", 0.9)

# Few bits differ, so that there are pairs.
HASHES = st.lists(
    st.one_of(
        st.integers(0, 2**64 - 1),
        st.integers(0, 15),
        st.lists(st.integers(0, 63), max_size=4).map(
            lambda bits: sum(1 << bit for bit in set(bits))
        ),
    ),
    max_size=40,
)


def with_hashes(hashes):
    """Sketches of pictures with these hashes, and one luma."""
    numbers = np.array(hashes, np.uint64)
    keys = np.stack([module.mixed(numbers & mask) for mask in module._masks(6)], axis=1)
    luma = np.random.default_rng(0).integers(0, 256, 256, np.uint8)
    probes = np.tile(np.concatenate([np.ones(1, np.uint8), luma]), (len(numbers), 1))
    return Sketches(keys, np.ones(keys.shape, bool), numbers, probes)


def compared_with_each(hashes, distance):
    first = {}
    found = []
    for place, value in enumerate(hashes):
        if value in first:
            found.append((first[value], place))
            continue
        near = [o for known, o in first.items() if (value ^ known).bit_count() <= distance]
        found += [(other, place) for other in near]
        first[value] = place
    return sorted(found)


def listed(pairs):
    return list(zip(*(column.tolist() for column in pairs), strict=True))


@given(HASHES)
@settings(max_examples=100, deadline=None)
def test_pairs_are_those_of_comparing_each_with_each(hashes):
    assert listed(PICTURES.pairs(with_hashes(hashes))) == compared_with_each(hashes, 6)


def test_no_band_misses_a_pair_or_repeats_one():
    rng = np.random.default_rng(6)
    some = rng.integers(0, 2**64, 100, np.uint64)
    flips = rng.random((300, 64)) < rng.uniform(0, 0.15, (300, 1))
    near = rng.choice(some, 300) ^ (flips @ (np.uint64(1) << np.arange(64, dtype=np.uint64)))
    hashes = [*some.tolist(), *near.tolist()]
    expected = compared_with_each(hashes, 6)
    assert len(expected) > 20
    assert listed(PICTURES.pairs(with_hashes(hashes))) == expected


def test_equal_hashes_are_paired_with_the_first():
    hashes = np.full(5001, 7, np.uint64)
    hashes[5] = 6
    first, second = PICTURES.pairs(with_hashes(hashes))
    assert not first.any() and second.tolist() == [*range(1, 5001)]


def test_records_that_are_not_alike_are_no_pair_although_their_hashes_are():
    found = with_hashes([1, 1, 3])
    found.probes[1, 1:] = 255 - found.probes[1, 1:]
    assert listed(PICTURES.pairs(found)) == [(0, 2)]


@given(st.lists(st.integers(0, 2**64 - 1)))
@settings(max_examples=30)
def test_bits_are_counted_without_numpy_2(numbers):
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(np, "bitwise_count", raising=False)
        found = popcount(np.array(numbers, np.uint64))
    assert found.tolist() == [number.bit_count() for number in numbers]


def test_no_records_have_no_pairs():
    assert listed(PICTURES.pairs(with_hashes([]))) == []
