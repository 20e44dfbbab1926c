"""Finds near or exact duplicates among the records of some tasks, and drops them.

Keys meet in partitions, the probes of candidates in the block of the second of each pair. Each step reports how
much it received and handed over, and these numbers must agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsSideInput, AsSingleton, TaggedOutput

from beam_jobs.errors import loss_error
from beam_jobs.jobs.job import NearRules
from beam_jobs.jobs.near import Near, Sketched
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.pipeline.planning.list_tasks import ListTasks
from beam_jobs.pipeline.steps import ReadTasks
from beam_jobs.plan.equality import Similarity
from beam_jobs.plan.near_keys import PAIR, PARTS, ROW, Keys, Probes, candidates, duplicate_key
from beam_jobs.plan.near_pairs import (
    CHUNKS,
    KEYS,
    PAIRS,
    PROBES,
    NearPairs,
    NearTally,
    near_pairs,
    only_one,
    sent,
)
from beam_jobs.plan.placement import Placement, Splits
from beam_jobs.records.pieces import merged
from beam_jobs.sources.chunks import Task

_PROBES, _TALLY = "probes", "tally"


def _sketch_outputs(result: Sketched, kept_out: bool) -> Iterator[Any]:
    """Yields (partition, `Keys`), and the probes and a tally."""
    tally = NearTally(records=0 if kept_out else result.records)
    tally.received[CHUNKS] = result.chunks
    for block in result.blocks:
        for partition, keys in block.partitions():
            tally.sent[KEYS] += len(keys.rows) // ROW.itemsize
            yield partition, keys
        yield TaggedOutput(_PROBES, (block.name, block.probes.pack()))
    yield TaggedOutput(_TALLY, tally)


class Sketches(NamedTuple):
    """The sketches of all records of a job, or of a dataset.

    Attributes:
        keys: (partition, `Keys`).
        probes: (block, its packed `Probes`).
        tallies: `NearTally`.
    """

    keys: beam.PCollection
    probes: beam.PCollection
    tallies: beam.PCollection


def sketches_of(
    tasks: beam.PCollection,
    listed: beam.PCollection,
    sketch: Callable[[Any], Sketched],
    processes: int,
    phase: str,
    name: str = "",
) -> Sketches:
    """Makes the sketches of the records of tasks, given the numbers of listed chunks.

    `name` ends the names of the steps if the records are those of `--keep_out`.
    """
    found = (
        tasks
        | f"Sketch{name}" >> beam.ParDo(ReadTasks(phase, sketch, processes))
        | f"Pack{name}"
        >> beam.FlatMap(_sketch_outputs, bool(name)).with_outputs(_PROBES, _TALLY, main="keys")
    )
    counted = listed | f"CountListed{name}" >> beam.Map(_listed_tally)
    tallies = (found[_TALLY], counted) | f"AllListed{name}" >> beam.Flatten()
    return Sketches(found["keys"], found[_PROBES], tallies)


def _listed_tally(count: int) -> NearTally:
    return NearTally(sent=Counter({CHUNKS: count}))


def _pair(
    partition: tuple[int, Iterable[Keys]], likeness: Similarity, drops: bool
) -> Iterator[Any]:
    """Yields (name of the first's block, pairs) for the keys of all blocks in a partition, and a tally."""
    number, blocks = partition[0], list(partition[1])
    tally = NearTally()
    tally.received[KEYS] = sum(len(block.rows) for block in blocks) // ROW.itemsize
    for name, pairs in candidates(blocks, number < PARTS, likeness, drops):
        tally.sent[PAIRS] += len(pairs) // PAIR.itemsize
        yield name, pairs
    yield TaggedOutput(_TALLY, tally)


def _send(element: tuple[bytes, tuple[list[bytes], list[bytes]]]) -> Iterator[Any]:
    """Yields (name of the second's block, probes of the firsts) for (name, (probes, pairs)), and a tally."""
    name, (packed, pairs) = element
    probes = only_one(name, list(packed), bool(pairs))
    tally = NearTally()
    tally.received[PAIRS] = sum(map(len, pairs)) // PAIR.itemsize
    for other, records in sent(probes, pairs) if probes and pairs else ():
        tally.sent[PROBES] += len(records)
        yield other, records
    yield TaggedOutput(_TALLY, tally)


def _compare(
    element: tuple[bytes, tuple[list[bytes], list[bytes]]], likeness: Similarity
) -> Iterator[Any]:
    """Yields (probes of a block, its `NearPairs`) for (name, (probes, probes of the firsts)), and a tally."""
    name, (packed, arrived) = element
    probes = only_one(name, list(packed), bool(arrived))
    tally = NearTally()
    tally.received[PROBES] = sum(map(len, arrived))
    if probes and arrived:
        pairs = near_pairs(probes, arrived, likeness)
        tally.dropped = len(np.unique(pairs.second))
        if tally.dropped:
            yield probes, pairs
    yield TaggedOutput(_TALLY, tally)


def find_near(sketches: Sequence[Sketches], near: Near) -> tuple[beam.PCollection, AsSideInput]:
    """Finds the near duplicates among the records of all sketches.

    Returns:
        PCollection of (probes of a block, the `NearPairs` whose second is in it), without blocks that have
        none; and the side input of one `NearTally`.
    """
    keys = tuple(each.keys for each in sketches) | "AllKeys" >> beam.Flatten()
    probes = tuple(each.probes for each in sketches) | "AllProbes" >> beam.Flatten()
    paired = (
        keys
        | "GroupKeys" >> beam.GroupByKey()
        | "Pair"
        >> beam.FlatMap(_pair, near.likeness, near.drops).with_outputs(_TALLY, main="pairs")
    )
    sent_probes = (
        (probes, paired["pairs"])
        | "JoinFirsts" >> beam.CoGroupByKey()
        | "Send" >> beam.FlatMap(_send).with_outputs(_TALLY, main="probes")
    )
    compared = (
        (probes, sent_probes["probes"])
        | "JoinSeconds" >> beam.CoGroupByKey()
        | "Compare" >> beam.FlatMap(_compare, near.likeness).with_outputs(_TALLY, main="near")
    )
    tally = (
        (
            *(each.tallies for each in sketches),
            paired[_TALLY],
            sent_probes[_TALLY],
            compared[_TALLY],
        )
        | "AllTallies" >> beam.Flatten()
        | "MergeTallies" >> beam.CombineGlobally(partial(merged, empty=NearTally))
    )
    return compared["near"], AsSingleton(tally)


# The name of Beam's counter of records that are near one of `--keep_out`.
KEPT_OUT = "kept_out"

# Records of `--keep_out` have neither a split nor a place.
_ANY_SPLIT = SplitRules(Placement(seed=0, splits=Splits.parse("all=1")))


def _dropped(probes: Probes, pairs: NearPairs) -> tuple[str, bytes]:
    """The task of a block, and the numbers of its records to drop, int64 as bytes."""
    Metrics.counter("near", KEPT_OUT).inc(len(np.unique(pairs.second[pairs.kept_out])))
    return probes.owner, probes.numbers[np.unique(pairs.second)].tobytes()


def with_dropped(element: tuple[str, tuple[list[Task], list[bytes]]]) -> Iterator[Task]:
    """Yields a task with the numbers of the records to drop.

    Args:
        element: The task's id, the task, and numbers of its records, int64 as bytes.

    Raises:
        UsageError: Two tasks have the same id.
        DataError: The runner repeated some numbers.
    """
    name, (tasks, dropped) = element
    if len(tasks) > 1:
        raise duplicate_key(name)
    numbers = np.frombuffer(b"".join(dropped), "<i8")
    if len(np.unique(numbers)) < len(numbers):
        raise loss_error(f"duplicates to drop in {name}")
    for task in tasks:
        yield task.without(numbers)


def _with_id(task: Task) -> tuple[str, Task]:
    return task.id, task


class DropNear(beam.PTransform):
    """(tasks, the numbers of their chunks) -> (tasks with the records to drop, the side input of one `NearTally`)."""

    def __init__(self, near: NearRules, sketch: Callable[[Any], Sketched], processes: int) -> None:
        super().__init__()
        self._near, self._sketch, self._processes = near, sketch, processes

    def expand(
        self, inputs: tuple[beam.PCollection, beam.PCollection]
    ) -> tuple[beam.PCollection, AsSideInput]:
        tasks, listed = inputs
        phase = self._near.phase
        sketches = [sketches_of(tasks, listed, self._sketch, self._processes, phase)]
        for number, (job, near) in enumerate(self._near.keep_out, 1):
            other = tasks.pipeline | f"ListKeptOut{number}" >> ListTasks(job, self._processes)
            sketch = job.sketcher(near, _ANY_SPLIT)
            sketches.append(
                sketches_of(
                    other.tasks,
                    other.found,
                    sketch,
                    self._processes,
                    phase,
                    f"KeptOut{number}",
                )
            )
        pairs, tally = find_near(sketches, self._near)
        dropped = pairs | "Dropped" >> beam.MapTuple(_dropped)
        left = (
            (tasks | "TaskId" >> beam.Map(_with_id), dropped)
            | "JoinTask" >> beam.CoGroupByKey()
            | "Mark" >> beam.FlatMap(with_dropped)
        )
        return left, tally
