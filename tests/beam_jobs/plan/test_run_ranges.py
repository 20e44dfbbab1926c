"""The ranges of a run that each shard reads, compared with the definition: block by block, shard by shard."""

from bisect import bisect_right
from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from beam_jobs.plan.shards import Plan, SplitPlan, neighbours_of, shards_of
from beam_jobs.records import runs
from beam_jobs.records.runs import RunIndex, locate
from beam_jobs.records.spool import LOCATOR

# The least hash of each shard but the first of a split.
edges = st.lists(st.integers(1, 99), max_size=6, unique=True).map(sorted)


def plan_of(splits: list[list[int]]) -> Plan:
    return Plan(
        tuple(SplitPlan(100, 0, 10, len(row) + 1, np.array(row, np.uint64)) for row in splits)
    )


@st.composite
def drawn_runs(draw) -> tuple[list[list[int]], list[tuple[int, int, int, int]]]:
    """The edges of each split, and blocks (split, least hash, greatest hash, bytes) in order."""
    splits = draw(st.lists(edges, min_size=1, max_size=3))
    blocks = []
    for split in range(len(splits)):
        ends = draw(st.lists(st.integers(0, 120), max_size=20, unique=True).map(sorted))
        for first, last in zip(ends[::2], ends[1::2], strict=False):
            blocks.append((split, first, last, draw(st.integers(1, 60))))
    assume(blocks)
    return splits, blocks


def index_of(blocks: list[tuple[int, int, int, int]], at: int) -> RunIndex:
    splits, first, last, sizes = np.array(blocks, np.int64).reshape(-1, 4).T
    stops = at + np.cumsum(sizes)
    columns = (splits.astype(np.uint8), first.astype(np.uint64), last.astype(np.uint64))
    return RunIndex(bytes(range(240, 256)), *columns, stops - sizes, stops)


@given(drawn_runs(), st.integers(0, 500), st.integers(1, 4))
@settings(max_examples=40)
def test_each_shard_gets_the_blocks_that_may_hold_its_records(run, at, neighbours):
    splits, blocks = run
    index = index_of(blocks, at)
    wanted: dict[int, list[tuple[int, int]]] = {}
    for (split, first, last, _), start, stop in zip(
        blocks, index.starts.tolist(), index.stops.tolist(), strict=True
    ):
        shards = range(bisect_right(splits[split], first), bisect_right(splits[split], last) + 1)
        for group in sorted({shard // neighbours for shard in shards}):
            wanted.setdefault(split << 17 | group, []).append((start, stop))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "LOCATED_BYTES", 100)
        assign = partial(shards_of, plan_of(splits), neighbours=neighbours)
        located = list(locate(index, assign))
    found = {key: np.frombuffer(packed, LOCATOR).tolist() for key, packed in located}
    assert len(found) == len(located)
    assert found.keys() == wanted.keys()
    for key, ranges in wanted.items():
        locators = found[key]
        assert {name for name, _, _ in locators} == {index.name}
        # Consecutive, from the first byte to the last.
        begins = [start for _, start, _ in locators]
        ends = [start + size for _, start, size in locators]
        assert [begins[0], *ends] == [*begins, ranges[-1][1]]
        assert begins[0] == ranges[0][0]
        for begin, end in zip(begins, ends, strict=True):
            inside = [(start, stop) for start, stop in ranges if begin <= start < end]
            assert (inside[0][0], inside[-1][1]) == (begin, end)
            assert inside[-1][0] - begin < 100
        assert len(locators) <= 1 + (ranges[-1][0] - ranges[0][0]) // 100


def test_groups_of_neighbours_begin_anew_in_each_split():
    plan = plan_of([list(range(1, 7)), [], [], list(range(1, 7))])
    splits, hashes = (
        np.repeat(np.array([0, 3], np.uint8), 7),
        np.tile(np.arange(7, dtype=np.uint64), 2),
    )
    expected = [split << 17 | shard for split in (0, 3) for shard in (0, 0, 0, 1, 1, 1, 2)]
    assert shards_of(plan, splits, hashes, 3).tolist() == expected


def test_the_shard_of_a_record_is_numbered_with_its_split():
    plan = plan_of([[5, 9], [], [7]])
    splits, hashes = np.array([2, 0, 1, 0, 2, 0], np.uint8), np.array([7, 4, 9, 9, 6, 5], np.uint64)
    expected = [2 << 17 | 1, 0, 1 << 17, 2, 2 << 17, 1]
    assert shards_of(plan, splits, hashes).tolist() == expected


def many(*splits: tuple[int, int, int]) -> Plan:
    """A plan of splits (records, bytes of a record, shards)."""
    none = np.empty(0, np.uint64)
    return Plan(tuple(SplitPlan(n, 0, size, shards, none) for n, size, shards in splits))


@pytest.mark.parametrize(
    ("splits", "neighbours"),
    [
        # Each shard reads a range of each run of 64 MiB; four million ranges are read as they are.
        ([(4_000_000, 64 << 20, 1)], 1),
        ([(2_000_000, 64 << 20, 2)], 1),
        ([(2_000_001, 64 << 20, 2)], 2),
        ([(1_000_000, 64 << 20, 1), (1_000_000, 64 << 20, 1)], 1),
        ([(1_000_000, 64 << 20, 4), (1_000_000, 64 << 20, 5)], 3),
        ([(4_000_000, 64 << 20, 16)], 4),
        ([(4_000_000, 64 << 20, 17)], 5),
    ],
)
def test_runs_are_merged_in_groups_of_the_root_of_the_shards_if_there_are_too_many_ranges(
    splits, neighbours
):
    assert neighbours_of(many(*splits)) == neighbours
