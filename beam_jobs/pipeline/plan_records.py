"""Plans jobs whose records are parts of files: from patterns to the plan, without encoding a record.

A task is a few chunks of files, or the whole of a file that has to be read from its beginning.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsList, AsSingleton, TaggedOutput

from beam_jobs import progress
from beam_jobs.dataset.output import Output
from beam_jobs.jobs.passes import FirstPassResult, SplitRules
from beam_jobs.jobs.protocols import (
    DigestPass,
    LearnSchema,
    LearnSubwords,
    LearnWords,
    LineCounts,
    RecordJob,
)
from beam_jobs.jobs.text.duplicates import Tally, check_tally, pack_digests
from beam_jobs.jobs.text.lines import numbered_chunks
from beam_jobs.jobs.text.sample import Sample, check_training, learn
from beam_jobs.pipeline.plan_shards import Planned, PlanShards, Side
from beam_jobs.pipeline.plan_strata import PlanStrata
from beam_jobs.pipeline.steps import MergeFn, TaskStep
from beam_jobs.pipeline.text_steps import BuildVocabulary, MarkDuplicates
from beam_jobs.plan.strata import LabelHashes, check_strata
from beam_jobs.plan.summary import Summary, label_names_of
from beam_jobs.sources.chunks import RangeCount, Task, batch_chunks
from readers.format.schema import Schema


class _ListTasks(beam.DoFn):
    """Patterns -> tasks, tasks of ranges whose lines are to be counted, and numbers of all of these.

    Args:
        phases: What progress calls the passes over all tasks.
    """

    FOUND, BYTES, UNCOUNTED = "found", "bytes", "uncounted"

    def __init__(self, job: RecordJob, phases: Sequence[str]) -> None:
        self._job, self._phases = job, phases

    def _tasks(self, pattern: str) -> Iterator[Task]:
        """Yields tasks, each of chunks that are numbered, or of ranges of one file that are not."""
        chunks = itertools.chain.from_iterable(map(self._job.chunks, self._job.sources(pattern)))
        for _, alike in itertools.groupby(chunks, lambda c: (not c.first) and c.source.key):
            yield from batch_chunks(alike)

    def process(self, pattern: str) -> Iterator[Any]:
        found = size = uncounted = 0
        for task in self._tasks(pattern):
            found += len(task.chunks)
            size += task.size
            if task.chunks[0].first:
                yield task
            else:
                uncounted += task.size
                yield TaggedOutput(self.UNCOUNTED, task)
        if uncounted:
            progress.expect(_CountLines.PHASE, uncounted, "B")
        for phase in self._phases:
            progress.expect(phase, size, "B")
        Metrics.counter("files", "chunks").inc(found)
        Metrics.counter("files", "bytes").inc(size)
        yield TaggedOutput(self.FOUND, found)
        yield TaggedOutput(self.BYTES, size)


class _CountLines(TaskStep[list[RangeCount]]):
    """Task of ranges -> (key of the file, the counts of the ranges)."""

    PHASE = "counting lines"

    def __init__(self, counts: LineCounts, processes: int) -> None:
        super().__init__(processes)
        self._counts = counts

    def work(self) -> Callable[[Task], list[RangeCount]]:
        return self._counts.count

    def outputs(self, result: list[RangeCount]) -> Iterator[tuple[str, list[RangeCount]]]:
        yield result[0].range.source.key, result


def _number_lines(element: tuple[str, Iterable[list[RangeCount]]]) -> Iterator[Task]:
    """Yields the tasks of a file whose ranges have been counted."""
    yield from batch_chunks(numbered_chunks(itertools.chain.from_iterable(element[1])))


class _Digest(TaskStep[tuple[str, Any]]):
    """Task -> (partition, (id of the task, packed digests of its texts))."""

    PHASE = "comparing"

    def __init__(self, digest_pass: DigestPass, processes: int) -> None:
        super().__init__(processes)
        self._pass = digest_pass

    def work(self) -> Callable[[Task], tuple[str, Any]]:
        return self._pass.digests

    def outputs(self, result: tuple[str, Any]) -> Iterator[tuple[int, tuple[str, bytes]]]:
        name, found = result
        for partition, rows in pack_digests(*found):
            yield partition, (name, rows)


class _ReadLabels(TaskStep[LabelHashes]):
    """Task -> the labels of its records."""

    PHASE = "counting"

    def __init__(self, job: RecordJob, output: Output, processes: int) -> None:
        super().__init__(processes)
        self._job, self._output = job, output

    def work(self) -> Callable[[Task], LabelHashes]:
        return self._job.first_pass(SplitRules(self._output.placement), "skip").labelled

    def outputs(self, result: LabelHashes) -> Iterator[LabelHashes]:
        yield result


class _Sample(TaskStep[Sample]):
    """Task -> texts to train a tokenizer on."""

    PHASE = "sampling"

    def __init__(self, learns: LearnSubwords, output: Output, processes: int) -> None:
        super().__init__(processes)
        self._learns, self._output = learns, output

    def work(self, strata: bytes, size: int) -> Callable[[Task], Sample]:
        rules = SplitRules(self._output.placement, strata)
        return self._learns.sample_pass(rules, size).sample

    def outputs(self, result: Sample) -> Iterator[Sample]:
        yield result


class _FirstPass(TaskStep[FirstPassResult]):
    """Task -> packed blocks of hashes, a summary, and what the job learns."""

    PHASE = "reading"
    SUMMARY, LEARNED = "summary", "learned"

    def __init__(self, job: RecordJob, output: Output, processes: int) -> None:
        super().__init__(processes)
        self._job, self._output = job, output

    def work(self, strata: bytes, tokenizer: str) -> Callable[[Task], FirstPassResult]:
        rules = SplitRules(self._output.placement, strata)
        return self._job.first_pass(rules, self._output.on_reject, tokenizer).read

    def outputs(self, result: FirstPassResult) -> Iterator[Any]:
        found = sum(split.rejected + split.records for split in result.summary.splits)
        Metrics.counter("parts", "found").inc(found)
        yield TaggedOutput(self.SUMMARY, result.summary)
        if result.block:
            yield result.block
        for element in result.learned:
            yield TaggedOutput(self.LEARNED, element)


def _found_after(found: int, _: Schema) -> int:
    return found


def _check_passes(
    summary: Summary, strata: bytes, tally: Tally | None, learns_from: int | None
) -> Summary:
    if learns_from is not None:
        check_training(summary, learns_from)
    return check_tally(check_strata(summary, strata), tally)


class PlanRecords(beam.PTransform):
    """A pipeline -> `Planned`, whose inputs are tasks.

    Args:
        job: Defines the records.
        output: The dataset.
        processes: Processes that read, in each of the runner's workers.
        prepare: Whether the output directory is made ready for shards.
        later: What progress calls the passes over all tasks that follow the plan.
    """

    def __init__(
        self,
        job: RecordJob,
        output: Output,
        processes: int,
        prepare: bool = True,
        later: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self._job, self._output, self._processes = job, output, processes
        self._prepare, self._later = prepare, later

    def expand(self, pipeline: beam.Pipeline) -> Planned:
        output, processes = self._output, self._processes
        job, given = self._job.without_tokenizer(), self._job.tokenizer
        learns = job.learns
        digest_pass = job.digest_pass(SplitRules(output.placement))
        samples = isinstance(learns, LearnSubwords)
        phases = [_Digest.PHASE] * bool(digest_pass) + [_ReadLabels.PHASE] * output.stratify
        phases += [_Sample.PHASE] * samples + [_FirstPass.PHASE, *self._later]
        listed = (
            pipeline
            | "Patterns" >> beam.Create(job.inputs.patterns)
            | "List"
            >> beam.ParDo(_ListTasks(job, phases)).with_outputs(
                _ListTasks.FOUND, _ListTasks.BYTES, _ListTasks.UNCOUNTED, main="tasks"
            )
        )
        found = listed[_ListTasks.FOUND]
        tasks = listed["tasks"]
        if line_counts := job.line_counts():
            numbered = (
                listed[_ListTasks.UNCOUNTED]
                | "SpreadRanges" >> beam.Reshuffle()
                | "CountLines" >> beam.ParDo(_CountLines(line_counts, processes))
                | "GroupByFile" >> beam.GroupByKey()
                | "NumberLines" >> beam.FlatMap(_number_lines)
            )
            tasks = (tasks, numbered) | "AllTasks" >> beam.Flatten()
        tasks |= "Spread" >> beam.Reshuffle()
        tally: Side[Tally | None] = None
        if digest_pass:
            digests = tasks | "Digest" >> beam.ParDo(_Digest(digest_pass, processes))
            marked = (tasks, digests) | "DropDuplicates" >> MarkDuplicates()
            tasks, tally = marked.tasks, AsSingleton(marked.tally)
        strata: Side[bytes] = b""
        if output.stratify:
            labels = tasks | "ReadLabels" >> beam.ParDo(_ReadLabels(job, output, processes))
            strata = AsSingleton(labels | "Stratify" >> PlanStrata(output.placement))
        tokenizer: Side[str] = given
        if given:
            tokenizer = AsSingleton(pipeline | "GivenTokenizer" >> beam.Create([given]))
        if isinstance(learns, LearnSubwords):
            size = listed[_ListTasks.BYTES] | "AllBytes" >> beam.CombineGlobally(sum)
            tokenizer = AsSingleton(
                tasks
                | "SpreadSample" >> beam.Reshuffle()
                | "Sample"
                >> beam.ParDo(_Sample(learns, output, processes), strata, AsSingleton(size))
                | "MergeSamples" >> beam.CombineGlobally(MergeFn(Sample))
                | "Learn" >> beam.Map(learn, learns.size, AsList(found))
            )
        again = len(phases) > len([_FirstPass.PHASE, *self._later])
        read = (
            tasks | "SpreadAgain" >> beam.Reshuffle() if again else tasks
        ) | "ReadKeys" >> beam.ParDo(
            _FirstPass(job, output, processes), strata, tokenizer
        ).with_outputs(_FirstPass.SUMMARY, _FirstPass.LEARNED, main="hashes")
        schema: Side[Schema] = output.schema
        if isinstance(learns, LearnSchema):
            learned = (
                read[_FirstPass.LEARNED]
                | "MergeLearned" >> beam.CombineGlobally(MergeFn(learns.empty))
                | "Schema" >> beam.Map(learns.schema_of, output.placement.split_features)
            )
            schema = AsSingleton(learned)
            # Records that contradict each other must end the job before it clears the output.
            found |= "AfterSchema" >> beam.Map(_found_after, schema)
        learns_tokens = isinstance(learns, LearnWords | LearnSubwords)
        planned = (read[_FirstPass.SUMMARY], read["hashes"], found) | "Plan" >> PlanShards(
            output,
            patterns=len(job.inputs.patterns),
            prepare=self._prepare,
            check=beam.Map(
                _check_passes,
                strata,
                tally,
                output.placement.splits.training if learns_tokens else None,
            ),
        )
        vocabulary: Side[tuple[bytes, ...]] = job.vocabulary
        if isinstance(learns, LearnWords):
            counts = read[_FirstPass.LEARNED]
            vocabulary = AsSingleton(
                (counts, planned.summary) | "Vocabulary" >> BuildVocabulary(learns.size)
            )
        names = planned.summary | "LabelNames" >> beam.Map(label_names_of, job.class_names)
        return Planned(
            inputs=tasks,
            hashes=read["hashes"],
            plan=planned.plan,
            summary=planned.summary,
            measured=planned.measured,
            names=AsSingleton(names),
            schema=schema,
            vocabulary=vocabulary,
            tokenizer=tokenizer,
            strata=strata,
        )
