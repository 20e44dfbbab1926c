"""Splits by group: whole groups are dealt to the splits, so shares are as close as the group sizes allow.

With labels, this is the greedy search of scikit-learn's StratifiedGroupKFold, extended to any shares.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from beam_jobs.columns import pack, text_bytes, unpack
from beam_jobs.errors import loss_error
from beam_jobs.plan.placement import ALL, Placement, Splits
from beam_jobs.plan.strata import LabelHashes, Strata
from beam_jobs.plan.summary import Summary
from beam_jobs.records.pieces import Divisible, parts_of

# With more groups (of one label each), hashes choose the splits: shares are then exact to a few groups in
# a thousand, and no worker needs more sizes than this.
MAX_GROUPS = 100_000

# The hash of a group and a label.
Part = tuple[int, str]


@dataclass
class GroupSizes(Divisible):
    """The sizes of groups.

    Attributes:
        inputs: The number of listed inputs that were read.
        sizes: The size of the part of each group that has one label; None if there are more than
            `MAX_GROUPS` parts.
    """

    inputs: int = 0
    sizes: Counter[Part] | None = field(default_factory=Counter)
    checksum: int = 0

    what = "sizes of groups"

    def add(self, block: LabelHashes, sizes: Iterable[int] | None = None) -> None:
        """Adds records by their groups and labels, with their sizes, by default 1."""
        labels = map(block.names.__getitem__, block.codes.tolist())
        parts = zip(block.hashes.tolist(), labels, strict=True)
        sums: Counter[Part] = Counter()
        if sizes is None:
            sums.update(parts)
        else:
            for part, size in zip(parts, sizes, strict=True):
                sums[part] += size
        self.checksum += _checksum(sums)
        self._update(sums)

    def contents(self) -> int | None:
        return None if self.sizes is None else _checksum(self.sizes)

    def merge(self, other: GroupSizes) -> None:
        """Adds the sizes that another object has counted."""
        self.inputs += other.inputs
        self.checksum += other.checksum
        self._update(other.sizes)

    def pieces(self) -> Iterator[tuple[Any, GroupSizes]]:
        yield (), GroupSizes(self.inputs, None if self.sizes is None else Counter(), self.checksum)
        for number, some in parts_of(self.sizes or {}, _part_bytes):
            yield number, GroupSizes(sizes=Counter(some))

    def _update(self, sizes: Mapping[Part, int] | None) -> None:
        if self.sizes is None or sizes is None:
            self.sizes = None
            return
        self.sizes.update(sizes)
        if len(self.sizes) > MAX_GROUPS:
            self.sizes = None


def _checksum(sizes: Mapping[Part, int]) -> int:
    """A sum over all parts that differs if a part is missing or has another size."""
    return sum((hash_ ^ zlib.crc32(text_bytes(label))) * n for (hash_, label), n in sizes.items())


def _part_bytes(part: Part) -> bytes:
    hash_, label = part
    return hash_.to_bytes(8, "little") + text_bytes(label)


@dataclass(frozen=True)
class GroupSplits:
    """The split of each group.

    Attributes:
        inputs: The number of inputs in which the sizes of groups were counted; -1 if they are those of a dataset.
        hashes: The hashes of all groups in ascending order, uint64 [groups].
        splits: The split of each, uint8 [groups].
        others: The splits by hash of groups that were not dealt, because all their records are
            rejected.
    """

    inputs: int
    hashes: np.ndarray
    splits: np.ndarray
    others: Splits

    def splits_of(self, block: LabelHashes) -> np.ndarray:
        """The splits of some records, uint8 [n]."""
        splits = self.others.of(block.hashes)
        if len(self.hashes):
            at = np.minimum(np.searchsorted(self.hashes, block.hashes), len(self.hashes) - 1)
            dealt = self.hashes[at] == block.hashes
            splits[dealt] = self.splits[at[dealt]]
        return splits

    def to_file(self) -> bytes:
        """The content of the file of a dataset that keeps them."""
        return self.hashes.astype("<u8").tobytes() + self.splits.tobytes()

    @classmethod
    def of_file(cls, data: bytes, others: Splits) -> GroupSplits:
        """The splits of a file; new groups follow their hashes."""
        count = len(data) // 9
        hashes = np.frombuffer(data, "<u8", count)
        return cls(-1, hashes, np.frombuffer(data, np.uint8, count, 8 * count), others)

    def check(self, summary: Summary) -> None:
        """Checks that the groups of all inputs were dealt; DataError if the runner lost or repeated groups."""
        if self.inputs not in (-1, summary.inputs):
            raise loss_error("inputs while groups were dealt", self.inputs, summary.inputs)

    def pack(self) -> bytes:
        """The splits as bytes."""
        return pack(np.array(self.inputs), self.hashes, self.splits)

    @classmethod
    def unpack(cls, data: bytes, others: Splits) -> GroupSplits:
        """The splits that `pack` turned into bytes."""
        inputs, hashes, splits = unpack(data)
        return cls(int(inputs), hashes, splits, others)


def deal_groups(sizes: GroupSizes, to: Splits) -> GroupSplits | None:
    """Deals groups, those with most of a label first; None if there are too many, which follow hashes.

    Each goes to the split that lacks most of its labels: the sum of the squared deviations from the
    shares of all labels, and of all records, grows least there. Groups of one size come in the order
    of their hashes, so the result depends only on the sizes and the hashes. The first split wins a
    tie.
    """
    if sizes.sizes is None:
        return None
    groups: dict[int, Counter[str]] = {}
    totals: Counter[str] = Counter()
    for (hash_, label), size in sorted(sizes.sizes.items()):
        for name in dict.fromkeys([ALL, label]):
            groups.setdefault(hash_, Counter())[name] += size
            totals[name] += size
    lacks = {label: np.array(to.fractions) * total for label, total in totals.items()}
    splits: dict[int, int] = {}
    for hash_ in sorted(groups, key=lambda hash_: (-_spread(groups[hash_], totals), hash_)):
        splits[hash_] = _neediest(groups[hash_], totals, lacks)
        for label, size in groups[hash_].items():
            lacks[label][splits[hash_]] -= size
    hashes = np.array(sorted(splits), np.uint64)
    dealt = np.array([splits[hash_] for hash_ in sorted(splits)], np.uint8)
    return GroupSplits(sizes.inputs, hashes, dealt, to)


def _spread(group: Mapping[str, int], totals: Mapping[str, int]) -> float:
    """How much of each label a group has, as the square of a distance."""
    return math.fsum((size / max(totals[label], 1)) ** 2 for label, size in group.items())


def _neediest(
    group: Mapping[str, int], totals: Mapping[str, int], lacks: Mapping[str, np.ndarray]
) -> int:
    """The split that lacks most of a group's labels, each by its weight in the group."""
    weights = {label: max(size, 1) / max(totals[label], 1) ** 2 for label, size in group.items()}
    # With weights that add up to 1, the lack of a single label stays exact to the last bit.
    scale = math.fsum(weights.values())
    # Added one by one: NumPy's sum is rounded differently from processor to processor.
    return int(np.argmax(sum(lacks[label] * (w / scale) for label, w in weights.items())))


def unpack_splits(packed: bytes, placement: Placement) -> Strata | GroupSplits:
    """The splits that a pass over all records has planned, by group or by label."""
    if placement.deals_groups:
        return GroupSplits.unpack(packed, placement.splits)
    return Strata.unpack(packed)


def check_planned(summary: Summary, packed: bytes, placement: Placement) -> None:
    """Checks that the planned splits, if any, were made from the records of a summary; DataError if not."""
    if packed:
        unpack_splits(packed, placement).check(summary)
