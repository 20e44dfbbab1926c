"""Plans jobs whose records are parts of files: from patterns to the plan, without encoding a record.

A task is a few chunks of files, or a whole file that has to be read from its start.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsSingleton, TaggedOutput

from beam_jobs import progress
from beam_jobs.dataset.directory import prepare_output
from beam_jobs.dataset.output import Output
from beam_jobs.jobs.passes import FirstPassResult
from beam_jobs.jobs.protocols import LearnSchema, LearnSubwords, LearnWords, RecordJob
from beam_jobs.jobs.split_rules import GroupRules, SplitRules
from beam_jobs.jobs.text.duplicates import Tally, check_tally
from beam_jobs.jobs.text.sample import check_training
from beam_jobs.pipeline.plan_shards import Planned, PlanShards, Prepare, Side, names_of_labels
from beam_jobs.pipeline.plan_strata import PlanSplits
from beam_jobs.pipeline.steps import (
    AsMerged,
    AsWhole,
    InPieces,
    MergeInPieces,
    TaskStep,
    cut_patterns,
    with_span,
)
from beam_jobs.pipeline.text_steps import (
    SAMPLING,
    BuildVocabulary,
    CountRangesFn,
    DigestFn,
    LearnTokenizer,
    MarkDuplicates,
    number_ranges,
)
from beam_jobs.plan.group_splits import GroupSizes, check_planned
from beam_jobs.plan.labels import LabelHashes
from beam_jobs.plan.placement import Placement
from beam_jobs.plan.summary import Summary
from beam_jobs.sources.chunks import Task, batch_chunks
from beam_jobs.storage.ranges import Span
from readers.format.schema import Schema

Counted = LabelHashes | GroupSizes


class _ListTasks(beam.DoFn):
    """(Pattern, span) -> tasks, tasks of ranges whose records must be counted first, and their numbers.

    Args:
        phases: What progress calls the passes over all tasks.
    """

    FOUND, BYTES, UNCOUNTED = "found", "bytes", "uncounted"

    def __init__(self, job: RecordJob, phases: Sequence[str]) -> None:
        self._job, self._phases = job, phases

    def _tasks(self, pattern: str, span: Span) -> Iterator[Task]:
        """Yields tasks of numbered chunks, and tasks of ranges of one file that have no numbers."""
        sources = with_span(self._job, span).sources(pattern)
        chunks = itertools.chain.from_iterable(map(self._job.chunks, sources))
        for _, alike in itertools.groupby(chunks, lambda c: (not c.first) and c.source.key):
            yield from batch_chunks(alike, self._job.inputs.task_bytes)

    def process(self, part: tuple[str, Span]) -> Iterator[Any]:
        progress.begin("listing")
        found = size = uncounted = 0
        for task in self._tasks(*part):
            found += len(task.chunks)
            size += task.size
            if task.chunks[0].first:
                yield task
            else:
                uncounted += task.size
                yield TaggedOutput(self.UNCOUNTED, task)
        if uncounted:
            progress.expect(CountRangesFn.PHASE, uncounted, "B")
        for phase in self._phases:
            progress.expect(phase, size, "B")
        Metrics.counter("files", "chunks").inc(found)
        Metrics.counter("files", "bytes").inc(size)
        yield TaggedOutput(self.FOUND, found)
        yield TaggedOutput(self.BYTES, size)


class _Count(TaskStep[Counted]):
    """Task -> the labels, or the sizes of the groups, of its records."""

    PHASE = "counting"

    def __init__(self, read: Callable[[Task], Counted], processes: int) -> None:
        super().__init__(processes)
        self._read = read

    def work(self) -> Callable[[Task], Counted]:
        return self._read

    def outputs(self, result: Counted) -> Iterator[Counted]:
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
        yield from result.blocks
        for element in result.learned:
            yield TaggedOutput(self.LEARNED, element)


def _found_after(found: int, _: Schema) -> int:
    return found


def _schema(_: None, learned: Any, schema_of: Callable[..., Schema], needed: set[str]) -> Schema:
    return schema_of(learned, needed)


def _check_passes(
    summary: Summary,
    strata: bytes,
    tally: Tally | None,
    learns_from: int | None,
    placement: Placement,
) -> Summary:
    if learns_from is not None:
        check_training(summary, learns_from)
    return check_tally(check_planned(summary, strata, placement), tally)


class PlanRecords(beam.PTransform):
    """A pipeline -> `Planned`, whose inputs are tasks.

    Args:
        job: Defines the records.
        output: The dataset.
        processes: The number of processes that read, in each of the runner's workers.
        prepare: Makes the output directory ready for shards; None leaves it alone.
        later: What progress calls the passes over all tasks that follow the plan.
    """

    def __init__(
        self,
        job: RecordJob,
        output: Output,
        processes: int,
        prepare: Prepare | None = prepare_output,
        later: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self._given_tokenizer = job.tokenizer
        self._job, self._output, self._processes = job.without_tokenizer(), output, processes
        self._digester = job.digester(SplitRules(output.placement))
        self._prepare, self._later = prepare, later

    def expand(self, pipeline: beam.Pipeline) -> Planned:
        job, output = self._job, self._output
        parts, cut = cut_patterns(pipeline, job.inputs, self._processes)
        listed = parts | "List" >> beam.ParDo(_ListTasks(job, self._phases())).with_outputs(
            _ListTasks.FOUND, _ListTasks.BYTES, _ListTasks.UNCOUNTED, main="tasks"
        )
        found = listed[_ListTasks.FOUND]
        tasks, tally = self._without_duplicates(self._numbered_tasks(listed))
        strata = self._strata(tasks)
        tokenizer = self._tokenizer((tasks, listed[_ListTasks.BYTES], found), strata)
        first_pass = _FirstPass(job, output, self._processes)
        has_earlier_pass = self._phases()[0] != _FirstPass.PHASE
        spread = tasks | "SpreadAgain" >> beam.Reshuffle() if has_earlier_pass else tasks
        read = spread | "ReadKeys" >> beam.ParDo(first_pass, strata, tokenizer).with_outputs(
            _FirstPass.SUMMARY, _FirstPass.LEARNED, main="hashes"
        )
        schema = self._schema(read)
        if isinstance(job.learns, LearnSchema):
            # Records that contradict each other must end the job before it clears the output.
            found |= "AfterSchema" >> beam.Map(_found_after, schema)
        learns_tokens = isinstance(job.learns, LearnWords | LearnSubwords)
        learns_from = output.placement.splits.training if learns_tokens else None
        shards = (read[_FirstPass.SUMMARY], read["hashes"], found, cut) | "Plan" >> PlanShards(
            output,
            patterns=len(job.inputs.patterns),
            prepare=self._prepare,
            check=_check_passes,
            against=(strata, tally, learns_from, output.placement),
        )
        vocabulary: Side[tuple[bytes, ...]] = job.vocabulary
        if isinstance(job.learns, LearnWords):
            build = BuildVocabulary(job.learns.size, shards.summary)
            built = read[_FirstPass.LEARNED] | "Vocabulary" >> build
            vocabulary = AsWhole(built | "CutVocabulary" >> InPieces())
        return Planned(
            inputs=tasks,
            hashes=read["hashes"],
            shards=shards,
            names=names_of_labels(pipeline, shards.summary, job.class_names),
            schema=schema,
            vocabulary=vocabulary,
            tokenizer=tokenizer,
            strata=strata,
        )

    def _phases(self) -> list[str]:
        """What progress calls the passes over all tasks, in order."""
        samples = isinstance(self._job.learns, LearnSubwords)
        return [
            *[DigestFn.PHASE] * bool(self._digester),
            *[_Count.PHASE] * self._output.placement.plans_splits,
            *[SAMPLING] * samples,
            _FirstPass.PHASE,
            *self._later,
        ]

    def _numbered_tasks(self, listed: beam.pvalue.DoOutputsTuple) -> beam.PCollection:
        """All tasks; files that were cut into ranges come after their records are counted."""
        tasks = listed["tasks"]
        if counter := self._job.range_counter():
            numbered = (
                listed[_ListTasks.UNCOUNTED]
                | "SpreadRanges" >> beam.Reshuffle()
                | "CountRanges" >> beam.ParDo(CountRangesFn(counter, self._processes))
                | "GroupByFile" >> beam.GroupByKey()
                | "NumberRanges"
                >> beam.FlatMap(number_ranges, counter, self._job.inputs.task_bytes)
            )
            tasks = (tasks, numbered) | "AllTasks" >> beam.Flatten()
        return tasks | "Spread" >> beam.Reshuffle()

    def _without_duplicates(
        self, tasks: beam.PCollection
    ) -> tuple[beam.PCollection, Side[Tally | None]]:
        """The tasks, which know the records that they drop, and a tally of those."""
        if not self._digester:
            return tasks, None
        digests = tasks | "Digest" >> beam.ParDo(DigestFn(self._digester, self._processes))
        marked = (tasks, digests) | "DropDuplicates" >> MarkDuplicates()
        return marked.tasks, AsSingleton(marked.tally)

    def _strata(self, tasks: beam.PCollection) -> Side[bytes]:
        """The packed splits by group or by label; empty if hashes alone decide."""
        placement = self._output.placement
        if not placement.plans_splits:
            return b""
        count: Callable[[Task], Counted]
        if placement.deals_groups:
            count = self._job.first_pass(GroupRules(placement), "skip").group_sizes
        else:
            count = self._job.first_pass(SplitRules(placement), "skip").label_hashes
        counted = tasks | "Count" >> beam.ParDo(_Count(count, self._processes))
        return AsWhole(counted | "PlanSplits" >> PlanSplits(placement))

    def _schema(self, read: beam.pvalue.DoOutputsTuple) -> Side[Schema]:
        """The features of every record, as the job knows or learns them."""
        learns = self._job.learns
        if not isinstance(learns, LearnSchema):
            return self._output.schema
        learned = read[_FirstPass.LEARNED] | "MergeLearned" >> MergeInPieces(learns.empty)
        return AsWhole(
            learned.pipeline
            | "SchemaOnce" >> beam.Create([None])
            | "Schema"
            >> beam.Map(
                _schema,
                AsMerged(learned, learns.empty),
                learns.schema_of,
                self._output.placement.split_features,
            )
            | "CutSchema" >> InPieces()
        )

    def _tokenizer(self, inputs: tuple[beam.PCollection, ...], strata: Side[bytes]) -> Side[str]:
        """The tokenizer that was given or is learned; "" without subwords."""
        if self._given_tokenizer:
            # A side input, because a value would be pickled into every step that takes it.
            given = inputs[0].pipeline | "GivenTokenizer" >> beam.Create([self._given_tokenizer])
            return AsWhole(given | "CutTokenizer" >> InPieces())
        if not isinstance(self._job.learns, LearnSubwords):
            return ""
        learn = LearnTokenizer(self._job.learns, self._output, self._processes, strata)
        return AsWhole(inputs | "LearnTokenizer" >> learn)
