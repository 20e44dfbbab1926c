"""Records by their labels: counts, and histograms of the hashes of their groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from beam_jobs.columns import text_bytes
from beam_jobs.errors import DataError
from beam_jobs.plan.summary import check_labels
from beam_jobs.records.pieces import PIECE_BYTES, Divisible, batches, parts_of

# About how many hashes are sorted together at most: 512 KiB.
_BIN_RECORDS = 1 << 16

# A slice of a label's bins takes 32 KiB: a runner holds those of all bundles.
_SLICE = 1 << 12

# What a record takes beside its label, and an array beside its values, pickled.
_RECORD_BYTES, _ARRAY_BYTES = 24, 200


def unseen_label(label: str) -> DataError:
    """The error of a label that an earlier step has not seen."""
    return DataError(
        f"label {label!r} was not seen when splits were planned: the runner lost records, or the "
        "inputs have changed while the job ran; no dataset was written, run it again"
    )


@dataclass(frozen=True)
class LabelHashes:
    """The labels of some records, and the hashes of their groups.

    Attributes:
        names: The distinct labels.
        codes: The position in `names` of each record's label, int64 [n].
        hashes: The hash of each record's group, uint64 [n].
    """

    names: tuple[str, ...]
    codes: np.ndarray
    hashes: np.ndarray

    @classmethod
    def of(cls, labels: Sequence[str], hashes: np.ndarray) -> LabelHashes:
        """Records by their labels and the hashes of their groups, uint64 [n]."""
        codes: dict[str, int] = {}
        numbers = [codes.setdefault(label, len(codes)) for label in labels]
        return cls(tuple(codes), np.array(numbers, np.int64), hashes)

    def pieces(self) -> Iterator[LabelHashes]:
        """Yields the records in pieces of less than `PIECE_BYTES` beside the first record of each."""
        sizes = np.array([len(text_bytes(name)) for name in self.names], np.int64)
        ends = np.cumsum(_RECORD_BYTES + sizes[self.codes])
        firsts = np.flatnonzero(np.diff(ends // PIECE_BYTES, prepend=0))
        for rows in np.split(np.arange(len(ends)), firsts):
            if len(rows):
                used, codes = np.unique(self.codes[rows], return_inverse=True)
                names = tuple(self.names[code] for code in used.tolist())
                yield LabelHashes(names, codes, self.hashes[rows])


@dataclass
class LabelCounts(Divisible):
    """The number of records with each label."""

    counts: Counter[str] = field(default_factory=Counter)

    def add(self, block: LabelHashes) -> LabelCounts:
        """Adds records; returns itself."""
        numbers = np.bincount(block.codes, minlength=len(block.names)).tolist()
        self.counts.update(dict(zip(block.names, numbers, strict=True)))
        check_labels(self.counts)
        return self

    def merge(self, other: LabelCounts) -> None:
        """Adds the counts of `other`."""
        self.counts.update(other.counts)
        check_labels(self.counts)

    def pieces(self) -> Iterator[tuple[int, LabelCounts]]:
        for number, some in parts_of(self.counts, text_bytes):
            yield number, LabelCounts(Counter(some))


@dataclass(frozen=True)
class LabelBins:
    """Bins of group hashes for each label; the more records, the narrower the bins.

    Attributes:
        counts: The number of records with each label.
    """

    counts: Mapping[str, int]

    @cached_property
    def bits(self) -> dict[str, int]:
        """Label -> how many top bits of a hash are the number of its bin."""
        return {
            label: max(0, (count // _BIN_RECORDS).bit_length())
            for label, count in self.counts.items()
        }

    def of(self, label: str, hashes: np.ndarray) -> np.ndarray:
        """The bin of each hash, int64 [n].

        Raises:
            DataError: The label was not counted.
        """
        bits = self.bits.get(label)
        if bits is None:
            raise unseen_label(label)
        if not bits:
            return np.zeros(len(hashes), np.int64)
        return (hashes >> np.uint64(64 - bits)).astype(np.int64)

    def by_label(self, block: LabelHashes) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        """Yields (label, hashes, bins) for each label in a block."""
        order = np.argsort(block.codes, kind="stable")
        ends = np.cumsum(np.bincount(block.codes, minlength=len(block.names)))
        # Sorted once instead of compared with each label: there may be as many labels as records.
        parts = np.split(block.hashes[order], ends[:-1])
        for label, hashes in zip(block.names, parts, strict=False):
            yield label, hashes, self.of(label, hashes)


@dataclass
class Histogram(Divisible):
    """(label, number of a slice of its bins) -> number of records in each bin of the slice."""

    slices: dict[tuple[str, int], np.ndarray] = field(default_factory=dict)

    def add(self, block: LabelHashes, bins: LabelBins) -> Histogram:
        """Adds records; returns itself."""
        for label, _, found in bins.by_label(block):
            counts = np.bincount(found, minlength=1 << bins.bits[label])
            for number, first in enumerate(range(0, len(counts), _SLICE)):
                self._add((label, number), counts[first : first + _SLICE])
        return self

    def _add(self, key: tuple[str, int], counts: np.ndarray) -> None:
        known = self.slices.get(key)
        self.slices[key] = counts if known is None else known + counts

    def of(self, label: str) -> np.ndarray:
        """The number of records in each bin of a label, int64 [bins]; [1] if it was not added."""
        found: list[np.ndarray] = []
        while (counts := self.slices.get((label, len(found)))) is not None:
            found.append(counts)
        return np.concatenate(found) if found else np.zeros(1, np.int64)

    def merge(self, other: Histogram) -> None:
        """Adds the counts of `other`."""
        for key, counts in other.slices.items():
            self._add(key, counts)

    def pieces(self) -> Iterator[tuple[int, Histogram]]:
        for number, some in parts_of(self.slices, _slice_bytes):
            for keys in batches(some, self._bytes_of):
                yield number, Histogram({key: self.slices[key] for key in keys})

    def _bytes_of(self, key: tuple[str, int]) -> int:
        return _ARRAY_BYTES + len(text_bytes(key[0])) + self.slices[key].nbytes


def _slice_bytes(key: tuple[str, int]) -> bytes:
    label, number = key
    return number.to_bytes(8, "little") + text_bytes(label)
