"""Drops near duplicates from the tasks of a job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.metrics import Metrics

from beam_jobs.jobs.near import Sketched
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.pipeline.list_tasks import ListTasks
from beam_jobs.pipeline.near.find import find_near, sketches_of
from beam_jobs.pipeline.near.rules import NearRules
from beam_jobs.pipeline.text_steps import Dropped, drop_records
from beam_jobs.plan.near.blocks import Probes
from beam_jobs.plan.near.verify import NearPairs
from beam_jobs.plan.placement import Placement
from beam_jobs.plan.splits import Splits

# The name of Beam's counter of records that are near one to keep out.
KEPT_OUT = "kept_out"

# Records to keep out have no split and no place of their own.
_ANY_SPLIT = SplitRules(Placement(seed=0, splits=Splits.parse("all=1")))


def _dropped(probes: Probes, pairs: NearPairs) -> tuple[str, bytes]:
    """The task of a block, and the numbers of its records to drop, int64 as bytes."""
    numbers = np.frombuffer(probes.numbers, "<i8")
    Metrics.counter("near", KEPT_OUT).inc(len(np.unique(pairs.second[pairs.kept_out])))
    return probes.owner, numbers[np.unique(pairs.second)].tobytes()


class DropNear(beam.PTransform):
    """(tasks, the numbers of their chunks) -> `Dropped`.

    Args:
        near: Which records are dropped.
        sketch: Makes the sketches of the records of a task.
        processes: The number of processes that read, in each of the runner's workers.
    """

    def __init__(self, near: NearRules, sketch: Callable[[Any], Sketched], processes: int) -> None:
        super().__init__()
        self._near, self._sketch, self._processes = near, sketch, processes

    def expand(self, inputs: tuple[beam.PCollection, beam.PCollection]) -> Dropped:
        tasks, listed = inputs
        sketches = [sketches_of(tasks, listed, self._sketch, self._processes)]
        for number, (job, near) in enumerate(self._near.keep_out, 1):
            other = tasks.pipeline | f"ListKeptOut{number}" >> ListTasks(job, self._processes)
            sketch = job.sketcher(near, _ANY_SPLIT)
            sketches.append(
                sketches_of(
                    other.tasks,
                    other.found,
                    sketch,
                    self._processes,
                    f"KeptOut{number}",
                    kept_out=True,
                )
            )
        pairs, tally = find_near(sketches, self._near)
        return Dropped(drop_records(tasks, pairs | "Dropped" >> beam.MapTuple(_dropped)), tally)
