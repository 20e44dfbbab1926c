import tempfile

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing import test_pipeline
from apache_beam.testing.util import assert_that
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.assign import BIN_BITS, Placement, Plan, Splits, bin_counts, shard_sizes
from beam_jobs.blocks import Block, BlockBuilder
from beam_jobs.errors import DataError
from beam_jobs.output import Output
from beam_jobs.plan import (
    PlanShards,
    SplitDraft,
    draft_split,
    finish_plan,
    pick_boundaries,
    wanted_hashes,
)
from beam_jobs.rejects import Reject
from beam_jobs.summary import Summary
from readers.format.schema import Feature, Schema

SCHEMA = Schema({"key": Feature("string")})


def blocks_of(places: list[tuple[int, int]], per_block: int) -> list[bytes]:
    builder = BlockBuilder(max_records=per_block)
    packed = [builder.add(hash_, split, b"") for hash_, split in places]
    return [block for block in [*packed, builder.flush()] if block]


def plan_without_beam(places: list[tuple[int, int]], drafts, per_block: int = 7) -> Plan:
    grouped: dict[int, list[bytes]] = {}
    for packed in blocks_of(places, per_block):
        for key, hashes in wanted_hashes(Block.unpack(packed), drafts):
            grouped.setdefault(key, []).append(hashes)
    found = [pick_boundaries(key, hashes, drafts) for key, hashes in grouped.items()]
    return finish_plan(drafts, found[::-1])


def drafts_of(places: list[tuple[int, int]], shards: tuple[int, ...]) -> tuple[SplitDraft, ...]:
    return tuple(
        draft_split(
            bin_counts(np.array([h for h, s in places if s == split], np.uint64)), 0, 1.0, n, 1
        )
        for split, n in enumerate(shards)
    )


def check_plan(plan: Plan, places: list[tuple[int, int]]) -> None:
    """Every shard is a range of the sorted hashes, and holds what `shard_sizes` says."""
    for number, split in enumerate(plan.splits):
        hashes = np.sort(np.array([h for h, s in places if s == number], np.uint64))
        assert split.records == len(hashes)
        if not len(hashes):
            assert split.shards == 0
            continue
        shards = split.shard_of(hashes)
        assert (np.diff(shards) >= 0).all()
        sizes = np.bincount(shards, minlength=split.shards).tolist()
        assert sizes == shard_sizes(len(hashes), split.shards)


def random_places(count: int, splits: int, seed: int = 0) -> list[tuple[int, int]]:
    rng = np.random.default_rng(seed)
    hashes = rng.integers(0, 2**64, count, np.uint64).tolist()
    return list(zip(hashes, rng.integers(0, splits, count).tolist(), strict=True))


@given(
    st.dictionaries(
        st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 99)), st.integers(0, 2), max_size=60
    ),
    st.tuples(*[st.integers(1, 20)] * 3),
    st.integers(1, 9),
)
@settings(max_examples=100, deadline=None)
def test_draft_pick_and_finish_balance_every_split_exactly(placed, num_shards, per_block):
    places = list(placed.items())
    plan = plan_without_beam(places, drafts_of(places, num_shards), per_block)
    check_plan(plan, places)
    for number, split in enumerate(plan.splits):
        assert split.shards == min(num_shards[number], split.records)


def test_a_draft_knows_the_bins_of_its_boundaries_and_nothing_else():
    counts = np.zeros(1 << BIN_BITS, np.int64)
    counts[[5, 9]] = 3, 1
    assert draft_split(counts, 2, 1.0, 2, 1) == SplitDraft(4, 2, 2, {5: [2]}, {5: 3})
    assert draft_split(counts, 2, 1.0, 1, 1) == SplitDraft(4, 2, 1, {}, {})
    assert draft_split(counts * 0, 2, 1.0, 9, 1) == SplitDraft(0, 2, 0, {}, {})
    assert draft_split(counts, 0, 50.0, 0, 100).shards == 2


def test_hashes_lost_on_the_way_are_noticed():
    places = random_places(50, 1)
    drafts = drafts_of(places, (5,))
    selected = list(wanted_hashes(Block.unpack(blocks_of(places, 99)[0]), drafts))
    key, hashes = selected[0]
    for wrong in ([], [hashes[8:]], [hashes, hashes]):
        with pytest.raises(DataError, match=r"the runner handed over \d of 1 keys"):
            pick_boundaries(key, wrong, drafts)


