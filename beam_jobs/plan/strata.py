"""Splits in which every label has its share, to the record.

The records of one label, in the order of their group hashes, are cut where the shares say. As for
shards, the cuts are found without sorting everything: records are counted by label and by the top
bits of their hash, and only the hashes of the bins in which a cut falls are looked at one by one.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from beam_jobs.errors import DataError
from beam_jobs.plan.placement import Placement
from beam_jobs.plan.summary import Summary, check_labels
from beam_jobs.sources.labels import LABEL

# Hashes that are sorted together, at most about so many: 512 KiB.
_BIN_RECORDS = 1 << 16

# The fractional parts of its multiples are spread as evenly as any sequence's.
_GOLDEN = (math.sqrt(5) - 1) / 2

_NEVER = 2**64 - 1


@dataclass(frozen=True)
class Labelled:
    """The labels of some records, and the hashes of their groups.

    Attributes:
        names: The labels there are.
        codes: int64 [n], the place in `names` of each record's label.
        hashes: uint64 [n].
    """

    names: tuple[str, ...]
    codes: np.ndarray
    hashes: np.ndarray

    @classmethod
    def of(cls, labels: Sequence[str], hashes: np.ndarray) -> Labelled:
        """The records with these labels, and hashes uint64 [n]."""
        codes: dict[str, int] = {}
        numbers = [codes.setdefault(label, len(codes)) for label in labels]
        return cls(tuple(codes), np.array(numbers, np.int64), hashes)


@dataclass
class LabelCounts:
    """How many records have each label."""

    counts: Counter[str] = field(default_factory=Counter)

    def add(self, block: Labelled) -> LabelCounts:
        """Adds records; returns itself."""
        numbers = np.bincount(block.codes, minlength=len(block.names)).tolist()
        self.counts.update(dict(zip(block.names, numbers, strict=True)))
        check_labels(self.counts)
        return self

    def merge(self, other: LabelCounts) -> None:
        """Adds what another one has seen."""
        self.counts.update(other.counts)
        check_labels(self.counts)


@dataclass(frozen=True)
class LabelBins:
    """Bins of group hashes for each label, as narrow as its records are many.

    Attributes:
        counts: Records by label.
    """

    counts: Mapping[str, int]

    @cached_property
    def bits(self) -> dict[str, int]:
        """How many top bits of a hash are the number of its bin, by label."""
        return {
            label: max(0, (count // _BIN_RECORDS).bit_length())
            for label, count in self.counts.items()
        }

    def of(self, label: str, hashes: np.ndarray) -> np.ndarray:
        """The bins of hashes uint64 [n], int64 [n]."""
        bits = self.bits[label]
        if not bits:
            return np.zeros(len(hashes), np.int64)
        return (hashes >> np.uint64(64 - bits)).astype(np.int64)

    def by_label(self, block: Labelled) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        """Yields (label, hashes, bins) for every label of some records."""
        order = np.argsort(block.codes, kind="stable")
        ends = np.cumsum(np.bincount(block.codes, minlength=len(block.names)))
        # Sorted once, not compared with each label: they may be as many as the records.
        parts = np.split(block.hashes[order], ends[:-1])
        for label, hashes in zip(block.names, parts, strict=False):
            yield label, hashes, self.of(label, hashes)


@dataclass
class Histogram:
    """How many records lie in each bin, by label."""

    bins: dict[str, np.ndarray] = field(default_factory=dict)

    def add(self, block: Labelled, bins: LabelBins) -> Histogram:
        """Adds records; returns itself."""
        for label, _, found in bins.by_label(block):
            self._add(label, np.bincount(found, minlength=1 << bins.bits[label]))
        return self

    def _add(self, label: str, counts: np.ndarray) -> None:
        known = self.bins.get(label)
        self.bins[label] = counts if known is None else known + counts

    def merge(self, other: Histogram) -> None:
        """Adds what another one has seen."""
        for label, counts in other.bins.items():
            self._add(label, counts)


def cut_ranks(records: int, fractions: Sequence[float], turn: float) -> list[int]:
    """The rank of the first record of every split but the first, among those of one label.

    Every split gets its share of the records to within one. `turn`, in 0..1, decides which of them
    is given the record that does not divide, so that not all labels give it to the same.
    """
    shares = [math.fsum(fractions[: i + 1]) for i in range(len(fractions) - 1)]
    return [min(math.floor(records * share + turn), records) for share in shares]


def turn_of(number: int, seed: int) -> float:
    """The `turn` of a label by its number among all, in order of their names."""
    return ((number + 1 + seed % 4096) * _GOLDEN) % 1.0


@dataclass(frozen=True)
class Cuts:
    """Where the cuts of every label fall.

    Attributes:
        bins: Of the hashes.
        ranks: (label, bin) -> [(split, rank within the bin)].
        sizes: (label, bin) -> records in it.
    """

    bins: LabelBins
    ranks: Mapping[tuple[str, int], list[tuple[int, int]]]
    sizes: Mapping[tuple[str, int], int]


def place_cuts(counts: LabelCounts, histogram: Histogram, placement: Placement) -> Cuts:
    """The cuts, from all records counted.

    Raises:
        DataError: The two passes have not seen the same records.
    """
    bins = LabelBins(dict(counts.counts))
    ranks: dict[tuple[str, int], list[tuple[int, int]]] = {}
    sizes: dict[tuple[str, int], int] = {}
    for number, label in enumerate(sorted(counts.counts)):
        records = counts.counts[label]
        found = histogram.bins.get(label, np.zeros(1, np.int64))
        ends = np.cumsum(found)
        if ends[-1] != records:
            raise _lost(label, int(ends[-1]), records)
        cuts = cut_ranks(records, placement.splits.fractions, turn_of(number, placement.seed))
        for split, rank in enumerate(cuts, 1):
            if rank < records:
                bin_ = int(np.searchsorted(ends, rank, side="right"))
                inside = rank - int(ends[bin_] - found[bin_])
                ranks.setdefault((label, bin_), []).append((split, inside))
                sizes[label, bin_] = int(found[bin_])
    return Cuts(bins, ranks, sizes)


def _lost(label: str, found: int, expected: int) -> DataError:
    return DataError(
        f"label {label!r}: the runner handed over {found} of {expected} records while splits were "
        "planned; no dataset was written, run the job again"
    )


def wanted_hashes(block: Labelled, cuts: Cuts) -> Iterator[tuple[tuple[str, int], bytes]]:
    """Yields ((label, bin), hashes as bytes) for the bins in which a cut falls."""
    for label, hashes, bins in cuts.bins.by_label(block):
        for bin_ in np.unique(bins).tolist():
            if (label, bin_) in cuts.ranks:
                yield (label, bin_), hashes[bins == bin_].astype("<u8").tobytes()


def pick_edges(
    key: tuple[str, int], hashes: Iterable[bytes], cuts: Cuts
) -> Iterator[tuple[str, int, int]]:
    """Yields (label, split, its smallest hash) for the cuts in one bin, from all hashes there.

    Raises:
        DataError: Hashes were lost or duplicated on the way.
    """
    ordered = np.sort(np.frombuffer(b"".join(hashes), "<u8"))
    if len(ordered) != cuts.sizes[key]:
        raise _lost(key[0], len(ordered), cuts.sizes[key])
    for split, rank in cuts.ranks[key]:
        yield key[0], split, int(ordered[rank])


def check_picked(picked: Iterable[tuple[str, int, int]], cuts: Cuts) -> None:
    """Makes sure that every cut has its edge, once.

    Raises:
        DataError: Edges were lost or duplicated on the way.
    """
    found = sorted((label, split) for label, split, _ in picked)
    wanted = sorted(
        (label, split) for (label, _), ranks in cuts.ranks.items() for split, _ in ranks
    )
    if found != wanted:
        raise DataError(
            f"the runner handed over {len(found)} of {len(wanted)} edges of splits; no dataset was "
            "written, run the job again"
        )


@dataclass(frozen=True)
class Strata:
    """The split of each record, from its label and the hash of its group.

    Attributes:
        names: The labels, rising.
        edges: uint64 [labels, splits - 1], the smallest hash of every split but the first.
        counts: Of the records from which they were made, by label.
    """

    names: tuple[str, ...]
    edges: np.ndarray
    counts: tuple[int, ...]

    @classmethod
    def of(
        cls, counts: Mapping[str, int], splits: int, picked: Iterable[tuple[str, int, int]]
    ) -> Strata:
        """The strata, from the records of each label and what `pick_edges` gave of every bin."""
        names = tuple(sorted(counts))
        rows = {name: row for row, name in enumerate(names)}
        edges = np.full((len(names), splits - 1), _NEVER, np.uint64)
        for label, split, edge in picked:
            edges[rows[label], split - 1] = edge
        return cls(names, edges, tuple(counts[name] for name in names))

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.names)}

    def splits_of(self, block: Labelled) -> np.ndarray:
        """The splits of some records, uint8 [n].

        Raises:
            DataError: A label is new since splits were planned.
        """
        if new := next((name for name in block.names if name not in self._rows), None):
            raise DataError(
                f"label {new!r} was not there when splits were planned: the runner lost records, or "
                "the inputs have changed while the job ran; no dataset was written, run it again"
            )
        rows = np.array([self._rows[name] for name in block.names], np.int64)[block.codes]
        return (block.hashes[:, None] >= self.edges[rows]).sum(axis=1).astype(np.uint8)

    def pack(self) -> bytes:
        """The strata as bytes."""
        head = json.dumps([self.names, self.edges.shape[1], self.counts]).encode()
        return head + b"\n" + self.edges.astype("<u8").tobytes()

    @classmethod
    def unpack(cls, data: bytes) -> Strata:
        """The strata that `pack` gave."""
        head, _, tail = data.partition(b"\n")
        names, cuts, counts = json.loads(head)
        edges = np.frombuffer(tail, "<u8").reshape(len(names), cuts)
        return cls(tuple(names), edges, tuple(counts))


def check_strata(summary: Summary, strata: bytes) -> Summary:
    """The summary itself, once the strata are known to be of the same records.

    Args:
        strata: Packed; empty where there are none.

    Raises:
        DataError: Labels were lost or duplicated on the way to them.
    """
    if strata:
        made = Strata.unpack(strata)
        found = {label: n for label, n in summary.labels.get(LABEL, {}).items() if n}
        if found != (counted := dict(zip(made.names, made.counts, strict=True))):
            label = min(found.keys() | counted.keys(), key=lambda n: found.get(n) == counted.get(n))
            raise _lost(label, counted.get(label, 0), found.get(label, 0))
    return summary
