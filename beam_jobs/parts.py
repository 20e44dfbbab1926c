"""The pipeline of the text job, whose records are parts of files.

Files are read twice: once for keys, labels and words, once to encode. The encoded records of a
shard pass the one shuffle as blocks, or as references to blocks on the disk of this machine.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsSingleton, TaggedOutput

from beam_jobs import progress
from beam_jobs.assign import Plan
from beam_jobs.bundle import STATISTICS, at_end_of_bundle
from beam_jobs.commit import CommitDataset
from beam_jobs.files import is_local
from beam_jobs.output import Output
from beam_jobs.plan import PlanShards
from beam_jobs.pool import call
from beam_jobs.resume import ShardResult
from beam_jobs.shard_writer import ShardWriter, WriteEncoded, count_shard, write_spooled
from beam_jobs.shards import STAGING
from beam_jobs.spool import Spool
from beam_jobs.summary import label_names_of
from beam_jobs.text import CHUNK_BYTES, Chunk, TextJob
from beam_jobs.text_passes import Encoded, FirstPass, Read, SecondPass
from beam_jobs.vocabulary import BuildVocabulary
from beam_jobs.window_step import ShardStep, WindowStep
from readers.format.manifest import join

# References that wait for others of their shard, so that one element carries many: 20 MB at most.
_REFERENCES_HELD = 1 << 18


class _ListChunks(beam.DoFn):
    """Patterns -> lists of chunks, and how many chunks there are.

    A large file is in many lists, many small files are in one.
    """

    FOUND = "found"

    def __init__(self, job: TextJob) -> None:
        self._job = job

    def process(self, pattern: str) -> Iterator[Any]:
        batch: list[Chunk] = []
        total = found = size = 0
        for file in self._job.inputs.files(pattern):
            size += file.size
            for chunk in self._job.chunks(file.path, file.size):
                found += 1
                batch.append(chunk)
                total += chunk.size
                if total >= CHUNK_BYTES or len(batch) >= 256:
                    yield batch
                    batch, total = [], 0
        if batch:
            yield batch
        progress.expect("reading", size, "B")
        progress.expect("encoding", size, "B")
        Metrics.counter("files", "chunks").inc(found)
        Metrics.counter("files", "bytes").inc(size)
        yield TaggedOutput(self.FOUND, found)


class _ReadKeys(WindowStep[Read]):
    """The first pass: chunks -> packed blocks of hashes, a summary, and counts of words."""

    SUMMARY, WORDS = "summary", "words"

    def __init__(self, job: TextJob, output: Output, processes: int) -> None:
        super().__init__(processes)
        self._pass = FirstPass(job, output.placement, output.on_reject)

    def start_bundle(self) -> None:
        super().start_bundle()
        self._packed = pickle.dumps(self._pass)

    def process(self, chunks: list[Chunk]) -> Iterator[Any]:
        progress.advance("reading", 0)
        yield from self.submit(call, self._packed, "read", chunks)

    def outputs(self, result: Read) -> Iterator[Any]:
        progress.advance("reading", result.size)
        found = sum(split.rejected + split.records for split in result.summary.splits)
        Metrics.counter("texts", "found").inc(found)
        yield TaggedOutput(self.SUMMARY, result.summary)
        if result.block:
            yield result.block
        for item in result.counts:
            yield TaggedOutput(self.WORDS, item)


class _EncodeTexts(WindowStep[Encoded]):
    """The second pass: chunks -> (split and shard, packed records or references to them)."""

    def __init__(self, job: TextJob, output: Output, processes: int, spool: Spool | None) -> None:
        super().__init__(processes)
        self._job, self._output, self._spool = job, output, spool

    def start_bundle(self) -> None:
        super().start_bundle()
        self._packed: bytes | None = None
        self._references: dict[int, list[bytes]] = {}
        self._held = 0

    def process(
        self,
        chunks: list[Chunk],
        names: tuple[str, ...],
        vocabulary: tuple[bytes, ...],
        plan: bytes,
    ) -> Iterator[Any]:
        if self._packed is None:
            output = self._output
            self._packed = pickle.dumps(
                SecondPass(
                    self._job,
                    output.placement,
                    output.schema,
                    names,
                    vocabulary,
                    plan,
                    self._spool,
                    output.stored,
                )
            )
        progress.advance("encoding", 0)
        yield from self.submit(call, self._packed, "encode", chunks)

    def finish_bundle(self) -> Iterator[Any]:
        yield from super().finish_bundle()
        yield from map(at_end_of_bundle, self._release())

    def outputs(self, result: Encoded) -> Iterator[Any]:
        records = sum(statistics.records for _, statistics in result.statistics)
        progress.advance("encoding", result.size)
        Metrics.counter("texts", "encoded").inc(records)
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


class WriteTexts(beam.PTransform):
    """The whole pipeline of a `TextJob`, from patterns to a PCollection of one Manifest.

    Args:
        job: What a record is.
        output: The dataset.
        processes: That read and encode, in each of the runner's workers.
    """

    def __init__(self, job: TextJob, output: Output, processes: int = 1) -> None:
        super().__init__()
        self._job, self._output, self._processes = job, output, processes

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        job, output, processes = self._job, self._output, self._processes
        listed = (
            pipeline
            | "Patterns" >> beam.Create(job.inputs.patterns)
            | "List" >> beam.ParDo(_ListChunks(job)).with_outputs(_ListChunks.FOUND, main="chunks")
        )
        chunks = listed["chunks"] | "Spread" >> beam.Reshuffle()
        read = chunks | "ReadKeys" >> beam.ParDo(_ReadKeys(job, output, processes)).with_outputs(
            _ReadKeys.SUMMARY, _ReadKeys.WORDS, main="blocks"
        )
        plan, summary = (
            read[_ReadKeys.SUMMARY],
            read["blocks"],
            listed[_ListChunks.FOUND],
        ) | "Plan" >> PlanShards(output, patterns=len(job.inputs.patterns))
        names = summary | "LabelNames" >> beam.Map(label_names_of)
        vocabulary = (
            (read[_ReadKeys.WORDS], summary) | "Vocabulary" >> BuildVocabulary(job.vocabulary_size)
            if job.tokens == "words"
            else pipeline | "NoVocabulary" >> beam.Create([()])
        )
        spool = None
        write: beam.DoFn = WriteEncoded(output)
        if processes > 1 and is_local(output.directory):
            spool = Spool(join(output.directory, STAGING))
            write = _WriteSpooled(output, processes, spool)
        encoded = (
            chunks
            | "SpreadAgain" >> beam.Reshuffle()
            | "Encode"
            >> beam.ParDo(
                _EncodeTexts(job, output, processes, spool),
                AsSingleton(names),
                AsSingleton(vocabulary),
                AsSingleton(plan),
            ).with_outputs(STATISTICS, main="shards")
        )
        results = (
            encoded["shards"]
            | "GroupByShard" >> beam.GroupByKey()
            | "Write" >> beam.ParDo(write, AsSingleton(plan))
        )
        return (plan, results, encoded[STATISTICS], names, vocabulary) | CommitDataset(output)
