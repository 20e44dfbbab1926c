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
from beam_jobs.encode import check_crc32c
from beam_jobs.files import is_local
from beam_jobs.output import Output
from beam_jobs.plan import PlanShards
from beam_jobs.pool import Window, call, shared_pool
from beam_jobs.resume import ShardResult
from beam_jobs.shard_step import ShardStep
from beam_jobs.shard_writer import ShardWriter, WriteEncoded, count_shard, write_spooled
from beam_jobs.shards import STAGING
from beam_jobs.spool import Spool
from beam_jobs.summary import label_names_of
from beam_jobs.text import CHUNK_BYTES, Chunk, TextJob
from beam_jobs.text_passes import Encoded, FirstPass, Read, SecondPass
from beam_jobs.vocabulary import BuildVocabulary
from readers.format.manifest import join

# References that wait for others of their shard, so that one element carries many: 32 bytes each.
_REFERENCES_HELD = 1 << 20


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


class _ReadKeys(beam.DoFn):
    """The first pass: chunks -> packed blocks of hashes, a summary, and counts of words."""

    SUMMARY, WORDS = "summary", "words"

    def __init__(self, job: TextJob, output: Output, processes: int) -> None:
        self._pass = FirstPass(job, output.placement, output.on_reject)
        self._processes = processes

    def start_bundle(self) -> None:
        self._packed = pickle.dumps(self._pass)
        self._window: Window[Read] = shared_pool(self._processes).window()

    def process(self, chunks: list[Chunk]) -> Iterator[Any]:
        progress.advance("reading", 0)
        for read in self._window.submit(call, self._packed, "read", chunks):
            yield from self._outputs(read)

    def finish_bundle(self) -> Iterator[Any]:
        for read in self._window.drain():
            yield from map(at_end_of_bundle, self._outputs(read))

    def _outputs(self, read: Read) -> Iterator[Any]:
        progress.advance("reading", read.size)
        found = sum(split.rejected + split.records for split in read.summary.splits)
        Metrics.counter("texts", "found").inc(found)
        yield TaggedOutput(self.SUMMARY, read.summary)
        if read.block:
            yield read.block
        for item in read.counts:
            yield TaggedOutput(self.WORDS, item)


class _EncodeTexts(beam.DoFn):
    """The second pass: chunks -> (split and shard, packed records or references to them)."""

    def __init__(self, job: TextJob, output: Output, processes: int, spool: Spool | None) -> None:
        self._job, self._output, self._processes = job, output, processes
        self._spool = spool

    def setup(self) -> None:
        check_crc32c()

    def start_bundle(self) -> None:
        self._packed: bytes | None = None
        self._window: Window[Encoded] = shared_pool(self._processes).window()
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
                    self._job, output.placement, output.schema, names, vocabulary, plan, self._spool
                )
            )
        progress.advance("encoding", 0)
        for encoded in self._window.submit(call, self._packed, "encode", chunks):
            yield from self._outputs(encoded)

    def finish_bundle(self) -> Iterator[Any]:
        for encoded in self._window.drain():
            yield from map(at_end_of_bundle, self._outputs(encoded))
        yield from map(at_end_of_bundle, self._release())

    def _outputs(self, encoded: Encoded) -> Iterator[Any]:
        records = sum(statistics.records for _, statistics in encoded.statistics)
        progress.advance("encoding", encoded.size)
        Metrics.counter("texts", "encoded").inc(records)
        for item in encoded.statistics:
            yield TaggedOutput(STATISTICS, item)
        if not self._spool:
            yield from encoded.shards
            return
        for key, reference in encoded.shards:
            self._references.setdefault(key, []).append(reference)
        self._held += len(encoded.shards)
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

    def outputs(self, outcome: ShardResult) -> Iterator[ShardResult]:
        count_shard(outcome)
        yield outcome


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
