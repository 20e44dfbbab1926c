"""Drops near duplicates from the inputs of a job: from tasks, or from blocks of references."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsSideInput, TaggedOutput

from beam_jobs.errors import DataError
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.pipeline.near.find import (
    PROBES,
    TALLY,
    BlockPairs,
    FindNear,
    SketchTasks,
)
from beam_jobs.pipeline.near.rules import NearRules
from beam_jobs.pipeline.reading.list_tasks import ListTasks
from beam_jobs.plan.near.tally import NearTally
from beam_jobs.plan.placement import Placement
from beam_jobs.plan.splits import Splits
from beam_jobs.records.blocks import Block

# The name of Beam's counter of records that are near one to keep out.
KEPT_OUT = "kept_out"

# The tag of what is dropped.
GONE = "gone"

# Records to keep out have no split and no place of their own.
_ANY_SPLIT = SplitRules(Placement(seed=0, splits=Splits.parse("all=1")))


class _Dropped(beam.DoFn):
    """`BlockPairs` -> (owner of the block, the numbers of its records to drop, int64 as bytes)."""

    def process(self, found: BlockPairs) -> Iterator[tuple[str, bytes]]:
        numbers = np.frombuffer(found.probes.numbers, "<i8")
        kept_out = np.unique(found.pairs.second[found.pairs.kept_out])
        Metrics.counter("near", KEPT_OUT).inc(len(kept_out))
        rows = np.unique(found.pairs.second)
        yield found.probes.owner, numbers[rows].tobytes()


def listed_tally(found: int) -> NearTally:
    """The tally of chunks that were listed."""
    return NearTally(listed=found)


class Dropped(NamedTuple):
    """The answers of `DropNear`.

    Attributes:
        left: What is left of the inputs.
        gone: Packed blocks of the references that are dropped; empty for tasks.
        tally: The side input of one `NearTally`.
    """

    left: beam.PCollection
    gone: beam.PCollection
    tally: AsSideInput


class DropNear(beam.PTransform):
    """(Inputs, (id, input), tallies of the inputs) -> `Dropped`.

    Args:
        near: Which records are dropped.
        sketch: Makes the sketches of the inputs: the step of an input.
        take_out: (id, (inputs, numbers of the records to drop, as bytes)) -> what is left.
        processes: The number of processes that read, in each of the runner's workers.
    """

    def __init__(
        self,
        near: NearRules,
        sketch: beam.DoFn,
        take_out: beam.DoFn | Callable[..., Any],
        processes: int,
    ) -> None:
        super().__init__()
        self._near, self._sketch, self._take_out = near, sketch, take_out
        self._processes = processes

    def expand(self, inputs: tuple[beam.PCollection, ...]) -> Dropped:
        elements, named, *tallied = inputs
        found = self._sketches(elements, tallied) | "FindNear" >> FindNear(self._near)
        dropped = found.pairs | "Dropped" >> beam.ParDo(_Dropped())
        taken = (
            (named, dropped)
            | "Join" >> beam.CoGroupByKey()
            | "TakeOut" >> beam.ParDo(self._take_out).with_outputs(GONE, main="left")
        )
        return Dropped(taken["left"], taken[GONE], found.tally)

    def _sketches(
        self, elements: beam.PCollection, tallied: list[beam.PCollection]
    ) -> tuple[beam.PCollection, ...]:
        """The keys, probes and tallies of the records of a job, and of those that are kept out."""
        sketched = [_sketched(elements, "Sketch", self._sketch)]
        for number, (job, of_other) in enumerate(self._near.keep_out, 1):
            listed = elements.pipeline | f"ListKeptOut{number}" >> ListTasks(job, self._processes)
            sketch = SketchTasks(job.sketcher(of_other, _ANY_SPLIT), self._processes, kept_out=True)
            sketched.append(_sketched(listed.tasks, f"SketchKeptOut{number}", sketch))
            tallied.append(listed.found | f"CountKeptOut{number}" >> beam.Map(listed_tally))
        return tuple(
            (*(each[tag] for each in sketched), *more) | f"All{tag.capitalize()}" >> beam.Flatten()
            for tag, more in (("keys", ()), (PROBES, ()), (TALLY, tallied))
        )


def _sketched(elements: beam.PCollection, name: str, step: beam.DoFn) -> beam.pvalue.DoOutputsTuple:
    return elements | name >> beam.ParDo(step).with_outputs(PROBES, TALLY, main="keys")


def named_block(packed: bytes) -> tuple[str, bytes]:
    """A packed block of references with its id."""
    return hashlib.blake2b(packed, digest_size=16).hexdigest(), packed


class TakeOut(beam.DoFn):
    """(Id, (packed block of references, numbers to drop)) -> the packed block of those that are left."""

    def process(self, element: tuple[str, tuple[list[bytes], list[bytes]]]) -> Iterator[Any]:
        _, (blocks, dropped) = element
        numbers = np.frombuffer(b"".join(dropped), "<i8")
        if len(blocks) != 1 or len(np.unique(numbers)) < len(numbers):
            raise DataError(
                f"the runner handed over {len(blocks)} of 1 blocks of references, or the same near duplicates "
                "twice; no dataset was written, run the job again"
            )
        if not len(numbers):
            yield blocks[0]
            return
        block = Block.unpack(blocks[0])
        yield TaggedOutput(GONE, block.take(numbers).pack(compress=True))
        left = block.take(np.delete(np.arange(len(block.hashes)), numbers))
        if len(left.hashes):
            yield left.pack(compress=True)
