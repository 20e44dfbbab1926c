"""The pipeline of jobs whose records are parts of files, or lie in archives read from their front.

Files are read twice: once for keys, labels and words, once to encode. The encoded records of a
shard pass the one shuffle as blocks, or as references to blocks on the disk of this machine.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsList, AsSingleton, TaggedOutput

from beam_jobs import progress
from beam_jobs.assign import Plan
from beam_jobs.bundle import STATISTICS, at_end_of_bundle
from beam_jobs.chunks import Chunk, Work, together
from beam_jobs.commit import CommitDataset, TokenFiles, Written
from beam_jobs.duplicates import MarkDuplicates, Tally, check_tally, pack_digests
from beam_jobs.file_passes import FileFirstPass, FileSecondPass, PartsJob
from beam_jobs.files import is_local
from beam_jobs.inference import SchemaGuess
from beam_jobs.labels import Names
from beam_jobs.learn import Sample, learn, sample_below
from beam_jobs.merge import MergeFn
from beam_jobs.output import Output
from beam_jobs.passes import Encoded, FirstPass, Places, Read, SecondPass
from beam_jobs.plan import PlanShards
from beam_jobs.pool import call
from beam_jobs.reshard import ReshardFirstPass, ReshardJob, ReshardSecondPass, deciding
from beam_jobs.resume import ShardResult
from beam_jobs.shard_writer import ShardWriter, WriteEncoded, count_shard, write_spooled
from beam_jobs.shards import STAGING
from beam_jobs.spool import Spool
from beam_jobs.strata import Labelled, check_strata
from beam_jobs.stratify import PlanStrata
from beam_jobs.summary import Summary, label_names_of
from beam_jobs.text import TextJob
from beam_jobs.text_passes import TextDigests, TextFirstPass, TextSample, TextSecondPass
from beam_jobs.vocabulary import BuildVocabulary
from beam_jobs.window_step import ShardStep, WindowStep
from readers.format.manifest import join
from readers.format.schema import Schema

AnyJob = TextJob | ReshardJob | PartsJob

# References that wait for others of their shard, so that one element carries many: 20 MB at most.
_REFERENCES_HELD = 1 << 18


def _first_pass(job: AnyJob, places: Places, on_reject: str, tokenizer: str) -> FirstPass:
    if isinstance(job, TextJob):
        return TextFirstPass(places=places, on_reject=on_reject, job=job, tokenizer=tokenizer)
    if isinstance(job, ReshardJob):
        return ReshardFirstPass(places=places, on_reject=on_reject, job=job)
    return FileFirstPass(places=places, on_reject=on_reject, job=job)


class _ListWork(beam.DoFn):
    """Patterns -> work, how many chunks there are, and how many bytes."""

    FOUND, BYTES = "found", "bytes"

    def __init__(self, job: AnyJob) -> None:
        self._job = job

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
        progress.expect("reading", size, "B")
        progress.expect("encoding", size, "B")
        Metrics.counter("files", "chunks").inc(found)
        Metrics.counter("files", "bytes").inc(size)
        yield TaggedOutput(self.FOUND, found)
        yield TaggedOutput(self.BYTES, size)


class _Digest(WindowStep[tuple[str, Any]]):
    """Work -> (partition, (id of the work, packed digests of its texts))."""

    def __init__(self, job: TextJob, output: Output, processes: int) -> None:
        super().__init__(processes)
        self._pass = TextDigests(job, Places(output.placement))

    def start_bundle(self) -> None:
        super().start_bundle()
        self._packed = pickle.dumps(self._pass)

    def process(self, work: Work) -> Iterator[Any]:
        yield from self.submit(call, self._packed, "digests", work)

    def outputs(self, result: tuple[str, Any]) -> Iterator[tuple[int, tuple[str, bytes]]]:
        name, found = result
        for partition, rows in pack_digests(*found):
            yield partition, (name, rows)


class _ReadLabels(WindowStep[Labelled]):
    """Work -> the labels of its records."""

    def __init__(self, job: AnyJob, output: Output, processes: int) -> None:
        super().__init__(processes)
        self._job, self._output = job, output

    def start_bundle(self) -> None:
        super().start_bundle()
        places = Places(self._output.placement)
        self._packed = pickle.dumps(_first_pass(self._job, places, "skip", ""))

    def process(self, work: Work) -> Iterator[Any]:
        yield from self.submit(call, self._packed, "labelled", work)

    def outputs(self, result: Labelled) -> Iterator[Labelled]:
        yield result


class _Sample(WindowStep[Sample]):
    """Work -> texts to learn a tokenizer from."""

    def __init__(self, job: TextJob, output: Output, processes: int) -> None:
        super().__init__(processes)
        self._job, self._output = job, output

    def start_bundle(self) -> None:
        super().start_bundle()
        self._packed: bytes | None = None

    def process(self, work: Work, strata: bytes, size: int) -> Iterator[Any]:
        if self._packed is None:
            places = Places(self._output.placement, strata)
            self._packed = pickle.dumps(TextSample(self._job, places, sample_below(size)))
        yield from self.submit(call, self._packed, "sample", work)

    def outputs(self, result: Sample) -> Iterator[Sample]:
        yield result


class _ReadKeys(WindowStep[Read]):
    """The first pass: work -> packed blocks of hashes, a summary, and counts of words."""

    SUMMARY, WORDS, GUESS = "summary", "words", "guess"

    def __init__(self, job: AnyJob, output: Output, processes: int) -> None:
        super().__init__(processes)
        self._job, self._output = job, output

    def start_bundle(self) -> None:
        super().start_bundle()
        self._packed: bytes | None = None

    def process(self, work: Work, strata: bytes, tokenizer: str) -> Iterator[Any]:
        if self._packed is None:
            places = Places(self._output.placement, strata)
            first = _first_pass(self._job, places, self._output.on_reject, tokenizer)
            self._packed = pickle.dumps(first)
        progress.advance("reading", 0)
        yield from self.submit(call, self._packed, "read", work)

    def outputs(self, result: Read) -> Iterator[Any]:
        progress.advance("reading", result.size)
        found = sum(split.rejected + split.records for split in result.summary.splits)
        Metrics.counter("parts", "found").inc(found)
        yield TaggedOutput(self.SUMMARY, result.summary)
        if result.block:
            yield result.block
        for item in result.counts:
            yield TaggedOutput(self.WORDS, item)
        if isinstance(self._job, ReshardJob):
            yield TaggedOutput(self.GUESS, result.guess)


@dataclass(frozen=True)
class _Known:
    """What the second pass has to know of the first.

    Attributes:
        names: Of classes.
        vocabulary: All words by id.
        tokenizer: The text of the tokenizer's file; empty without subwords.
        strata: Packed, the splits by label.
        schema: Of the records.
    """

    names: Names
    vocabulary: tuple[bytes, ...]
    tokenizer: str
    strata: bytes
    schema: Schema


class _Encode(WindowStep[Encoded]):
    """The second pass: work -> (split and shard, packed records or references to them)."""

    def __init__(self, job: AnyJob, output: Output, processes: int, spool: Spool | None) -> None:
        super().__init__(processes)
        self._job, self._output, self._spool = job, output, spool

    def start_bundle(self) -> None:
        super().start_bundle()
        self._packed: bytes | None = None
        self._references: dict[int, list[bytes]] = {}
        self._held = 0

    def process(self, work: Work, plan: bytes, *known: Any) -> Iterator[Any]:
        if self._packed is None:
            self._packed = pickle.dumps(self._pass(_Known(*known), plan))
        progress.advance("encoding", 0)
        yield from self.submit(call, self._packed, "encode", work)

    def _pass(self, known: _Known, plan: bytes) -> SecondPass:
        job, output = self._job, self._output
        common: dict[str, Any] = {
            "places": Places(output.placement, known.strata),
            "schema": known.schema,
            "names": known.names,
            "plan": plan,
            "spool": self._spool,
            "stored": output.stored,
        }
        if isinstance(job, TextJob):
            return TextSecondPass(
                **common, job=job, vocabulary=known.vocabulary, tokenizer=known.tokenizer
            )
        if isinstance(job, ReshardJob):
            return ReshardSecondPass(**common, job=job)
        return FileSecondPass(**common, job=job)

    def finish_bundle(self) -> Iterator[Any]:
        yield from super().finish_bundle()
        yield from map(at_end_of_bundle, self._release())

    def outputs(self, result: Encoded) -> Iterator[Any]:
        records = sum(statistics.records for _, statistics in result.statistics)
        progress.advance("encoding", result.size)
        Metrics.counter("parts", "encoded").inc(records)
        for item in result.statistics:
            yield TaggedOutput(STATISTICS, item)
        if not self._spool:
            yield from result.shards
            return
        for key, reference in result.shards:
            self._references.setdefault(key, []).append(reference)
        self._held += len(result.shards)
        if self._held >= _REFERENCES_HELD:
            yield from self._release()

    def _release(self) -> Iterator[tuple[int, bytes]]:
        for key, references in self._references.items():
            yield key, b"".join(references)
        self._references, self._held = {}, 0


class _WriteSpooled(ShardStep[ShardResult]):
    """(split and shard, references to its records) -> its result."""

    def __init__(self, output: Output, processes: int, spool: Spool) -> None:
        super().__init__(processes)
        self._output, self._spool = output, spool

    def process(self, element: tuple[int, Iterable[bytes]], plan: bytes) -> Iterator[ShardResult]:
        key, references = element
        writer = ShardWriter(self._output, Plan.unpack(plan), key)
        yield from self.submit(write_spooled, writer, self._spool, list(references))

    def outputs(self, result: ShardResult) -> Iterator[ShardResult]:
        count_shard(result)
        yield result


class WriteParts(beam.PTransform):
    """The whole pipeline of a job, from patterns to a PCollection of one Manifest.

    Args:
        job: What a record is.
        output: The dataset.
        processes: That read and encode, in each of the runner's workers.
    """

    def __init__(self, job: AnyJob, output: Output, processes: int = 1) -> None:
        super().__init__()
        self._job, self._output, self._processes = job, output, processes

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        output, processes = self._output, self._processes
        job, _ = _tokenizer_apart(self._job)
        spool = None
        write: beam.DoFn = WriteEncoded(output)
        if processes > 1 and is_local(output.directory):
            spool = Spool(join(output.directory, STAGING))
            write = _WriteSpooled(output, processes, spool)
        read = pipeline | "Read" >> ReadParts(self._job, output, processes)
        encoded = (
            read.works
            | "SpreadAgain" >> beam.Reshuffle()
            | "Encode"
            >> beam.ParDo(
                _Encode(job, output, processes, spool),
                *map(AsSingleton, (read.plan, read.names, read.vocabulary)),
                read.tokenizer,
                read.strata,
                AsSingleton(read.schema),
            ).with_outputs(STATISTICS, main="shards")
        )
        results = (
            encoded["shards"]
            | "GroupByShard" >> beam.GroupByKey()
            | "Write" >> beam.ParDo(write, AsSingleton(read.plan))
        )
        tokens = (
            pipeline
            | "Files" >> beam.Create([None])
            | "TokenFiles" >> beam.Map(_token_files, AsSingleton(read.vocabulary), read.tokenizer)
        )
        return Written(
            read.plan,
            results,
            encoded[STATISTICS],
            read.names,
            tokens,
            read.summary,
            read.schema,
        ) | CommitDataset(output)


def _token_files(_: None, vocabulary: tuple[bytes, ...], tokenizer: str) -> TokenFiles:
    return TokenFiles(vocabulary, tokenizer)


def _tokenizer_apart(job: AnyJob) -> tuple[AnyJob, str]:
    """The job as steps carry it, and its tokenizer.

    Beam packs a job anew for each of them, which takes seconds of a tokenizer of megabytes.
    """
    if isinstance(job, TextJob | ReshardJob):
        return replace(job, tokenizer=""), job.tokenizer
    return job, ""


def _first(element: Any, _: Any) -> Any:
    return element


def _check_passes(summary: Summary, strata: bytes, tally: Tally | None) -> Summary:
    return check_tally(check_strata(summary, strata), tally)


class Known(NamedTuple):
    """What is known before a record is encoded: PCollections of one element each, but `works`.

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


