"""Drops near duplicates, or records that equal others, from the tasks of a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsSideInput

from beam_jobs.errors import loss_error
from beam_jobs.jobs.job import NearRules
from beam_jobs.jobs.near import Sketched
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.pipeline.planning.find_near import find_near, sketches_of
from beam_jobs.pipeline.planning.list_tasks import ListTasks
from beam_jobs.plan.near_keys import Probes, duplicate_key
from beam_jobs.plan.near_pairs import NearPairs
from beam_jobs.plan.placement import Placement
from beam_jobs.plan.splits import Splits
from beam_jobs.sources.chunks import Task

# The name of Beam's counter of records that are near one to keep out.
KEPT_OUT = "kept_out"

# Records to keep out have no split and no place of their own.
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
        UsageError: Two tasks have this id.
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


class TasksLeft(NamedTuple):
    """The tasks of a job, without some records.

    Attributes:
        tasks: The tasks, each with the records that it drops.
        tally: The side input of one `NearTally` of the search.
    """

    tasks: beam.PCollection
    tally: AsSideInput


class DropNear(beam.PTransform):
    """(tasks, the numbers of their chunks) -> `TasksLeft`.

    Args:
        near: Which records are dropped.
        sketch: Makes the sketches of the records of a task.
        processes: The number of processes that read, in each of the runner's workers.
    """

    def __init__(self, near: NearRules, sketch: Callable[[Any], Sketched], processes: int) -> None:
        super().__init__()
        self._near, self._sketch, self._processes = near, sketch, processes

    def expand(self, inputs: tuple[beam.PCollection, beam.PCollection]) -> TasksLeft:
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
                    kept_out=True,
                )
            )
        pairs, tally = find_near(sketches, self._near)
        dropped = pairs | "Dropped" >> beam.MapTuple(_dropped)
        left = (
            (tasks | "TaskId" >> beam.Map(_with_id), dropped)
            | "JoinTask" >> beam.CoGroupByKey()
            | "Mark" >> beam.FlatMap(with_dropped)
        )
        return TasksLeft(left, tally)
