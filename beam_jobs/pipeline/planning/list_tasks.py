"""Lists the tasks of a job, and numbers the records of files that are cut into ranges."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.pvalue import TaggedOutput

from beam_jobs import progress
from beam_jobs.jobs.job import Job
from beam_jobs.pipeline.steps import PLANNING, PoolStep, ReadTasks
from beam_jobs.sources.chunks import RangeCount, Task, batch_chunks, numbered_chunks
from beam_jobs.sources.inputs import Inputs
from beam_jobs.storage.listing import Span, list_part

T = TypeVar("T")

# The names of passes in progress.
LISTING, NUMBERING = "listing", "counting records"


def _cut(pattern: str, inputs: Inputs, processes: int) -> Iterator[Any]:
    """Yields (pattern, the span of names that a task lists), and the number of these spans."""
    spans = inputs.spans(pattern, processes)
    yield TaggedOutput("cut", len(spans))
    for span in spans:
        yield pattern, span


def cut_patterns(
    pipeline: beam.Pipeline, inputs: Inputs, processes: int
) -> tuple[beam.PCollection, beam.PCollection]:
    """(Pattern, span of names) of all patterns, spread over the workers; and the numbers of spans of patterns."""
    patterns = pipeline | "Patterns" >> beam.Create(inputs.patterns)
    cut = patterns | "Cut" >> beam.FlatMap(_cut, inputs, processes).with_outputs(
        "cut", main="parts"
    )
    parts = cut["parts"]
    if processes == 1:
        parts |= "SpreadParts" >> beam.Reshuffle()
    return parts, cut["cut"]


class ListStep(PoolStep[Iterable[T]], Generic[T]):
    """(Pattern, span) -> the inputs in it, and their number.

    Args:
        list_: Lists inputs together, given a pattern and a span.
        count: The number of inputs in a result of `list_`.
    """

    FOUND = "found"

    def __init__(
        self,
        list_: Callable[[str, Span], Iterable[T]],
        count: Callable[[T], int],
        processes: int,
    ) -> None:
        # In this process, do not wait until all inputs are listed.
        how = list if processes > 1 else iter
        super().__init__(functools.partial(list_part, list_, how), processes)
        self._count = count

    def process(self, part: tuple[str, Span]) -> Iterator[Any]:
        progress.advance(LISTING, 0)
        yield from super().process(part)

    def _finished(self, result: Iterable[T]) -> Iterator[Any]:
        total = 0
        for each in result:
            count = self._count(each)
            total += count
            progress.advance(LISTING, count)
            Metrics.counter("files", "found").inc(count)
            yield each
        yield TaggedOutput(self.FOUND, total)


_BYTES, _UNCOUNTED = "bytes", "uncounted"


def _task_outputs(task: Task, phases: Sequence[str]) -> Iterator[Any]:
    """Yields a task, or one of ranges whose records must be counted first, and its size."""
    if task.numbered:
        yield task
    else:
        progress.expect(NUMBERING, task.size, "B")
        yield TaggedOutput(_UNCOUNTED, task)
    for phase in phases:
        in_files = phase == PLANNING
        progress.expect(phase, *((task.count, "files") if in_files else (task.size, "B")))
    yield TaggedOutput(_BYTES, task.size)


def _by_file(counts: list[RangeCount]) -> tuple[str, list[RangeCount]]:
    """The counts of ranges of a file, with the key of the file."""
    return counts[0].range.source.key, counts


def _numbered(element: tuple[str, Iterable[list[RangeCount]]], task_bytes: int) -> Iterator[Task]:
    """Yields the tasks of a file whose ranges have been counted."""
    counts = itertools.chain.from_iterable(element[1])
    yield from batch_chunks(numbered_chunks(counts), task_bytes)


class Listed(NamedTuple):
    """The results of `ListTasks`.

    Attributes:
        tasks: All tasks.
        found: The numbers of chunks in parts of patterns.
        bytes: The sizes of tasks.
        cut: The numbers of parts of the patterns.
    """

    tasks: beam.PCollection
    found: beam.PCollection
    bytes: beam.PCollection
    cut: beam.PCollection


class ListTasks(beam.PTransform):
    """A pipeline -> `Listed`."""

    def __init__(self, job: Job, processes: int, phases: Sequence[str] = ()) -> None:
        super().__init__()
        self._job, self._processes, self._phases = job, processes, phases

    def expand(self, pipeline: beam.Pipeline) -> Listed:
        step = ListStep(self._job.tasks, operator.attrgetter("count"), self._processes)
        parts, cut = cut_patterns(pipeline, self._job.inputs, self._processes)
        found = parts | "List" >> beam.ParDo(step).with_outputs(step.FOUND, main="tasks")
        listed = found["tasks"] | "Sort" >> beam.FlatMap(_task_outputs, self._phases).with_outputs(
            _BYTES, _UNCOUNTED, main="tasks"
        )
        tasks = listed["tasks"]
        if count := self._job.range_counter():
            numbered = (
                listed[_UNCOUNTED]
                | "SpreadRanges" >> beam.Reshuffle()
                | "CountRanges" >> beam.ParDo(ReadTasks(NUMBERING, count, self._processes))
                | "ByFile" >> beam.Map(_by_file)
                | "GroupByFile" >> beam.GroupByKey()
                | "NumberRanges" >> beam.FlatMap(_numbered, self._job.inputs.task_bytes)
            )
            tasks = (tasks, numbered) | "AllTasks" >> beam.Flatten()
        return Listed(tasks | "Spread" >> beam.Reshuffle(), found[step.FOUND], listed[_BYTES], cut)
