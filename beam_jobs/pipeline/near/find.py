"""Finds the near duplicates among the records of some tasks, or of some blocks of references.

Keys meet in partitions, the probes of candidates in the block of the second of each pair. Each step reports what
it has handed over and received, and these numbers must agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSideInput, AsSingleton, TaggedOutput

from beam_jobs import progress
from beam_jobs.engines.pool import call_pickled
from beam_jobs.jobs.near import Near, Sketched
from beam_jobs.pipeline.steps import MergeFn, TaskStep, WindowStep
from beam_jobs.plan.near.blocks import PARTS, ROW, Probes
from beam_jobs.plan.near.candidates import PAIR, candidates
from beam_jobs.plan.near.tally import NearTally
from beam_jobs.plan.near.verify import NearPairs, Sent, near_pairs, only_one, sent
from beam_jobs.sources.chunks import Task
from readers.format.similarity.likeness import Likeness

# What progress calls the pass that makes sketches.
SKETCHING = "sketching"

PROBES, TALLY = "probes", "tally"


def _sketch_outputs(result: Sketched, kept_out: bool) -> Iterator[Any]:
    """Yields (partition, (block, whether it is kept out, keys)), and the probes and a tally."""
    tally = NearTally(read=result.chunks)
    if kept_out:
        tally.kept_out = result.records
    else:
        tally.records = result.records
    for block in result.blocks:
        for partition, rows in block.partitions():
            tally.keys_sent += len(rows) // ROW.itemsize
            yield partition, (block.name, kept_out, rows)
        yield TaggedOutput(PROBES, (block.name, block.probes()))
    yield TaggedOutput(TALLY, tally)


class SketchTasks(TaskStep[Sketched]):
    """Task -> the sketches of its records.

    Args:
        sketch: Makes them.
        processes: The number of processes of the pool.
        kept_out: Whether its records are to keep out of others.
    """

    PHASE = SKETCHING

    def __init__(
        self, sketch: Callable[[Task], Sketched], processes: int, kept_out: bool = False
    ) -> None:
        super().__init__(processes)
        self._sketch, self._kept_out = sketch, kept_out

    def work(self) -> Callable[[Task], Sketched]:
        return self._sketch

    def outputs(self, result: Sketched) -> Iterator[Any]:
        yield from _sketch_outputs(result, self._kept_out)


class SketchReferences(WindowStep[Sketched]):
    """(Id, packed block of references) -> the sketches of its records.

    Args:
        packed: A pickled function that makes them.
        processes: The number of processes of the pool.
    """

    def __init__(self, packed: bytes, processes: int) -> None:
        super().__init__(processes)
        self._packed = packed

    def process(self, element: tuple[str, bytes]) -> Iterator[Any]:
        progress.advance(SKETCHING, 0)
        yield from self.submit(call_pickled, self._packed, element)

    def outputs(self, result: Sketched) -> Iterator[Any]:
        progress.advance(SKETCHING, result.records)
        yield from _sketch_outputs(result, kept_out=False)


class _Pair(beam.DoFn):
    """(partition, keys of all blocks) -> (name of the first's block, pairs)."""

    def __init__(self, likeness: Likeness, drops: bool) -> None:
        self._distance, self._drops = likeness.distance, drops

    def process(self, element: tuple[int, Iterable[tuple[bytes, bool, bytes]]]) -> Iterator[Any]:
        partition, packed = element[0], list(element[1])
        tally = NearTally()
        tally.keys_received = sum(len(rows) for *_, rows in packed) // ROW.itemsize
        first_band = partition < PARTS
        for name, pairs in candidates(packed, first_band, self._distance, self._drops):
            tally.pairs_sent += len(pairs) // PAIR.itemsize
            yield name, pairs
        yield TaggedOutput(TALLY, tally)


class _Send(beam.DoFn):
    """(Name, (probes, pairs)) -> (name of the second's block, probes of the firsts)."""

    def process(self, element: tuple[bytes, tuple[list[Probes], list[bytes]]]) -> Iterator[Any]:
        name, (found, pairs) = element
        probes = only_one(name, list(found), bool(pairs))
        tally = NearTally(pairs_received=sum(map(len, pairs)) // PAIR.itemsize)
        for other, records in sent(probes, pairs) if probes and pairs else ():
            tally.probes_sent += len(records.rows)
            yield other, records
        yield TaggedOutput(TALLY, tally)


class BlockPairs(NamedTuple):
    """The near duplicates whose second is in one block.

    Attributes:
        name: The block.
        probes: Its records.
        pairs: The pairs.
    """

    name: bytes
    probes: Probes
    pairs: NearPairs


class _Compare(beam.DoFn):
    """(Name, (probes, probes of the firsts)) -> `BlockPairs`."""

    def __init__(self, likeness: Likeness) -> None:
        self._likeness = likeness

    def process(self, element: tuple[bytes, tuple[list[Probes], list[Sent]]]) -> Iterator[Any]:
        name, (found, arrived) = element
        probes = only_one(name, list(found), bool(arrived))
        tally = NearTally(probes_received=sum(len(some.rows) for some in arrived))
        if probes and arrived:
            pairs = near_pairs(probes, arrived, self._likeness)
            tally.dropped = len(np.unique(pairs.second))
            tally.as_kept_out = len(np.unique(pairs.second[pairs.kept_out]))
            if tally.dropped:
                yield BlockPairs(name, probes, pairs)
        yield TaggedOutput(TALLY, tally)


class Found(NamedTuple):
    """The answers of `FindNear`.

    Attributes:
        pairs: PCollection of `BlockPairs`.
        tally: The side input of one `NearTally`.
    """

    pairs: beam.PCollection
    tally: AsSideInput


class FindNear(beam.PTransform):
    """(Keys, probes, tallies) of all sketches -> `Found`.

    Args:
        near: Which records are near.
    """

    def __init__(self, near: Near) -> None:
        super().__init__()
        self._near = near

    def expand(self, inputs: tuple[beam.PCollection, ...]) -> Found:
        keys, probes, tallies = inputs
        paired = (
            keys
            | "GroupKeys" >> beam.GroupByKey()
            | "Pair"
            >> beam.ParDo(_Pair(self._near.likeness, self._near.drops)).with_outputs(
                TALLY, main="pairs"
            )
        )
        sent_probes = (
            (probes, paired["pairs"])
            | "JoinFirsts" >> beam.CoGroupByKey()
            | "Send" >> beam.ParDo(_Send()).with_outputs(TALLY, main="probes")
        )
        compared = (
            (probes, sent_probes["probes"])
            | "JoinSeconds" >> beam.CoGroupByKey()
            | "Compare"
            >> beam.ParDo(_Compare(self._near.likeness)).with_outputs(TALLY, main="near")
        )
        parts = (tallies, paired[TALLY], sent_probes[TALLY], compared[TALLY])
        tally = (
            parts
            | "AllTallies" >> beam.Flatten()
            | "MergeTallies" >> beam.CombineGlobally(MergeFn(NearTally))
        )
        return Found(compared["near"], AsSingleton(tally))
