"""Candidates and pairs are those of comparing each with each, in whatever blocks records come."""

from __future__ import annotations

import pickle
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.columns import unpack
from beam_jobs.errors import DataError, UsageError
from beam_jobs.plan import near_keys as module
from beam_jobs.plan import near_pairs as comparing
from beam_jobs.plan.equality import Equality
from beam_jobs.plan.near_keys import PAIR, PARTS, ROW, Keys, Probes, candidates, sketch_blocks
from beam_jobs.plan.near_pairs import NearTally, check_near, near_pairs, only_one, sent
from beam_jobs.plan.summary import Summary
from readers.format.similarity.likeness import Likeness, Sketches


def packed(hashes, blocks, orders=None):
    """Rows of one partition with the same key, spread over blocks."""
    rows = np.zeros(len(hashes), ROW)
    rows["digest"] = hashes
    rows["order"] = np.arange(len(hashes)) if orders is None else orders
    for block in sorted(set(blocks)):
        of_block = rows[np.array(blocks) == block]
        of_block["row"] = np.flatnonzero(np.array(blocks) == block)
        yield Keys(bytes([block]) * 16, f"task{block}#0", False, of_block.tobytes())


def alike(distance):
    """A likeness whose digests may differ in so many bits."""
    return SimpleNamespace(distance=distance)


def listed(found, names):
    for name, data in found:
        for first, second, block in np.frombuffer(data, PAIR):
            yield int(first), int(second), name, block.tobytes()


def test_records_to_keep_out_come_first_and_are_in_no_pair_of_their_own():
    (out,) = packed([7, 7], [0, 0], [50, 60])
    (own,) = packed([7, 7], [1, 1], [10, 20])
    name, other = out.block, own.block
    for drops, expected in ((True, 2 * 2 + 1), (False, 2 * 2)):
        found = list(
            listed(candidates([out._replace(kept_out=True), own], True, alike(0), drops), 0)
        )
        assert len(found) == expected
        assert sum(pair[2] == name for pair in found) == 4
        assert all(pair[3] == other for pair in found)


def test_many_equal_records_are_paired_with_the_first_alone():
    count = 3000
    rows = list(packed(np.full(count, 9), [0] * count))
    pairs = list(listed(candidates(rows, True, alike(6), True), 0))
    assert {first for first, *_ in pairs} == {0}
    assert sorted(second for _, second, *_ in pairs) == list(range(1, count))


def test_two_records_with_one_key_are_a_usage_error():
    rows = list(packed([9, 9], [0, 1], [5, 5]))
    for likeness in (alike(0), Equality()):
        with pytest.raises(UsageError, match="duplicate key of a record in task1 or soon after"):
            list(candidates(rows, True, likeness, True))
    rows[0] = rows[0]._replace(kept_out=True)
    assert list(candidates(rows, True, alike(0), True))


@given(
    st.lists(st.lists(st.sampled_from([b"", b"a", b"b", b"ab", b"\0", b"a "]), max_size=9)),
    st.booleans(),
    st.data(),
)
@settings(max_examples=40, deadline=None)
def test_of_equal_texts_all_but_the_first_are_in_a_pair(texts, collide, data):
    count = sum(map(len, texts))
    places = st.lists(st.integers(0, 2**64 - 1), min_size=count, max_size=count, unique=True)
    orders = iter(data.draw(places))
    tasks = {f"file {n}#0": (some, [next(orders) for _ in some]) for n, some in enumerate(texts)}
    partitions: dict = {}
    names = {}
    for name, (some, its_orders) in tasks.items():
        if not some:
            continue
        sketched = Equality().sketch(some)
        if collide:  # All keys are one.
            sketched = sketched._replace(keys=np.zeros_like(sketched.keys))
        columns = np.arange(len(some)), np.array(its_orders, np.uint64), sketched
        (block,) = sketch_blocks(name, *columns)
        names[block.name] = name
        for partition, keys in block.partitions():
            partitions.setdefault(partition, []).append(keys)
    dropped: dict = {}
    for some in partitions.values():
        for first, second, one, other in listed(candidates(some, True, Equality(), True), 0):
            assert tasks[names[one]][0][first] == tasks[names[other]][0][second]
            dropped.setdefault(names[other], set()).add(second)
    smallest: dict = {}
    for some, its_orders in tasks.values():
        for text, order in zip(some, its_orders, strict=True):
            smallest[text] = min(order, smallest.get(text, order))
    expected = {
        name: {row for row, text in enumerate(some) if its_orders[row] != smallest[text]}
        for name, (some, its_orders) in tasks.items()
    }
    assert dropped == {name: rows for name, rows in expected.items() if rows}


