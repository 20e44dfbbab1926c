"""Plans jobs whose record is a file: lists references and counts them."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator
from functools import partial
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.metrics import Metrics
from apache_beam.pvalue import TaggedOutput

from beam_jobs import progress
from beam_jobs.dataset.generations import prepare
from beam_jobs.dataset.output import Output
from beam_jobs.engines.pool import call_pickled
from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.file_sketches import ReferenceTask, reference_sketches
from beam_jobs.jobs.loading import Loader, classes_in
from beam_jobs.jobs.protocols import FileJob
from beam_jobs.jobs.record import label_or_none, source_values
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.pipeline.near.drop import DropNear
from beam_jobs.pipeline.near.rules import NearRules
from beam_jobs.pipeline.planning.shards import Planned, PlanShards, Prepare, Side, names_of_labels
from beam_jobs.pipeline.planning.strata import PlanSplits
from beam_jobs.pipeline.steps import AsWhole, cut_patterns, loading_pool, with_span
from beam_jobs.plan.group_splits import GroupSizes, unpack_splits
from beam_jobs.plan.labels import LabelHashes
from beam_jobs.plan.placement import Placement
from beam_jobs.plan.summary import SAMPLE, SampledRecord, Summary
from beam_jobs.records.blocks import Block, BlockBuilder
from beam_jobs.records.rejects import Reject
from beam_jobs.sources.source import identity_of, pack_reference, unpack_reference
from beam_jobs.storage.ranges import Span


class _ListFiles(beam.DoFn):
    """(Pattern, span) -> packed blocks of references, and the number of references."""

    FOUND = "found"

    def __init__(self, job: FileJob, output: Output) -> None:
        self._job, self._placement = job, output.placement

    def process(self, part: tuple[str, Span]) -> Iterator[Any]:
        pattern, span = part
        builder = BlockBuilder(compress=True)
        placement = self._placement
        found = reported = 0
        progress.advance("listing", 0)
        for source in with_span(self._job, span).sources(pattern):
            found += 1
            key = source.key
            try:
                if source.packed:
                    raise UsageError(
                        f"{key}: a packed archive can only be read from its start: name such files "
                        "with an --input of their own that ends in .tar.gz or .tgz, and the "
                        "others with patterns such as '*.jpg'"
                    )
                split = placement.split_of(source.file, source.row)
            except RejectError as error:
                split = placement.split(source.file)
                source = source._replace(error=source.error or str(error))
            if not source.error:
                try:
                    source_values(self._job, source)
                except RejectError as error:
                    source = source._replace(error=str(error))
            block = builder.add(placement.order(key), split, pack_reference(source))
            if block:
                progress.advance("listing", found - reported)
                reported = found
                yield block
        progress.advance("listing", found - reported)
        left = builder.flush()
        if left:
            yield left
        Metrics.counter("files", "found").inc(found)
        yield TaggedOutput(self.FOUND, found)


class _Summarise(beam.DoFn):
    """Packed blocks of references -> packed blocks of their hashes, and a summary of each block."""

    SUMMARY = "summary"

    def __init__(self, job: FileJob, output: Output) -> None:
        self._job, self._splits = job, len(output.num_shards)

    def process(self, packed: bytes) -> Iterator[Any]:
        block = Block.unpack(packed)
        sources = [unpack_reference(payload) for payload in block.payloads]
        summary = Summary.empty(self._splits)
        summary.inputs = len(sources)
        summary.add_block(block)
        summary.identify(
            block.hashes, np.fromiter(map(identity_of, sources), np.int64, len(sources))
        )
        for split, source in zip(block.splits.tolist(), sources, strict=True):
            if source.error:
                reject = Reject.of(source.key, "decode", source.error)
                summary.add_unreadable(split, reject)
            else:
                summary.splits[split].bytes += source.size
                summary.texts += 1
        for feature, names in classes_in(self._job, sources).items():
            summary.add_labels(names, feature)
        order = np.argsort(block.hashes).tolist()
        smallest = [row for row in order if not sources[row].error][:SAMPLE]
        summary.add_sample(
            SampledRecord(int(block.hashes[row]), block.payloads[row], sources[row].size)
            for row in smallest
        )
        Metrics.counter("files", "planned").inc(len(sources))
        yield block.without_payloads().pack()
        yield TaggedOutput(self.SUMMARY, summary)


def _measure(references: list[bytes], loader: Loader, processes: int) -> list[int | Reject]:
    """The size in bytes of each record with its framing, or why it cannot be loaded."""
    packed = pickle.dumps(loader.measure)
    step = -(-len(references) // processes) or 1
    starts = range(0, len(references), step)
    tasks = ((packed, references[start : start + step]) for start in starts)
    measured = loading_pool(processes).map(call_pickled, tasks)
    return list(itertools.chain.from_iterable(measured))


def _count(packed: bytes, job: FileJob, placement: Placement) -> LabelHashes | GroupSizes:
    """The labels of the references without an error in a packed block, or the sizes of their groups."""
    block = Block.unpack(packed)
    _, found = label_hashes(job, placement, block)
    if not placement.deals_groups:
        return found
    sizes = GroupSizes(inputs=len(block.payloads))
    sizes.add(found)
    return sizes


def _resplit(packed: bytes, job: FileJob, placement: Placement, strata: bytes) -> bytes:
    """The packed block of references, with the splits that strata or groups give."""
    if not strata:  # There are too many groups: hashes have decided.
        return packed
    block = Block.unpack(packed)
    splits = block.splits.copy()
    rows, found = label_hashes(job, placement, block)
    splits[rows] = unpack_splits(strata, placement).splits_of(found)
    return Block(block.hashes, splits, block.payloads).pack(compress=True)


def _left(task: ReferenceTask) -> Iterator[bytes]:
    """Yields the packed block of the references that a task does not drop, if there are any."""
    left, _ = task.divided()
    if len(left.hashes):
        yield left.pack(compress=True)


def _count_gone(task: ReferenceTask, output: Output, strata: bytes) -> Summary:
    """A summary of the references that a task drops."""
    (_, gone), placement = task.divided(), output.placement
    splits = gone.splits
    # Strata only know the labels of records that are kept; a group that was not dealt follows its hash.
    if strata and placement.deals_groups:
        sources = list(map(unpack_reference, gone.payloads))
        names = [source.file.encode("utf-8", "surrogateescape") for source in sources]
        rows = [source.row for source in sources]
        splits, _ = SplitRules(placement, strata).splits_of(names, rows, [])
    summary = Summary.empty(len(output.num_shards))
    summary.inputs = summary.texts = len(splits)
    summary.add_duplicates(splits)
    return summary


def label_hashes(
    job: FileJob, placement: Placement, block: Block
) -> tuple[np.ndarray, LabelHashes]:
    """The rows, int64 [m], of a block of references without an error, and their labels and groups."""
    sources = [unpack_reference(payload) for payload in block.payloads]
    rows = [row for row, source in enumerate(sources) if not source.error]
    chosen = [sources[row] for row in rows]
    groups = [source.key for source in chosen]
    if placement.deals_groups:
        groups = [placement.groups.of(source.file, source.row) for source in chosen]
    labels = placement.strata(label_or_none(job, source) for source in chosen)
    return np.array(rows, np.int64), LabelHashes.of(labels, placement.hashes_of(groups))


class PlanReferences(beam.PTransform):
    """A pipeline -> `Planned`, whose inputs are packed blocks of references.

    Args:
        job: Defines the records.
        output: The dataset.
        processes: The number of processes that load samples, in each of the runner's workers.
        prepare: Makes the output directory ready for shards; None leaves it alone.
        near: Which near duplicates are dropped; None if they are kept.
    """

    def __init__(
        self,
        job: FileJob,
        output: Output,
        processes: int,
        prepare: Prepare | None = prepare,
        near: NearRules | None = None,
    ) -> None:
        super().__init__()
        self._job, self._output, self._processes = job, output, processes
        self._prepare, self._near = prepare, near

    def expand(self, pipeline: beam.Pipeline) -> Planned:
        job, output = self._job, self._output
        parts, cut = cut_patterns(pipeline, job.inputs, self._processes)
        listed = parts | "List" >> beam.ParDo(_ListFiles(job, output)).with_outputs(
            _ListFiles.FOUND, main="blocks"
        )
        blocks = listed["blocks"]
        if self._processes == 1:
            # Spread over workers; with one worker it would only copy all references once more.
            blocks |= "Spread" >> beam.Reshuffle()
        dropped = None
        if self._near:
            # Each file is read and decoded, once more than without this.
            sketch = partial(reference_sketches, job, self._near)
            drop = DropNear(self._near, sketch, self._processes)
            tasks = blocks | "Tasks" >> beam.Map(ReferenceTask.of)
            dropped = (tasks,) | "DropNear" >> drop
            blocks = dropped.tasks | "Left" >> beam.FlatMap(_left)
        strata: Side[bytes] = b""
        if output.placement.plans_splits:
            counted = blocks | "Count" >> beam.Map(_count, job, output.placement)
            strata = AsWhole(counted | "PlanSplits" >> PlanSplits(output.placement))
            blocks = (
                blocks
                | "SpreadAgain" >> beam.Reshuffle()
                | "Resplit" >> beam.Map(_resplit, job, output.placement, strata)
            )
        places = blocks | "Summarise" >> beam.ParDo(_Summarise(job, output)).with_outputs(
            _Summarise.SUMMARY, main="blocks"
        )
        summaries = places[_Summarise.SUMMARY]
        if dropped:
            gone = dropped.tasks | "CountGone" >> beam.Map(_count_gone, output, strata)
            summaries = (summaries, gone) | "AllSummaries" >> beam.Flatten()
        loader = Loader(
            job, output.schema, feature_names=output.feature_names, mapper=output.mapper
        )
        counted = (summaries, places["blocks"], listed[_ListFiles.FOUND], cut)
        shards = counted | "Plan" >> PlanShards(
            output,
            partial(_measure, loader=loader, processes=self._processes),
            len(job.inputs.patterns),
            self._prepare,
            (output.placement, strata, dropped.tally if dropped else None),
        )
        names = names_of_labels(pipeline, shards.summary, job.class_names)
        return Planned(
            inputs=blocks,
            hashes=blocks,
            shards=shards,
            names=names,
            schema=output.schema,
        )
