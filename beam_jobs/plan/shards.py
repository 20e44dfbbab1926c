"""The shard of each record: the shards of a split differ by at most one record.

A shard is a range of hashes. To find its boundaries without sorting all hashes, they are counted by their top bits, and
those in the few bins that hold a boundary are compared one by one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from beam_jobs.columns import Ragged, pack, unpack
from beam_jobs.errors import UsageError, loss_error
from beam_jobs.records.blocks import Block, grouped
from beam_jobs.records.rejects import Reject
from beam_jobs.records.runs import RUN_BYTES

# 2**16 counts take 512 KiB per split, small for a side input; a billion keys make 15,000 per bin.
BIN_BITS = 16

BINS = 1 << BIN_BITS

_BIN_SHIFT = np.uint64(64 - BIN_BITS)

MAX_SHARDS = 99_999  # five digits in a shard's name

SHARD_BITS = 17  # enough for MAX_SHARDS

# With more ranges than this, runs are merged before they are read by shard. S3 answers 5,500 requests per second
# for one prefix, so this number takes 12 minutes, and costs 1.60 dollars.
MOST_RANGES = 4_000_000

# The end of every error about two records with one key, for `write` and `WriteShards`; the command line replaces
# it, because its users do not see elements.
ONE_KEY = "every record needs a unique key; two elements (key, features) have the same one"


# The bytes of payloads of one shard that a runner gets as one element.
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

    Of a split with at most as many shards as records, given the number of records in each bin, int64 [BINS].
    """
    ends = np.cumsum(counts)
    ranks = np.array(first_ranks(int(ends[-1]), shards), np.int64)
    bins = np.searchsorted(ends, ranks, side="right")
    within = ranks - (ends[bins] - counts[bins])
    by_bin: dict[int, list[int]] = {}
    for bin_, rank in zip(bins.tolist(), within.tolist(), strict=True):
        by_bin.setdefault(bin_, []).append(rank)
    return by_bin


def count_shards(records: int, record_bytes: float, num_shards: int, shard_size: int) -> int:
    """The number of shards of a split, none of them empty: as requested, or if that is 0, by `shard_size`.

    Both `record_bytes`, the mean of framed records, and `shard_size` are in bytes.
    """
    ideal = num_shards or max(1, math.ceil(records * record_bytes / shard_size))
    return min(ideal, records, MAX_SHARDS)


def mean_bytes(mean_file: float, sizes: list[int], measured: list[int | Reject]) -> float:
    """The mean size in bytes of records made of files: a regression estimate from a sample.

    Larger files make larger records, in proportion, unless all records have one size.

    Args:
        mean_file: The mean size of all files in bytes.
        sizes: The sizes of the sampled files in bytes.
        measured: The size in bytes of each sampled record, or the reason why it was rejected.
    """
    pairs = [(x, y) for x, y in zip(sizes, measured, strict=True) if isinstance(y, int)]
    if not pairs:
        return mean_file
    # math.fsum gives the same number in every run, on every machine.
    x_mean = math.fsum(x for x, _ in pairs) / len(pairs)
    y_mean = math.fsum(y for _, y in pairs) / len(pairs)
    spread = math.fsum((x - x_mean) ** 2 for x, _ in pairs)
    if not spread:
        return y_mean
    slope = math.fsum((x - x_mean) * (y - y_mean) for x, y in pairs) / spread
    estimate = y_mean + slope * (mean_file - x_mean)
    return estimate if estimate > 0 else y_mean


