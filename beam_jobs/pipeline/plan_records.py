"""The first pass over parts of files: from patterns to the plan.

Work is a few chunks of files, or the whole of one that can only be read from its front.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsList, AsSingleton, TaggedOutput

from beam_jobs import progress
from beam_jobs.dataset.output import Output
from beam_jobs.jobs.file_passes import FileFirstPass
from beam_jobs.jobs.passes import FirstPass, Places, Read
from beam_jobs.jobs.protocols import PartsJob
from beam_jobs.jobs.reshard.job import ReshardJob, deciding
from beam_jobs.jobs.reshard.passes import ReshardFirstPass
from beam_jobs.jobs.reshard.schema_guess import SchemaGuess
from beam_jobs.jobs.text.duplicates import Tally, check_tally, pack_digests
from beam_jobs.jobs.text.job import TextJob
from beam_jobs.jobs.text.passes import TextDigests, TextFirstPass, TextSample
from beam_jobs.jobs.text.sample import Sample, check_training, learn, sample_below
from beam_jobs.pipeline.plan_shards import PlanShards
from beam_jobs.pipeline.plan_strata import PlanStrata
from beam_jobs.pipeline.steps import MergeFn, WorkStep
from beam_jobs.pipeline.text_steps import BuildVocabulary, MarkDuplicates
from beam_jobs.plan.strata import Labelled, check_strata
from beam_jobs.plan.summary import Summary, label_names_of
from beam_jobs.sources.chunks import Chunk, together
from readers.format.schema import Schema

WorkJob = TextJob | ReshardJob | PartsJob

# Tokens that are learned from the training split.
_LEARNED = ("words", "bpe")

# The pass after the plan, as progress calls it.
ENCODING = "encoding"


def _first_pass(job: WorkJob, places: Places, on_reject: str, tokenizer: str) -> FirstPass:
    if isinstance(job, TextJob):
        return TextFirstPass(places=places, on_reject=on_reject, job=job, tokenizer=tokenizer)
    if isinstance(job, ReshardJob):
        return ReshardFirstPass(places=places, on_reject=on_reject, job=job)
    return FileFirstPass(places=places, on_reject=on_reject, job=job)


class _ListWork(beam.DoFn):
    """Patterns -> work, how many chunks there are, and how many bytes.

    Args:
        phases: The passes over all work, as progress calls them.
    """

    FOUND, BYTES = "found", "bytes"

    def __init__(self, job: WorkJob, phases: Sequence[str]) -> None:
        self._job, self._phases = job, phases

    def _chunks(self, pattern: str) -> Iterator[Chunk]:
        job = self._job
        for source in job.sources(pattern):
            if isinstance(job, TextJob):
                yield from job.chunks(source)
            else:
                yield Chunk(source, 0, 0, 1, source.size)

    def process(self, pattern: str) -> Iterator[Any]:
        found = size = 0
        for work in together(self._chunks(pattern)):
            found += len(work.chunks)
            size += work.size
            yield work
        for phase in self._phases:
            progress.expect(phase, size, "B")
        Metrics.counter("files", "chunks").inc(found)
        Metrics.counter("files", "bytes").inc(size)
        yield TaggedOutput(self.FOUND, found)
        yield TaggedOutput(self.BYTES, size)


class _Digest(WorkStep[tuple[str, Any]]):
    """Work -> (partition, (id of the work, packed digests of its texts))."""

    PHASE, METHOD = "comparing", "digests"

    def __init__(self, job: TextJob, output: Output, processes: int) -> None:
        super().__init__(processes)
        self._pass = TextDigests(job, Places(output.placement))

    def made(self) -> TextDigests:
        return self._pass

    def outputs(self, result: tuple[str, Any]) -> Iterator[tuple[int, tuple[str, bytes]]]:
        name, found = result
        for partition, rows in pack_digests(*found):
            yield partition, (name, rows)


class _ReadLabels(WorkStep[Labelled]):
    """Work -> the labels of its records."""

    PHASE, METHOD = "counting", "labelled"

    def __init__(self, job: WorkJob, output: Output, processes: int) -> None:
        super().__init__(processes)
        self._job, self._output = job, output

    def made(self) -> FirstPass:
        return _first_pass(self._job, Places(self._output.placement), "skip", "")

    def outputs(self, result: Labelled) -> Iterator[Labelled]:
        yield result


class _Sample(WorkStep[Sample]):
    """Work -> texts to learn a tokenizer from."""

    PHASE, METHOD = "sampling", "sample"

    def __init__(self, job: TextJob, output: Output, processes: int) -> None:
        super().__init__(processes)
        self._job, self._output = job, output

    def made(self, strata: bytes, size: int) -> TextSample:
        return TextSample(self._job, Places(self._output.placement, strata), sample_below(size))

    def outputs(self, result: Sample) -> Iterator[Sample]:
        yield result


class _ReadKeys(WorkStep[Read]):
    """The first pass: work -> packed blocks of hashes, a summary, and counts of words."""

    PHASE, METHOD = "reading", "read"
    SUMMARY, WORDS, GUESS = "summary", "words", "guess"

    def __init__(self, job: WorkJob, output: Output, processes: int) -> None:
        super().__init__(processes)
        self._job, self._output = job, output

    def made(self, strata: bytes, tokenizer: str) -> FirstPass:
        places = Places(self._output.placement, strata)
        return _first_pass(self._job, places, self._output.on_reject, tokenizer)

    def outputs(self, result: Read) -> Iterator[Any]:
        found = sum(split.rejected + split.records for split in result.summary.splits)
        Metrics.counter("parts", "found").inc(found)
        yield TaggedOutput(self.SUMMARY, result.summary)
        if result.block:
            yield result.block
        for item in result.counts:
            yield TaggedOutput(self.WORDS, item)
        if isinstance(self._job, ReshardJob):
            yield TaggedOutput(self.GUESS, result.guess)


def tokenizer_apart(job: WorkJob) -> tuple[WorkJob, str]:
    """The job as steps carry it, and its tokenizer.

    Beam packs a job anew for each of them, which takes seconds of a tokenizer of megabytes.
    """
    if isinstance(job, TextJob | ReshardJob):
        return replace(job, tokenizer=""), job.tokenizer
    return job, ""


def _found_after(found: int, _: Schema) -> int:
    return found


def _check_passes(
    summary: Summary, strata: bytes, tally: Tally | None, learns_from: int | None
) -> Summary:
    if learns_from is not None:
        check_training(summary, learns_from)
    return check_tally(check_strata(summary, strata), tally)


class Known(NamedTuple):
    """What is known before a record is encoded: PCollections of one element each, but `works` and `blocks`.

    Attributes:
        works: The work of both passes.
        plan: Packed.
        summary: Of all records.
        measured: As `Planned`.
        names: Of classes.
        vocabulary: All words by id; empty without words.
        tokenizer: The text of the tokenizer's file, given or learned; empty without subwords. This
            and `strata` are side inputs, or what those would hold.
        strata: Packed, the splits by label; empty without.
        schema: Of the records.
        blocks: Packed, the hashes of those that can be written.
    """

    works: beam.PCollection
    plan: beam.PCollection
    summary: beam.PCollection
    measured: beam.PCollection
    names: beam.PCollection
    vocabulary: beam.PCollection
    tokenizer: Any
    strata: Any
    schema: beam.PCollection
    blocks: beam.PCollection


class ReadParts(beam.PTransform):
    """The first pass of a job, from patterns to the plan.

    Args:
        job: What a record is.
        output: The dataset.
        processes: That read, in each of the runner's workers.
        prepare: As `PlanShards`.
    """

    def __init__(self, job: WorkJob, output: Output, processes: int, prepare: bool = True) -> None:
        super().__init__()
        self._job, self._output, self._processes = job, output, processes
        self._prepare = prepare

    def expand(self, pipeline: beam.Pipeline) -> Known:
        output, processes = self._output, self._processes
        job, given = tokenizer_apart(self._job)
        patterns = job.inputs.patterns
        text = job if isinstance(job, TextJob) else None
        learns = bool(text and text.tokens == "bpe")
        drops = bool(text and text.drop_duplicates)
        phases = [_Digest.PHASE] * drops + [_ReadLabels.PHASE] * output.stratify
        phases += [_Sample.PHASE] * learns + [_ReadKeys.PHASE, ENCODING]
        listed = (
            pipeline
            | "Patterns" >> beam.Create(patterns)
            | "List"
            >> beam.ParDo(_ListWork(job, phases)).with_outputs(
                _ListWork.FOUND, _ListWork.BYTES, main="works"
            )
        )
        works = spread = listed["works"] | "Spread" >> beam.Reshuffle()
        tally: Any = None
        if text and drops:
            digests = works | "Digest" >> beam.ParDo(_Digest(text, output, processes))
            marked = (works, digests) | "DropDuplicates" >> MarkDuplicates()
            works, tally = marked.works, AsSingleton(marked.tally)
        strata: Any = b""
        if output.stratify:
            labelled = works | "ReadLabels" >> beam.ParDo(_ReadLabels(job, output, processes))
            strata = AsSingleton(labelled | "Stratify" >> PlanStrata(output.placement))
        tokenizer: Any = given
        if given:
            tokenizer = AsSingleton(pipeline | "GivenTokenizer" >> beam.Create([given]))
        if text and learns:
            size = listed[_ListWork.BYTES] | "AllBytes" >> beam.CombineGlobally(sum)
            tokenizer = AsSingleton(
                works
                | "SpreadSample" >> beam.Reshuffle()
                | "Sample"
                >> beam.ParDo(_Sample(text, output, processes), strata, AsSingleton(size))
                | "MergeSamples" >> beam.CombineGlobally(MergeFn(Sample))
                | "Learn" >> beam.Map(learn, text.vocabulary_size, AsList(listed[_ListWork.FOUND]))
            )
        if drops or output.stratify or learns:
            spread = works | "SpreadKeys" >> beam.Reshuffle()
        read = spread | "ReadKeys" >> beam.ParDo(
            _ReadKeys(job, output, processes), strata, tokenizer
        ).with_outputs(_ReadKeys.SUMMARY, _ReadKeys.WORDS, _ReadKeys.GUESS, main="blocks")
        listed_files = listed[_ListWork.FOUND]
        if isinstance(job, ReshardJob):
            schema = (
                read[_ReadKeys.GUESS]
                | "MergeGuesses" >> beam.CombineGlobally(MergeFn(SchemaGuess))
                | "Schema" >> beam.Map(job.schema_of, deciding(output.placement))
            )
            # Records that contradict each other must end the job before it clears the output.
            listed_files |= "AfterSchema" >> beam.Map(_found_after, AsSingleton(schema))
        else:
            schema = pipeline | "Schema" >> beam.Create([output.schema])
        planned = (
            read[_ReadKeys.SUMMARY],
            read["blocks"],
            listed_files,
        ) | "Plan" >> PlanShards(
            output,
            patterns=len(patterns),
            prepare=self._prepare,
            check=beam.Map(
                _check_passes,
                strata,
                tally,
                output.placement.splits.training if text and text.tokens in _LEARNED else None,
            ),
        )
        summary = planned.summary
        known = {} if isinstance(job, TextJob) else job.class_names
        names = summary | "LabelNames" >> beam.Map(label_names_of, known)
        vocabulary = (
            (read[_ReadKeys.WORDS], summary) | "Vocabulary" >> BuildVocabulary(text.vocabulary_size)
            if text and text.tokens == "words"
            else pipeline
            | "GivenVocabulary"
            >> beam.Create([job.vocabulary if isinstance(job, ReshardJob) else ()])
        )
        return Known(
            works,
            planned.plan,
            summary,
            planned.measured,
            names,
            vocabulary,
            tokenizer,
            strata,
            schema,
            read["blocks"],
        )
