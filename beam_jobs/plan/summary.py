"""Statistics of the first pass over all records: their number, hashes, sizes and labels."""

from __future__ import annotations

import heapq
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from beam_jobs.columns import text_bytes
from beam_jobs.errors import UsageError, loss_error
from beam_jobs.plan.shards import BIN_BITS, BINS, bin_counts, bins_of
from beam_jobs.records.blocks import Block, grouped
from beam_jobs.records.pieces import Divisible, batches, checksum_of, parts_of
from beam_jobs.records.rejects import Reject
from beam_jobs.sources.labels import LABEL, MAX_LABELS, Names, label_names

# Records whose size is measured before the number of shards is chosen: those with the smallest
# hashes, which are a uniform sample and the same one in every run.
SAMPLE = 32

# Rejects that a dry run prints.
FIRST_REJECTS = 10

# A histogram is merged in slices of this many bins, 32 KiB: a runner keeps the slices of all bundles.
_SLICE = BINS // 16


class SampledRecord(NamedTuple):
    """A record that may be measured: its hash, its reference, and its file's size in bytes."""

    hash: int
    reference: bytes
    size: int


def check_labels(labels: Collection[str]) -> None:
    """Raises UsageError for more than `MAX_LABELS` labels, which cannot be classes."""
    if len(labels) > MAX_LABELS:
        raise UsageError(
            f"more than {MAX_LABELS} different labels, such as {min(labels)!r}: is this the right field or folder?"
        )


def _places(split: int, bins: np.ndarray, counts: np.ndarray | int) -> int:
    """A checksum of records, which adds up: bins of a split, int64 [n], and how many records are in each."""
    return checksum_of(np.uint64(split << BIN_BITS) | bins.astype(np.uint64), counts)


def _occurrences(labels: Mapping[str, int], feature: str) -> int:
    """A checksum of labels, which adds up: how often each occurs."""
    start = zlib.crc32(feature.encode())
    return sum(n * zlib.crc32(text_bytes(label), start) for label, n in labels.items())


