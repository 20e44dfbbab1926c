"""What the first pass over all records learns: how many there are, where, and which labels."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from beam_jobs.assign import BINS, bin_counts
from beam_jobs.blocks import Block
from beam_jobs.errors import UsageError
from beam_jobs.labels import MAX_LABELS, label_names
from beam_jobs.rejects import Reject

# Records whose size is measured before the number of shards is chosen. They are those with the
# smallest hashes: a uniform sample, and the same one in every run.
SAMPLE = 32


class Sampled(NamedTuple):
    """A record that may be measured: its hash, its key, and the bytes of its file."""

    hash: int
    key: str
    size: int


@dataclass
class SplitSummary:
    """What is known of one split.

    Attributes:
        rejected: Inputs known not to become records.
        bytes: Of the encoded records, where they are encoded already; of the files otherwise.
        pending: Hashes of records that are not yet counted, arrays of uint64.
        counts: int64 [BINS], records by the top bits of their hash; None before the first.
        records: How many there are.
    """

    rejected: int = 0
    bytes: int = 0
    pending: list[np.ndarray] = field(default_factory=list)
    counts: np.ndarray | None = None
    records: int = 0

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
        labels: Every label there is, as text.
        sample: Those with the smallest hashes.
        inputs: How many of the listed inputs are in it.
        words: How many there are in the texts of the training split, where they are counted.
        first_reject: Of those known, the first in the order of keys.
    """

    splits: list[SplitSummary]
    labels: set[str] = field(default_factory=set)
    sample: list[Sampled] = field(default_factory=list)
    inputs: int = 0
    words: int = 0
    first_reject: Reject | None = None

    @classmethod
    def empty(cls, splits: int) -> Summary:
        return cls([SplitSummary() for _ in range(splits)])

    def add_block(self, block: Block) -> None:
        """Adds the records of a block."""
        for split, hashes in block.hashes_by_split():
            self.splits[split].add(hashes)

    def add_labels(self, labels: Iterable[str]) -> None:
        """Adds labels.

        Raises:
            UsageError: There are more than a classification could have.
        """
        self.labels.update(labels)
        if len(self.labels) > MAX_LABELS:
            raise UsageError(
                f"more than {MAX_LABELS} different labels, {min(self.labels)!r} among them: "
                "is it the right field or folder?"
            )

    def add_reject(self, split: int, reject: Reject) -> None:
        """Adds an input known not to become a record."""
        self.splits[split].rejected += 1
        self.first_reject = min(filter(None, (self.first_reject, reject)))

    def add_sample(self, sample: Iterable[Sampled]) -> None:
        """Adds records that may be measured."""
        self.sample = heapq.nsmallest(SAMPLE, [*self.sample, *sample])

    def merge(self, other: Summary) -> None:
        """Adds what another one has seen."""
        for mine, theirs in zip(self.splits, other.splits, strict=True):
            mine.merge(theirs)
        self.inputs += other.inputs
        self.words += other.words
        self.add_labels(other.labels)
        self.add_sample(other.sample)
        if other.first_reject:
            self.first_reject = min(filter(None, (self.first_reject, other.first_reject)))


def label_names_of(summary: Summary) -> tuple[str, ...]:
    """The names of all labels by id."""
    return label_names(summary.labels)
