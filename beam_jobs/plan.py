"""The plan of a dataset, made in the pipeline: only numbers cross the network.

Summaries of all records become a draft (how many shards, and in which bins of the hash their
boundaries fall); the hashes of those few bins, grouped by bin, become the boundaries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsList, AsSingleton

from beam_jobs.assign import (
    BIN_BITS,
    Plan,
    SplitPlan,
    bins_of,
    boundary_ranks,
    count_shards,
)
from beam_jobs.blocks import Block
from beam_jobs.errors import DataError, UsageError
from beam_jobs.merge import MergeFn
from beam_jobs.output import Output, clear_output
from beam_jobs.summary import Summary

# Keys of records -> mean bytes of one in its shard; None when none could be encoded.
Measure = Callable[[list[str]], "float | None"]


@dataclass(frozen=True)
class SplitDraft:
    """A split whose shard boundaries are not yet known.

    Attributes:
        records, rejected, shards: As in `SplitPlan`.
        ranks: Bin -> ranks of the boundaries within it.
        counts: Bin -> records in it; the bins of `ranks` alone.
    """

    records: int
    rejected: int
    shards: int
    ranks: dict[int, list[int]]
    counts: dict[int, int]


Draft = tuple[SplitDraft, ...]


def draft_split(
    records: np.ndarray, rejected: int, record_bytes: float, num_shards: int, shard_size: int
) -> SplitDraft:
    """The draft of one split.

    Args:
        records: int64 [BINS], by the top bits of their hash.
        rejected: Inputs known not to become records.
        record_bytes: Mean size of a record in its file.
        num_shards: 0 to choose by `shard_size`, in bytes.
    """
    total = int(records.sum())
    shards = count_shards(total, record_bytes, num_shards, shard_size)
    ranks = boundary_ranks(records, shards) if shards > 1 else {}
    return SplitDraft(total, rejected, shards, ranks, {bin_: int(records[bin_]) for bin_ in ranks})


def wanted_hashes(block: Block, draft: Draft) -> Iterator[tuple[int, bytes]]:
    """Yields (split and bin, hashes as bytes) for the bins in which boundaries fall."""
    for split, rows in block.by(block.splits):
        wanted = np.fromiter(draft[split].ranks, np.int64)
        bins = bins_of(rows.hashes)
        inside = np.isin(bins, wanted)
        for bin_ in np.unique(bins[inside]).tolist():
            yield split << BIN_BITS | bin_, rows.hashes[bins == bin_].astype("<u8").tobytes()


def pick_boundaries(key: int, hashes: Iterable[bytes], draft: Draft) -> tuple[int, bytes]:
    """The (split, boundaries as bytes) that fall into one bin, from all hashes of that bin.

    Raises:
        DataError: Hashes were lost or duplicated on the way.
    """
    split, bin_ = key >> BIN_BITS, key & ((1 << BIN_BITS) - 1)
    ordered = np.sort(np.frombuffer(b"".join(hashes), "<u8"))
    expected = draft[split].counts[bin_]
    if len(ordered) != expected:
        raise DataError(
            f"the runner handed over {len(ordered)} of {expected} keys while shards were planned; "
            "no dataset was written, run the job again"
        )
    return split, ordered[draft[split].ranks[bin_]].tobytes()


def finish_plan(draft: Draft, boundaries: Iterable[tuple[int, bytes]]) -> Plan:
    """The plan, from the draft and the boundaries of all bins in any order.

    Raises:
        DataError: Boundaries were lost or duplicated on the way.
    """
    found: list[list[np.ndarray]] = [[] for _ in draft]
    for number, values in boundaries:
        found[number].append(np.frombuffer(values, "<u8"))
    splits = []
    for split, parts in zip(draft, found, strict=True):
        edges = np.sort(np.concatenate([np.empty(0, np.uint64), *parts]))
        if len(edges) != max(split.shards - 1, 0):
            raise DataError(
                f"the runner handed over {len(edges)} of {split.shards - 1} shard boundaries; "
                "no dataset was written, run the job again"
            )
        splits.append(SplitPlan(split.records, split.rejected, split.shards, edges))
    return Plan(tuple(splits))


class _DraftPlan(beam.DoFn):
    """Decides the number of shards; clears the output, as nothing can be written before it."""

    def __init__(self, output: Output, measure: Measure | None) -> None:
        self._output, self._measure = output, measure

    def process(self, _: Any, summary: Summary) -> Iterator[Draft]:
        output = self._output
        if not any(split.rejected or split.histogram().any() for split in summary.splits):
            raise UsageError("the inputs hold no record: no dataset was written")
        clear_output(output.directory, output.overwrite)
        sampled = None
        if self._measure and not all(output.num_shards):
            sampled = self._measure([key for _, key in summary.sample])
        draft = []
        for split, num_shards in zip(summary.splits, output.num_shards, strict=True):
            histogram = split.histogram()
            mean = sampled or split.bytes / max(int(histogram.sum()), 1)
            draft.append(
                draft_split(histogram, split.rejected, mean, num_shards, output.shard_size)
            )
        yield tuple(draft)


class _SelectHashes(beam.DoFn):
    def process(self, packed: bytes, draft: Draft) -> Iterator[tuple[int, bytes]]:
        yield from wanted_hashes(Block.unpack(packed), draft)


class _PickBoundaries(beam.DoFn):
    def process(
        self, element: tuple[int, Iterable[bytes]], draft: Draft
    ) -> Iterator[tuple[int, bytes]]:
        yield pick_boundaries(*element, draft)


class _FinishPlan(beam.DoFn):
    def process(self, _: Any, draft: Draft, boundaries: list[tuple[int, bytes]]) -> Iterator[bytes]:
        yield finish_plan(draft, boundaries).pack()


class Planned(NamedTuple):
    """Two PCollections of one element each: the packed `Plan`, and the `Summary` of all records."""

    plan: beam.PCollection
    summary: beam.PCollection


class PlanShards(beam.PTransform):
    """(PCollection of Summary, PCollection of packed blocks) -> Planned.

    Args:
        output: The dataset to be written.
        measure: Tells the size of records from their keys; without it the summaries know it.
    """

    def __init__(self, output: Output, measure: Measure | None = None) -> None:
        super().__init__()
        self._output, self._measure = output, measure

    def expand(self, inputs: tuple[beam.PCollection, beam.PCollection]) -> Planned:
        summaries, blocks = inputs
        splits = len(self._output.num_shards)
        summary = summaries | "Summarise" >> beam.CombineGlobally(
            MergeFn(partial(Summary.empty, splits))
        )
        start = blocks.pipeline | "Once" >> beam.Create([None])
        draft = start | "Draft" >> beam.ParDo(
            _DraftPlan(self._output, self._measure), AsSingleton(summary)
        )
        boundaries = (
            blocks
            # Directly before a side input: a runner that loses what it hands over twice (see
            # docs/design.md) cannot lose it here.
            | "Rebalance" >> beam.Reshuffle()
            | "SelectHashes" >> beam.ParDo(_SelectHashes(), AsSingleton(draft))
            | "GroupByBin" >> beam.GroupByKey()
            | "PickBoundaries" >> beam.ParDo(_PickBoundaries(), AsSingleton(draft))
        )
        plan = start | "Finish" >> beam.ParDo(_FinishPlan(), AsSingleton(draft), AsList(boundaries))
        return Planned(plan, summary)
