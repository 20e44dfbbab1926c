"""The plan of a dataset, made in the pipeline: only numbers cross the network.

Summaries of all records become a draft (how many shards, and in which bins of the hash their
boundaries fall); the hashes of those few bins, grouped by bin, become the boundaries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsList, AsSideInput

from beam_jobs.dataset.generations import prepare
from beam_jobs.dataset.output import Output
from beam_jobs.errors import loss_error
from beam_jobs.jobs.text.sample import check_training
from beam_jobs.pipeline.steps import AsMerged, AsWhole, once
from beam_jobs.plan.group_splits import check_planned
from beam_jobs.plan.near_pairs import NearTally, check_near
from beam_jobs.plan.placement import Placement
from beam_jobs.plan.shards import (
    Draft,
    finish_plan,
    pick_boundaries,
    wanted_hashes,
)
from beam_jobs.plan.summary import Summary
from beam_jobs.records.blocks import Block
from beam_jobs.records.rejects import Reject
from beam_jobs.writing.complete import Measure, Prepare, draft_of

# The name of the counter of the bytes of all inputs, if each record is a file.
INPUT_BYTES = "input_bytes"


def _draft(
    output: Output,
    measure: Measure | None,
    prepare: Prepare | None,
    patterns: int,
    summary: Summary,
    listed: list[int] | None = None,
    cut: Sequence[int] = (),
) -> tuple[Draft, list[int | Reject]]:
    """As `draft_of`, after a check that all inputs arrived: those in each part of a pattern, the parts of each."""
    if listed is not None:
        for what, found, expected in (
            ("patterns to list", len(cut), patterns),
            ("parts of patterns", len(listed), sum(cut)),
            ("inputs that were listed", summary.inputs, sum(listed)),
        ):
            if found != expected:
                raise loss_error(what, found, expected)
    if measure:
        summary.check_sample()
    Metrics.counter("summary", INPUT_BYTES).inc(sum(split.bytes for split in summary.splits))
    return draft_of(output, summary, measure, prepare)


def _wanted_hashes(packed: bytes, draft: Draft) -> Iterator[tuple[int, bytes]]:
    return wanted_hashes(Block.unpack(packed), draft)


def _pick_boundaries(bin_: tuple[int, Iterable[bytes]], draft: Draft) -> tuple[int, bytes]:
    return pick_boundaries(*bin_, draft)


def _finish(
    draft: Draft, boundaries: list[tuple[int, bytes]], summary: Summary, output: Output
) -> bytes:
    return finish_plan(draft, boundaries, output.folder(summary)).pack()


def check_passes(
    summary: Summary,
    placement: Placement,
    learns_from: int | None,
    strata: bytes,
    *tallies: NearTally,
) -> None:
    """Checks that all passes have read the same records; tokens are learned from the split `learns_from`, if any.

    Raises:
        DataError: The runner lost or repeated some.
        UsageError: Tokens cannot be learned from the records.
    """
    if learns_from is not None:
        check_training(summary, learns_from)
    check_near(summary, tallies)
    check_planned(summary, strata, placement)


T = TypeVar("T")

# A side input, or the value itself if it is known when the graph is built.
Side: TypeAlias = AsSideInput | T


class PlannedShards(NamedTuple):
    """The results of `PlanShards`.

    Attributes:
        plan: The side input of the packed `Plan`.
        summary: The side input of the `Summary` of all records.
        measured: PCollection of one list: sizes in bytes, or rejects, of the records that were sampled.
    """

    plan: AsWhole
    summary: AsSideInput
    measured: beam.PCollection


class PlanShards(beam.PTransform):
    """(Summary of each block, packed blocks of hashes, numbers of inputs, of parts) -> PlannedShards.

    The numbers count the inputs in each part of a pattern, and the parts of each pattern. Without them, the inputs
    that a runner loses are not noticed.

    Args:
        measure: Measures sampled records; None if the summaries have sizes already.
        prepare: Makes the output directory ready for shards; None leaves it unchanged.
        passes: The arguments of `check_passes` except the summary, with side inputs; None without an
            earlier pass.
    """

    def __init__(
        self,
        output: Output,
        measure: Measure | None = None,
        patterns: int = 0,
        prepare: Prepare | None = prepare,
        passes: tuple[Any, ...] | None = None,
    ) -> None:
        super().__init__()
        self._output, self._measure, self._patterns = output, measure, patterns
        self._prepare, self._passes = prepare, passes

    def expand(self, inputs: tuple[beam.PCollection, ...]) -> PlannedShards:
        summaries, blocks, *listed = inputs
        empty = partial(Summary.empty, len(self._output.num_shards))
        summary: AsSideInput = AsMerged(summaries, "Summarise", empty)
        start = blocks.pipeline | "Once" >> beam.Create([None])
        if self._passes:
            start = once(start, "CheckPasses", check_passes, summary, *self._passes)
        how = self._output, self._measure, self._prepare, self._patterns
        drafted = once(start, "Draft", _draft, *how, summary, *map(AsList, listed))
        draft = AsWhole(drafted | beam.Keys(), "Draft")
        boundaries = (
            blocks
            # Directly before a side input: a runner that loses elements which it hands over twice
            # (see docs/internals/design.md) cannot lose them here.
            | "Rebalance" >> beam.Reshuffle()
            | "SelectHashes" >> beam.FlatMap(_wanted_hashes, draft)
            | "GroupByBin" >> beam.GroupByKey()
            | "PickBoundaries" >> beam.Map(_pick_boundaries, draft)
        )
        plan = once(start, "Finish", _finish, draft, AsList(boundaries), summary, self._output)
        return PlannedShards(AsWhole(plan, "Plan"), summary, drafted | beam.Values())
