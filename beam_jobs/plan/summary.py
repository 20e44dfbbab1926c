"""What the first pass over all records learns: how many there are, where, and which labels."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from beam_jobs.errors import UsageError
from beam_jobs.plan.shards import BINS, bin_counts
from beam_jobs.records.blocks import Block
from beam_jobs.records.rejects import Reject
from beam_jobs.sources.classes import MAX_LABELS, Names, label_names
from beam_jobs.sources.labels import LABEL

# Records whose size is measured before the number of shards is chosen. They are those with the
# smallest hashes: a uniform sample, and the same one in every run.
SAMPLE = 32

# Rejects that a dry run tells.
FIRST_REJECTS = 10


class Sampled(NamedTuple):
    """A record that may be measured: its hash, its reference, and the bytes of its file."""

    hash: int
    reference: bytes
    size: int


def check_labels(labels: Collection[str]) -> None:
    """Refuses more labels than a classification could have.

    Raises:
        UsageError: There are more.
    """
    if len(labels) > MAX_LABELS:
        raise UsageError(
            f"more than {MAX_LABELS} different labels, {min(labels)!r} among them: "
            "is it the right field or folder?"
        )


@dataclass
class SplitSummary:
    """What is known of one split.

    Attributes:
        rejected: Inputs known not to become records.
        bytes: Of the encoded records, where they are encoded already; of the files otherwise, but
            those that are known to be unreadable.
        pending: Hashes of records that are not yet counted, arrays of uint64.
        counts: int64 [BINS], records by the top bits of their hash; None before the first.
        records: How many there are.
        duplicates: Records that were dropped because they equal others.
        unreadable: Of the records, those that are known to be rejected when they are written.
    """

    rejected: int = 0
    bytes: int = 0
    pending: list[np.ndarray] = field(default_factory=list)
    counts: np.ndarray | None = None
    records: int = 0
    duplicates: int = 0
    unreadable: int = 0

    def add(self, hashes: np.ndarray) -> None:
        """Adds records by their hashes, uint64 [n]."""
        self.records += len(hashes)
        self.pending.append(hashes)
        # As bytes, this many hashes are what a histogram is: a small bundle stays small.
        if sum(map(len, self.pending)) >= BINS:
            self._count()

    def _count(self) -> np.ndarray:
        hashes = np.concatenate([np.empty(0, np.uint64), *self.pending])
        counts = bin_counts(hashes)
        self.counts = counts if self.counts is None else self.counts + counts
        self.pending = []
        return self.counts

    def histogram(self) -> np.ndarray:
        """Records by bin, int64 [BINS]."""
        return self._count()

    def merge(self, other: SplitSummary) -> None:
        """Adds what another one has seen."""
        self.rejected += other.rejected
        self.bytes += other.bytes
        self.duplicates += other.duplicates
        self.unreadable += other.unreadable
        self.records += other.records - sum(map(len, other.pending))
        if other.counts is not None:
            self.counts = other.counts if self.counts is None else self.counts + other.counts
        for hashes in other.pending:
            self.add(hashes)


@dataclass
class Summary:
    """What is known of all records.

    Attributes:
        splits: One for every split, in order.
        labels: How often each label occurs, as text, by feature.
        sample: Those with the smallest hashes.
        inputs: How many of the listed inputs are in it.
        texts: How many there are, before they are cut, those that are dropped among them.
        words: How many there are in the texts of the training split, where they are counted.
        rejects: Of those known, the first in the order of keys.
    """

    splits: list[SplitSummary]
    labels: dict[str, Counter[str]] = field(default_factory=dict)
    sample: list[Sampled] = field(default_factory=list)
    inputs: int = 0
    texts: int = 0
    words: int = 0
    rejects: list[Reject] = field(default_factory=list)

    @classmethod
    def empty(cls, splits: int) -> Summary:
        return cls([SplitSummary() for _ in range(splits)])

    def add_block(self, block: Block) -> None:
        """Adds the records of a block."""
        for split, hashes in block.hashes_by_split():
            self.splits[split].add(hashes)

    def add_sizes(self, splits: np.ndarray, sizes: np.ndarray) -> None:
        """Adds the bytes of records, int64 [n], to their splits, uint8 [n]."""
        for split, size in enumerate(np.bincount(splits, sizes).tolist()):
            self.splits[split].bytes += int(size)

    def add_duplicates(self, splits: np.ndarray) -> None:
        """Adds records that were dropped as duplicates, by their splits, uint8 [n]."""
        for split, count in enumerate(np.bincount(splits).tolist()):
            self.splits[split].duplicates += count

    def add_labels(self, labels: Mapping[str, int], feature: str = LABEL) -> None:
        """Adds labels of a feature, and how often each occurs.

        Raises:
            UsageError: There are more than a classification could have.
        """
        found = self.labels.setdefault(feature, Counter())
        found.update(labels)
        check_labels(found)

    def add_reject(self, split: int, reject: Reject) -> None:
        """Adds an input known not to become a record."""
        self.splits[split].rejected += 1
        self._add_rejects([reject])

    def add_unreadable(self, split: int, reject: Reject) -> None:
        """Adds a reject that is planned as a record: who writes its shard rejects it."""
        self.splits[split].unreadable += 1
        self._add_rejects([reject])

    def _add_rejects(self, rejects: Iterable[Reject]) -> None:
        self.rejects = heapq.nsmallest(FIRST_REJECTS, [*self.rejects, *rejects])

    def add_sample(self, sample: Iterable[Sampled]) -> None:
        """Adds records that may be measured."""
        self.sample = heapq.nsmallest(SAMPLE, [*self.sample, *sample])

    def merge(self, other: Summary) -> None:
        """Adds what another one has seen."""
        for mine, theirs in zip(self.splits, other.splits, strict=True):
            mine.merge(theirs)
        self.inputs += other.inputs
        self.texts += other.texts
        self.words += other.words
        for feature, labels in other.labels.items():
            self.add_labels(labels, feature)
        self.add_sample(other.sample)
        self._add_rejects(other.rejects)


def label_names_of(summary: Summary, known: Names) -> Names:
    """The names of the classes of every feature by id.

    Args:
        known: Those that are known before any record is, by feature.
    """
    found = {feature: label_names(labels) for feature, labels in sorted(summary.labels.items())}
    return found | dict(known)
