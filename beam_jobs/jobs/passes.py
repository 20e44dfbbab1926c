"""The two passes over inputs whose records are parts of files, in any process: no Beam here.

The first one finds out how many records there are and where they belong, the second one encodes
them. What a record is, a job's own passes say.
"""

from __future__ import annotations

import abc
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from beam_jobs.errors import DataError, RejectError
from beam_jobs.jobs.reshard.schema_guess import SchemaGuess
from beam_jobs.jobs.text.tokens import WordCounts, pack_counts
from beam_jobs.plan.placement import Placement
from beam_jobs.plan.shards import Plan, assign_shards
from beam_jobs.plan.strata import Labelled, Strata
from beam_jobs.plan.summary import Summary
from beam_jobs.records.blocks import Block
from beam_jobs.records.encode import RecordCounter, RecordEncoder
from beam_jobs.records.payload import pack_record
from beam_jobs.records.ragged import Ragged
from beam_jobs.records.rejects import Reject
from beam_jobs.records.spool import Spool
from beam_jobs.records.statistics import Statistics
from beam_jobs.sources.chunks import Work
from beam_jobs.sources.classes import ClassIds, LabelIds, Names
from beam_jobs.sources.labels import LABEL, Label, count_labels
from readers.format.encode import Encoder
from readers.format.schema import Schema


class Read(NamedTuple):
    """What the first pass learns from some work.

    Attributes:
        summary: Of its records.
        block: Packed, the hashes of those that can be written; None without any.
        counts: Of the words of the training split, by partition.
        guess: Of the features of its records, where that is to be learned.
    """

    summary: Summary
    block: bytes | None
    counts: list[tuple[int, WordCounts]]
    guess: SchemaGuess


class Encoded(NamedTuple):
    """What the second pass makes of some work.

    Attributes:
        shards: (split and shard, its records packed, or the reference to them).
        statistics: By split.
    """

    shards: list[tuple[int, bytes]]
    statistics: list[tuple[int, Statistics]]


class Found(NamedTuple):
    """Records that the first pass has found.

    Attributes:
        keys: In UTF-8.
        splits: uint8 [n].
        sizes: int64 [n], about how many bytes each has in its shard.
        labels: As text; None without labels.
        rejects: Inputs that cannot become records.
        words: Of those in the training split, where they are counted.
        duplicates: uint8 [m], the splits of records that were dropped.
        guess: What is known of their features, where that is to be learned.
        texts: How many texts they were cut from.
    """

    keys: list[bytes]
    splits: np.ndarray
    sizes: np.ndarray
    labels: Sequence[Label | None]
    rejects: list[Reject]
    words: Sequence[bytes] = ()
    duplicates: np.ndarray = np.empty(0, np.uint8)
    guess: SchemaGuess | None = None
    texts: int = 0


class Made(NamedTuple):
    """Records that the second pass has encoded.

    Attributes:
        keys: In UTF-8.
        splits: uint8 [n].
        frames: The framed Examples; views may be of memory that is used again for the next ones.
        rejects: Those of the first pass.
        late: Of those that the first pass took for records: the rejects, and their splits.
    """

    keys: list[bytes]
    splits: np.ndarray
    frames: Sequence[bytes | memoryview]
    rejects: list[Reject]
    late: Sequence[tuple[Reject, int]] = ()


@dataclass(frozen=True)
class Places:
    """Where records go.

    Attributes:
        placement: By their keys and columns.
        strata: Packed, the splits by label; empty without.
    """

    placement: Placement
    strata: bytes = b""

    @functools.cached_property
    def _strata(self) -> Strata:
        return Strata.unpack(self.strata)

    @property
    def needs_rows(self) -> bool:
        """Whether the split of a record may follow from more than its key."""
        return bool(self.placement.groups or self.placement.split_column)

    def splits_of(
        self,
        keys: Sequence[bytes],
        rows: Sequence[Mapping[str, Any]],
        labels: Sequence[Label | None],
    ) -> tuple[np.ndarray, dict[int, str]]:
        """The split of each record, uint8 [n], and why those have none that must be rejected.

        Args:
            rows: The columns of each record; looked at where `needs_rows`.
        """
        placement = self.placement
        if self.strata:
            found = Labelled.of(list(map(str, labels)), placement.group_hashes(keys))
            return self._strata.splits_of(found), {}
        if not self.needs_rows:
            return placement.splits_of(keys), {}
        splits, errors = np.zeros(len(keys), np.uint8), {}
        for number, key in enumerate(keys):
            try:
                row = rows[number] if rows else {}
                splits[number] = placement.split_of(key.decode("utf-8", "surrogateescape"), row)
            except RejectError as error:
                errors[number] = str(error)
        return splits, errors


