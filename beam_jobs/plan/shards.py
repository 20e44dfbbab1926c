"""Hashes -> shards of a split that differ by at most one record."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from beam_jobs.records.blocks import Block

# 2**16 counts are 512 KiB a split: small as a side input, and of a billion keys 15,000 a bin.
BIN_BITS = 16

BINS = 1 << BIN_BITS

_BIN_SHIFT = np.uint64(64 - BIN_BITS)

MAX_SHARDS = 99_999  # five digits in a shard's name

SHARD_BITS = 17  # which hold them

# What to do where two records have one key.
ONE_KEY = (
    "every record needs a key of its own; do two --input patterns match the same file, has an "
    "archive two members of one name, or name two rows of a --table the same file (--key row tells "
    "them apart)?"
)


def bin_counts(hashes: np.ndarray) -> np.ndarray:
    """The histogram of the top bits of uint64 hashes [n], int64 [BINS]."""
    return np.bincount((hashes >> _BIN_SHIFT).astype(np.int64), minlength=BINS)


def bins_of(hashes: np.ndarray) -> np.ndarray:
    """The bin of each hash, int64 [n]."""
    return (hashes >> _BIN_SHIFT).astype(np.int64)


def first_ranks(records: int, shards: int) -> list[int]:
    """The rank of the first record of every shard but shard 0: `records` dealt out to ±1."""
    return [records * shard // shards for shard in range(1, shards)]


def shard_sizes(records: int, shards: int) -> list[int]:
    """How many records each shard holds."""
    edges = [0, *first_ranks(records, shards), records]
    return [b - a for a, b in itertools.pairwise(edges)]


def boundary_ranks(counts: np.ndarray, shards: int) -> dict[int, list[int]]:
    """Which bins hold shard boundaries: bin -> ranks within it, rising.

    Args:
        counts: int64 [BINS], records of the split in each bin.
        shards: Of the split, at most its records.
    """
    ends = np.cumsum(counts)
    ranks = np.array(first_ranks(int(ends[-1]), shards), np.int64)
    bins = np.searchsorted(ends, ranks, side="right")
    within = ranks - (ends[bins] - counts[bins])
    wanted: dict[int, list[int]] = {}
    for bin_, rank in zip(bins.tolist(), within.tolist(), strict=True):
        wanted.setdefault(bin_, []).append(rank)
    return wanted


@dataclass(frozen=True)
class SplitPlan:
    """How the records of one split become shards.

    Attributes:
        records: To be written.
        rejected: Known before writing not to become records.
        record_bytes: About how many a record has, framing included.
        shards: How many; 0 when there are no records.
        boundaries: uint64 [shards - 1], the smallest hash of every shard but the first.
    """

    records: int
    rejected: int
    record_bytes: int
    shards: int
    boundaries: np.ndarray

    def shard_of(self, hashes: np.ndarray) -> np.ndarray:
        """The shard of each hash, int64 [n]."""
        return np.searchsorted(self.boundaries, hashes, side="right")


@dataclass(frozen=True)
class Plan:
    """Where everything goes: one `SplitPlan` for every split, in order."""

    splits: tuple[SplitPlan, ...]

    def pack(self) -> bytes:
        """The plan as bytes."""
        head = json.dumps(
            [[s.records, s.rejected, s.record_bytes, s.shards] for s in self.splits]
        ).encode()
        return b"\n".join(
            (head, b"".join(s.boundaries.astype("<u8").tobytes() for s in self.splits))
        )

    @classmethod
    def unpack(cls, data: bytes) -> Plan:
        """The plan that `pack` gave."""
        head, _, tail = data.partition(b"\n")
        boundaries = np.frombuffer(tail, "<u8")
        splits, at = [], 0
        for records, rejected, record_bytes, shards in json.loads(head):
            end = at + max(shards - 1, 0)
            splits.append(SplitPlan(records, rejected, record_bytes, shards, boundaries[at:end]))
            at = end
        return cls(tuple(splits))


def assign_shards(block: Block, plan: Plan) -> Iterator[tuple[int, Block]]:
    """Yields (split and shard in one number, the records of that shard)."""
    keys = block.splits.astype(np.int64) << SHARD_BITS
    for split in np.unique(block.splits).tolist():
        rows = block.splits == split
        keys[rows] |= plan.splits[split].shard_of(block.hashes[rows])
    yield from block.by(keys)


def count_shards(records: int, record_bytes: float, num_shards: int, shard_size: int) -> int:
    """How many shards a split gets: `num_shards`, or 0 to choose by size; no empty ones.

    Args:
        record_bytes: Mean size of a record in its file.
        shard_size: Bytes that a shard should not exceed by much.
    """
    wanted = num_shards or max(1, math.ceil(records * record_bytes / shard_size))
    return min(wanted, records, MAX_SHARDS)
