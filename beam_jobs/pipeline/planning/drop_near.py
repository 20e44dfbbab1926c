"""Finds near or exact duplicates among the records of some tasks, and drops them.

Keys meet in partitions, the probes of candidates in the block of the second of each pair. Each step reports how
much it received and handed over, and these numbers must agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsSideInput, AsSingleton, DoOutputsTuple, TaggedOutput

from beam_jobs.errors import loss_error
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
    NearTally,
    near_pairs,
    only_one,
    sent,
)
from beam_jobs.plan.placement import Placement, Splits
from beam_jobs.records.pieces import merged
from beam_jobs.sources.chunks import Task

_PROBES, _TALLY = "probes", "tally"


# The name of Beam's counter of records that are near one of `--keep_out`.
KEPT_OUT = "kept_out"

# Records of `--keep_out` have neither a split nor a place.
_ANY_SPLIT = SplitRules(Placement(seed=0, splits=Splits.parse("all=1")))


def _sketch_outputs(result: Sketched) -> Iterator[Any]:
    """Yields (partition, `Keys`), (name of a block, its `Probes`), and a tally."""
    tally = NearTally(records=result.records)
    tally.received[CHUNKS] = result.chunks
    for block in result.blocks:
        for partition, keys in block.partitions():
            tally.sent[KEYS] += len(keys.rows) // ROW.itemsize
            yield partition, keys
        yield TaggedOutput(_PROBES, (block.name, block.probes))
    yield TaggedOutput(_TALLY, tally)


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


def _send(element: tuple[bytes, tuple[list[Probes], list[bytes]]]) -> Iterator[Any]:
    """Yields (name of the second's block, probes of the firsts) for (name, (probes, pairs)), and a tally."""
    name, (found, pairs) = element
    probes = only_one(name, list(found), bool(pairs))
    tally = NearTally()
    tally.received[PAIRS] = sum(map(len, pairs)) // PAIR.itemsize
    for other, records in sent(probes, pairs) if probes and pairs else ():
        tally.sent[PROBES] += len(records)
        yield other, records
    yield TaggedOutput(_TALLY, tally)


def _compare(
    element: tuple[bytes, tuple[list[Probes], list[bytes]]], likeness: Similarity
) -> Iterator[Any]:
    """Yields (task of a block, numbers of its records to drop) for (name, (probes, probes of the firsts)), and a tally."""
    name, (found, arrived) = element
    probes = only_one(name, list(found), bool(arrived))
    tally = NearTally()
    tally.received[PROBES] = sum(map(len, arrived))
    if probes and arrived:
        pairs = near_pairs(probes, arrived, likeness)
        dropped = np.unique(pairs.second)
        tally.dropped = len(dropped)
        Metrics.counter("near", KEPT_OUT).inc(len(np.unique(pairs.second[pairs.kept_out])))
        yield probes.owner, probes.numbers[dropped].tobytes()
    yield TaggedOutput(_TALLY, tally)


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

    def __init__(self, near: Near, sketch: Callable[[Any], Sketched], processes: int) -> None:
        super().__init__()
        self._near, self._sketch, self._processes = near, sketch, processes

    def expand(
        self, inputs: tuple[beam.PCollection, beam.PCollection]
    ) -> tuple[beam.PCollection, AsSideInput]:
        tasks, listed = inputs
        near = self._near
        sketches, counts = [self._sketched(tasks, self._sketch)], [listed]
        for number, (job, rules) in enumerate(near.keep_out, 1):
            name = f"KeptOut{number}"
            other = tasks.pipeline | f"List{name}" >> ListTasks(job, self._processes)
            sketch = job.sketcher(rules, _ANY_SPLIT)
            sketches.append(self._sketched(other.tasks, sketch, name))
            counts.append(other.found)
        keys = [each["keys"] for each in sketches] | "AllKeys" >> beam.Flatten()
        probes = [each[_PROBES] for each in sketches] | "AllProbes" >> beam.Flatten()
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
        counted = counts | "AllListed" >> beam.Flatten() | beam.Map(_listed_tally)
        steps = *sketches, paired, sent_probes, compared
        tally = (
            [counted, *(step[_TALLY] for step in steps)]
            | "AllTallies" >> beam.Flatten()
            | "MergeTallies" >> beam.CombineGlobally(partial(merged, empty=NearTally))
        )
        left = (
            (tasks | "TaskId" >> beam.Map(_with_id), compared["near"])
            | "JoinTask" >> beam.CoGroupByKey()
            | "Mark" >> beam.FlatMap(with_dropped)
        )
        return left, AsSingleton(tally)

    def _sketched(
        self, tasks: beam.PCollection, sketch: Callable[[Any], Sketched], name: str = ""
    ) -> DoOutputsTuple:
        """The sketches of the records of tasks; `name` ends the names of the steps if they are of `--keep_out`."""
        step = ReadTasks[Sketched](self._near.phase, sketch, self._processes)
        pack = beam.FlatMap(_sketch_outputs).with_outputs(_PROBES, _TALLY, main="keys")
        return tasks | f"Sketch{name}" >> beam.ParDo(step) | f"Pack{name}" >> pack
