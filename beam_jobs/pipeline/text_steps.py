"""Steps of text jobs: count lines, mark duplicates, sample texts, count words."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.pvalue import AsList, AsSingleton, TaggedOutput

from beam_jobs.dataset.output import Output
from beam_jobs.jobs.protocols import Digester, LearnSubwords, RangeCounter
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.jobs.text.duplicates import (
    DIGEST_ROW,
    Tally,
    find_duplicates,
    pack_digests,
    with_dropped,
)
from beam_jobs.jobs.text.sample import Sample
from beam_jobs.jobs.text.tokens import (
    WordCounts,
    WordRanking,
    most_frequent,
    rank_words,
    unpack_counts,
)
from beam_jobs.pipeline.steps import MergeFn, TaskStep
from beam_jobs.sources.chunks import RangeCount, Task, batch_chunks
from readers.format.manifest import RESERVED_IDS


class CountRangesFn(TaskStep[list[RangeCount]]):
    """Task of ranges -> (key of the file, the counts of the ranges)."""

    PHASE = "counting records"

    def __init__(self, counter: RangeCounter, processes: int) -> None:
        super().__init__(processes)
        self._counter = counter

    def work(self) -> Callable[[Task], list[RangeCount]]:
        return self._counter.count

    def outputs(self, result: list[RangeCount]) -> Iterator[tuple[str, list[RangeCount]]]:
        yield result[0].range.source.key, result


def number_ranges(
    element: tuple[str, Iterable[list[RangeCount]]], counter: RangeCounter, task_bytes: int
) -> Iterator[Task]:
    """Yields the tasks of a file whose ranges have been counted."""
    counts = itertools.chain.from_iterable(element[1])
    yield from batch_chunks(counter.number(counts), task_bytes)


class DigestFn(TaskStep[tuple[str, Any]]):
    """Task -> (partition, (id of the task, packed digests of its texts))."""

    PHASE = "comparing"

    def __init__(self, digest: Digester, processes: int) -> None:
        super().__init__(processes)
        self._digest = digest

    def work(self) -> Digester:
        return self._digest

    def outputs(self, result: tuple[str, Any]) -> Iterator[tuple[int, tuple[str, bytes]]]:
        name, found = result
        for partition, rows in pack_digests(*found):
            yield partition, (name, rows)


class SampleFn(TaskStep[Sample]):
    """Task -> texts to train a tokenizer on."""

    PHASE = "sampling"

    def __init__(self, learns: LearnSubwords, output: Output, processes: int) -> None:
        super().__init__(processes)
        self._learns, self._output = learns, output

    def work(self, strata: bytes, size: int) -> Callable[[Task], Sample]:
        rules = SplitRules(self._output.placement, strata)
        return self._learns.sampler(rules, size)

    def outputs(self, result: Sample) -> Iterator[Sample]:
        yield result


class CountWordsFn(beam.CombineFn):
    """Packed counts of one partition -> the number of words, and the most frequent ones.

    Args:
        size: The largest number of words to return.
    """

    def __init__(self, size: int) -> None:
        self._size = size

    def create_accumulator(self) -> Counter[bytes]:
        return Counter()

    def add_input(self, accumulator: Counter[bytes], element: WordCounts) -> Counter[bytes]:
        accumulator.update(unpack_counts(element))
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[Counter[bytes]]) -> Counter[bytes]:
        merged: Counter[bytes] = Counter()
        for accumulator in accumulators:
            merged.update(accumulator)
        return merged

    def extract_output(self, accumulator: Counter[bytes]) -> WordRanking:
        return accumulator.total(), most_frequent(accumulator.items(), self._size)


class BuildVocabulary(beam.PTransform):
    """(PCollection of `pack_counts`, the summary of all texts) -> one tuple of all tokens by id.

    Args:
        size: The largest number of ids, including the two reserved ones.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def expand(self, inputs: tuple[beam.PCollection, beam.PCollection]) -> beam.PCollection:
        counts, summary = inputs
        partitions = (
            counts
            | "Count" >> beam.CombinePerKey(CountWordsFn(self._size - RESERVED_IDS))
            | "Words" >> beam.Values()
        )
        return (
            counts.pipeline
            | "Once" >> beam.Create([None])
            | "Rank" >> beam.Map(rank_words, AsSingleton(summary), AsList(partitions), self._size)
        )


class _Find(beam.DoFn):
    TALLY = "tally"

    def process(self, element: tuple[int, Iterable[tuple[str, bytes]]]) -> Iterator[Any]:
        packed = list(element[1])
        tally = Tally(sum(len(rows) for _, rows in packed) // DIGEST_ROW.itemsize)
        for task, numbers in find_duplicates(packed):
            tally.dropped += len(numbers) // 8
            yield task, numbers
        yield TaggedOutput(self.TALLY, tally)


def _with_id(task: Task) -> tuple[str, Task]:
    return task.id, task


class MarkedTasks(NamedTuple):
    """The result of `MarkDuplicates`.

    Attributes:
        tasks: The tasks, each with the records that it drops.
        tally: One `Tally` of all dropped records.
    """

    tasks: beam.PCollection
    tally: beam.PCollection


class MarkDuplicates(beam.PTransform):
    """(tasks, (partition, (id of a task, packed digests))) -> `MarkedTasks`."""

    def expand(self, inputs: tuple[beam.PCollection, beam.PCollection]) -> MarkedTasks:
        tasks, digests = inputs
        found = (
            digests
            | "GroupDigests" >> beam.GroupByKey()
            | "Find" >> beam.ParDo(_Find()).with_outputs(_Find.TALLY, main="dropped")
        )
        marked = (
            (tasks | "TaskId" >> beam.Map(_with_id), found["dropped"])
            | "JoinTask" >> beam.CoGroupByKey()
            | "Mark" >> beam.FlatMap(with_dropped)
        )
        tally = found[_Find.TALLY] | "MergeTallies" >> beam.CombineGlobally(MergeFn(Tally))
        return MarkedTasks(marked, tally)
