from __future__ import annotations

import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from readers.format.similarity import pairs as module
from readers.format.similarity.groups import groups_of
from readers.format.similarity.pairs import Pairs, near_pairs, near_pairs_in_parts, popcount

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


def compared_with_each(hashes, distance):
    first = {}
    found = []
    for place, value in enumerate(hashes):
        if value in first:
            found.append((first[value], place, 0))
            continue
        apart = [(other, (value ^ known).bit_count()) for known, other in first.items()]
        found += [(other, place, bits) for other, bits in apart if bits <= distance]
        first[value] = place
    return sorted(found)


def listed(pairs):
    return list(zip(*(column.tolist() for column in pairs), strict=True))


@given(HASHES, st.integers(0, 63))
@settings(max_examples=300, deadline=None)
def test_pairs_are_those_of_comparing_each_with_each(hashes, distance):
    found = near_pairs(np.array(hashes, np.uint64), distance)
    assert listed(found) == compared_with_each(hashes, distance)
    assert [column.dtype.name for column in found] == ["int64", "int64", "uint8"]


@pytest.mark.parametrize("distance", [1, 2, 3, 6, 9])
@pytest.mark.parametrize("more", [0, 1, 2, 4])
def test_no_number_of_blocks_misses_a_pair_or_repeats_one(monkeypatch, distance, more):
    monkeypatch.setattr(module, "_blocks", lambda hashes, distance: distance + more)
    rng = np.random.default_rng(distance)
    some = rng.integers(0, 2**64, 100, np.uint64)
    flips = rng.random((300, 64)) < rng.uniform(0, 0.15, (300, 1))
    near = rng.choice(some, 300) ^ (flips @ (np.uint64(1) << np.arange(64, dtype=np.uint64)))
    hashes = [*some.tolist(), *near.tolist()]
    expected = compared_with_each(hashes, distance)
    assert len(expected) > 20
    assert listed(near_pairs(np.array(hashes, np.uint64), distance)) == expected


def test_a_hundred_thousand_equal_hashes_are_paired_with_the_first():
    hashes = np.full(10**5 + 1, 7, np.uint64)
    hashes[5] = 6
    start = time.perf_counter()
    found = near_pairs(hashes, 6)
    assert time.perf_counter() - start < 1
    assert len(found.first) == 10**5 and not found.first.any()
    assert found.alike.tolist().index(1) == 4 and found.alike.sum() == 1
    assert not groups_of(len(hashes), [found]).any()


def test_memory_depends_neither_on_how_many_are_compared_nor_on_how_many_are_near():
    # Each is within 11 bits of each.
    hashes = np.arange(2048, dtype=np.uint64)
    tracemalloc.start()
    groups = groups_of(len(hashes), near_pairs_in_parts(hashes, 11))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert not groups.any()
    # The 2.1 million pairs take 36 MB, and twice that while they are put in order.
    assert peak < 15e6


def test_random_hashes_have_no_pairs():
    hashes = np.random.default_rng(0).integers(0, 2**64, 20_000, np.uint64)
    assert len(near_pairs(hashes, 6).first) == 0


def test_wrong_arguments_are_errors():
    with pytest.raises(ValueError, match="distance=64: expected 0 to 63"):
        near_pairs(np.zeros(2, np.uint64), 64)
    with pytest.raises(ValueError, match=r"hashes of int64 \[2\]: expected uint64"):
        near_pairs(np.zeros(2, np.int64), 6)


@given(st.lists(st.integers(0, 2**64 - 1)))
def test_bits_are_counted_without_numpy_2(numbers):
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(np, "bitwise_count", raising=False)
        found = popcount(np.array(numbers, np.uint64))
    assert found.tolist() == [number.bit_count() for number in numbers]


def pairs_of(edges):
    ends = np.array(edges, np.int64).reshape(-1, 2)
    return Pairs(ends.min(axis=1), ends.max(axis=1), np.zeros(len(ends), np.uint8))


@given(st.data(), st.integers(1, 60), st.integers(1, 4))
@settings(max_examples=200, deadline=None)
def test_groups_are_what_pairs_connect(data, records, parts):
    ends = st.integers(0, records - 1)
    edges = [data.draw(st.lists(st.tuples(ends, ends), max_size=40)) for _ in range(parts)]
    expected = list(range(records))
    for _ in range(records):
        for one, other in (edge for part in edges for edge in part):
            expected[one] = expected[other] = min(expected[one], expected[other])
    found = groups_of(records, [pairs_of(part) for part in edges])
    assert found.tolist() == expected


def test_a_long_chain_is_one_group():
    order = np.random.default_rng(0).permutation(200_000)
    start = time.perf_counter()
    groups = groups_of(len(order), [pairs_of(np.stack([order[1:], order[:-1]], 1))])
    assert not groups.any()
    assert time.perf_counter() - start < 5


def test_no_records_have_no_pairs_and_no_groups():
    found = near_pairs(np.zeros(0, np.uint64), 6)
    assert listed(found) == [] and groups_of(0, [found]).tolist() == []
