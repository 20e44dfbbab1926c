"""Stratified splits: every split gets its share of each label's records, exact to one record.

Without labels, all records are one stratum.

The records of a label, sorted by the hashes of their groups, are cut into shares. As with shards,
nothing is sorted as a whole to find the cuts: records are counted by label and by the top bits of
their hashes, and only the hashes in the bins that hold a cut are compared one by one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from beam_jobs.columns import Ragged, pack, text_bytes, unpack
from beam_jobs.errors import DataError, loss_error
from beam_jobs.plan.placement import ALL, Placement
from beam_jobs.plan.summary import Summary, check_labels
from beam_jobs.records.blocks import grouped
from beam_jobs.records.pieces import PIECE_BYTES, Divisible, batches, parts_of
from beam_jobs.sources.labels import LABEL

# The approximate maximum of hashes that are sorted together: 512 KiB.
_BIN_RECORDS = 1 << 16

# A slice of a label's bins takes 32 KiB: a runner keeps the slices of all bundles.
_SLICE = 1 << 12

# Pickled bytes of a record without its label, and of an array without its values.
_RECORD_BYTES, _ARRAY_BYTES = 24, 200

# The fractional parts of its multiples are spread more evenly than any other sequence.
_GOLDEN = (math.sqrt(5) - 1) / 2

_NEVER = 2**64 - 1


def _unseen(label: str) -> DataError:
    return DataError(
        f"label {label!r} was not seen when splits were planned: the runner lost records, or the "
        "inputs changed while the job ran; no dataset was written, run the same command again"
    )


def _lost(label: str, found: int, expected: int) -> DataError:
    what = f"records of label {label!r}" if label else "records"
    return loss_error(f"{what} while splits were planned", found, expected)


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
        """Yields the records in pieces of less than `PIECE_BYTES`, not counting the first record of each."""
        sizes = np.array([len(text_bytes(name)) for name in self.names], np.int64)
        ends = np.cumsum(_RECORD_BYTES + sizes[self.codes])
        for _, rows in grouped(ends // PIECE_BYTES, np.arange(len(ends))):
            used, codes = np.unique(self.codes[rows], return_inverse=True)
            names = tuple(self.names[code] for code in used.tolist())
            yield LabelHashes(names, codes, self.hashes[rows])

    def by_label(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yields (label, hashes of its records) for each label that a record has."""
        for code, hashes in grouped(self.codes, self.hashes):
            yield self.names[code], hashes


