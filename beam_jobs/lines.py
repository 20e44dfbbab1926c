"""The pipeline of the text job, whose records are parts of files.

Files are read twice: once for keys, labels and words, once to encode. The encoded records pass
the one shuffle as blocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsSingleton, TaggedOutput

from beam_jobs.blocks import Block, BlockBuilder
from beam_jobs.commit import CommitDataset
from beam_jobs.encode import (
    STATISTICS,
    RecordEncoder,
    at_end_of_bundle,
    check_crc32c,
    pack_record,
)
from beam_jobs.errors import DataError
from beam_jobs.group import GroupByShard
from beam_jobs.labels import LabelIds
from beam_jobs.output import Output
from beam_jobs.plan import PlanShards
from beam_jobs.rejects import Reject
from beam_jobs.shard_writer import WriteEncoded
from beam_jobs.summary import Summary, label_names_of
from beam_jobs.text import CHUNK_BYTES, Chunk, Text, TextJob
from beam_jobs.vocabulary import BuildVocabulary, Tokenizer, pack_counts, words

# What an Example adds to its text: framing, names, key and label; only sizes of shards depend on it.
_OVERHEAD_BYTES = 90
_BYTES_PER_TOKEN = 2


class _ListChunks(beam.DoFn):
    """Patterns -> lists of chunks: a large file in many, many small files in one."""

    def __init__(self, job: TextJob) -> None:
        self._job = job

    def process(self, pattern: str) -> Iterator[list[Chunk]]:
        batch: list[Chunk] = []
        total = 0
        for key, size in self._job.inputs.files(pattern):
            for chunk in self._job.chunks(key, size):
                batch.append(chunk)
                total += (chunk.end or size) - chunk.start
                if total >= CHUNK_BYTES or len(batch) >= 256:
                    yield batch
                    batch, total = [], 0
        if batch:
            yield batch


class _ReadKeys(beam.DoFn):
    """The first pass: chunks -> packed blocks of hashes, a summary, and counts of words."""

    SUMMARY, WORDS = "summary", "words"

    def __init__(self, job: TextJob, output: Output) -> None:
        self._job, self._output = job, output
        names = output.placement.splits.names
        self._training = names.index("train") if "train" in names else 0

    def process(self, chunks: list[Chunk]) -> Iterator[Any]:
        job, placement = self._job, self._output.placement
        summary = Summary.empty(len(self._output.num_shards))
        hashes: list[int] = []
        splits: list[int] = []
        counts: Counter[bytes] = Counter()
        for chunk in chunks:
            for text in job.read(chunk):
                split = placement.split(text.key)
                if text.text is None:
                    reject = Reject.of(text.key, "read", text.error)
                    if self._output.on_reject == "fail":
                        raise DataError(f"{reject} (--on_reject fail)")
                    summary.add_reject(split, reject)
                    continue
                hashes.append(placement.order(text.key))
                splits.append(split)
                size = len(text.text) + len(text.key) + _OVERHEAD_BYTES
                if text.label is not None:
                    summary.labels.add(text.label)
                if job.tokens == "words":
                    found = words(text.text)
                    size += _BYTES_PER_TOKEN * len(found)
                    if split == self._training:
                        counts.update(found)
                elif job.tokens == "bytes":
                    size += _BYTES_PER_TOKEN * len(text.text)
                summary.splits[split].bytes += size
            summary.add_labels(())
        Metrics.counter("texts", "found").inc(len(hashes))
        block = Block(np.array(hashes, np.uint64), np.array(splits, np.uint8), [b""] * len(hashes))
        summary.add_block(block)
        yield TaggedOutput(self.SUMMARY, summary)
        if hashes:
            yield block.pack()
        for item in pack_counts(counts):
            yield TaggedOutput(self.WORDS, item)


class _EncodeTexts(beam.DoFn):
    """The second pass: chunks -> packed blocks of encoded records, and their statistics."""

    def __init__(self, job: TextJob, output: Output) -> None:
        self._job, self._output = job, output

    def setup(self) -> None:
        check_crc32c()

    def start_bundle(self) -> None:
        self._encoder = RecordEncoder(self._output)
        self._tokenizer: Tokenizer | None = None

    def process(
        self, chunks: list[Chunk], names: tuple[str, ...], vocabulary: tuple[bytes, ...]
    ) -> Iterator[bytes]:
        job, placement = self._job, self._output.placement
        if self._tokenizer is None and job.tokens != "none":
            self._tokenizer = Tokenizer(job.tokens, vocabulary, job.max_length)
        ids = LabelIds(names)
        builder = BlockBuilder(max_records=1 << 20)
        for chunk in chunks:
            for text in job.read(chunk):
                split = placement.split(text.key)
                body = self._body(text, split, ids)
                full = builder.add(placement.order(text.key), split, pack_record(text.key, body))
                if full:
                    yield full
        left = builder.flush()
        if left:
            yield left

    def _body(self, text: Text, split: int, ids: LabelIds) -> bytes | Reject:
        if text.text is None:
            return Reject.of(text.key, "read", text.error)
        record: dict[str, Any] = {"key": text.key, "text": text.text}
        if text.label is not None:
            record["label"] = ids[text.label]
        if self._tokenizer:
            record["tokens"] = self._tokenizer(text.text)
        return self._encoder.encode(split, record)

    def finish_bundle(self) -> Iterator[TaggedOutput]:
        for statistics in self._encoder.statistics():
            yield at_end_of_bundle(TaggedOutput(STATISTICS, statistics))


class WriteTexts(beam.PTransform):
    """The whole pipeline of a `TextJob`, from patterns to a PCollection of one Manifest.

    Args:
        job: What a record is.
        output: The dataset.
    """

    def __init__(self, job: TextJob, output: Output) -> None:
        super().__init__()
        self._job, self._output = job, output

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        job, output = self._job, self._output
        chunks = (
            pipeline
            | "Patterns" >> beam.Create(job.inputs.patterns)
            | "List" >> beam.ParDo(_ListChunks(job))
            | "Spread" >> beam.Reshuffle()
        )
        read = chunks | "ReadKeys" >> beam.ParDo(_ReadKeys(job, output)).with_outputs(
            _ReadKeys.SUMMARY, _ReadKeys.WORDS, main="blocks"
        )
        plan, summary = (read[_ReadKeys.SUMMARY], read["blocks"]) | "Plan" >> PlanShards(output)
        names = summary | "LabelNames" >> beam.Map(label_names_of)
        vocabulary = (
            read[_ReadKeys.WORDS] | "Vocabulary" >> BuildVocabulary(job.vocabulary_size)
            if job.tokens == "words"
            else pipeline | "NoVocabulary" >> beam.Create([()])
        )
        encoded = (
            chunks
            | "SpreadAgain" >> beam.Reshuffle()
            | "Encode"
            >> beam.ParDo(
                _EncodeTexts(job, output), AsSingleton(names), AsSingleton(vocabulary)
            ).with_outputs(STATISTICS, main="blocks")
        )
        results = (
            (encoded["blocks"], plan)
            | "Group" >> GroupByShard()
            | "Write" >> beam.ParDo(WriteEncoded(output), AsSingleton(plan))
        )
        return (plan, results, encoded[STATISTICS], names, vocabulary) | CommitDataset(output)