@dataclass
class SplitSummary:
    """Statistics of one split.

    Attributes:
        rejected: The number of inputs known not to become records.
        bytes: The size of the encoded records if they are encoded already; otherwise of the files.
        pending: Hashes of records that are not in `counts` yet, arrays of uint64.
        counts: The number of records in each bin, int64 [BINS], or in a piece int64 [_SLICE]; None at first.
        first: The first bin of `counts`.
        duplicates: The number of records that were dropped because they equal others, or are near them.
    """

    rejected: int = 0
    bytes: int = 0
    pending: list[np.ndarray] = field(default_factory=list)
    counts: np.ndarray | None = None
    first: int = 0
    records: int = 0
    duplicates: int = 0

    def add(self, hashes: np.ndarray) -> None:
        """Adds records by their hashes, uint64 [n]."""
        self.records += len(hashes)
        self.pending.append(hashes)
        # This many hashes take as much as a histogram; fewer keep a small bundle small.
        if sum(map(len, self.pending)) >= BINS:
            self.histogram()

    def histogram(self) -> np.ndarray:
        """The number of records in each bin, int64 [BINS]."""
        hashes = np.concatenate([np.empty(0, np.uint64), *self.pending])
        counts = bin_counts(hashes)
        self.counts = counts if self.counts is None else self.counts + counts
        self.pending = []
        return self.counts

    def merge(self, other: SplitSummary) -> None:
        """Adds the statistics of `other`."""
        self.rejected += other.rejected
        self.bytes += other.bytes
        self.duplicates += other.duplicates
        self.records += other.records - sum(map(len, other.pending))
        if other.counts is not None:
            if self.counts is None:
                self.counts = np.zeros(BINS, np.int64)
            self.counts[other.first : other.first + len(other.counts)] += other.counts
        for hashes in other.pending:
            self.add(hashes)

    def slices(self) -> Iterator[tuple[int, SplitSummary]]:
        """Yields (number of a slice of the bins, the records in it)."""
        if self.counts is None:  # Fewer than `BINS` hashes take less than their histogram.
            hashes = np.concatenate([np.empty(0, np.uint64), *self.pending])
            for number, part in grouped(bins_of(hashes) // _SLICE, hashes):
                yield number, SplitSummary(pending=[part], records=len(part))
            return
        histogram = self.histogram()
        for number, first in enumerate(range(0, BINS, _SLICE)):
            counts = histogram[first : first + _SLICE]
            if records := int(counts.sum()):
                yield number, SplitSummary(counts=counts, first=first, records=records)

    def without_records(self) -> SplitSummary:
        """Everything but the number of records and their hashes, which `slices` yields."""
        return replace(self, pending=[], counts=None, records=0)


@dataclass
class Summary(Divisible):
    """Statistics of all records.

    Attributes:
        splits: The statistics of every split, in order.
        labels: Feature -> label as text -> number of its occurrences.
        sample: The records with the smallest hashes.
        inputs: The number of listed inputs that were read.
        texts: The number of texts before they are cut into windows, dropped ones included.
        parts: The number of recordings or images that may be cut into several records.
        rejected_parts: The number of those that were rejected as a whole. A recording is one reject, however many
            windows it would have given, so the share of lost recordings is checked separately.
        learned: The checksum of what the job learns from the records.
        identities: The sum of a number that identifies each record, in 64 bits.
        rejects: The first known rejects in the order of their keys.
        existing: The number of keys that the dataset to append to has, but may not have.
        existing_key: The smallest of these keys.
    """

    splits: list[SplitSummary]
    labels: dict[str, Counter[str]] = field(default_factory=dict)
    sample: list[SampledRecord] = field(default_factory=list)
    inputs: int = 0
    texts: int = 0
    parts: int = 0
    rejected_parts: int = 0
    learned: int = 0
    identities: int = 0
    rejects: list[Reject] = field(default_factory=list)
    existing: int = 0
    existing_key: str = ""
    checksum: int = 0

    what = "records or labels of the first pass"

    @classmethod
    def empty(cls, splits: int) -> Summary:
        return cls([SplitSummary() for _ in range(splits)])

    def facts(self) -> list[Any]:
        """An identity of the inputs, as JSON values: counts, sums and labels."""
        splits = [[split.records, split.rejected, split.duplicates] for split in self.splits]
        labels = [[name, sorted(counts.items())] for name, counts in sorted(self.labels.items())]
        return [splits, labels, self.texts, self.learned, self.identities]

    def contents(self) -> int:
        """The checksum of the split and the bin of each record, and of all labels."""
        total = sum(_occurrences(counts, name) for name, counts in self.labels.items())
        for number, split in enumerate(self.splits):
            counts = split.histogram()
            bins = np.flatnonzero(counts)
            total += _places(number, bins, counts[bins])
        return total

    def check_sample(self) -> None:
        """Checks that the sample has the records with the smallest hashes; DataError if some were lost or repeated."""
        counts = np.sum([split.histogram() for split in self.splits], axis=0)
        bins = bins_of(np.array([sampled.hash for sampled in self.sample], np.uint64))
        complete = len(bins) == min(SAMPLE, int(counts.sum()))
        if len(bins):
            below = np.bincount(bins[bins < bins.max()], minlength=BINS)
            complete &= bool((below[: bins.max()] == counts[: bins.max()]).all())
        if not complete:
            raise loss_error("records to measure")

    def identify(self, hashes: np.ndarray, numbers: np.ndarray) -> None:
        """Adds the identities of records: their hashes, uint64 [n], and a number of any integer dtype [n] of each."""
        values = hashes * (2 * numbers.astype(np.uint64) + np.uint64(1))
        self.identities = (self.identities + int(values.sum(dtype=np.uint64))) % (1 << 64)

    def add_block(self, block: Block) -> None:
        """Adds the records of a block."""
        for split, hashes in grouped(block.splits, block.hashes):
            self.splits[split].add(hashes)
            self.checksum += _places(split, bins_of(hashes), 1)

    def add_sizes(self, splits: np.ndarray, sizes: np.ndarray) -> None:
        """Adds the sizes of records in bytes, int64 [n], to their splits, uint8 [n]."""
        for split, size in enumerate(np.bincount(splits, sizes).tolist()):
            self.splits[split].bytes += int(size)

    def add_duplicates(self, splits: np.ndarray) -> None:
        """Adds records that were dropped as duplicates, by their splits, uint8 [n]."""
        for split, count in enumerate(np.bincount(splits).tolist()):
            self.splits[split].duplicates += count

    def add_labels(self, labels: Mapping[str, int], feature: str = LABEL) -> None:
        """Adds labels of a feature with the number of their occurrences; raises what `check_labels` does."""
        self.checksum += _occurrences(labels, feature)
        self._merge_labels(labels, feature)

    def _merge_labels(self, labels: Mapping[str, int], feature: str) -> None:
        counts = self.labels.setdefault(feature, Counter())
        counts.update(labels)
        check_labels(counts)

    def add_existing(self, keys: Sequence[bytes], numbers: np.ndarray) -> None:
        """Adds those of some keys that the dataset has, by their numbers, int64 [k]."""
        if len(numbers):
            smallest = min(keys[number] for number in numbers.tolist())
            self._merge_existing(len(numbers), smallest.decode("utf-8", "surrogateescape"))

    def _merge_existing(self, count: int, key: str) -> None:
        self.existing += count
        self.existing_key = min(filter(None, (self.existing_key, key)), default="")

    def add_reject(self, split: int, reject: Reject) -> None:
        """Adds an input known not to become a record."""
        self.splits[split].rejected += 1
        self._add_rejects([reject])

    def _add_rejects(self, rejects: Iterable[Reject]) -> None:
        self.rejects = heapq.nsmallest(FIRST_REJECTS, [*self.rejects, *rejects])

    def add_sample(self, sample: Iterable[SampledRecord]) -> None:
        """Adds records that may be measured."""
        self.sample = heapq.nsmallest(SAMPLE, [*self.sample, *sample])

    def merge(self, other: Summary) -> None:
        """Adds the statistics of `other`."""
        for mine, theirs in zip(self.splits, other.splits, strict=True):
            mine.merge(theirs)
        self.inputs += other.inputs
        self.texts += other.texts
        self.parts += other.parts
        self.rejected_parts += other.rejected_parts
        self.learned += other.learned
        self._merge_existing(other.existing, other.existing_key)
        self.identities = (self.identities + other.identities) % (1 << 64)
        self.checksum += other.checksum
        for feature, labels in other.labels.items():
            self._merge_labels(labels, feature)
        self.add_sample(other.sample)
        self._add_rejects(other.rejects)

    def pieces(self) -> Iterator[tuple[Any, Summary]]:
        splits = [split.without_records() for split in self.splits]
        features: dict[str, Counter[str]] = {feature: Counter() for feature in self.labels}
        yield (), replace(self, splits=splits, labels=features, sample=[])
        for sample in batches(self.sample, lambda sampled: len(sampled.reference)):
            yield "sample", self._piece(sample=sample)
        for split, own in enumerate(self.splits):
            for number, part in own.slices():
                piece = self._piece()
                piece.splits[split] = part
                yield (split, number), piece
        for feature, labels in self.labels.items():
            for number, some in parts_of(labels, text_bytes):
                yield (feature, number), self._piece(labels={feature: Counter(some)})

    def _piece(self, **facts: Any) -> Summary:
        return replace(Summary.empty(len(self.splits)), **facts)


def label_names_of(summary: Summary, given: Names, known: Names | None = None) -> Names:
    """Feature -> names of its classes by id.

    Args:
        given: Those that do not depend on records.
        known: Those of the dataset to which records are appended, which keep their ids; None for a new one.

    Raises:
        UsageError: Labels are names, and were numbers before, or the other way round.
    """
    names = {feature: label_names(labels) for feature, labels in sorted(summary.labels.items())}
    names |= dict(given)
    if known is None:
        return names
    for feature, found in names.items():
        before = known.get(feature, ())
        if found and not before:
            raise UsageError(
                f"the classes of {feature} are names such as {found[0]!r}, but numbers in the dataset"
            )
        if before:
            labels = sorted({*summary.labels.get(feature, ()), *found})
            names[feature] = (*before, *(label for label in labels if label not in before))
    return names
