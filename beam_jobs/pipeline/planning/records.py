"""Plans a job: from patterns to the plan, without encoding a record.

A task is a few chunks of files, a whole file that has to be read from its start, or up to some hundred files
that need not be read, because each is one record.
"""

from __future__ import annotations

import itertools
import operator
import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.pvalue import TaggedOutput

from beam_jobs.dataset.generations import prepare
from beam_jobs.dataset.output import Output
from beam_jobs.engines.pool import call_pickled
from beam_jobs.jobs.file_passes import FileFirstPass
from beam_jobs.jobs.file_shards import Loader
from beam_jobs.jobs.job import Job, LearnSchema, LearnSubwords, LearnWords, file_job
from beam_jobs.jobs.near import Near
from beam_jobs.jobs.passes import FirstPassResult, Learned
from beam_jobs.jobs.split_rules import GroupRules, SplitRules
from beam_jobs.pipeline.planning.drop_near import DropNear
from beam_jobs.pipeline.planning.learn_tokens import (
    SAMPLING,
    build_vocabulary,
    learn_tokenizer,
)
from beam_jobs.pipeline.planning.list_tasks import ListStep, ListTasks, cut_patterns
from beam_jobs.pipeline.planning.shards import (
    Measure,
    PlannedShards,
    PlanShards,
    Side,
)
from beam_jobs.pipeline.planning.splits import plan_groups, plan_strata
from beam_jobs.pipeline.steps import (
    PLANNING,
    AsMerged,
    AsWhole,
    ReadTasks,
    loading_pool,
    once,
)
from beam_jobs.plan.group_splits import GroupSizes
from beam_jobs.plan.near_pairs import NearTally
from beam_jobs.plan.strata import LabelHashes
from beam_jobs.plan.summary import label_names_of
from beam_jobs.records.rejects import Reject
from beam_jobs.sources.chunks import Task
from readers.format.schema import Schema

Counted = LabelHashes | GroupSizes

# The names of passes in progress.
COUNTING, READING, ENCODING = "counting", "reading", "encoding"

# The tags of the outputs of the first pass, in addition to packed blocks of hashes.
SUMMARY, REFERENCES, LEARNED = "summary", "references", "learned"


def _outputs_of(result: FirstPassResult, whole_files: bool, growth: float) -> Iterator[Any]:
    """Yields the outputs of the first pass: packed blocks of hashes, a summary, packed references, learned facts."""
    found = sum(split.rejected + split.records for split in result.summary.splits)
    for split in result.summary.splits:
        split.bytes = int(split.bytes * growth)
    Metrics.counter(*(("files", "planned") if whole_files else ("parts", "found"))).inc(found)
    yield TaggedOutput(SUMMARY, result.summary)
    yield from result.blocks
    for block in result.references:
        yield TaggedOutput(REFERENCES, block)
    if result.learned is not None:
        yield TaggedOutput(LEARNED, result.learned)


def _reader(
    job: Job, output: Output, strata: bytes, tokenizer: str
) -> Callable[[Task], FirstPassResult]:
    """The first pass over a task."""
    return job.first_pass(SplitRules(output.placement, strata), tokenizer).read


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


class Planned(NamedTuple):
    """The results of the planning half, for the writing half.

    Attributes:
        tasks: The tasks to encode.
        hashes: Packed blocks with the hash of every record.
        references: Packed blocks of references; empty if records are parts of files.
        shards: The plan of the shards.
        learned: The schema, names and vocabulary of all records.
    """

    tasks: beam.PCollection
    hashes: beam.PCollection
    references: beam.PCollection
    shards: PlannedShards
    learned: AsWhole


