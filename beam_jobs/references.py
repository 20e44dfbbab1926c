"""The pipeline of jobs whose record is a file: references are shuffled, bytes are not.

References travel; the writer of a shard has each file of its shard opened, decoded and encoded.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsSingleton, TaggedOutput

from beam_jobs import progress
from beam_jobs.assign import Placement, Plan
from beam_jobs.blocks import Block, BlockBuilder
from beam_jobs.bundle import STATISTICS
from beam_jobs.commit import CommitDataset, TokenFiles, Written
from beam_jobs.errors import RejectError, UsageError
from beam_jobs.group import GroupByShard
from beam_jobs.labels import Names
from beam_jobs.loading import FileJob, Loaded, Loader, classes_in, known_error, label_or_none
from beam_jobs.memory import give_back_freed
from beam_jobs.output import Output
from beam_jobs.plan import PlanShards
from beam_jobs.pool import Pool, call, shared_pool
from beam_jobs.rejects import Reject
from beam_jobs.resume import ShardResult
from beam_jobs.shard_writer import Run, ShardWriter, check_records, count_shard, rows_in_order
from beam_jobs.sources import pack_reference, reference_key, unpack_reference
from beam_jobs.statistics import Statistics
from beam_jobs.strata import Labelled, Strata, check_strata
from beam_jobs.stratify import PlanStrata
from beam_jobs.summary import SAMPLE, Sampled, Summary, label_names_of
from beam_jobs.window_step import ShardStep

# Files that a process loads at a time: about so many bytes of records, so that handing them over
# (0.2 ms) vanishes beside making them (5 ms or more) and a few in flight take little memory.
_BATCH_BYTES = 1 << 20
_BATCH_FILES = 256


class _ListFiles(beam.DoFn):
    """Patterns -> packed blocks of references, and how many of them there are."""

    FOUND = "found"

    def __init__(self, job: FileJob, output: Output) -> None:
        self._job, self._placement = job, output.placement

    def process(self, pattern: str) -> Iterator[Any]:
        builder = BlockBuilder(compress=True)
        placement = self._placement
        found = told = 0
        for source in self._job.sources(pattern):
            found += 1
            key = source.key
            try:
                if source.packed:
                    raise UsageError(
                        f"{key}: a packed archive can only be read from its front: name such "
                        "files by an --input of their own that ends in .tar.gz or .tgz, and the "
                        "others by patterns such as '*.jpg'"
                    )
                split = placement.split_of(source.file, source.row)
            except RejectError as error:
                split = placement.split(source.file)
                source = source._replace(error=source.error or str(error))
            if not source.error:
                source = source._replace(error=known_error(self._job, source))
            block = builder.add(placement.order(key), split, pack_reference(source))
            if block:
                progress.advance("listing", found - told)
                told = found
                yield block
        left = builder.flush()
        if left:
            yield left
        Metrics.counter("files", "found").inc(found)
        yield TaggedOutput(self.FOUND, found)


class _Summarise(beam.DoFn):
    """Packed blocks of references -> packed blocks of their hashes, and a summary of each."""

    SUMMARY = "summary"

    def __init__(self, job: FileJob, output: Output) -> None:
        self._job, self._splits = job, len(output.num_shards)

    def process(self, packed: bytes) -> Iterator[Any]:
        block = Block.unpack(packed)
        sources = [unpack_reference(payload) for payload in block.payloads]
        summary = Summary.empty(self._splits)
        summary.inputs = len(sources)
        summary.add_block(block)
        for split, source in zip(block.splits.tolist(), sources, strict=True):
            if source.error:
                reject = Reject.of(source.key, "decode", source.error)
                summary.add_unreadable(split, reject)
            else:
                summary.splits[split].bytes += source.size
        for feature, names in classes_in(self._job, sources).items():
            summary.add_labels(names, feature)
        order = np.argsort(block.hashes).tolist()
        smallest = [row for row in order if not sources[row].error][:SAMPLE]
        summary.add_sample(
            Sampled(int(block.hashes[row]), block.payloads[row], sources[row].size)
            for row in smallest
        )
        Metrics.counter("files", "planned").inc(len(sources))
        yield block.without_payloads().pack()
        yield TaggedOutput(self.SUMMARY, summary)


class _Measure:
    """The bytes of records by their references, framing included, or why one cannot be loaded."""

    def __init__(self, job: FileJob, output: Output, processes: int) -> None:
        self._loader, self._processes = Loader(job, output.schema, stored=output.stored), processes

    def __call__(self, references: list[bytes]) -> list[int | Reject]:
        packed = pickle.dumps(self._loader)
        tasks = ((packed, "measure", [reference]) for reference in references)
        return [size for sizes in shared_pool(self._processes).map(call, tasks) for size in sizes]


class _WriteReferences(ShardStep[tuple[ShardResult, Statistics]]):
    """(split and shard, its packed blocks) -> the result of each shard, and statistics by split."""

    def __init__(self, job: FileJob, output: Output, processes: int) -> None:
        super().__init__(processes)
        self._job, self._output = job, output

    def start_bundle(self) -> None:
        give_back_freed()  # What planning took, before the results of the pool come.
        super().start_bundle()

    def process(
        self, element: tuple[int, Iterable[bytes]], plan: bytes, names: Names
    ) -> Iterator[ShardResult | TaggedOutput]:
        key, packed = element
        # A list: what a runner hands over may be gone once this returns.
        blocks = list(packed)
        writer = ShardWriter(self._output, Plan.unpack(plan), key)
        loader = Loader(self._job, self._output.schema, names, self._output.stored)
        pool = shared_pool(self._processes)
        yield from self.submit(write_references, writer, blocks, loader, pool)

    def outputs(
        self, result: tuple[ShardResult, Statistics]
    ) -> Iterator[ShardResult | TaggedOutput]:
        written, statistics = result
        count_shard(written)
        yield written
        yield TaggedOutput(STATISTICS, (written.split, statistics))


def write_references(
    writer: ShardWriter, packed: list[bytes], loader: Loader, pool: Pool
) -> tuple[ShardResult, Statistics]:
    """Writes a shard from the packed references of its files, or finds it written.

    Raises:
        JobError: As `check_records`, `Loader.load` and `ShardWriter.write`.
    """
    references = _references_in_order(writer, packed)
    digest = writer.digest(loader.names).update(references).update(_labels(loader, references))
    found = writer.find_done(digest.text())
    if found:
        result, state = found
        # Figures that cannot be read mean that the shard is written anew.
        with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
            return result, Statistics.of_state(loader.schema, state)
    statistics = Statistics(loader.schema)
    result = writer.write(_runs(references, writer.record_bytes, loader, pool, statistics))
    writer.note_done(digest.text(), result, statistics.state())
    return result, statistics


def _labels(loader: Loader, references: list[bytes]) -> Iterator[bytes]:
    """Yields the label of each record: a table of labels may change though no file does."""
    for reference in references:
        label = label_or_none(loader.job, unpack_reference(reference))
        yield str(label or "").encode("utf-8", "surrogateescape")


def _references_in_order(writer: ShardWriter, packed: list[bytes]) -> list[bytes]:
    blocks = [Block.unpack(block) for block in packed]
    hashes = np.concatenate([block.hashes for block in blocks])
    references = [payload for block in blocks for payload in block.payloads]
    order = rows_in_order(hashes, lambda row: reference_key(references[row]))
    hashes, references = hashes[order], [references[row] for row in order]
    check_records(hashes, lambda row: reference_key(references[row]), writer.name, writer.expected)
    return references


def _runs(
    references: list[bytes],
    record_bytes: int,
    loader: Loader,
    pool: Pool,
    statistics: Statistics,
) -> Iterator[Run]:
    """Yields the records of files in order, and gathers their statistics."""
    packed = pickle.dumps(loader)
    step = max(1, min(_BATCH_BYTES // max(record_bytes, 1), _BATCH_FILES))
    tasks = (
        (packed, "load", references[start : start + step])
        for start in range(0, len(references), step)
    )
    loaded: Loaded
    for loaded in pool.map(call, tasks, step * record_bytes):
        statistics.merge(loaded.statistics)
        yield loaded.frames, loaded.lengths, loaded.rejects


class _LabelReferences(beam.DoFn):
    """Packed blocks of references -> the labels of those that have one."""

    def __init__(self, job: FileJob, output: Output) -> None:
        self._job, self._placement = job, output.placement

    def process(self, packed: bytes) -> Iterator[Labelled]:
        yield labelled(self._job, self._placement, Block.unpack(packed))[1]


class _Resplit(beam.DoFn):
    """Packed blocks of references -> the same in the splits of their labels."""

    def __init__(self, job: FileJob, output: Output) -> None:
        self._job, self._placement = job, output.placement

    def process(self, packed: bytes, strata: bytes) -> Iterator[bytes]:
        block = Block.unpack(packed)
        rows, found = labelled(self._job, self._placement, block)
        splits = block.splits.copy()
        splits[rows] = Strata.unpack(strata).splits_of(found)
        yield Block(block.hashes, splits, block.payloads).pack(compress=True)


def labelled(job: FileJob, placement: Placement, block: Block) -> tuple[np.ndarray, Labelled]:
    """The rows, int64 [m], of a block of references that have a label, and what they have."""
    sources = [unpack_reference(payload) for payload in block.payloads]
    labels = [label_or_none(job, source) for source in sources]
    rows = [row for row, label in enumerate(labels) if label is not None]
    keys = [reference_key(block.payloads[row]) for row in rows]
    found = Labelled.of([str(labels[row]) for row in rows], placement.group_hashes(keys))
    return np.array(rows, np.int64), found


class Listed(NamedTuple):
    """What is known before a record is loaded: PCollections of one element each, but `blocks`.

    Attributes:
        blocks: Packed, the references.
        plan: Packed.
        summary, measured: As `Planned`.
        names: Of classes.
    """

    blocks: beam.PCollection
    plan: beam.PCollection
    summary: beam.PCollection
    measured: beam.PCollection
    names: beam.PCollection


class ListReferences(beam.PTransform):
    """The listing of a job, from patterns to the plan.

    Args:
        job: What a record is.
        output: The dataset.
        processes: That load the samples, in each of the runner's workers.
        prepare: As `PlanShards`.
    """

    def __init__(self, job: FileJob, output: Output, processes: int, prepare: bool = True) -> None:
        super().__init__()
        self._job, self._output, self._processes = job, output, processes
        self._prepare = prepare

    def expand(self, pipeline: beam.Pipeline) -> Listed:
        job, output = self._job, self._output
        listed = (
            pipeline
            | "Patterns" >> beam.Create(job.inputs.patterns)
            | "List"
            >> beam.ParDo(_ListFiles(job, output)).with_outputs(_ListFiles.FOUND, main="blocks")
        )
        blocks = listed["blocks"]
        if self._processes == 1:
            # Over workers; where there is one, it would be one more copy of all references.
            blocks |= "Spread" >> beam.Reshuffle()
        check = None
        if output.stratify:
            labels = blocks | "ReadLabels" >> beam.ParDo(_LabelReferences(job, output))
            strata = labels | "Stratify" >> PlanStrata(output.placement)
            check = beam.Map(check_strata, AsSingleton(strata))
            blocks = (
                blocks
                | "SpreadAgain" >> beam.Reshuffle()
                | "Resplit" >> beam.ParDo(_Resplit(job, output), AsSingleton(strata))
            )
        places = blocks | "Summarise" >> beam.ParDo(_Summarise(job, output)).with_outputs(
            _Summarise.SUMMARY, main="blocks"
        )
        planned = (
            places[_Summarise.SUMMARY],
            places["blocks"],
            listed[_ListFiles.FOUND],
        ) | "Plan" >> PlanShards(
            output,
            _Measure(job, output, self._processes),
            len(job.inputs.patterns),
            self._prepare,
            check,
        )
        names = planned.summary | "LabelNames" >> beam.Map(label_names_of, job.class_names)
        return Listed(blocks, planned.plan, planned.summary, planned.measured, names)


class WriteFiles(beam.PTransform):
    """The whole pipeline of a `FileJob`, from patterns to a PCollection of one Manifest.

    Args:
        job: What a record is, and how to load it.
        output: The dataset.
        processes: That load and encode, in each of the runner's workers.
    """

    def __init__(self, job: FileJob, output: Output, processes: int = 1) -> None:
        super().__init__()
        self._job, self._output, self._processes = job, output, processes

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        job, output = self._job, self._output
        listed = pipeline | "Read" >> ListReferences(job, output, self._processes)
        written = (
            (listed.blocks, listed.plan)
            | "Group" >> GroupByShard(compress=True)
            | "Write"
            >> beam.ParDo(
                _WriteReferences(job, output, self._processes),
                AsSingleton(listed.plan),
                AsSingleton(listed.names),
            ).with_outputs(STATISTICS, main="results")
        )
        tokens = pipeline | "NoTokens" >> beam.Create([TokenFiles()])
        schema = pipeline | "Schema" >> beam.Create([output.schema])
        return Written(
            listed.plan,
            written["results"],
            written[STATISTICS],
            listed.names,
            tokens,
            listed.summary,
            schema,
        ) | CommitDataset(output)
