"""Which ranges of a run belong to which shard, or to which group of neighbouring shards."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from beam_jobs.plan.shards import SHARD_BITS, Plan, shards_of
from beam_jobs.records.runs import RUN_BYTES, RunIndex
from beam_jobs.records.spool import LOCATED_BYTES, Locator

# With more ranges than this, runs are merged before they are read by shard. S3 answers 5,500 requests a second
# below one prefix, so this number takes 12 minutes, and costs 1.60 dollars.
MOST_RANGES = 4_000_000

_SHARD_MASK = (1 << SHARD_BITS) - 1


def groups_of(keys: np.ndarray, neighbours: int) -> np.ndarray:
    """The group of each shard, int64 [n], which ascends with the shards.

    Args:
        keys: int64 [n], split and shard in one number.
        neighbours: The number of shards in a group.
    """
    return (keys & ~_SHARD_MASK) | (keys & _SHARD_MASK) // neighbours


def neighbours_of(plan: Plan) -> int:
    """The number of neighbouring shards whose runs are merged first; 1 if no runs are merged.

    With B bytes of records, runs of R bytes and S shards, each shard reads a range of each run: S x B / R
    requests. Merged in groups of sqrt(S) shards, it is 2 x sqrt(S) x B / R.
    """
    shards = sum(split.shards for split in plan.splits)
    size = sum(split.records * split.record_bytes for split in plan.splits)
    return 1 if shards * size <= MOST_RANGES * RUN_BYTES else math.isqrt(shards - 1) + 1


def locate(index: RunIndex, plan: Plan, neighbours: int = 1) -> Iterator[tuple[int, Locator]]:
    """Yields (split and shard in one number, or the group of it; blocks that hold its records).

    A block whose records belong to several shards is located for each of them. The last block of a locator
    begins less than `LOCATED_BYTES` after the first.

    Args:
        index: The blocks, at least one.
        plan: The shards.
        neighbours: The number of shards in a group; 1 locates each shard.
    """
    first, last = (
        groups_of(shards_of(plan, index.splits, hashes), neighbours)
        for hashes in (index.first, index.last)
    )
    counts = last - first + 1
    blocks = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(blocks)) - np.repeat(np.cumsum(counts) - counts, counts)
    keys = first[blocks] + within
    # Consecutive blocks of one shard, until they are too large for a locator.
    starts, stops = index.starts[blocks], index.stops[blocks]
    begins = np.flatnonzero(np.diff(keys, prepend=-1))
    offsets = starts - np.repeat(starts[begins], np.diff(begins, append=len(keys)))
    pieces = np.diff(offsets // LOCATED_BYTES, prepend=-1) != 0
    pieces[begins] = True
    edges = np.flatnonzero(pieces)
    ends = np.append(edges[1:], len(keys)) - 1
    sizes = stops[ends] - starts[edges]
    for key, start, size in zip(
        keys[edges].tolist(), starts[edges].tolist(), sizes.tolist(), strict=True
    ):
        yield key, Locator(index.name, start, size)
