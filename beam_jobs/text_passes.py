"""The two passes over the files of a text job, in any process: nothing here imports Beam."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from beam_jobs.assign import Placement
from beam_jobs.blocks import Block, BlockBuilder
from beam_jobs.encode import RecordEncoder
from beam_jobs.errors import DataError
from beam_jobs.labels import LabelIds
from beam_jobs.payload import pack_record
from beam_jobs.ragged import Ragged
from beam_jobs.rejects import Reject
from beam_jobs.statistics import Statistics
from beam_jobs.summary import Summary
from beam_jobs.text import Chunk, Text, TextJob
from beam_jobs.tokens import Tokenizer, WordCounts, pack_counts, words
from readers.format.example import Encoder
from readers.format.schema import Schema

# What an Example adds to its text: framing, names, key and label; only sizes of shards depend on it.
_OVERHEAD_BYTES = 90
_BYTES_PER_TOKEN = 2


class Read(NamedTuple):
    """What the first pass learns from some chunks.

    Attributes:
        summary: Of their records.
        block: Packed, the hashes of those that can be written; None without any.
        counts: Of the words of the training split, by partition.
        size: Bytes of the chunks.
    """

    summary: Summary
    block: bytes | None
    counts: list[tuple[int, WordCounts]]
    size: int


class Encoded(NamedTuple):
    """What the second pass makes of some chunks.

    Attributes:
        blocks: Packed, of all records.
        statistics: By split.
        size: Bytes of the chunks.
    """

    blocks: list[bytes]
    statistics: list[tuple[int, Statistics]]
    size: int


def _size(chunks: Sequence[Chunk]) -> int:
    return sum(chunk.size for chunk in chunks)


@dataclass(frozen=True)
class FirstPass:
    """Chunks -> keys, labels and words.

    Attributes:
        job: What a record is.
        placement: Where records go.
        on_reject: "skip" or "fail".
    """

    job: TextJob
    placement: Placement
    on_reject: str

    def read(self, chunks: Sequence[Chunk]) -> Read:
        """What is to be learned from some chunks.

        Raises:
            DataError: A text cannot become a record, and `on_reject` is "fail".
            UsageError: As `TextJob.read`, or there are too many labels.
        """
        job, placement = self.job, self.placement
        names = placement.splits.names
        training = names.index("train") if "train" in names else 0
        summary = Summary.empty(len(names))
        summary.inputs = len(chunks)
        hashes: list[int] = []
        splits: list[int] = []
        counts: Counter[bytes] = Counter()
        for text in (text for chunk in chunks for text in job.read(chunk)):
            split = placement.split(text.key)
            if text.text is None:
                reject = Reject.of(text.key, "read", text.error)
                if self.on_reject == "fail":
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
                if split == training:
                    counts.update(found)
                    summary.words += len(found)
            elif job.tokens == "bytes":
                size += _BYTES_PER_TOKEN * len(text.text)
            summary.splits[split].bytes += size
        summary.add_labels(())
        nothing = Ragged(np.zeros(len(hashes), np.uint32), b"")
        block = Block(np.array(hashes, np.uint64), np.array(splits, np.uint8), nothing)
        summary.add_block(block)
        packed = block.pack() if hashes else None
        return Read(summary, packed, list(pack_counts(counts)), _size(chunks))


@dataclass(frozen=True)
class SecondPass:
    """Chunks -> encoded records.

    Attributes:
        job: What a record is.
        placement: Where records go.
        schema: Of the records.
        names: Of the labels, as `label_names` gives them.
        vocabulary: All tokens by id; empty without words.
    """

    job: TextJob
    placement: Placement
    schema: Schema
    names: tuple[str, ...]
    vocabulary: tuple[bytes, ...]

    @functools.cached_property
    def _encoder(self) -> Encoder:
        return Encoder(self.schema)

    @functools.cached_property
    def _ids(self) -> LabelIds:
        return LabelIds(self.names)

    @functools.cached_property
    def _tokenizer(self) -> Tokenizer | None:
        job = self.job
        if job.tokens == "none":
            return None
        return Tokenizer(job.tokens, self.vocabulary, job.max_length)

    def encode(self, chunks: Sequence[Chunk]) -> Encoded:
        """The records of some chunks, rejects among them.

        Raises:
            UsageError: As `TextJob.read`.
        """
        encoder = RecordEncoder(self._encoder)
        builder = BlockBuilder(max_records=1 << 20)
        blocks: list[bytes | None] = []
        for text in (text for chunk in chunks for text in self.job.read(chunk)):
            split = self.placement.split(text.key)
            body = self._body(text, split, encoder)
            order = self.placement.order(text.key)
            blocks.append(builder.add(order, split, pack_record(text.key, body)))
        blocks.append(builder.flush())
        return Encoded(list(filter(None, blocks)), list(encoder.statistics()), _size(chunks))

    def _body(self, text: Text, split: int, encoder: RecordEncoder) -> bytes | Reject:
        if text.text is None:
            return Reject.of(text.key, "read", text.error)
        record: dict[str, Any] = {"key": text.key, "text": text.text}
        if text.label is not None:
            record["label"] = self._ids[text.label]
        if self._tokenizer:
            record["tokens"] = self._tokenizer(text.text)
        return encoder.encode(split, record)
