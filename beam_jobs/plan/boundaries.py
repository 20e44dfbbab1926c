"""Shard boundaries from histograms of hashes: pure numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from beam_jobs.errors import UsageError, loss_error
from beam_jobs.plan.shards import (
    BIN_BITS,
    ONE_KEY,
    Plan,
    SplitPlan,
    bins_of,
    boundary_ranks,
    count_shards,
)
from beam_jobs.records.blocks import Block
from beam_jobs.records.rejects import Reject


@dataclass(frozen=True)
class SplitDraft:
    """A split whose shard boundaries are not yet known.

    Attributes:
        records, rejected, record_bytes, shards: The same as in `SplitPlan`.
        ranks: Bin -> ranks of the boundaries within it.
        counts: Bin -> number of its records, for the bins of `ranks` alone.
    """

    records: int
    rejected: int
    record_bytes: int
    shards: int
    ranks: dict[int, list[int]]
    counts: dict[int, int]


Draft = tuple[SplitDraft, ...]


def draft_split(
    records: np.ndarray, rejected: int, record_bytes: float, num_shards: int, shard_size: int
) -> SplitDraft:
    """The draft of one split.

    Args:
        records: The number of records in each bin, int64 [BINS].
        rejected: The number of inputs known not to become records.
        record_bytes: The mean size of a framed record in bytes.
        num_shards: The number of shards; 0 chooses it from `shard_size`.
        shard_size: The size of a shard in bytes.
    """
    total = int(records.sum())
    shards = count_shards(total, record_bytes, num_shards, shard_size)
    ranks = boundary_ranks(records, shards)
    counts = {bin_: int(records[bin_]) for bin_ in ranks}
    return SplitDraft(total, rejected, round(record_bytes), shards, ranks, counts)


def mean_bytes(mean_file: float, sizes: list[int], measured: list[int | Reject]) -> float:
    """The mean size in bytes of records made of files: a regression estimate from a sample.

    Larger files make larger records, in proportion (or not at all, if all records have one size),
    and the mean size of all files is known.

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


def wanted_hashes(block: Block, draft: Draft) -> Iterator[tuple[int, bytes]]:
    """Yields (split and bin in one number, hashes as bytes) for the bins that hold boundaries."""
    for split, hashes in block.hashes_by_split():
        bins = bins_of(hashes)
        inside = np.isin(bins, np.fromiter(draft[split].ranks, np.int64))
        bins, hashes = bins[inside], hashes[inside]
        order = np.argsort(bins, kind="stable")
        found, starts = np.unique(bins[order], return_index=True)
        parts = np.split(hashes[order], starts[1:])
        for bin_, part in zip(found.tolist(), parts, strict=False):
            yield split << BIN_BITS | bin_, part.astype("<u8").tobytes()


def pick_boundaries(key: int, hashes: Iterable[bytes], draft: Draft) -> tuple[int, bytes]:
    """Returns (split, boundaries as bytes) of one bin, from all hashes in that bin.

    Raises:
        DataError: The runner lost or repeated hashes.
        UsageError: A boundary falls between two records of one key.
    """
    split, bin_ = key >> BIN_BITS, key & ((1 << BIN_BITS) - 1)
    ordered = np.sort(np.frombuffer(b"".join(hashes), "<u8"))
    expected = draft[split].counts[bin_]
    if len(ordered) != expected:
        raise loss_error("keys while shards were planned", len(ordered), expected)
    ranks = draft[split].ranks[bin_]
    # All records of a hash go to one shard, so the counts of both shards would be wrong.
    if any(rank and ordered[rank] == ordered[rank - 1] for rank in ranks):
        raise UsageError(f"two records have the same key: {ONE_KEY}")
    return split, ordered[ranks].tobytes()


def finish_plan(draft: Draft, boundaries: Iterable[tuple[int, bytes]], folder: str) -> Plan:
    """The plan, from the draft, the boundaries of all bins in any order, and the folder of the shards.

    Raises:
        DataError: The runner lost or repeated boundaries.
    """
    found: list[list[np.ndarray]] = [[] for _ in draft]
    for number, values in boundaries:
        found[number].append(np.frombuffer(values, "<u8"))
    splits = []
    for split, parts in zip(draft, found, strict=True):
        edges = np.sort(np.concatenate([np.empty(0, np.uint64), *parts]))
        if len(edges) != max(split.shards - 1, 0):
            raise loss_error("shard boundaries", len(edges), split.shards - 1)
        splits.append(
            SplitPlan(split.records, split.rejected, split.record_bytes, split.shards, edges)
        )
    return Plan(tuple(splits), folder)