def chosen(records, distance, first_band):
    """The pairs by the definition: `records` are (key, hash), in order."""
    pairs = set()
    for key in {key for key, _ in records}:
        rows = [row for row, (own, _) in enumerate(records) if own == key]
        count = len(rows)
        few = count <= module._EACH
        first = (
            count if few else min(max(module._MOST_PAIRS // count, module._FEWEST), module._EACH)
        )
        most = min(max(module._ALL_CHOSEN // count, 1), module._CHOSEN)
        for place, second in enumerate(rows):
            found = [
                row
                for row in rows[: min(place, first)]
                if (records[row][1] ^ records[second][1]).bit_count() <= distance
                and (first_band or records[row][1] != records[second][1])
            ]
            pairs |= {(row, second) for row in found[:most]}
    return pairs


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=40),
    st.integers(0, 4),
    st.booleans(),
    st.integers(1, 3),
    st.randoms(use_true_random=False),
)
@settings(max_examples=50)
def test_of_many_records_with_one_key_each_is_paired_with_the_first_ones(
    records, distance, first_band, blocks, drawn
):
    of = [drawn.randrange(blocks) for _ in records]
    rows = np.zeros(len(records), ROW)
    rows["key"], rows["digest"] = np.array(records, np.int64).reshape(-1, 2).T
    rows["order"] = np.arange(len(records)) * 3
    in_block = [[row for row in range(len(records)) if of[row] == block] for block in range(blocks)]
    given_ = []
    for block, own in enumerate(in_block):
        of_block = rows[own]
        of_block["row"] = np.arange(len(own))
        given_.append(Keys(bytes([block]) * 16, "", False, of_block.tobytes()))
    drawn.shuffle(given_)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("_EACH", 6), ("_MOST_PAIRS", 60), ("_FEWEST", 4)):
            patch.setattr(module, name, value)
        patch.setattr(module, "_CHOSEN", 3)
        patch.setattr(module, "_ALL_CHOSEN", 22)
        found = list(listed(candidates(given_, first_band, alike(distance), True), None))
        expected = chosen(records, distance, first_band)
    pairs = {(in_block[a[0]][i], in_block[b[0]][j]) for i, j, a, b in found}
    assert len(found) == len(pairs)
    assert pairs == expected


def sketches(texts):
    return Likeness("text", 0.8).sketch(texts)


@given(st.integers(1, 7), st.randoms(use_true_random=False))
@settings(max_examples=2, deadline=None)
def test_pairs_do_not_depend_on_blocks_nor_on_the_order_of_elements(blocks, drawn):
    texts = [f"{n % 6} some words of a text that is number {n % 6 * 37} of all" for n in range(18)]
    texts += ["".join(drawn.choices("abcdef", k=40)) for _ in range(6)]
    likeness = Likeness("text", 0.8)
    made, rows = [], np.arange(len(texts))
    for block in range(blocks):
        some = rows[rows % blocks == block]
        sketched = sketches([texts[row] for row in some])
        made += sketch_blocks(f"task {block}", some, some.astype(np.uint64), sketched)
    by_name = {block.name: block.probes for block in made}
    partitions: dict = {}
    for block in made:
        for partition, keys in block.partitions():
            partitions.setdefault(partition, []).append(keys)
    asked: dict = {}
    for partition, some in partitions.items():
        drawn.shuffle(some)
        for name, pairs in candidates(some, partition < PARTS, likeness, True):
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
        dropped |= set(probes.numbers[found.second].tolist())
    every = sketches(texts).probes
    expected = {
        j
        for j in range(len(texts))
        if any(likeness.near(every[i : i + 1], every[j : j + 1])[0] for i in range(j))
    }
    assert dropped == expected


class Closeness:
    """Likeness of probes of one byte: near if they differ by one at most."""

    @staticmethod
    def near(one, other):
        assert len(one) <= 3
        return np.abs(one[:, 0].astype(int) - other[:, 0]) <= 1


def probes_of(owner, count, rng, kept_out=False):
    numbers = rng.permutation(1000)[:count].astype("<i8")
    return Probes(owner, kept_out, numbers, rng.integers(0, 6, (count, 1)).astype(np.uint8))


@pytest.mark.parametrize("seed", range(2))
def test_pairs_are_compared_once_where_their_second_is(seed, monkeypatch):
    monkeypatch.setattr(comparing, "PIECE_BYTES", 60)
    monkeypatch.setattr(comparing, "_AT_ONCE", 3)
    rng = np.random.default_rng(seed)
    blocks = {
        bytes([number]) * 16: probes_of(owner, 9, rng, kept_out)
        for number, (owner, kept_out) in enumerate([("x", False), ("x", False), ("y", True)])
    }
    wanted = {
        (first, int(i), second, int(j))
        for first in blocks
        for second in blocks
        for i, j in rng.integers(0, 9, (12, 2))
    }
    # Several partitions find the same pair.
    repeated = sorted(wanted) * 2
    rng.shuffle(repeated)
    arrived = {name: [] for name in blocks}
    for name, probes in blocks.items():
        own = [pair for pair in repeated if pair[0] == name]
        partitions = [
            np.array([(int(i), int(j), second) for _, i, second, j in part], PAIR).tobytes()
            for part in (own[:7], own[7:9], own[9:])
        ]
        for second, records in sent(probes, partitions):
            rows, kept_out, _ = unpack(records)
            assert set(kept_out.tolist()) == {probes.kept_out}
            assert 1 <= len(rows) <= 60 // 6
            arrived[second].append(records)
    for name, probes in blocks.items():
        rng.shuffle(arrived[name])
        found = near_pairs(probes, arrived[name], Closeness)
        again = near_pairs(probes, arrived[name][::-1], Closeness)
        rows = list(zip(*(column.tolist() for column in found), strict=True))
        assert sorted(rows) == sorted(zip(*(column.tolist() for column in again), strict=True))
        assert found.second.tolist() == sorted(found.second.tolist())
        expected = []
        for first, i, second, j in wanted:
            other = blocks[first]
            if (
                second == name
                and abs(int(other.rows[int(i), 0]) - int(probes.rows[int(j), 0])) <= 1
            ):
                expected.append((int(j), other.kept_out))
        assert sorted(rows) == sorted(expected)
    nothing = near_pairs(probes, [], Closeness)
    assert [len(column) for column in nothing] == [0] * 2


def test_a_block_of_sketches_is_handed_over_once():
    rng = np.random.default_rng(0)
    probes = probes_of("a.txt#0", 3, rng)
    for wanted in (True, False):
        assert only_one(b"n", [probes], wanted) is probes
    assert only_one(b"n", [], False) is None
    with pytest.raises(DataError, match=r"lost or repeated a block of sketches \(6e\)"):
        only_one(b"n", [], True)
    for wanted in (True, False):
        with pytest.raises(UsageError, match=r"duplicate key of a record in a\.txt or soon after"):
            only_one(b"n", [probes] * 2, wanted)


def test_a_tally_that_does_not_agree_is_an_error():
    summary = Summary.empty(1)
    summary.texts = 5
    check_near(summary, [NearTally(records=5)])
    check_near(summary, [])
    for wrong in (
        {"records": 4},
        {"records": 5, "dropped": 1},
        {"records": 5, "sent": Counter({"keys of sketches": 2})},
    ):
        with pytest.raises(DataError, match=r"lost or repeated .*; no dataset was written"):
            check_near(summary, [NearTally(**wrong)])
    summary.splits[0].duplicates = 3
    check_near(summary, [NearTally(records=5, dropped=1), NearTally(records=4, dropped=2)])
    with pytest.raises(DataError, match="records to compare: 5 of 4 arrived"):
        check_near(summary, [NearTally(records=5, dropped=1), NearTally(records=5, dropped=2)])


def random_block(count, bands, owner="a", kept_out=False):
    """Sketches of random records, of which some have no key in a band, and their blocks."""
    rng = np.random.default_rng(count)
    every = Sketches(
        rng.integers(0, 2**32, (count, bands), np.uint32),
        rng.random((count, bands)) < 0.8,
        rng.integers(0, 2**64, count, np.uint64),
        rng.integers(0, 256, (count, 5), np.uint8),
    )
    orders, numbers = rng.integers(0, 2**64, count, np.uint64), np.arange(count) + 7
    return every, orders, list(sketch_blocks(owner, numbers, orders, every, kept_out))


def test_each_key_of_each_record_is_in_the_partition_of_its_band():
    count, bands = 300, 3
    every, orders, (block,) = random_block(count, bands)
    expected = sorted(
        (band * 32 + int(every.keys[row, band]) % 32, int(every.keys[row, band]))
        + (int(every.digests[row]), int(orders[row]), row)
        for band in range(bands)
        for row in range(count)
        if every.known[row, band]
    )
    parts = list(block.partitions())
    assert len({part for part, _ in parts}) == len(parts) == bands * 32
    assert sorted(
        (p, *row) for p, keys in parts for row in np.frombuffer(keys.rows, ROW).tolist()
    ) == (expected)
    probes = block.probes
    assert {(keys.block, keys.owner, keys.kept_out) for _, keys in parts} == {
        (block.name, "a", False)
    }
    for same in (probes, pickle.loads(pickle.dumps(probes))):
        assert (same.owner, same.kept_out) == ("a", False)
        assert same.numbers.tolist() == list(range(7, count + 7))
        assert same.rows.tolist() == every.probes.tolist()


def test_blocks_stay_below_the_limit_of_elements():
    count = 5000
    probes = np.zeros((count, 257), np.uint8)
    keys = np.zeros((count, 2), np.uint32)
    every = Sketches(keys, np.ones((count, 2), bool), np.zeros(count, np.uint64), probes)
    numbers, orders = np.arange(count), np.arange(count, dtype=np.uint64)
    blocks = list(sketch_blocks("a", numbers, orders, every))
    assert len({block.name for block in blocks}) == len(blocks) == -(-count * 265 // (1 << 19))
    assert sum(len(block.probes.numbers) for block in blocks) == count
    assert not any(block.probes.kept_out for block in blocks)
    for block in blocks:
        elements = [pickle.dumps(block.probes), *(keys.rows for _, keys in block.partitions())]
        assert max(map(len, elements)) <= (1 << 19) + 500  # Their names.