class PlanRecords(beam.PTransform):
    """A pipeline -> `Planned`.

    Args:
        job: Defines the records.
        output: The dataset.
        processes: The number of processes that read and encode, in each of the runner's workers.
        drops: The duplicates to drop, one entry for each search.
        dry_run: Whether nothing is written, so that the output directory stays as it is.
    """

    def __init__(
        self,
        job: Job,
        output: Output,
        processes: int,
        drops: Sequence[Near] = (),
        dry_run: bool = False,
    ) -> None:
        super().__init__()
        self._given_tokenizer, self._drops, self._dry_run = job.tokenizer, drops, dry_run
        self.job, self.output, self.processes = job.without_tokenizer(), output, processes
        self._reading = PLANNING if job.whole_files else READING

    def expand(self, pipeline: beam.Pipeline) -> Planned:
        job, output, files = self.job, self.output, file_job(self.job)
        tallies: list[Side[NearTally]] = []
        strata: Side[bytes] = b""
        tokenizer: Side[str] = ""
        if files and self._phases()[0] == PLANNING:
            parts, cut = cut_patterns(pipeline, job.inputs, self.processes)
            rules = SplitRules(output.placement)
            first_pass = FileFirstPass(rules=rules, job=files)
            # Files that need no earlier pass are read as they are listed.
            inputs = operator.attrgetter("summary.inputs")
            step = ListStep(first_pass.read_listed, inputs, self.processes)
            listed = parts | "List" >> beam.ParDo(step).with_outputs(step.FOUND, main="results")
            tasks, found, results = parts, listed[step.FOUND], listed["results"]
        else:
            listed = pipeline | "ListTasks" >> ListTasks(job, self.processes, self._phases())
            found, cut = listed.found, listed.cut
            tasks = listed.tasks
            for number, near in enumerate(self._drops, 1):
                sketch = job.sketcher(near, SplitRules(output.placement))
                drop = DropNear(near, sketch, self.processes)
                tasks, tally = (tasks, found) | f"Drop{number}" >> drop
                tallies.append(tally)
            strata = self._strata(tasks)
            tokenizer = self._tokenizer((tasks, listed.bytes, found), strata)
            has_earlier_pass = self._phases()[0] != self._reading
            spread = tasks | "SpreadAgain" >> beam.Reshuffle() if has_earlier_pass else tasks
            step = ReadTasks(self._reading, partial(_reader, job, output), self.processes)
            results = spread | "ReadKeys" >> beam.ParDo(step, strata, tokenizer)
        # The sizes of whole files are measured with the mapper.
        growth = output.mapper.growth if output.mapper and not job.whole_files else 1
        read = results | "Results" >> beam.FlatMap(
            _outputs_of, job.whole_files, growth
        ).with_outputs(SUMMARY, REFERENCES, LEARNED, main="hashes")
        schema = self._schema(read)
        if isinstance(job.learns, LearnSchema):
            # Records that contradict each other must fail the job before it clears the output.
            found |= "AfterSchema" >> beam.Map(_found_after, schema)
        learns_tokens = isinstance(job.learns, LearnWords | LearnSubwords)
        learns_from = output.placement.splits.training if learns_tokens else None
        shards = (
            read[SUMMARY],
            read["hashes"],
            found,
            cut,
        ) | "Plan" >> PlanShards(
            output,
            self._measure(),
            patterns=len(job.inputs.patterns),
            prepare=None if self._dry_run else prepare,
            passes=(output.placement, learns_from, strata, *tallies),
        )
        vocabulary: Side[tuple[bytes, ...]] = job.vocabulary
        if isinstance(job.learns, LearnWords):
            built = build_vocabulary(read[LEARNED], job.learns.size, shards.summary)
            vocabulary = AsWhole(built, "Vocabulary")
        known = output.append.names if output.append else None
        classes = shards.summary, job.class_names, known
        names = AsWhole(once(pipeline, "LabelNames", label_names_of, *classes), "Names")
        facts = schema, names, vocabulary, tokenizer, strata
        learned = AsWhole(once(pipeline, "Learned", Learned, *facts), "Learned")
        return Planned(tasks, read["hashes"], read[REFERENCES], shards, learned)

    def _measure(self) -> Measure | None:
        """Measures sampled records whose sizes are not known yet, because they were not read."""
        if files := file_job(self.job):
            loader = Loader(self.output, Learned(self.output.schema, None), files)
            return partial(_measure, loader=loader, processes=self.processes)
        return None

    def _phases(self) -> list[str]:
        """The names of the passes over all tasks in progress, in order."""
        samples = isinstance(self.job.learns, LearnSubwords)
        return [
            *[near.phase for near in self._drops],
            *[COUNTING] * self.output.placement.plans_splits,
            *[SAMPLING] * samples,
            self._reading,
            *([ENCODING] if not (self.job.whole_files or self._dry_run) else []),
        ]

    def _strata(self, tasks: beam.PCollection) -> Side[bytes]:
        """The packed splits by group or by label; empty to use only hashes."""
        placement = self.output.placement
        if not placement.plans_splits:
            return b""
        if placement.deals_groups and self.output.append:
            return self.output.append.groups
        count: Callable[[Task], Counted]
        if placement.deals_groups:
            count = self.job.first_pass(GroupRules(placement), "skip").group_sizes
        else:
            count = self.job.first_pass(SplitRules(placement), "skip").label_hashes
        counted = tasks | "Count" >> beam.ParDo(ReadTasks(COUNTING, count, self.processes))
        plan = plan_groups if placement.deals_groups else plan_strata
        return AsWhole(plan(counted, placement), "Splits")

    def _schema(self, read: beam.pvalue.DoOutputsTuple) -> Side[Schema]:
        """The features of every record, as the job knows or learns them."""
        learns = self.job.learns
        if not isinstance(learns, LearnSchema) or self.output.mapper:
            return self.output.schema
        learned = AsMerged(read[LEARNED], "MergeLearned", learns.empty)
        sides = learned, self.output.placement.split_features
        return AsWhole(once(read[LEARNED].pipeline, "Schema", learns.schema_of, *sides), "Schema")

    def _tokenizer(self, inputs: tuple[beam.PCollection, ...], strata: Side[bytes]) -> Side[str]:
        """The given or learned tokenizer; "" without subwords."""
        if self._given_tokenizer:
            # A side input, because a value would be pickled into every step that takes it.
            given = inputs[0].pipeline | "GivenTokenizer" >> beam.Create([self._given_tokenizer])
            return AsWhole(given, "Tokenizer")
        if not isinstance(self.job.learns, LearnSubwords):
            return ""
        how = self.job.learns, self.output, self.processes, strata
        return AsWhole(learn_tokenizer(*how, *inputs), "Tokenizer")
