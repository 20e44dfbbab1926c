"""Shuffles the locators of encoded records in runs to the writers of their shards.

A shard reads a range of each run. If that would take too many requests, runs are merged first: each task
of the merge reads the ranges of a group of neighbouring shards, and writes runs of only that group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import apache_beam as beam

from beam_jobs.dataset.encoded_records import merge_neighbours, neighbours_in, write_spooled
from beam_jobs.dataset.output import Output
from beam_jobs.dataset.resume import ShardResult
from beam_jobs.jobs.passes import Learned
from beam_jobs.pipeline.planning.shards import Side
from beam_jobs.pipeline.steps import AsWhole, PoolStep, at_end_of_bundle, counted, with_list
from beam_jobs.plan.shards import Plan, shards_of
from beam_jobs.records.runs import RunIndex, locate
from beam_jobs.records.spool import LocatorsByShard, Spool


class _Locate(beam.DoFn):
    """Packed index of a run -> (split and group of neighbouring shards, locators)."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool

    def start_bundle(self) -> None:
        self._locators = LocatorsByShard()

    def process(self, packed: bytes, plan: bytes) -> Iterator[tuple[int, bytes]]:
        known = Plan.unpack(plan)
        assign = partial(shards_of, known, neighbours=neighbours_in(known, self._spool))
        yield from self._locators.add(locate(RunIndex.unpack(packed), assign))

    def finish_bundle(self) -> Iterator[Any]:
        yield from map(at_end_of_bundle, self._locators.release())


def _writer(
    output: Output, spool: Spool, plan: bytes, learned: Learned
) -> Callable[[tuple[int, list[bytes]]], ShardResult]:
    """Writes a shard, given split and shard in one number, and the locators of its records."""
    return partial(write_spooled, output, plan, learned.schema, spool)


class WriteRuns(beam.PTransform):
    """Packed indexes of runs -> the `ShardResult` of each shard."""

    def __init__(
        self, output: Output, processes: int, plan: AsWhole, learned: Side[Learned]
    ) -> None:
        super().__init__()
        self._spool, self._sides = Spool(output.staging), (plan, learned)
        self._write = PoolStep[ShardResult](partial(_writer, output, self._spool), processes)

    def expand(self, runs: beam.PCollection) -> beam.PCollection:
        plan, _ = self._sides
        return (
            runs
            | "Locate" >> beam.ParDo(_Locate(self._spool), plan)
            | "GroupNeighbours" >> beam.GroupByKey()
            | "Merge" >> beam.FlatMap(merge_neighbours, plan, self._spool)
            | "GroupByShard" >> beam.GroupByKey()
            | "Listed" >> beam.MapTuple(with_list)
            | "Write" >> beam.ParDo(self._write, *self._sides)
            | "Count" >> beam.Map(counted)
        )