@dataclass(frozen=True, kw_only=True)
class FirstPass(abc.ABC):
    """Work -> keys, labels and words.

    Attributes:
        places: Where records go.
        on_reject: "skip" or "fail".
    """

    places: Places
    on_reject: str

    @abc.abstractmethod
    def found(self, work: Work) -> Iterator[Found]:
        """Yields the records of some work."""

    def read(self, work: Work) -> Read:
        """What is to be learned from some work.

        Raises:
            DataError: An input cannot become a record, and `on_reject` is "fail".
            UsageError: There are too many labels, or what `found` raises.
        """
        placement = self.places.placement
        summary = Summary.empty(len(placement.splits.names))
        summary.inputs = len(work.chunks)
        hashes, splits = [np.empty(0, np.uint64)], [np.empty(0, np.uint8)]
        counts: Counter[bytes] = Counter()
        guess = SchemaGuess()
        for part in self.found(work):
            for reject in part.rejects:
                if self.on_reject == "fail":
                    raise DataError(f"{reject} (--on_reject fail)")
                summary.add_reject(placement.split(reject.key), reject)
            hashes.append(placement.orders(part.keys))
            splits.append(part.splits)
            summary.add_labels(count_labels(part.labels))
            counts.update(part.words)
            summary.words += len(part.words)
            summary.texts += part.texts + len(part.duplicates)
            for split, size in enumerate(np.bincount(part.splits, part.sizes).tolist()):
                summary.splits[split].bytes += int(size)
            for split, count in enumerate(np.bincount(part.duplicates).tolist()):
                summary.splits[split].duplicates += count
            if part.guess:
                guess.merge(part.guess)
        order = np.concatenate(hashes)
        nothing = Ragged(np.zeros(len(order), np.uint32), b"")
        block = Block(order, np.concatenate(splits), nothing)
        summary.add_block(block)
        packed = block.pack() if order.size else None
        return Read(summary, packed, list(pack_counts(counts)), guess)

    def labelled(self, work: Work) -> Labelled:
        """The labels of the records of some work, and the hashes of their groups."""
        keys: list[bytes] = []
        labels: list[str] = []
        for part in self.found(work):
            keys += part.keys
            labels += map(str, part.labels)
        return Labelled.of(labels, self.places.placement.group_hashes(keys))


@dataclass(frozen=True, kw_only=True)
class SecondPass(abc.ABC):
    """Work -> encoded records.

    Attributes:
        places: Where records go.
        schema: Of the records.
        names: Of classes, as `label_names_of` gives them.
        plan: Packed.
        spool: Takes the records, so that references to them are handed over instead.
        stored: What features are called in Examples, where it is not their name in the schema.
    """

    places: Places
    schema: Schema
    names: Names
    plan: bytes
    spool: Spool | None = None
    stored: Mapping[str, str] = field(default_factory=dict)

    @abc.abstractmethod
    def made(self, work: Work, encoder: Any) -> Iterator[Made]:
        """Yields the encoded records of some work, which `encoder`, a `counter`, has counted."""

    def counter(self) -> RecordCounter:
        """What encodes records, or counts those that are encoded."""
        return RecordEncoder(self._encoder)

    @functools.cached_property
    def _plan(self) -> Plan:
        return Plan.unpack(self.plan)

    @functools.cached_property
    def _encoder(self) -> Encoder:
        return Encoder(self.schema, self.stored)

    @functools.cached_property
    def label_ids(self) -> LabelIds:
        return LabelIds(self.names.get(LABEL, ()))

    @functools.cached_property
    def class_ids(self) -> ClassIds:
        return ClassIds(self.names)

    def encode(self, work: Work) -> Encoded:
        """The records of some work, rejects among them.

        Raises:
            UsageError: As `made`.
            DataError: As `Spool.append`, or a label is new since the first pass.
        """
        encoder = self.counter()
        keep: Callable[[bytes], bytes] = self.spool.append if self.spool else bytes
        try:
            shards = [
                (key, keep(part.pack()))
                for made in self.made(work, encoder)
                for key, part in assign_shards(self._block(made), self._plan)
            ]
        except RejectError as error:
            raise DataError(
                f"{error}: the inputs have changed while the job ran; no dataset was written, run "
                "it again"
            ) from None
        return Encoded(shards, list(encoder.statistics()))

    def _block(self, made: Made) -> Block:
        placement = self.places.placement
        rejects = [pack_record(reject.key, reject) for reject in made.rejects]
        rejects += [pack_record(reject.key, reject, planned=True) for reject, _ in made.late]
        # A frame and its key are a payload; joined at once, they are copied once.
        pairs = zip(made.frames, made.keys, strict=True)
        data = b"".join([*itertools.chain.from_iterable(pairs), *rejects])
        sizes = np.fromiter(map(len, made.frames), np.uint32, len(made.frames))
        sizes += np.fromiter(map(len, made.keys), np.uint32, len(made.keys))
        lengths = np.concatenate([sizes, np.array(list(map(len, rejects)), np.uint32)])
        rejected = [key_of(reject) for reject in made.rejects]
        late = [key_of(reject) for reject, _ in made.late]
        return Block(
            placement.orders([*made.keys, *rejected, *late]),
            np.concatenate(
                [
                    made.splits,
                    placement.splits_of(rejected),
                    np.array([split for _, split in made.late], np.uint8),
                ]
            ),
            Ragged(lengths, data),
        )


def key_of(reject: Reject) -> bytes:
    """The key of a reject, as bytes."""
    return reject.key.encode("utf-8", "surrogateescape")
