"""Splits by group: whole groups are dealt to the splits, so shares are as exact as the groups allow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from beam_jobs.plan.placement import Placement
from beam_jobs.plan.shards import loss_error
from beam_jobs.plan.summary import Summary

# With more groups, hashes decide: shares are then exact to a few groups in a thousand, and no worker
# holds more sizes than this.
MAX_GROUPS = 100_000


@dataclass
class GroupSizes:
    """The sizes of groups.

    Attributes:
        inputs: The number of listed inputs that were read.
        sizes: Hash of a group -> its size; None if there are more than `MAX_GROUPS` groups.
    """

    inputs: int = 0
    sizes: Counter[int] | None = field(default_factory=Counter)

    def add(self, hashes: np.ndarray, sizes: Sequence[int] | None = None) -> None:
        """Adds records by the hashes of their groups, uint64 [n], with the size of each; by default 1."""
        found, rows = np.unique(hashes, return_inverse=True)
        sums = np.bincount(rows, sizes).astype(np.int64)
        self._update(dict(zip(found.tolist(), sums.tolist(), strict=True)))

    def merge(self, other: GroupSizes) -> None:
        """Adds the sizes that another object has counted."""
        self.inputs += other.inputs
        self._update(other.sizes)

    def _update(self, sizes: Mapping[int, int] | None) -> None:
        if self.sizes is None or sizes is None:
            self.sizes = None
            return
        self.sizes.update(sizes)
        if len(self.sizes) > MAX_GROUPS:
            self.sizes = None


@dataclass(frozen=True)
class GroupSplits:
    """The split of each group.

    Attributes:
        inputs: The number of inputs that the sizes of groups were counted from.
        hashes: The hashes of all groups in ascending order, uint64 [groups].
        splits: The split of each, uint8 [groups].
    """

    inputs: int
    hashes: np.ndarray
    splits: np.ndarray

    def splits_of(self, hashes: np.ndarray, placement: Placement) -> np.ndarray:
        """The splits of some records, uint8 [n], from the hashes of their groups, uint64 [n].

        A group that was not dealt, because all its records are rejected, follows its hash.
        """
        splits = placement.splits.of(hashes)
        at = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        if len(self.hashes):
            dealt = self.hashes[at] == hashes
            splits[dealt] = self.splits[at[dealt]]
        return splits

    def pack(self) -> bytes:
        """The splits as bytes."""
        head = np.array([self.inputs, len(self.hashes)], "<u8")
        return head.tobytes() + self.hashes.astype("<u8").tobytes() + self.splits.tobytes()

    @classmethod
    def unpack(cls, data: bytes) -> GroupSplits:
        """The splits that `pack` turned into bytes."""
        inputs, groups = np.frombuffer(data, "<u8", 2).tolist()
        hashes = np.frombuffer(data, "<u8", groups, 16)
        return cls(inputs, hashes, np.frombuffer(data, np.uint8, groups, 16 + hashes.nbytes))


def deal_groups(found: GroupSizes, fractions: Sequence[float]) -> GroupSplits | None:
    """Deals groups, the largest first, each to the split that lacks most; None if hashes decide.

    Groups of one size come in the order of their hashes, so the result depends on nothing but the
    sizes and the hashes. The first split wins a tie.
    """
    if found.sizes is None:
        return None
    records = sum(found.sizes.values())
    lacks = [fraction * records for fraction in fractions]
    splits: dict[int, int] = {}
    for hash_, size in sorted(found.sizes.items(), key=lambda item: (-item[1], item[0])):
        splits[hash_] = max(range(len(lacks)), key=lacks.__getitem__)
        lacks[splits[hash_]] -= size
    ordered = sorted(splits)
    return GroupSplits(
        found.inputs,
        np.array(ordered, np.uint64),
        np.array([splits[hash_] for hash_ in ordered], np.uint8),
    )


def check_groups(summary: Summary, packed: bytes) -> Summary:
    """Returns the summary, after checking that packed group splits, if there are any, saw its inputs.

    Raises:
        DataError: The runner lost or repeated groups.
    """
    if packed and (found := GroupSplits.unpack(packed).inputs) != summary.inputs:
        raise loss_error(found, summary.inputs, "inputs while groups were dealt to splits")
    return summary
