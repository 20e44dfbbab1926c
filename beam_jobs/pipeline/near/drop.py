"""Drops near duplicates from the inputs of a job: from tasks, or from blocks of references."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsSideInput, TaggedOutput

from beam_jobs.errors import DataError
from beam_jobs.jobs.file_sketches import reference_sketches
from beam_jobs.jobs.near import Sketched
from beam_jobs.jobs.protocols import FileJob
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.jobs.text.duplicates import with_dropped
from beam_jobs.pipeline.near.find import (
    PROBES,
    TALLY,
    BlockPairs,
    FindNear,
    SketchReferences,
    SketchTasks,
)
from beam_jobs.pipeline.near.rules import NearRules
from beam_jobs.pipeline.reading.list_tasks import ListTasks
from beam_jobs.pipeline.text_steps import with_id
from beam_jobs.plan.near.tally import NearTally
from beam_jobs.plan.placement import Placement
from beam_jobs.plan.splits import Splits
from beam_jobs.records.blocks import Block
from beam_jobs.sources.chunks import Task

# The name of Beam's counter of records that are near one to keep out.
KEPT_OUT = "kept_out"

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


def _with_sketches_to_keep_out(
    sketched: beam.pvalue.DoOutputsTuple,
    near: NearRules,
    processes: int,
    *tallied: beam.PCollection,
) -> tuple[beam.PCollection, ...]:
    """The keys, probes and tallies of the records of a job, and of those that are kept out."""
    keys, probes, tallies = [sketched["keys"]], [sketched[PROBES]], [sketched[TALLY], *tallied]
    for number, (job, of_other) in enumerate(near.keep_out, 1):
        listed = keys[0].pipeline | f"ListKeptOut{number}" >> ListTasks(job, processes)
        others = listed.tasks | f"SketchKeptOut{number}" >> beam.ParDo(
            SketchTasks(job.sketcher(of_other, _ANY_SPLIT), processes, kept_out=True)
        ).with_outputs(PROBES, TALLY, main="keys")
        keys.append(others["keys"])
        probes.append(others[PROBES])
        counted = listed.found | f"CountKeptOut{number}" >> beam.Map(listed_tally)
        tallies += [others[TALLY], counted]
    every = (("Keys", keys), ("Probes", probes), ("Sketches", tallies))
    return tuple(tuple(some) | f"All{name}" >> beam.Flatten() for name, some in every)


class Dropped(NamedTuple):
    """The answers of `DropNearOfTasks` and `DropNearOfReferences`.

    Attributes:
        inputs: The tasks, each with the numbers of the records that it drops; or the packed blocks of the references
            that are left.
        tally: The side input of one `NearTally`.
        gone: Packed blocks of the references that are dropped; None for tasks.
    """

    inputs: beam.PCollection
    tally: AsSideInput
    gone: beam.PCollection | None = None


class DropNearOfTasks(beam.PTransform):
    """(Tasks, numbers of chunks that were listed) -> `Dropped`.

    Args:
        near: Which records are dropped.
        sketch: Makes the sketches of a task.
        processes: The number of processes that read, in each of the runner's workers.
    """

    def __init__(self, near: NearRules, sketch: Callable[[Task], Sketched], processes: int) -> None:
        super().__init__()
        self._near, self._sketch, self._processes = near, sketch, processes

    def expand(self, inputs: tuple[beam.PCollection, beam.PCollection]) -> Dropped:
        tasks, listed = inputs
        sketched = tasks | "Sketch" >> beam.ParDo(
            SketchTasks(self._sketch, self._processes)
        ).with_outputs(PROBES, TALLY, main="keys")
        counted = listed | "CountListed" >> beam.Map(listed_tally)
        every = _with_sketches_to_keep_out(sketched, self._near, self._processes, counted)
        found = every | "FindNear" >> FindNear(self._near)
        dropped = found.pairs | "Dropped" >> beam.ParDo(_Dropped())
        marked = (
            (tasks | "TaskId" >> beam.Map(with_id), dropped)
            | "JoinTask" >> beam.CoGroupByKey()
            | "Mark" >> beam.FlatMap(with_dropped)
        )
        return Dropped(marked, found.tally)


def _named(packed: bytes) -> tuple[str, bytes]:
    """A packed block of references with its id."""
    return hashlib.blake2b(packed, digest_size=16).hexdigest(), packed


class _TakeOut(beam.DoFn):
    """(Id, (packed block of references, numbers to drop)) -> the packed block of those that are left."""

    GONE = "gone"

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
        yield TaggedOutput(self.GONE, block.take(numbers).pack(compress=True))
        left = block.take(np.delete(np.arange(len(block.hashes)), numbers))
        if len(left.hashes):
            yield left.pack(compress=True)


class DropNearOfReferences(beam.PTransform):
    """Packed blocks of references -> `Dropped`. Each file is read and decoded, once more than without this.

    Args:
        near: Which records are dropped.
        job: Defines the records.
        processes: The number of processes that load, in each of the runner's workers.
    """

    def __init__(self, near: NearRules, job: FileJob, processes: int) -> None:
        super().__init__()
        self._near, self._processes = near, processes
        self._sketch = pickle.dumps(partial(reference_sketches, job, near))

    def expand(self, blocks: beam.PCollection) -> Dropped:
        named = blocks | "Name" >> beam.Map(_named)
        sketched = named | "Sketch" >> beam.ParDo(
            SketchReferences(self._sketch, self._processes)
        ).with_outputs(PROBES, TALLY, main="keys")
        every = _with_sketches_to_keep_out(sketched, self._near, self._processes)
        found = every | "FindNear" >> FindNear(self._near)
        dropped = found.pairs | "Dropped" >> beam.ParDo(_Dropped())
        taken = (
            (named, dropped)
            | "JoinBlock" >> beam.CoGroupByKey()
            | "TakeOut" >> beam.ParDo(_TakeOut()).with_outputs(_TakeOut.GONE, main="left")
        )
        return Dropped(taken["left"], found.tally, taken[_TakeOut.GONE])
