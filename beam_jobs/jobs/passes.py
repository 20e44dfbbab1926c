"""The two passes of jobs whose records are parts of files.

The first pass finds the records and their splits, the second encodes them. Each kind of job has
subclasses of both. Nothing here imports Beam.
"""

from __future__ import annotations

import abc
import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from beam_jobs.columns import Ragged
from beam_jobs.dataset.output import Output
from beam_jobs.errors import DataError, RejectError
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.plan.group_splits import GroupSizes
from beam_jobs.plan.placement import Placement
from beam_jobs.plan.shards import Plan, shards_of
from beam_jobs.plan.strata import LabelHashes
from beam_jobs.plan.summary import SampledRecord, Summary
from beam_jobs.records.blocks import HASHES_PER_BLOCK, Block, pack_reject
from beam_jobs.records.encode import RecordCounter, RecordEncoder
from beam_jobs.records.pieces import Divisible
from beam_jobs.records.rejects import Reject
from beam_jobs.records.runs import BundleRuns, RunIndex
from beam_jobs.records.statistics import Statistics
from beam_jobs.sources.chunks import Task
from beam_jobs.sources.labels import ClassIds, Names, count_labels
from beam_jobs.sources.source import Label
from readers.format.encode.records import Encoder
from readers.format.schema import Schema


class FirstPassResult(NamedTuple):
    """The result of the first pass over a task.

    Attributes:
        summary: Counts of its records.
        blocks: The packed hashes of the records that can be written.
        learned: Names, labels or words that the job learns from them; None if it learns nothing.
        references: Packed blocks of the references of the records, and of rejects, if each is a whole file.
    """

    summary: Summary
    blocks: list[bytes]
    learned: Divisible | None
    references: list[bytes]


# The result of the second pass over a task: runs that the process has written so far, while it keeps other records in
# memory; and (split, the statistics of its records).
SecondPassResult: TypeAlias = tuple[list[RunIndex], list[tuple[int, Statistics]]]


class FoundRecords(NamedTuple):
    """Records that the first pass has found.

    Attributes:
        keys: Their keys in UTF-8.
        splits: uint8 [n], the split of each.
        sizes: int64 [n], the approximate bytes of each in its shard.
        labels: The label of each; None without labels.
        rejects: Inputs that cannot become records.
        classes: Labels of rejected inputs, which are classes whether or not a record has them.
        learned: Names, labels or words that the job learns from them; None if it learns nothing.
        duplicates: uint8 [m], the splits of records that were dropped.
        texts: The number of texts that the records were cut from.
        class_counts: How often each class of other features than the label occurs, by feature.
        references: The packed reference of each record, if it is a whole file; else None.
        identities: int64 [n], a number for each that changes with its contents; None to use its size.
        parts: The number of recordings or images, if each may be cut into several records.
        rejected_parts: The number of those that were rejected as a whole.
    """

    keys: list[bytes]
    splits: np.ndarray
    sizes: np.ndarray
    labels: Sequence[Label | None]
    rejects: list[Reject]
    classes: Collection[Label] = ()
    learned: Divisible | None = None
    duplicates: np.ndarray = np.empty(0, np.uint8)
    texts: int = 0
    class_counts: Mapping[str, Mapping[str, int]] = {}
    references: Sequence[bytes] | None = None
    identities: np.ndarray | None = None
    parts: int = 0
    rejected_parts: int = 0


@dataclass
class EncodedRecords:
    """Records that the second pass has encoded.

    Attributes:
        keys: Their keys in UTF-8.
        splits: The split of each.
        frames: The framed Examples; they may be views of memory that the next records overwrite.
        rows: Their rows of the index.
        rejects: Inputs that the first pass rejected too.
        late: (reject, split) of inputs that the first pass accepted.
    """

    keys: list[bytes] = field(default_factory=list)
    splits: Any = field(default_factory=list)
    frames: list[Any] = field(default_factory=list)
    rows: list[bytes] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    late: list[tuple[Reject, int]] = field(default_factory=list)
    size: int = 0

    def add(self, key: bytes, split: int, frame: bytes, row: bytes) -> None:
        """Adds a record; `size` is that of all frames that were added so, in bytes."""
        self.keys.append(key)
        self.splits.append(split)
        self.frames.append(frame)
        self.rows.append(row)
        self.size += len(frame)


