"""Shuffles the locators of encoded records in runs to the writers of their shards.

A shard reads a range of each run. If that would take too many requests, runs are merged first: each task
of the merge reads the ranges of a group of neighbouring shards, and writes runs of only that group.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import TaggedOutput

from beam_jobs.dataset.encoded_records import merge_neighbours, neighbours_in, write_spooled
from beam_jobs.dataset.output import Output
from beam_jobs.dataset.resume import ShardResult
from beam_jobs.jobs.passes import Learned
from beam_jobs.pipeline.planning.shards import Side
from beam_jobs.pipeline.steps import AsWhole, WindowStep, at_end_of_bundle, count_shard
from beam_jobs.plan.shards import Plan, shards_of
from beam_jobs.records.runs import RunIndex, locate
from beam_jobs.records.spool import LocatorsByShard, Spool

_GROUPS = "groups"


class _Locate(beam.DoFn):
    """Packed index of a run -> (split and shard, locators), or the same by group of shards."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool

    def start_bundle(self) -> None:
        self._shards, self._groups = LocatorsByShard(), LocatorsByShard()

    def process(self, packed: bytes, plan: bytes) -> Iterator[Any]:
        known = Plan.unpack(plan)
        neighbours = neighbours_in(known, self._spool)
        assign = functools.partial(shards_of, known, neighbours=neighbours)
        located = locate(RunIndex.unpack(packed), assign)
        if neighbours == 1:
            yield from self._shards.add(located)
        else:
            yield from _in_groups(self._groups.add(located))

    def finish_bundle(self) -> Iterator[Any]:
        yield from map(at_end_of_bundle, self._shards.release())
        yield from map(at_end_of_bundle, _in_groups(self._groups.release()))


def _in_groups(located: Iterable[tuple[int, bytes]]) -> Iterator[TaggedOutput]:
    return (TaggedOutput(_GROUPS, found) for found in located)


class _Write(WindowStep[ShardResult]):
    """(split and shard, locators of its records) -> its result."""

    def __init__(self, output: Output, processes: int, spool: Spool) -> None:
        super().__init__(processes)
        self._output, self._spool = output, spool

    def process(
        self, element: tuple[int, Iterable[bytes]], plan: bytes, learned: Learned
    ) -> Iterator[ShardResult]:
        key, locators = element
        shard = self._output, plan, key, learned.schema
        yield from self.submit(write_spooled, *shard, self._spool, list(locators))

    def outputs(self, result: ShardResult) -> Iterator[ShardResult]:
        count_shard(result)
        yield result


class WriteRuns(beam.PTransform):
    """(packed indexes of runs, packed plan) -> the `ShardResult` of each shard."""

    def __init__(
        self, output: Output, processes: int, spool: Spool, learned: Side[Learned]
    ) -> None:
        super().__init__()
        self._output, self._processes, self._spool = output, processes, spool
        self._learned = learned

    def expand(self, inputs: tuple[beam.PCollection, beam.PCollection]) -> beam.PCollection:
        runs, packed_plan = inputs
        plan = AsWhole(packed_plan)
        located = runs | "Locate" >> beam.ParDo(_Locate(self._spool), plan).with_outputs(
            _GROUPS, main="shards"
        )
        merged = (
            located[_GROUPS]
            | "GroupNeighbours" >> beam.GroupByKey()
            | "Merge" >> beam.FlatMap(merge_neighbours, plan, self._spool)
        )
        return (
            (located["shards"], merged)
            | beam.Flatten()
            | "GroupByShard" >> beam.GroupByKey()
            | "Write"
            >> beam.ParDo(_Write(self._output, self._processes, self._spool), plan, self._learned)
        )
