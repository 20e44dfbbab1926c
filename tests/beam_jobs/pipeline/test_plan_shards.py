import pickle
import tempfile
from pathlib import Path

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing import test_pipeline
from apache_beam.testing.util import assert_that
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.dataset.directory import MARKER, prepare_output
from beam_jobs.dataset.output import Output
from beam_jobs.errors import DataError, find_job_error
from beam_jobs.pipeline.plan_shards import PlanShards, _DraftPlan
from beam_jobs.plan.boundaries import (
    SplitDraft,
    draft_split,
    finish_plan,
    mean_bytes,
    pick_boundaries,
    wanted_hashes,
)
from beam_jobs.plan.placement import Placement
from beam_jobs.plan.shards import Plan, bin_counts, shard_sizes
from beam_jobs.plan.splits import Splits
from beam_jobs.plan.summary import SAMPLE, SampledRecord, Summary
from beam_jobs.records.blocks import Block, BlockBuilder
from beam_jobs.records.pieces import Piece, joined
from beam_jobs.records.rejects import Reject
from readers.format.schema import Feature, Schema

SCHEMA = Schema({"key": Feature("string")})
REJECT = Reject("a", "decode", "broken")


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
    """Every shard is a range of the sorted hashes, with the number of records of `shard_sizes`."""
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
@settings(max_examples=40, deadline=None)
def test_draft_pick_and_finish_balance_every_split_exactly(placed, num_shards, per_block):
    places = list(placed.items())
    plan = plan_without_beam(places, drafts_of(places, num_shards), per_block)
    check_plan(plan, places)
    for number, split in enumerate(plan.splits):
        assert split.shards == min(num_shards[number], split.records)


def run_plan(
    places: list[tuple[int, int]],
    num_shards: tuple[int, ...],
    rejected: tuple[int, ...] = (),
    shard_size: int = 1 << 20,
    record_bytes: int = 0,
    per_block: int = 10,
    measure=None,
    listed: tuple[int, ...] | None = None,
) -> Plan:
    """The plan that the transform makes in a small pipeline."""
    splits = Splits(tuple(f"s{i}" for i in range(len(num_shards))), (0.5,) * len(num_shards))
    summaries = [Summary.empty(len(num_shards))]
    blocks = blocks_of(places, per_block)
    for packed in blocks:
        block = Block.unpack(packed)
        summary = Summary.empty(len(num_shards))
        summary.inputs = len(block.hashes)
        summary.add_block(block)
        summary.add_sample(SampledRecord(int(h), b"%d" % h, int(h) % 50 + 1) for h in block.hashes)
        for split in block.splits.tolist():
            summary.splits[split].bytes += record_bytes
        summaries.append(summary)
    for split, count in enumerate(rejected):
        for number in range(count):
            summaries[0].add_reject(split, Reject(f"r{number}", "read", "broken"))

    with tempfile.TemporaryDirectory() as directory:
        output = Output(directory, SCHEMA, Placement(0, splits), num_shards, shard_size)
        file = Path(directory) / "plan-00000-of-00001.tfrecord"

        def keep(found: list[Piece]) -> None:
            file.write_bytes(pickle.loads(joined(found)))

        options = PipelineOptions(["--allow_unsafe_triggers"])
        with test_pipeline.TestPipeline(options=options) as pipeline:
            inputs = [
                pipeline | "Summaries" >> beam.Create(summaries, reshuffle=False),
                pipeline | "Blocks" >> beam.Create(blocks, reshuffle=False),
            ]
            if listed is not None:
                inputs.append(pipeline | "Listed" >> beam.Create(listed, reshuffle=False))
            planned = tuple(inputs) | PlanShards(output, measure, len(listed or ()))
            assert_that(planned.plan, keep)
        return Plan.unpack(file.read_bytes())


@pytest.mark.parametrize(
    ("count", "num_shards"), [(1, (1,)), (1, (8,)), (3, (8,)), (257, (8,)), (500, (3, 40))]
)
def test_the_transform_plans_exactly_balanced_shards(count, num_shards):
    places = random_places(count, len(num_shards))
    plan = run_plan(places, num_shards)
    check_plan(plan, places)
    for number, split in enumerate(plan.splits):
        assert split.shards == min(num_shards[number], split.records)


def test_a_split_with_only_rejects_has_no_shard():
    places = [(hash_, 0) for hash_, _ in random_places(20, 1)]
    plan = run_plan(places, (4, 4), rejected=(1, 3))
    check_plan(plan, places)
    assert [(s.records, s.rejected, s.shards) for s in plan.splits] == [(20, 1, 4), (0, 3, 0)]


def test_the_number_of_shards_follows_from_the_bytes_of_the_records():
    places = random_places(100, 1)
    plan = run_plan(places, (0,), shard_size=2000, record_bytes=100)
    assert plan.splits[0].shards == 5
    check_plan(plan, places)