@dataclass(frozen=True, kw_only=True)
class FirstPass(abc.ABC):
    """Task -> keys, labels and sizes of its records."""

    rules: SplitRules

    @abc.abstractmethod
    def found(self, task: Task) -> Iterator[FoundRecords]:
        """Yields the records of a task."""

    def read(self, task: Task) -> FirstPassResult:
        """Reads the records of a task, without encoding them.

        Raises:
            UsageError: There are too many labels, or `found` raises it.
        """
        return self.summarised(self.found(task), task.count)

    def summarised(self, found: Iterable[FoundRecords], inputs: int) -> FirstPassResult:
        """The result of the pass over some inputs, given the records in them; raises what `read` does."""
        placement = self.rules.placement
        summary = Summary.empty(len(placement.splits.names))
        summary.inputs = inputs
        blocks, references = list[Block](), list[bytes]()
        learned: Divisible | None = None
        for part in found:
            for reject in part.rejects:
                summary.add_reject(placement.split(reject.key), reject)
            orders = placement.orders(part.keys)
            nothing = Ragged(np.zeros(len(orders), np.uint32), b"")
            blocks.append(Block(orders, part.splits, nothing))
            summary.add_existing(part.keys, placement.refused(orders))
            summary.identify(orders, part.sizes if part.identities is None else part.identities)
            if part.references is not None:
                columns = orders.tolist(), part.references, part.sizes.tolist()
                summary.add_sample(map(SampledRecord, *columns))
                block = Block(orders, part.splits, Ragged.of(part.references))
                block = _with_rejects(placement, block, part.rejects)  # Which the shards list.
                references.append(block.pack(compress=True))
            summary.add_labels(count_labels(part.labels))
            for feature, counts in part.class_counts.items():
                summary.add_labels(counts, feature)
            summary.add_labels(dict.fromkeys(count_labels(part.classes), 0))
            summary.add_sizes(part.splits, part.sizes)
            summary.add_duplicates(part.duplicates)
            summary.texts += part.texts + len(part.duplicates)
            summary.parts += part.parts
            summary.rejected_parts += part.rejected_parts
            if learned is None:
                learned = part.learned
            elif part.learned is not None:
                learned.merge(part.learned)
        summary.learned = (learned and learned.contents()) or 0
        hashes = list[bytes]()
        if blocks:
            every = Block.join(blocks)
            summary.add_block(every)
            hashes += (block.pack() for block in every.parts(HASHES_PER_BLOCK))
        return FirstPassResult(summary, hashes, learned, references)

    def group_sizes(self, task: Task) -> GroupSizes:
        """The number of records in each group of a task; the rules are `GroupRules`."""
        sizes = GroupSizes(inputs=task.count)
        for part in self.found(task):
            labels = self.rules.placement.strata(part.labels)
            sizes.add(LabelHashes.of(labels, part.splits))
        return sizes

    def label_hashes(self, task: Task) -> LabelHashes:
        """The labels of the records of a task, and the hashes of their groups."""
        keys: list[bytes] = []
        labels: list[Label | None] = []
        for part in self.found(task):
            keys += part.keys
            labels += part.labels
        placement = self.rules.placement
        return LabelHashes.of(placement.strata(labels), placement.group_hashes(keys))


def _with_rejects(
    placement: Placement,
    block: Block,
    rejects: Sequence[Reject],
    late: Sequence[tuple[Reject, int]] = (),
) -> Block:
    """A block with the rejects among its records, and those with a split that the plan counts as records."""
    if not (rejects or late):
        return block
    every = [*rejects, *(reject for reject, _ in late)]
    keys = [reject.key.encode("utf-8", "surrogateescape") for reject in every]
    splits = placement.splits_of(keys[: len(rejects)])
    payloads = [pack_reject(one, number >= len(rejects)) for number, one in enumerate(every)]
    added = Block(
        placement.orders(keys),
        np.concatenate([splits, np.array([split for _, split in late], np.uint8)]),
        Ragged.of(payloads),
    )
    return Block.join([block, added])


