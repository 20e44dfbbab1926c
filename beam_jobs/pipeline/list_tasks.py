"""Lists the tasks of a job, and numbers the records of files that are cut into ranges."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.pvalue import TaggedOutput

from beam_jobs import progress
from beam_jobs.engines.pool import call_pickled
from beam_jobs.jobs.protocols import RecordJob
from beam_jobs.pipeline.steps import PLANNING, ReadTasks, WindowStep, cut_patterns
from beam_jobs.pipeline.text_steps import NUMBERING, by_file, number_ranges
from beam_jobs.sources.chunks import Task
from beam_jobs.storage.listing import Span


class _ListTasks(WindowStep[Iterable[Task]]):
    """(Pattern, span) -> tasks, tasks of ranges whose records must be counted first, and their numbers.

    Args:
        phases: The names of the passes over all tasks in progress.
        processes: The number of processes of the pool.
    """

    FOUND, BYTES, UNCOUNTED = "found", "bytes", "uncounted"

    def __init__(self, job: RecordJob, phases: Sequence[str], processes: int) -> None:
        super().__init__(processes)
        self._job, self._phases = job, phases

    def start_bundle(self) -> None:
        super().start_bundle()
        self._list = pickle.dumps(self._job.all_tasks)

    def process(self, part: tuple[str, Span]) -> Iterator[Any]:
        progress.begin("listing")
        if self._processes == 1:  # No task is held until all are listed.
            yield from self.outputs(self._job.tasks(*part))
        else:
            yield from self.submit(call_pickled, self._list, *part)

    def outputs(self, result: Iterable[Task]) -> Iterator[Any]:
        found = size = uncounted = 0
        for task in result:
            found += task.count
            size += task.size
            if task.numbered:
                yield task
            else:
                uncounted += task.size
                yield TaggedOutput(self.UNCOUNTED, task)
        if uncounted:
            progress.expect(NUMBERING, uncounted, "B")
        for phase in self._phases:
            progress.expect(phase, *((found, "files") if phase == PLANNING else (size, "B")))
        Metrics.counter("files", "found").inc(found)
        yield TaggedOutput(self.FOUND, found)
        yield TaggedOutput(self.BYTES, size)


class Listed(NamedTuple):
    """The answers of `ListTasks`.

    Attributes:
        tasks: All tasks.
        found: The numbers of chunks in parts of patterns.
        bytes: Their sizes.
        cut: The numbers of parts of the patterns.
    """

    tasks: beam.PCollection
    found: beam.PCollection
    bytes: beam.PCollection
    cut: beam.PCollection


class ListTasks(beam.PTransform):
    """A pipeline -> `Listed`.

    Args:
        job: Defines the records.
        processes: The number of processes that read, in each of the runner's workers.
        phases: The names of the passes over all tasks in progress.
    """

    def __init__(self, job: RecordJob, processes: int, phases: Sequence[str] = ()) -> None:
        super().__init__()
        self._job, self._processes, self._phases = job, processes, phases

    def expand(self, pipeline: beam.Pipeline) -> Listed:
        job = self._job
        parts, cut = cut_patterns(pipeline, job.inputs, self._processes)
        listed = parts | "List" >> beam.ParDo(
            _ListTasks(job, self._phases, self._processes)
        ).with_outputs(_ListTasks.FOUND, _ListTasks.BYTES, _ListTasks.UNCOUNTED, main="tasks")
        tasks = self._numbered(listed)
        return Listed(tasks, listed[_ListTasks.FOUND], listed[_ListTasks.BYTES], cut)

    def _numbered(self, listed: beam.pvalue.DoOutputsTuple) -> beam.PCollection:
        """All tasks; files that were cut into ranges come after their records are counted."""
        tasks = listed["tasks"]
        if counter := self._job.range_counter():
            numbered = (
                listed[_ListTasks.UNCOUNTED]
                | "SpreadRanges" >> beam.Reshuffle()
                | "CountRanges" >> beam.ParDo(ReadTasks(NUMBERING, counter.count, self._processes))
                | "ByFile" >> beam.Map(by_file)
                | "GroupByFile" >> beam.GroupByKey()
                | "NumberRanges"
                >> beam.FlatMap(number_ranges, counter, self._job.inputs.task_bytes)
            )
            tasks = (tasks, numbered) | "AllTasks" >> beam.Flatten()
        return tasks | "Spread" >> beam.Reshuffle()