def test_boundaries_lost_or_doubled_on_the_way_are_noticed():
    places = random_places(50, 2)
    drafts = drafts_of(places, (4, 1))
    found = [
        pick_boundaries(key, [hashes], drafts)
        for key, hashes in wanted_hashes(Block.unpack(blocks_of(places, 99)[0]), drafts)
    ]
    assert len(found) == 3
    check_plan(finish_plan(drafts, found), places)
    with pytest.raises(DataError, match="the runner handed over 2 of 3 shard boundaries"):
        finish_plan(drafts, found[1:])
    with pytest.raises(DataError, match="handed over 4 of 3 shard boundaries"):
        finish_plan(drafts, [*found, found[0]])
    with pytest.raises(DataError, match="handed over 1 of 0 shard boundaries"):
        finish_plan(drafts, [*found, (1, found[0][1])])


def run_plan(
    places: list[tuple[int, int]],
    num_shards: tuple[int, ...],
    rejected: tuple[int, ...] = (),
    shard_size: int = 1 << 20,
    record_bytes: int = 0,
    per_block: int = 10,
    measure=None,
) -> Plan:
    """The plan that the transform makes in a small pipeline."""
    splits = Splits(tuple(f"s{i}" for i in range(len(num_shards))), (0.5,) * len(num_shards))
    summaries = [Summary.empty(len(num_shards))]
    blocks = blocks_of(places, per_block)
    for packed in blocks:
        block = Block.unpack(packed)
        summary = Summary.empty(len(num_shards))
        summary.add_block(block)
        summary.add_sample((int(h), f"{h}") for h in block.hashes)
        for split in block.splits.tolist():
            summary.splits[split].bytes += record_bytes
        summaries.append(summary)
    for split, count in enumerate(rejected):
        for number in range(count):
            summaries[0].add_reject(split, Reject(f"r{number}", "read", "broken"))
    plans: list[bytes] = []

    with tempfile.TemporaryDirectory() as directory:
        output = Output(directory, SCHEMA, Placement(0, splits), num_shards, shard_size)
        file = f"{directory}/plan-00000-of-00001.tfrecord"

        def keep(found: list[bytes]) -> None:
            assert len(found) == 1
            with open(file, "wb") as stream:  # noqa: PTH123
                stream.write(found[0])

        options = PipelineOptions(["--allow_unsafe_triggers"])
        with test_pipeline.TestPipeline(options=options) as pipeline:
            planned = (
                pipeline | "Summaries" >> beam.Create(summaries, reshuffle=False),
                pipeline | "Blocks" >> beam.Create(blocks, reshuffle=False),
            ) | PlanShards(output, measure)
            assert_that(planned.plan, keep)
        with open(file, "rb") as stream:  # noqa: PTH123
            plans.append(stream.read())
    return Plan.unpack(plans[0])


@pytest.mark.parametrize(
    ("count", "num_shards"), [(1, (1,)), (1, (8,)), (3, (8,)), (257, (8,)), (500, (3, 40))]
)
def test_the_transform_plans_exact_shards(count, num_shards):
    places = random_places(count, len(num_shards))
    plan = run_plan(places, num_shards)
    check_plan(plan, places)
    for number, split in enumerate(plan.splits):
        assert split.shards == min(num_shards[number], split.records)


def test_a_split_of_nothing_but_rejects_gets_no_shard():
    places = [(hash_, 0) for hash_, _ in random_places(20, 1)]
    plan = run_plan(places, (4, 4), rejected=(1, 3))
    check_plan(plan, places)
    assert [(s.records, s.rejected, s.shards) for s in plan.splits] == [(20, 1, 4), (0, 3, 0)]


def test_no_records_at_all_give_no_shard():
    plan = run_plan([], (4,), rejected=(2,))
    assert [(s.records, s.rejected, s.shards) for s in plan.splits] == [(0, 2, 0)]


def test_the_number_of_shards_follows_from_the_bytes_of_the_records():
    places = random_places(100, 1)
    plan = run_plan(places, (0,), shard_size=2000, record_bytes=100)
    assert plan.splits[0].shards == 5
    check_plan(plan, places)


def hundred_bytes(keys: list[str]) -> float:
    assert 1 <= len(keys) <= 16
    return 100.0


def unmeasurable(keys: list[str]) -> None:
    return None


def test_the_number_of_shards_follows_from_a_sample_where_bytes_are_not_known():
    places = random_places(100, 1)
    assert run_plan(places, (0,), shard_size=1000, measure=hundred_bytes).splits[0].shards == 10
    assert run_plan(places, (0,), shard_size=1000, measure=unmeasurable).splits[0].shards == 1


def test_the_plan_does_not_depend_on_how_records_came_in_blocks():
    places = random_places(120, 2)
    plans = [run_plan(places, (5, 3), per_block=n).pack() for n in (1, 50)]
    plans.append(run_plan(places[::-1], (5, 3), per_block=7).pack())
    assert plans[0] == plans[1] == plans[2]
