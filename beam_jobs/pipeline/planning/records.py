"""Plans a job: from patterns to the plan, without encoding a record.

A task is a few chunks of files, a whole file that has to be read from its start, or up to some hundred files
that need not be read, because each is one record.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.pvalue import TaggedOutput

from beam_jobs.dataset.generations import prepare
from beam_jobs.dataset.output import Output
from beam_jobs.engines.pool import call_pickled
from beam_jobs.jobs.loading import Loader
from beam_jobs.jobs.passes import FirstPassResult
from beam_jobs.jobs.protocols import LearnSchema, LearnSubwords, LearnWords, RecordJob
from beam_jobs.jobs.split_rules import GroupRules, SplitRules
from beam_jobs.jobs.text.duplicates import Tally
from beam_jobs.pipeline.list_tasks import ListTasks
from beam_jobs.pipeline.near.drop import DropNear
from beam_jobs.pipeline.near.find import SKETCHING
from beam_jobs.pipeline.near.rules import NearRules
from beam_jobs.pipeline.planning.shards import (
    Measure,
    Planned,
    PlanShards,
    Prepare,
    Side,
    names_of_labels,
)
from beam_jobs.pipeline.planning.strata import PlanSplits
from beam_jobs.pipeline.steps import (
    PLANNING,
    AsMerged,
    AsWhole,
    MergeInPieces,
    ReadTasks,
    TaskStep,
    as_whole,
    loading_pool,
    once,
)
from beam_jobs.pipeline.text_steps import (
    COMPARING,
    SAMPLING,
    BuildVocabulary,
    DropDuplicates,
    LearnTokenizer,
)
from beam_jobs.plan.group_splits import GroupSizes
from beam_jobs.plan.labels import LabelHashes
from beam_jobs.plan.near.tally import NearTally
from beam_jobs.records.rejects import Reject
from beam_jobs.sources.chunks import Task
from readers.format.schema import Schema

Counted = LabelHashes | GroupSizes

# The names of passes in progress.
COUNTING, READING = "counting", "reading"


class _FirstPass(TaskStep[FirstPassResult]):
    """Task -> packed blocks of hashes, a summary, packed blocks of references, and what the job learns."""

    SUMMARY, REFERENCES, LEARNED = "summary", "references", "learned"

    def __init__(self, job: RecordJob, output: Output, processes: int) -> None:
        super().__init__(PLANNING if job.as_file_job() else READING, processes)
        self._job, self._output = job, output

    def work(self, strata: bytes, tokenizer: str) -> Callable[[Task], FirstPassResult]:
        rules = SplitRules(self._output.placement, strata)
        return self._job.first_pass(rules, self._output.on_reject, tokenizer).read

    def outputs(self, result: FirstPassResult) -> Iterator[Any]:
        found = sum(split.rejected + split.records for split in result.summary.splits)
        if (mapper := self._output.mapper) and not self._job.as_file_job():
            for split in result.summary.splits:
                split.bytes = int(split.bytes * mapper.growth)
        counter = ("files", "planned") if self._phase == PLANNING else ("parts", "found")
        Metrics.counter(*counter).inc(found)
        yield TaggedOutput(self.SUMMARY, result.summary)
        yield from result.blocks
        for block in result.references:
            yield TaggedOutput(self.REFERENCES, block)
        for element in result.learned:
            yield TaggedOutput(self.LEARNED, element)


def _measure(references: list[bytes], loader: Loader, processes: int) -> list[int | Reject]:
    """The size in bytes of each record with its framing, or why it cannot be loaded."""
    packed = pickle.dumps(loader.measure)
    step = -(-len(references) // processes) or 1
    starts = range(0, len(references), step)
    tasks = ((packed, references[start : start + step]) for start in starts)
    measured = loading_pool(processes).map(call_pickled, tasks)
    return list(itertools.chain.from_iterable(measured))


def _found_after(found: int, _: Schema) -> int:
    return found


class PlanRecords(beam.PTransform):
    """A pipeline -> `Planned`.

    Args:
        job: Defines the records.
        output: The dataset.
        processes: The number of processes that read, in each of the runner's workers.
        prepare: Makes the output directory ready for shards; None leaves it alone.
        near: Which near duplicates are dropped; None if they are kept.
        later: The names in progress of the passes over all tasks that follow the plan.
    """

    def __init__(
        self,
        job: RecordJob,
        output: Output,
        processes: int,
        prepare: Prepare | None = prepare,
        later: Sequence[str] = (),
        near: NearRules | None = None,
    ) -> None:
        super().__init__()
        self._given_tokenizer = job.tokenizer
        self._job, self._output, self._processes = job.without_tokenizer(), output, processes
        self._digester = job.digester(SplitRules(output.placement))
        self._prepare, self._later, self._near = prepare, later, near

    def expand(self, pipeline: beam.Pipeline) -> Planned:
        job, output = self._job, self._output
        listed = pipeline | "ListTasks" >> ListTasks(job, self._processes, self._phases())
        found = listed.found
        tasks, tally = self._without_duplicates(listed.tasks)
        tasks, near_tally = self._without_near(tasks, found)
        strata = self._strata(tasks)
        tokenizer = self._tokenizer((tasks, listed.bytes, found), strata)
        first_pass = _FirstPass(job, output, self._processes)
        has_earlier_pass = self._phases()[0] not in (PLANNING, READING)
        spread = tasks | "SpreadAgain" >> beam.Reshuffle() if has_earlier_pass else tasks
        read = spread | "ReadKeys" >> beam.ParDo(first_pass, strata, tokenizer).with_outputs(
            _FirstPass.SUMMARY, _FirstPass.REFERENCES, _FirstPass.LEARNED, main="hashes"
        )
        schema = self._schema(read)
        if isinstance(job.learns, LearnSchema):
            # Records that contradict each other must end the job before it clears the output.
            found |= "AfterSchema" >> beam.Map(_found_after, schema)
        learns_tokens = isinstance(job.learns, LearnWords | LearnSubwords)
        learns_from = output.placement.splits.training if learns_tokens else None
        shards = (
            read[_FirstPass.SUMMARY],
            read["hashes"],
            found,
            listed.cut,
        ) | "Plan" >> PlanShards(
            output,
            self._measure(),
            patterns=len(job.inputs.patterns),
            prepare=self._prepare,
            passes=(output.placement, strata, near_tally, tally, learns_from),
        )
        vocabulary: Side[tuple[bytes, ...]] = job.vocabulary
        if isinstance(job.learns, LearnWords):
            build = BuildVocabulary(job.learns.size, shards.summary)
            built = read[_FirstPass.LEARNED] | "Vocabulary" >> build
            vocabulary = as_whole(built, "Vocabulary")
        return Planned(
            inputs=tasks,
            hashes=read["hashes"],
            shards=shards,
            names=names_of_labels(pipeline, shards.summary, job.class_names),
            schema=schema,
            vocabulary=vocabulary,
            tokenizer=tokenizer,
            strata=strata,
            references=read[_FirstPass.REFERENCES],
        )

    def _measure(self) -> Measure | None:
        """Measures sampled records whose sizes are not known yet, because they were not read."""
        files, output = self._job.as_file_job(), self._output
        if not files:
            return None
        renamed, mapper = output.feature_names, output.mapper
        loader = Loader(files, output.schema, feature_names=renamed, mapper=mapper)
        return partial(_measure, loader=loader, processes=self._processes)

    def _phases(self) -> list[str]:
        """The names of the passes over all tasks in progress, in order."""
        samples = isinstance(self._job.learns, LearnSubwords)
        return [
            *[COMPARING] * bool(self._digester),
            *[SKETCHING] * bool(self._near),
            *[COUNTING] * self._output.placement.plans_splits,
            *[SAMPLING] * samples,
            PLANNING if self._job.as_file_job() else READING,
            *self._later,
        ]

    def _without_duplicates(
        self, tasks: beam.PCollection
    ) -> tuple[beam.PCollection, Side[Tally | None]]:
        """The tasks, which know the records that they drop, and a tally of those."""
        if not self._digester:
            return tasks, None
        return tasks | "DropDuplicates" >> DropDuplicates(self._digester, self._processes)

    def _without_near(
        self, tasks: beam.PCollection, found: beam.PCollection
    ) -> tuple[beam.PCollection, Side[NearTally | None]]:
        """The tasks, which know the near duplicates that they drop, and a tally of those."""
        if not self._near:
            return tasks, None
        rules = SplitRules(self._output.placement)
        drop = DropNear(self._near, self._job.sketcher(self._near, rules), self._processes)
        return (tasks, found) | "DropNear" >> drop

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
        counted = tasks | "Count" >> beam.ParDo(ReadTasks(COUNTING, count, self._processes))
        return AsWhole(counted | "PlanSplits" >> PlanSplits(placement))

    def _schema(self, read: beam.pvalue.DoOutputsTuple) -> Side[Schema]:
        """The features of every record, as the job knows or learns them."""
        learns = self._job.learns
        if not isinstance(learns, LearnSchema) or self._output.mapper:
            return self._output.schema
        learned = read[_FirstPass.LEARNED] | "MergeLearned" >> MergeInPieces(learns.empty)
        sides = AsMerged(learned, learns.empty), self._output.placement.split_features
        return as_whole(once(learned.pipeline, "Schema", learns.schema_of, *sides), "Schema")

    def _tokenizer(self, inputs: tuple[beam.PCollection, ...], strata: Side[bytes]) -> Side[str]:
        """The tokenizer that was given or is learned; "" without subwords."""
        if self._given_tokenizer:
            # A side input, because a value would be pickled into every step that takes it.
            given = inputs[0].pipeline | "GivenTokenizer" >> beam.Create([self._given_tokenizer])
            return as_whole(given, "Tokenizer")
        if not isinstance(self._job.learns, LearnSubwords):
            return ""
        learn = LearnTokenizer(self._job.learns, self._output, self._processes, strata)
        return AsWhole(inputs | "LearnTokenizer" >> learn)
