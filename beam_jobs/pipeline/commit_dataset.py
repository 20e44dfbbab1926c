"""The end of every pipeline: moves the last records, then commits the dataset."""

from __future__ import annotations

from collections.abc import Iterator

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsList

from beam_jobs.dataset.output import Output
from beam_jobs.dataset.resume import ShardResult
from beam_jobs.dataset.shard_writer import unwritable
from beam_jobs.dataset.topup import Change, apply_change, plan_changes
from beam_jobs.jobs.passes import Learned
from beam_jobs.pipeline.planning.shards import PlannedShards, Side
from beam_jobs.pipeline.steps import AsMerged, once
from beam_jobs.records.statistics import SplitStatistics
from beam_jobs.writing.commit import commit_dataset


class CommitDataset(beam.PTransform):
    """(a `ShardResult` of every shard, (split, `Statistics`)) -> PCollection of one Manifest."""

    def __init__(self, output: Output, shards: PlannedShards, learned: Side[Learned]) -> None:
        super().__init__()
        self._output, self._shards, self._learned = output, shards, learned

    def expand(self, inputs: tuple[beam.PCollection, beam.PCollection]) -> beam.PCollection:
        results, statistics = inputs
        by_split = statistics | "BySplit" >> beam.MapTuple(SplitStatistics.of)
        return once(
            results.pipeline,
            "Commit",
            commit_dataset,
            self._output,
            self._learned,
            self._shards.summary,
            self._shards.plan,
            AsMerged(by_split, "MergeStatistics", SplitStatistics),
            AsList(results),
            AsList(top_up(results, self._output)),
        )


def _changes(_: None, results: list[ShardResult]) -> Iterator[Change]:
    for change in plan_changes(results):
        moved = sum(move.records for move in change.intake)
        Metrics.counter("shards", "records_moved").inc(moved)
        yield change


def _apply(change: Change, output: Output) -> ShardResult:
    with unwritable(output.directory, change.shard.path):
        return apply_change(output, change)


def top_up(results: beam.PCollection, output: Output) -> beam.PCollection:
    """Moves records from full shards to those that are short; returns the new results of shards that changed."""
    return (
        results.pipeline
        | "AllWritten" >> beam.Create([None])
        | "PlanMoves" >> beam.FlatMap(_changes, AsList(results))
        | "SpreadChanges" >> beam.Reshuffle()
        | "Move" >> beam.Map(_apply, output)
    )
