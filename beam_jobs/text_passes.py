"""The two passes over the files of a text job, in any process: nothing here imports Beam."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, NamedTuple

import numpy as np

from beam_jobs.assign import Placement, Plan, assign_shards
from beam_jobs.blocks import Block
from beam_jobs.encode import RecordEncoder
from beam_jobs.errors import DataError
from beam_jobs.labels import LabelIds
from beam_jobs.payload import pack_record
from beam_jobs.ragged import Ragged
from beam_jobs.spool import Spool
from beam_jobs.statistics import Statistics
from beam_jobs.summary import Summary
from beam_jobs.text import Chunk, TextJob, Texts
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
        shards: (split and shard, its records packed, or the reference to them).
        statistics: By split.
        size: Bytes of the chunks.
    """

    shards: list[tuple[int, bytes]]
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
        hashes, splits = [np.empty(0, np.uint64)], [np.empty(0, np.uint8)]
        counts: Counter[bytes] = Counter()
        for texts in (texts for chunk in chunks for texts in job.batches(chunk)):
            for reject in texts.rejects:
                if self.on_reject == "fail":
                    raise DataError(f"{reject} (--on_reject fail)")
                summary.add_reject(placement.split(reject.key), reject)
            hashes.append(placement.orders(texts.keys))
            splits.append(placement.splits_of(texts.keys))
            summary.add_labels({label for label in set(texts.labels) if label is not None})
            for split in np.unique(splits[-1]).tolist():
                chosen = (splits[-1] == split).tolist()
                together = b" ".join(compress(texts.texts, chosen))
                size = len(together) + sum(map(len, compress(texts.keys, chosen)))
                size += _OVERHEAD_BYTES * sum(chosen)
                if job.tokens == "words":
                    found = words(together)
                    size += _BYTES_PER_TOKEN * len(found)
                    if split == training:
                        counts.update(found)
                        summary.words += len(found)
                elif job.tokens == "bytes":
                    size += _BYTES_PER_TOKEN * len(together)
                summary.splits[split].bytes += size
        order = np.concatenate(hashes)
        nothing = Ragged(np.zeros(len(order), np.uint32), b"")
        block = Block(order, np.concatenate(splits), nothing)
        summary.add_block(block)
        packed = block.pack() if order.size else None
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
        plan: Packed.
        spool: Takes the records, so that references to them are handed over instead.
        stored: What features are called in Examples, where it is not their name in the schema.
    """

    job: TextJob
    placement: Placement
    schema: Schema
    names: tuple[str, ...]
    vocabulary: tuple[bytes, ...]
    plan: bytes
    spool: Spool | None = None
    stored: Mapping[str, str] = field(default_factory=dict)

    @functools.cached_property
    def _plan(self) -> Plan:
        return Plan.unpack(self.plan)

    @functools.cached_property
    def _encoder(self) -> Encoder:
        return Encoder(self.schema, self.stored)

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
            DataError: As `Spool.append`.
        """
        encoder = RecordEncoder(self._encoder)
        batches = (texts for chunk in chunks for texts in self.job.batches(chunk))
        keep = self.spool.append if self.spool else bytes
        shards = [
            (key, keep(part.pack()))
            for texts in batches
            for key, part in assign_shards(self._block(texts, encoder), self._plan)
        ]
        return Encoded(shards, list(encoder.statistics()), _size(chunks))

    def _block(self, texts: Texts, encoder: RecordEncoder) -> Block:
        splits = self.placement.splits_of(texts.keys)
        columns: dict[str, list[Any]] = {"key": texts.keys, "text": texts.texts}
        if self.job.labelled:
            ids = {label: self._ids[label] for label in set(texts.labels) if label is not None}
            columns["label"] = [ids[label] for label in texts.labels if label is not None]
        if self._tokenizer:
            columns["tokens"] = list(map(self._tokenizer, texts.texts))
        frames = encoder.encode_all(splits, columns)
        payloads = [frame + key for frame, key in zip(frames, texts.keys, strict=True)]
        payloads += [pack_record(reject.key, reject) for reject in texts.rejects]
        rejected = [reject.key.encode("utf-8", "surrogateescape") for reject in texts.rejects]
        return Block(
            np.concatenate([self.placement.orders(texts.keys), self.placement.orders(rejected)]),
            np.concatenate([splits, self.placement.splits_of(rejected)]),
            Ragged.of(payloads),
        )
