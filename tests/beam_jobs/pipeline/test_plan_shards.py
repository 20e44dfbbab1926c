import pickle
import re
import tempfile
from pathlib import Path

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing import test_pipeline
from apache_beam.testing.util import assert_that

from beam_jobs.columns import Ragged
from beam_jobs.dataset.generations import prepare
from beam_jobs.dataset.output import Output
from beam_jobs.errors import DataError, find_job_error
from beam_jobs.pipeline.planning.shards import PlanShards, _draft
from beam_jobs.plan.placement import Placement, Splits
from beam_jobs.plan.shards import Plan, shard_sizes
from beam_jobs.plan.summary import SAMPLE, SampledRecord, Summary
from beam_jobs.records.blocks import Block
from beam_jobs.records.pieces import Piece, joined
from beam_jobs.records.rejects import Reject
from readers.format.schema import Feature, Schema

SCHEMA = Schema({"key": Feature("string")})
REJECT = Reject("a", "decode", "broken")


def blocks_of(places: list[tuple[int, int]], per_block: int) -> list[bytes]:
    hashes = np.array([hash_ for hash_, _ in places], np.uint64)
    splits = np.array([split for _, split in places], np.uint8)
    whole = Block(hashes, splits, Ragged(np.zeros(len(places), np.uint32), b""))
    return [block.pack() for block in whole.parts(per_block)]


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
        output = Output(directory, SCHEMA, Placement(0, splits), num_shards, shard_size, run="run")
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
                cut = [1] * len(listed)
                inputs.append(pipeline | "Cut" >> beam.Create(cut, reshuffle=False))
            planned = tuple(inputs) | PlanShards(output, measure, len(listed or ()))
            assert_that(planned.plan.pvalue, keep)
        return Plan.unpack(file.read_bytes())


@pytest.mark.parametrize(("count", "num_shards"), [(3, (8,)), (500, (3, 40))])
def test_the_transform_plans_exactly_balanced_shards(count, num_shards):
    places = random_places(count, len(num_shards))
    plan = run_plan(places, num_shards)
    check_plan(plan, places)
    for number, split in enumerate(plan.splits):
        assert split.shards == min(num_shards[number], split.records)


def test_the_folder_is_named_by_the_records_however_they_come():
    places = random_places(9, 2)
    folder = run_plan(places, (2, 2)).folder
    assert run_plan(places[::-1], (2, 2), per_block=4).folder == folder
    assert re.fullmatch("[0-9a-f]{8}", folder)


def test_the_number_of_shards_follows_from_the_bytes_of_the_records():
    places = random_places(100, 1)
    plan = run_plan(places, (0,), shard_size=2000, record_bytes=100)
    assert plan.splits[0].shards == 5
    check_plan(plan, places)


def forty_bytes(references: list[bytes]) -> list[int | Reject]:
    assert 1 <= len(references) <= SAMPLE
    return [40] * len(references)


def unmeasurable(references: list[bytes]) -> list[int | Reject]:
    return [REJECT] * len(references)


@pytest.mark.parametrize(("measure", "expected"), [(forty_bytes, 40), (unmeasurable, 100)])
def test_the_number_of_shards_follows_from_a_sample_if_sizes_are_unknown(measure, expected):
    # The mean size of a file is 100 bytes.
    split = run_plan(
        random_places(100, 1), (0,), shard_size=1000, record_bytes=100, measure=measure
    ).splits[0]
    assert split.record_bytes == expected
    assert split.shards == expected // 10


def test_as_many_inputs_must_be_planned_as_were_listed():
    places = random_places(50, 2)
    check_plan(run_plan(places, (3, 3), listed=(49, 0, 1)), places)


@pytest.mark.parametrize("listed", [(51,), (50, 50)])
def test_inputs_lost_or_repeated_before_the_planning_are_noticed(listed):
    with pytest.raises(Exception) as caught:
        run_plan(random_places(50, 2), (3, 3), listed=listed)
    error = find_job_error(caught.value)
    assert isinstance(error, DataError)
    assert f"inputs that were listed: 50 of {sum(listed)} arrived" in error.message


def test_lost_inputs_are_noticed_before_the_output_is_touched(tmp_path):
    output = Output(str(tmp_path / "out"), SCHEMA, Placement(0, Splits()), (2,), run="run")
    summary = Summary.empty(1)
    summary.inputs = 3
    summary.add_block(Block(np.arange(3, dtype=np.uint64), np.zeros(3, np.uint8), [b""] * 3))
    with pytest.raises(DataError, match="inputs that were listed: 3 of 4 arrived"):
        _draft(output, None, prepare, 2, summary, [2, 2], [1, 1])
    for listed, cut, what in (
        ([1, 1, 1], [2], "patterns to list: 1 of 2"),
        ([1, 1, 1], [2, 2], "parts of patterns: 3 of 4"),
        ([3], [1, 1, 1], "patterns to list: 3 of 2"),
    ):
        with pytest.raises(DataError, match=f"lost or repeated {what} arrived"):
            _draft(output, None, prepare, 2, summary, listed, cut)
    assert not (tmp_path / "out").exists()
    folder = tmp_path / "out" / output.folder(summary)
    for prepares in (None, prepare):
        draft, measured = _draft(output, None, prepares, 2, summary, [2, 1], [1, 1])
        again, _ = _draft(output, None, None, 2, summary, [2, 0, 1], [1, 2])
        assert [split.shards for split in again.splits] == [2]
        assert measured == []
        assert [split.shards for split in draft.splits] == [2]
        assert folder.is_dir() == bool(prepares)