class ReadParts(beam.PTransform):
    """The first pass of a job, from patterns to the plan.

    Args:
        job: What a record is.
        output: The dataset.
        processes: That read, in each of the runner's workers.
        prepare: As `PlanShards`.
    """

    def __init__(self, job: AnyJob, output: Output, processes: int, prepare: bool = True) -> None:
        super().__init__()
        self._job, self._output, self._processes = job, output, processes
        self._prepare = prepare

    def expand(self, pipeline: beam.Pipeline) -> Known:
        output, processes = self._output, self._processes
        job, given = _tokenizer_apart(self._job)
        patterns = job.inputs.patterns
        text = job if isinstance(job, TextJob) else None
        listed = (
            pipeline
            | "Patterns" >> beam.Create(patterns)
            | "List"
            >> beam.ParDo(_ListWork(job)).with_outputs(
                _ListWork.FOUND, _ListWork.BYTES, main="works"
            )
        )
        works = spread = listed["works"] | "Spread" >> beam.Reshuffle()
        tally: Any = None
        if text and text.drop_duplicates:
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
        if text and text.tokens == "bpe":
            size = listed[_ListWork.BYTES] | "AllBytes" >> beam.CombineGlobally(sum)
            tokenizer = AsSingleton(
                works
                | "SpreadSample" >> beam.Reshuffle()
                | "Sample"
                >> beam.ParDo(_Sample(text, output, processes), strata, AsSingleton(size))
                | "MergeSamples" >> beam.CombineGlobally(MergeFn(Sample))
                | "Learn" >> beam.Map(learn, text.vocabulary_size, AsList(listed[_ListWork.FOUND]))
            )
        if spread is not works or output.stratify or (text and text.tokens == "bpe"):
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
            listed_files |= "AfterSchema" >> beam.Map(_first, AsSingleton(schema))
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
            check=beam.Map(_check_passes, strata, tally),
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
        )
