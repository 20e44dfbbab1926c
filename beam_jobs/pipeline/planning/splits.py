"""Splits by label or by group, planned in the pipeline: only numbers cross the network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import apache_beam as beam
from apache_beam.pvalue import AsList

from beam_jobs.pipeline.steps import AsMerged, AsWhole, once
from beam_jobs.plan.group_splits import GroupSizes, deal_groups
from beam_jobs.plan.placement import Placement
from beam_jobs.plan.strata import (
    Cuts,
    Histogram,
    LabelCounts,
    LabelHashes,
    Strata,
    pick_edges,
    place_cuts,
    wanted_hashes,
)


def _count(block: LabelHashes) -> LabelCounts:
    return LabelCounts().add(block)


def _fill(block: LabelHashes, counts: LabelCounts) -> Histogram:
    return Histogram().add(block, counts)


def _finish(cuts: Cuts, picked: list[tuple[str, int, int]], splits: int) -> bytes:
    return Strata.of(cuts, splits, picked).pack()


def _pick_edges(
    bin_: tuple[tuple[str, int], Iterable[bytes]], cuts: Cuts
) -> Iterator[tuple[str, int, int]]:
    return pick_edges(*bin_, cuts)


def plan_strata(blocks: beam.PCollection, placement: Placement) -> beam.PCollection:
    """The step from `LabelHashes`, of any size, to one packed `Strata`."""
    blocks |= "CutLabels" >> beam.FlatMap(LabelHashes.pieces)
    counts = AsMerged(blocks | "CountLabels" >> beam.Map(_count), "MergeCounts", LabelCounts)
    again = blocks | "RebalanceLabels" >> beam.Reshuffle()
    filled = AsMerged(again | "FillBins" >> beam.Map(_fill, counts), "MergeBins", Histogram)
    sides = counts, filled, placement
    cuts = AsWhole(once(blocks.pipeline, "PlaceCuts", place_cuts, *sides), "Cuts")
    picked = (
        again
        | "SelectLabelHashes" >> beam.FlatMap(wanted_hashes, cuts)
        | "GroupByLabelBin" >> beam.GroupByKey()
        | "PickEdges" >> beam.FlatMap(_pick_edges, cuts)
    )
    splits = len(placement.splits.names)
    return once(blocks.pipeline, "FinishStrata", _finish, cuts, AsList(picked), splits)


def _deal(sizes: GroupSizes, placement: Placement) -> bytes:
    dealt = deal_groups(sizes, placement.splits)
    return dealt.pack() if dealt else b""


def plan_groups(sizes: beam.PCollection, placement: Placement) -> beam.PCollection:
    """The step from `GroupSizes` to one packed `GroupSplits`; empty bytes to use hashes."""
    merged = AsMerged(sizes, "MergeSizes", GroupSizes)
    return once(sizes.pipeline, "Deal", _deal, merged, placement)