class Learned(NamedTuple):
    """What is known of all records before the first one is encoded.

    Attributes:
        schema: The features of every record.
        names: Names of classes by feature; None if they are not known yet.
        vocabulary: All words by id; empty without words.
        tokenizer: The text of the tokenizer's file; empty without subwords.
        strata: The packed splits by label or by group; empty to use hashes.
    """

    schema: Schema
    names: Names | None
    vocabulary: tuple[bytes, ...] = ()
    tokenizer: str = ""
    strata: bytes = b""


def mapped_records(
    encoder: RecordEncoder,
    keys: list[bytes],
    splits: np.ndarray,
    record: Callable[[int], dict[str, Any]],
    rejects: list[Reject],
) -> EncodedRecords:
    """The records that a mapper makes of the n ones of a job, encoded one by one, because it may reject each.

    `keys` are in UTF-8, `splits` is uint8 [n]; `record` returns the features of a record, given its number.
    """
    batch = EncodedRecords(rejects=rejects)
    for row, (key, split) in enumerate(zip(keys, splits.tolist(), strict=True)):
        name = key.decode("utf-8", "surrogateescape")
        try:
            batch.add(key, split, *encoder.encode(split, record(row), key=name))
        except (RejectError, ValueError) as error:
            batch.late.append((Reject.of(name, "encode", error), split))
    return batch


@dataclass(frozen=True)
class SecondPass(abc.ABC):
    """Task -> encoded records."""

    output: Output
    learned: Learned

    @abc.abstractmethod
    def encoded(self, task: Task, encoder: Any) -> Iterator[EncodedRecords]:
        """Yields the encoded records of a task.

        Args:
            encoder: The result of `counter`; it has to see every record.
        """

    def counter(self) -> RecordCounter:
        """Encodes records and keeps statistics; only keeps statistics of records that are encoded already."""
        return self.encoder()

    def encoder(self) -> RecordEncoder:
        """Encodes records and keeps statistics."""
        return RecordEncoder(self._encoder, self.output.mapper)

    @functools.cached_property
    def rules(self) -> SplitRules:
        """Determines the split of each record."""
        return SplitRules(self.output.placement, self.learned.strata)

    @property
    def job_schema(self) -> Schema:
        """The features of the job's own records."""
        return self.output.mapper.features if self.output.mapper else self.learned.schema

    @functools.cached_property
    def _encoder(self) -> Encoder:
        return Encoder(self.learned.schema, self.output.feature_names)

    @functools.cached_property
    def class_ids(self) -> ClassIds:
        return ClassIds(self.learned.names)

    def encode(self, plan: bytes, runs: BundleRuns, task: Task) -> SecondPassResult:
        """Encodes the records of a task, rejects among them, into runs, given the packed plan of the shards.

        Raises:
            UsageError: `encoded` raises it.
            DataError: The spool has no room, or a label was not seen in the first pass.
        """
        encoder = self.counter()
        assign = functools.partial(shards_of, Plan.unpack(plan))
        try:
            written = [
                run
                for records in self.encoded(task, encoder)
                for run in runs.add(self._block(records), assign)
            ]
        except RejectError as error:
            raise DataError(
                f"{error}: the inputs changed while the job ran; no dataset was written, run "
                "it again"
            ) from None
        return written, list(encoder.statistics())

    def _block(self, records: EncodedRecords) -> Block:
        placement, columns = self.output.placement, (records.frames, records.rows, records.keys)
        lengths = np.zeros(len(records.keys), np.uint32)
        for column in columns:
            lengths += np.fromiter(map(len, column), np.uint32, len(column))
        # Joined in one call, frames are copied once.
        data = b"".join(itertools.chain.from_iterable(zip(*columns, strict=True)))
        splits = np.asarray(records.splits, np.uint8)
        block = Block(placement.orders(records.keys), splits, Ragged(lengths, data))
        return _with_rejects(placement, block, records.rejects, records.late)