@dataclass(frozen=True)
class SplitPlan:
    """The shards of one split.

    Attributes:
        records: The number of records to write.
        rejected: The number of inputs known before writing not to become records.
        record_bytes: The approximate size of a framed record in bytes.
        shards: The number of shards; 0 without records.
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
    """The shards of every split of a dataset, in order, and its folder that has them."""

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


@dataclass(frozen=True)
class Draft:
    """A plan whose shard boundaries are not yet known.

    Attributes:
        splits: The splits, without boundaries.
        bins: Split and bin in one number -> (the number of its records, the ranks of the boundaries among them).
    """

    splits: tuple[SplitPlan, ...]
    bins: dict[int, tuple[int, list[int]]]

    @classmethod
    def of(cls, splits: Iterable[tuple[np.ndarray, int, float, int]], shard_size: int) -> Draft:
        """The draft of some splits.

        Args:
            splits: For each split, the number of records in each bin, int64 [BINS]; the number of known rejects;
                the mean size of a framed record in bytes; and the number of shards, or 0 to choose it.
            shard_size: The approximate size of a shard in bytes.
        """
        plans, bins = [], {}
        for number, (histogram, rejected, record_bytes, num_shards) in enumerate(splits):
            records = int(histogram.sum())
            shards = count_shards(records, record_bytes, num_shards, shard_size)
            empty = np.empty(0, np.uint64)
            plans.append(SplitPlan(records, rejected, round(record_bytes), shards, empty))
            for bin_, ranks in boundary_ranks(histogram, shards).items():
                bins[number << BIN_BITS | bin_] = int(histogram[bin_]), ranks
        return cls(tuple(plans), bins)


def wanted_hashes(block: Block, draft: Draft) -> Iterator[tuple[int, bytes]]:
    """Yields (split and bin in one number, hashes as bytes) for the bins that hold boundaries."""
    keys = block.splits.astype(np.int64) << BIN_BITS | bins_of(block.hashes)
    rows = np.flatnonzero(np.isin(keys, np.fromiter(draft.bins, np.int64, len(draft.bins))))
    keys, hashes = keys[rows], block.hashes[rows]
    for key, some in grouped(keys, hashes):
        yield key, some.astype("<u8").tobytes()


def pick_boundaries(key: int, hashes: Iterable[bytes], draft: Draft) -> tuple[int, bytes]:
    """Returns (split, boundaries as bytes) of one bin, from all hashes in that bin.

    Raises:
        DataError: The runner lost or repeated hashes.
        UsageError: A boundary falls between two records of one key.
    """
    records, ranks = draft.bins[key]
    ordered = np.sort(np.frombuffer(b"".join(hashes), "<u8"))
    if len(ordered) != records:
        raise loss_error("keys while shards were planned", len(ordered), records)
    # All records of a hash go to one shard, so the counts of both shards would be wrong.
    if any(rank and ordered[rank] == ordered[rank - 1] for rank in ranks):
        raise UsageError(f"two records have the same key: {ONE_KEY}")
    return key >> BIN_BITS, ordered[ranks].tobytes()


def finish_plan(draft: Draft, boundaries: Iterable[tuple[int, bytes]], folder: str) -> Plan:
    """The plan, from the boundaries of all bins in any order; DataError if the runner lost or repeated some."""
    picked: list[list[bytes]] = [[] for _ in draft.splits]
    for number, values in boundaries:
        picked[number].append(values)
    splits = []
    for split, parts in zip(draft.splits, picked, strict=True):
        edges = np.sort(np.frombuffer(b"".join(parts), "<u8"))
        if len(edges) != max(split.shards - 1, 0):
            raise loss_error("shard boundaries", len(edges), split.shards - 1)
        splits.append(replace(split, boundaries=edges))
    return Plan(tuple(splits), folder)


def shards_of(
    plan: Plan, splits: np.ndarray, hashes: np.ndarray, neighbours: int = 1
) -> np.ndarray:
    """Split and shard of each record in one number, int64 [n], which ascends with split and hash.

    Args:
        splits, hashes: uint8 [n], uint64 [n].
        neighbours: If it is more than 1, groups of this many neighbouring shards replace shards.
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


def divided(blocks: Sequence[bytes], plan: bytes) -> list[tuple[int, bytes]]:
    """(Split and shard in one number, packed references of it) of packed blocks, one or more, by a packed plan.

    They are divided together: a block of 512 references has two or three for each of 200 shards, and such a small
    part takes 98 bytes per reference; a part of 50 takes 27.
    """
    every = Block.join(list(map(Block.unpack, blocks)))
    return [
        (key, piece.pack(compress=True))
        for key, part in every.by(shards_of(Plan.unpack(plan), every.splits, every.hashes))
        for piece in part.pieces(_PART_BYTES)
    ]