def hundred_bytes(references: list[bytes]) -> list[int | Reject]:
    assert 1 <= len(references) <= SAMPLE
    return [100] * len(references)


def twice_the_file(references: list[bytes]) -> list[int | Reject]:
    return [2 * (int(reference) % 50 + 1) + 40 for reference in references]


def unmeasurable(references: list[bytes]) -> list[int | Reject]:
    return [REJECT] * len(references)


@pytest.mark.slow(base=["hundred_bytes-100"])
@pytest.mark.parametrize(
    ("measure", "expected"), [(hundred_bytes, 100), (twice_the_file, 240), (unmeasurable, 100)]
)
def test_the_number_of_shards_follows_from_a_sample_if_sizes_are_unknown(measure, expected):
    # The mean size of a file is 100 bytes.
    split = run_plan(
        random_places(100, 1), (0,), shard_size=1000, record_bytes=100, measure=measure
    ).splits[0]
    assert split.record_bytes == expected
    assert split.shards == expected // 10


@pytest.mark.parametrize("listed", [(50,), (20, 30), (49, 0, 1)])
def test_as_many_inputs_must_be_planned_as_were_listed(listed):
    places = random_places(50, 2)
    check_plan(run_plan(places, (3, 3), listed=listed), places)


@pytest.mark.parametrize("listed", [(51,), (49,), (50, 50), (0,)])
def test_inputs_lost_or_repeated_before_the_planning_are_noticed(listed):
    with pytest.raises(Exception) as caught:
        run_plan(random_places(50, 2), (3, 3), listed=listed)
    error = find_job_error(caught.value)
    assert isinstance(error, DataError)
    assert f"{sum(listed)} inputs were listed, 50 reached the planning" in error.message


def test_lost_inputs_are_noticed_before_the_output_is_touched(tmp_path):
    output = Output(str(tmp_path / "out"), SCHEMA, Placement(0, Splits()), (2,))
    summary = Summary.empty(1)
    summary.inputs = 3
    summary.splits[0].add(np.arange(3, dtype=np.uint64))
    with pytest.raises(DataError, match="4 inputs were listed, 3 reached"):
        next(_DraftPlan(output, None, 2, prepare_output).process(None, summary, [2, 2]))
    for listed, cut in (([1, 1, 1], [2]), ([1, 1, 1], [2, 2]), ([3], [1, 1, 1])):
        with pytest.raises(
            DataError, match=rf"{len(cut)} of 2 patterns were cut; {len(listed)} of"
        ):
            next(_DraftPlan(output, None, 2, prepare_output).process(None, summary, listed, cut))
    assert not (tmp_path / "out").exists()
    for prepare in (None, prepare_output):
        measured, draft = _DraftPlan(output, None, 2, prepare).process(None, summary, [2, 1])
        _, again = _DraftPlan(output, None, 2, None).process(None, summary, [2, 0, 1], [1, 2])
        assert [split.shards for split in again] == [2]
        assert (measured.tag, measured.value) == (_DraftPlan.MEASURED, [])
        assert [split.shards for split in draft] == [2]
        assert (tmp_path / "out" / MARKER).exists() == bool(prepare)


files = st.lists(st.integers(0, 10**6), min_size=1, max_size=SAMPLE)


@given(files, st.integers(0, 20), st.integers(1, 10**6), st.integers(0, 10**6))
def test_the_mean_is_exact_if_records_grow_with_their_files(sizes, slope, offset, mean_file):
    found = mean_bytes(mean_file, sizes, [slope * size + offset for size in sizes])
    if len(set(sizes)) > 1:
        assert found == pytest.approx(slope * mean_file + offset, rel=1e-6)
    else:
        assert found == slope * sizes[0] + offset


sampled = st.lists(
    st.tuples(st.integers(0, 10**9), st.one_of(st.just(REJECT), st.integers(17, 10**9))),
    max_size=SAMPLE,
)


@given(
    sampled.filter(lambda pairs: any(p[1] is not REJECT for p in pairs)),
    st.floats(0, 1e9),
    st.randoms(),
)
def test_the_mean_is_positive_and_the_same_in_any_order(pairs, mean_file, random):
    shuffled = pairs.copy()
    random.shuffle(shuffled)
    found = [
        mean_bytes(mean_file, [p[0] for p in order], [p[1] for p in order])
        for order in (pairs, shuffled)
    ]
    assert found[0] == found[1] > 0


def test_a_negative_estimate_is_replaced_by_the_mean_of_the_sample():
    assert mean_bytes(100.0, [100, 200], [900, 100]) == 900
    assert mean_bytes(1000.0, [100, 200], [900, 100]) == 500
