"""Candidates and pairs are those of comparing each with each, in whatever blocks records come."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.errors import DataError
from beam_jobs.plan.near import candidates as module
from beam_jobs.plan.near.blocks import PARTS, ROW, sketch_blocks
from beam_jobs.plan.near.candidates import PAIR, candidates
from beam_jobs.plan.near.tally import NearTally, check_near
from beam_jobs.plan.near.verify import near_pairs, only_one, sent
from beam_jobs.plan.summary import Summary
from readers.format.similarity.likeness import Likeness, Sketches

HASHES = st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=30)


def packed(hashes, blocks, orders=None):
    """Rows of one partition with the same key, spread over blocks."""
    rows = np.zeros(len(hashes), ROW)
    rows["digest"] = hashes
    rows["order"] = np.arange(len(hashes)) if orders is None else orders
    for block in sorted(set(blocks)):
        of_block = rows[np.array(blocks) == block]
        of_block["row"] = np.flatnonzero(np.array(blocks) == block)
        yield bytes([block]) * 16, False, of_block.tobytes()


def listed(found, names):
    for name, data in found:
        for first, second, block in np.frombuffer(data, PAIR):
            yield int(first), int(second), name, block.tobytes()


@given(st.lists(st.integers(0, 40), max_size=30), st.integers(1, 4), st.booleans())
@settings(max_examples=150, deadline=None)
def test_candidates_are_the_pairs_within_the_distance(hashes, blocks, first_band):
    of = [number % blocks for number in range(len(hashes))]
    found = {(i, j) for i, j, *_ in listed(candidates(packed(hashes, of), first_band, 2, True), of)}
    expected = {
        (i, j)
        for j in range(len(hashes))
        for i in range(j)
        if (hashes[i] ^ hashes[j]).bit_count() <= 2 and (first_band or hashes[i] != hashes[j])
    }
    assert found == expected


def test_the_first_of_each_pair_comes_before_the_other_in_the_order():
    hashes, orders = [5, 5, 4], [30, 10, 20]
    pairs = [p[:2] for p in listed(candidates(packed(hashes, [0, 0, 0], orders), True, 2, True), 0)]
    assert sorted(pairs) == [(1, 0), (1, 2), (2, 0)]


def test_records_to_keep_out_come_first_and_are_in_no_pair_of_their_own():
    ((name, _, rows),) = packed([7, 7], [0, 0], [50, 60])
    ((other, _, more),) = packed([7, 7], [1, 1], [10, 20])
    for drops, expected in ((True, 2 * 2 + 1), (False, 2 * 2)):
        found = list(
            listed(candidates([(name, True, rows), (other, False, more)], True, 0, drops), 0)
        )
        assert len(found) == expected
        assert sum(pair[2] == name for pair in found) == 4
        assert all(pair[3] == other for pair in found)


@pytest.mark.parametrize("count", [3000, 200_000])
def test_many_equal_records_are_paired_with_the_first_alone_and_in_seconds(count):
    begin = time.process_time()
    rows = list(packed(np.full(count, 9), [0] * count))
    pairs = list(listed(candidates(rows, True, 6, True), 0))
    assert time.process_time() - begin < 20
    assert {first for first, *_ in pairs} == {0}
    assert sorted(second for _, second, *_ in pairs) == list(range(1, count))


def test_of_many_different_records_each_has_some_pairs(monkeypatch):
    monkeypatch.setattr(module, "_EACH", 50)
    monkeypatch.setattr(module, "_MOST_PAIRS", 5000)
    rows = packed(np.arange(500) % 3, [0] * 500)
    pairs = np.array([pair[:2] for pair in listed(candidates(rows, True, 0, True), 0)])
    seconds, counts = np.unique(pairs[:, 1], return_counts=True)
    assert set(seconds) == set(range(3, 500))
    assert counts.max() <= 4096 // 500


def sketches(texts):
    return Likeness("text", 0.8).sketch(texts)


@given(st.integers(1, 7), st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_pairs_do_not_depend_on_blocks_nor_on_the_order_of_elements(blocks, drawn):
    texts = [f"{n % 6} some words of a text that is number {n % 6 * 37} of all" for n in range(18)]
    texts += ["".join(drawn.choices("abcdef", k=40)) for _ in range(6)]
    likeness = Likeness("text", 0.8)
    made, rows = [], np.arange(len(texts))
    for block in range(blocks):
        some = rows[rows % blocks == block]
        sketched = sketches([texts[row] for row in some])
        splits = np.zeros(len(some), np.uint8)
        made += sketch_blocks(f"task {block}", some, some.astype(np.uint64), splits, sketched)
    by_name = {block.name: block.probes() for block in made}
    partitions: dict = {}
    for block in made:
        for partition, data in block.partitions():
            partitions.setdefault(partition, []).append((block.name, False, data))
    asked: dict = {}
    for partition, some in partitions.items():
        drawn.shuffle(some)
        for name, pairs in candidates(some, partition < PARTS, -1, True):
            asked.setdefault(name, []).append(pairs)
    arrived: dict = {}
    for name, pairs in asked.items():
        drawn.shuffle(pairs)
        for other, records in sent(by_name[name], pairs):
            arrived.setdefault(other, []).append(records)
    dropped = set()
    for name, records in arrived.items():
        probes = by_name[name]
        found = near_pairs(probes, records, likeness)
        dropped |= set(np.frombuffer(probes.numbers, "<i8")[found.second].tolist())
    every = sketches(texts).probes
    expected = {
        j
        for j in range(len(texts))
        if any(likeness.near(every[i : i + 1], every[j : j + 1])[0] for i in range(j))
    }
    assert dropped == expected


def test_a_tally_that_does_not_agree_is_an_error():
    summary = Summary.empty(1)
    summary.texts = 5
    check_near(summary, NearTally(records=5))
    check_near(summary, None)
    for wrong in (
        {"records": 4},
        {"records": 5, "dropped": 1},
        {"records": 5, "keys_sent": 2},
        {"records": 5, "listed": 1},
        {"records": 5, "pairs_received": 3},
        {"records": 5, "probes_sent": 9},
    ):
        with pytest.raises(DataError, match="lost or repeated some: no dataset was written"):
            check_near(summary, NearTally(**wrong))
    with pytest.raises(DataError, match="0 of 1 blocks of sketches"):
        only_one(b"n", [], True)


def test_blocks_stay_below_the_limit_of_elements():
    count = 5000
    probes = np.zeros((count, 257), np.uint8)
    keys = np.zeros((count, 2), np.uint32)
    every = Sketches(keys, np.ones((count, 2), bool), np.zeros(count, np.uint64), probes)
    numbers, orders = np.arange(count), np.arange(count, dtype=np.uint64)
    blocks = list(sketch_blocks("a", numbers, orders, np.zeros(count, np.uint8), every))
    assert len({block.name for block in blocks}) == len(blocks) > 1
    assert sum(len(block.numbers) for block in blocks) == count
    for block in blocks:
        elements = [block.probes().probes, *(data for _, data in block.partitions())]
        assert max(map(len, elements)) <= 1 << 19