@dataclass
class LabelCounts(Divisible):
    """The number of records with each label, which determines the width of the bins of its hashes."""

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

    def bits(self, label: str) -> int:
        """How many top bits of a hash are the number of its bin; DataError if the label was not counted."""
        if label not in self.counts:
            raise _unseen(label)
        return (self.counts[label] // _BIN_RECORDS).bit_length()

    def bins(self, label: str, hashes: np.ndarray) -> np.ndarray:
        """The bin of each hash of a label, int64 [n]; raises what `bits` does."""
        bits = self.bits(label)
        if not bits:
            return np.zeros(len(hashes), np.int64)
        return (hashes >> np.uint64(64 - bits)).astype(np.int64)


@dataclass
class Histogram(Divisible):
    """(label, number of a slice of its bins) -> number of records in each bin of the slice."""

    slices: dict[tuple[str, int], np.ndarray] = field(default_factory=dict)

    def add(self, block: LabelHashes, total: LabelCounts) -> Histogram:
        """Adds records, given the counts of all; returns itself."""
        for label, hashes in block.by_label():
            counts = np.bincount(total.bins(label, hashes), minlength=1 << total.bits(label))
            for number, first in enumerate(range(0, len(counts), _SLICE)):
                self._add((label, number), counts[first : first + _SLICE])
        return self

    def _add(self, key: tuple[str, int], counts: np.ndarray) -> None:
        before = self.slices.get(key)
        self.slices[key] = counts if before is None else before + counts

    def of(self, label: str) -> np.ndarray:
        """The number of records in each bin of a label, int64 [bins]; [1] if it was not added."""
        slices: list[np.ndarray] = []
        while (counts := self.slices.get((label, len(slices)))) is not None:
            slices.append(counts)
        return np.concatenate(slices) if slices else np.zeros(1, np.int64)

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


def cut_ranks(records: int, fractions: Sequence[float], turn: float) -> list[int]:
    """The rank, among the records of one label, of the first record of every split but the first.

    Every split gets its share of the records, exact to one. `turn`, in 0..1, chooses the splits that
    get the remaining records, so that they are not the same for all labels.
    """
    shares = [math.fsum(fractions[: i + 1]) for i in range(len(fractions) - 1)]
    return [min(math.floor(records * share + turn), records) for share in shares]


def turn_of(number: int, seed: int) -> float:
    """The `turn` of a label, from its position among all labels in the order of their names."""
    return ((number + 1 + seed % 4096) * _GOLDEN) % 1.0


@dataclass(frozen=True)
class Cuts:
    """The cuts between splits, for every label.

    Attributes:
        counts: The number of records with each label.
        bins: (label, bin) -> (number of records in it, [(split, rank within the bin)]).
    """

    counts: LabelCounts
    bins: Mapping[tuple[str, int], tuple[int, list[tuple[int, int]]]]


def place_cuts(counts: LabelCounts, histogram: Histogram, placement: Placement) -> Cuts:
    """The cuts, from the counts of all records; DataError if the two passes did not read the same records."""
    bins: dict[tuple[str, int], tuple[int, list[tuple[int, int]]]] = {}
    for number, (label, records) in enumerate(sorted(counts.counts.items())):
        in_bins = histogram.of(label)
        ends = np.cumsum(in_bins)
        if ends[-1] != records:
            raise _lost(label, int(ends[-1]), records)
        cuts = cut_ranks(records, placement.splits.fractions, turn_of(number, placement.seed))
        for split, rank in enumerate(cuts, 1):
            if rank < records:
                bin_ = int(np.searchsorted(ends, rank, side="right"))
                size = int(in_bins[bin_])
                _, ranks = bins.setdefault((label, bin_), (size, []))
                ranks.append((split, rank - int(ends[bin_]) + size))
    return Cuts(counts, bins)


def wanted_hashes(block: LabelHashes, cuts: Cuts) -> Iterator[tuple[tuple[str, int], bytes]]:
    """Yields ((label, bin), hashes as bytes) for the bins that hold a cut."""
    for label, hashes in block.by_label():
        for bin_, some in grouped(cuts.counts.bins(label, hashes), hashes):
            if (label, bin_) in cuts.bins:
                yield (label, bin_), some.astype("<u8").tobytes()


def pick_edges(
    key: tuple[str, int], hashes: Iterable[bytes], cuts: Cuts
) -> Iterator[tuple[str, int, int]]:
    """Yields (label, split, the split's smallest hash) for the cuts in a bin; DataError if hashes are lost."""
    ordered, (records, ranks) = np.sort(np.frombuffer(b"".join(hashes), "<u8")), cuts.bins[key]
    if len(ordered) != records:
        raise _lost(key[0], len(ordered), records)
    for split, rank in ranks:
        yield key[0], split, int(ordered[rank])


@dataclass(frozen=True)
class Strata:
    """The split of each record, from its label and the hash of its group.

    Attributes:
        names: The labels in ascending order.
        edges: The smallest hash of every split but the first, uint64 [labels, splits - 1].
        counts: The number of records with each label.
    """

    names: tuple[str, ...]
    edges: np.ndarray
    counts: tuple[int, ...]

    @classmethod
    def of(cls, cuts: Cuts, splits: int, picked: Iterable[tuple[str, int, int]]) -> Strata:
        """The strata, from the results of `pick_edges` for all bins; DataError if the runner lost or repeated edges."""
        edges = sorted(picked)
        bins = cuts.bins.items()
        places = sorted((label, to) for (label, _), (_, some) in bins for to, _ in some)
        if [(label, split) for label, split, _ in edges] != places:
            raise loss_error("edges of splits", len(edges), len(places))
        counts = cuts.counts.counts
        names = tuple(sorted(counts))
        empty = np.full((len(names), splits - 1), _NEVER, np.uint64)
        strata = cls(names, empty, tuple(counts[name] for name in names))
        for label, split, edge in edges:
            strata.edges[strata._rows[label], split - 1] = edge
        return strata

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.names)}

    def splits_of(self, block: LabelHashes) -> np.ndarray:
        """The splits of some records, uint8 [n]; DataError if a label was not seen when splits were planned."""
        if new := next((name for name in block.names if name not in self._rows), None):
            raise _unseen(new)
        rows = np.array([self._rows[name] for name in block.names], np.int64)[block.codes]
        return (block.hashes[:, None] >= self.edges[rows]).sum(axis=1).astype(np.uint8)

    def check(self, summary: Summary) -> None:
        """Checks that the strata count the records of a summary; DataError if the runner lost or repeated labels."""
        read = summary.labels.get(LABEL, Counter())
        if self.names == (ALL,):
            read = Counter({ALL: sum(split.records for split in summary.splits)})
        planned = Counter(dict(zip(self.names, self.counts, strict=True)))
        for label in read.keys() | planned.keys():
            if read[label] != planned[label]:
                raise _lost(label, planned[label], read[label])

    def pack(self) -> bytes:
        """The strata as bytes."""
        names = Ragged.of_texts(self.names)
        return pack(names, self.edges, np.array(self.counts, np.int64))

    @classmethod
    def unpack(cls, data: bytes) -> Strata:
        """The strata that `pack` turned into bytes."""
        names, edges, counts = unpack(data)
        return cls(tuple(names.texts()), edges, tuple(counts.tolist()))
