"""Stratified splits: every split gets its share of each label's records, exact to one record.

Without labels, all records are one stratum.

The records of a label, sorted by the hashes of their groups, are cut into shares. As with shards,
nothing is sorted as a whole to find the cuts: records are counted by label and by the top bits of
their hashes, and only the hashes in the bins that hold a cut are compared one by one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from beam_jobs.columns import Ragged, pack, unpack
from beam_jobs.errors import DataError, loss_error
from beam_jobs.plan.labels import Histogram, LabelBins, LabelCounts, LabelHashes, unseen_label
from beam_jobs.plan.placement import ALL, Placement
from beam_jobs.plan.summary import Summary
from beam_jobs.sources.labels import LABEL

# No sequence is spread more evenly than the fractional parts of its multiples.
_GOLDEN = (math.sqrt(5) - 1) / 2

_NEVER = 2**64 - 1


def cut_ranks(records: int, fractions: Sequence[float], turn: float) -> list[int]:
    """The rank, among the records of one label, of the first record of every split but the first.

    Every split gets its share of the records, exact to one. `turn`, in 0..1, decides which splits
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
        bins: The bins of the hashes.
        ranks: (label, bin) -> [(split, rank within the bin)].
        sizes: (label, bin) -> number of records in it.
    """

    bins: LabelBins
    ranks: Mapping[tuple[str, int], list[tuple[int, int]]]
    sizes: Mapping[tuple[str, int], int]


def place_cuts(counts: LabelCounts, histogram: Histogram, placement: Placement) -> Cuts:
    """The cuts, from the counts of all records.

    Raises:
        DataError: The two passes have not read the same records.
    """
    bins = LabelBins(dict(counts.counts))
    ranks: dict[tuple[str, int], list[tuple[int, int]]] = {}
    sizes: dict[tuple[str, int], int] = {}
    for number, label in enumerate(sorted(counts.counts)):
        records = counts.counts[label]
        found = histogram.of(label)
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
    what = f"records of label {label!r}" if label else "records"
    return loss_error(f"{what} while splits were planned", found, expected)


def wanted_hashes(block: LabelHashes, cuts: Cuts) -> Iterator[tuple[tuple[str, int], bytes]]:
    """Yields ((label, bin), hashes as bytes) for the bins that hold a cut."""
    for label, hashes, bins in cuts.bins.by_label(block):
        for bin_ in np.unique(bins).tolist():
            if (label, bin_) in cuts.ranks:
                yield (label, bin_), hashes[bins == bin_].astype("<u8").tobytes()


def pick_edges(
    key: tuple[str, int], hashes: Iterable[bytes], cuts: Cuts
) -> Iterator[tuple[str, int, int]]:
    """Yields (label, split, the split's smallest hash) for the cuts in a bin, from all its hashes.

    Raises:
        DataError: The runner lost or repeated hashes.
    """
    ordered = np.sort(np.frombuffer(b"".join(hashes), "<u8"))
    if len(ordered) != cuts.sizes[key]:
        raise _lost(key[0], len(ordered), cuts.sizes[key])
    for split, rank in cuts.ranks[key]:
        yield key[0], split, int(ordered[rank])


def check_picked(picked: Iterable[tuple[str, int, int]], cuts: Cuts) -> None:
    """Checks that every cut has exactly one edge.

    Raises:
        DataError: The runner lost or repeated edges.
    """
    found = sorted((label, split) for label, split, _ in picked)
    wanted = sorted(
        (label, split) for (label, _), ranks in cuts.ranks.items() for split, _ in ranks
    )
    if found != wanted:
        raise loss_error("edges of splits", len(found), len(wanted))


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
    def of(
        cls, counts: Mapping[str, int], splits: int, picked: Iterable[tuple[str, int, int]]
    ) -> Strata:
        """The strata, from the number of records with each label and the edges of all bins."""
        names = tuple(sorted(counts))
        rows = {name: row for row, name in enumerate(names)}
        edges = np.full((len(names), splits - 1), _NEVER, np.uint64)
        for label, split, edge in picked:
            edges[rows[label], split - 1] = edge
        return cls(names, edges, tuple(counts[name] for name in names))

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.names)}

    def splits_of(self, block: LabelHashes) -> np.ndarray:
        """The splits of some records, uint8 [n].

        Raises:
            DataError: A label was not seen when splits were planned.
        """
        if new := next((name for name in block.names if name not in self._rows), None):
            raise unseen_label(new)
        rows = np.array([self._rows[name] for name in block.names], np.int64)[block.codes]
        return (block.hashes[:, None] >= self.edges[rows]).sum(axis=1).astype(np.uint8)

    def check(self, summary: Summary) -> None:
        """Checks that the strata count the records of a summary.

        Raises:
            DataError: The runner lost or repeated labels.
        """
        found = {label: n for label, n in summary.labels.get(LABEL, {}).items() if n}
        if self.names == (ALL,):
            found = {ALL: sum(split.records for split in summary.splits)}
        counted = dict(zip(self.names, self.counts, strict=True))
        for label in found.keys() | counted.keys():
            if found.get(label, 0) != counted.get(label, 0):
                raise _lost(label, counted.get(label, 0), found.get(label, 0))

    def pack(self) -> bytes:
        """The strata as bytes."""
        names = Ragged.of_texts(self.names)
        return pack(names, self.edges, np.array(self.counts, np.int64))

    @classmethod
    def unpack(cls, data: bytes) -> Strata:
        """The strata that `pack` turned into bytes."""
        names, edges, counts = unpack(data)
        return cls(tuple(names.texts()), edges, tuple(counts.tolist()))
