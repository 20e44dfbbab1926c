"""The shard of each hash; the shards of a split differ by at most one record."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from beam_jobs.columns import Ragged, pack, unpack
from beam_jobs.records.blocks import Block
from beam_jobs.records.runs import RUN_BYTES

# 2**16 counts take 512 KiB per split, small for a side input; a billion keys make 15,000 per bin.
BIN_BITS = 16

BINS = 1 << BIN_BITS

_BIN_SHIFT = np.uint64(64 - BIN_BITS)

MAX_SHARDS = 99_999  # five digits in a shard's name

SHARD_BITS = 17  # enough for MAX_SHARDS

# With more ranges than this, runs are merged before they are read by shard. S3 answers 5,500 requests a second
# below one prefix, so this number takes 12 minutes, and costs 1.60 dollars.
MOST_RANGES = 4_000_000

# The end of every error about two records of one key, for `WriteShards`; the command line replaces it,
# because its users see no PCollection.
ONE_KEY = (
    "every record needs a key of its own; two elements (key, features) of the PCollection have the "
    "same one"
)


# Payloads of one shard that a runner gets as one element, in bytes.
_PART_BYTES = 256 << 10


def bin_counts(hashes: np.ndarray) -> np.ndarray:
    """The histogram of the top bits of uint64 hashes [n], int64 [BINS]."""
    return np.bincount(bins_of(hashes), minlength=BINS)


def bins_of(hashes: np.ndarray) -> np.ndarray:
    """The bin of each hash, int64 [n]."""
    return (hashes >> _BIN_SHIFT).astype(np.int64)


def first_ranks(records: int, shards: int) -> list[int]:
    """The rank of the first record of every shard but shard 0; sizes differ by at most one."""
    return [records * shard // shards for shard in range(1, shards)]


def shard_sizes(records: int, shards: int) -> list[int]:
    """The number of records in each shard."""
    edges = [0, *first_ranks(records, shards), records]
    return [b - a for a, b in itertools.pairwise(edges)]


def boundary_ranks(counts: np.ndarray, shards: int) -> dict[int, list[int]]:
    """The bins that hold shard boundaries: bin -> ascending ranks within it.

    Args:
        counts: The number of the split's records in each bin, int64 [BINS].
        shards: The number of the split's shards, at most its number of records.
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
    """The shards of one split.

    Attributes:
        records: The number of records to write.
        rejected: The number of inputs known before writing not to become records.
        record_bytes: The approximate size of a framed record in bytes.
        shards: The number of shards; 0 if there are no records.
        boundaries: The smallest hash of every shard but the first, uint64 [shards - 1].
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
    """The shards of a dataset.

    Attributes:
        splits: The shards of every split, in order.
        folder: The folder of the dataset that has them.
    """

    splits: tuple[SplitPlan, ...]
    folder: str = ""

    def pack(self) -> bytes:
        """The plan as bytes."""
        counts = [(s.records, s.rejected, s.record_bytes, s.shards) for s in self.splits]
        boundaries = np.concatenate([np.empty(0, np.uint64), *(s.boundaries for s in self.splits)])
        return pack(
            Ragged.of([self.folder.encode()]), np.array(counts, np.int64).reshape(-1, 4), boundaries
        )

    @classmethod
    def unpack(cls, data: bytes) -> Plan:
        """The plan that `pack` turned into bytes."""
        (folder,), counts, boundaries = unpack(data)
        ends = np.cumsum(np.maximum(counts[:, 3] - 1, 0))[:-1]
        edges = np.split(boundaries, ends)
        splits = []
        for (records, rejected, size, shards), edge in zip(counts.tolist(), edges, strict=False):
            splits.append(SplitPlan(records, rejected, size, shards, edge))
        return cls(tuple(splits), folder.decode())


def shards_of(
    plan: Plan, splits: np.ndarray, hashes: np.ndarray, neighbours: int = 1
) -> np.ndarray:
    """Split and shard of each record in one number, int64 [n], which ascends with split and hash.

    Args:
        plan: The shards.
        splits, hashes: uint8 [n], uint64 [n].
        neighbours: With more than 1, it is the group of this many neighbouring shards instead of the shard.
    """
    keys = splits.astype(np.int64) << SHARD_BITS
    for split in np.unique(splits).tolist():
        rows = splits == split
        keys[rows] |= plan.splits[split].shard_of(hashes[rows]) // neighbours
    return keys


def neighbours_of(plan: Plan) -> int:
    """The number of neighbouring shards whose runs are merged first; 1 if no runs are merged.

    With B bytes of records, runs of R bytes and S shards, each shard reads a range of each run: S x B / R
    requests. Merged in groups of sqrt(S) shards, it is 2 x sqrt(S) x B / R.
    """
    shards = sum(split.shards for split in plan.splits)
    size = sum(split.records * split.record_bytes for split in plan.splits)
    return 1 if shards * size <= MOST_RANGES * RUN_BYTES else math.isqrt(shards - 1) + 1


def assign_shards(block: Block, plan: Plan) -> Iterator[tuple[int, Block]]:
    """Yields (split and shard in one number, that shard's records)."""
    yield from block.by(shards_of(plan, block.splits, block.hashes))


def divided(blocks: Sequence[bytes], plan: bytes) -> list[tuple[int, bytes]]:
    """(Split and shard in one number, packed references of it) of some packed blocks, which are divided together.

    A block of 512 references has two or three for each of 200 shards, and such a part takes 98 bytes a
    reference; a part of 50 takes 27.

    Args:
        blocks: One or more.
        plan: The packed plan.
    """
    whole = Block.join(list(map(Block.unpack, blocks)))
    return [
        (key, piece.pack(compress=True))
        for key, part in assign_shards(whole, Plan.unpack(plan))
        for piece in part.pieces(_PART_BYTES)
    ]


def count_shards(records: int, record_bytes: float, num_shards: int, shard_size: int) -> int:
    """The number of shards of a split; none of them is empty.

    Args:
        records: The number of the split's records.
        record_bytes: The mean size of a framed record in bytes.
        num_shards: The number asked for; 0 chooses it from `shard_size`.
        shard_size: The size in bytes that a shard should not exceed by much.
    """
    wanted = num_shards or max(1, math.ceil(records * record_bytes / shard_size))
    return min(wanted, records, MAX_SHARDS)
