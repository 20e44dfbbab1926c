"""The pipeline of jobs whose record is a file: references are shuffled, bytes are not.

References travel; the writer of a shard has each file of its shard opened, decoded and encoded.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsSingleton, TaggedOutput

from beam_jobs import progress
from beam_jobs.assign import Plan
from beam_jobs.blocks import Block, BlockBuilder
from beam_jobs.bundle import STATISTICS
from beam_jobs.commit import CommitDataset
from beam_jobs.files import is_utf8
from beam_jobs.group import GroupByShard
from beam_jobs.loading import (
    FileJob,
    Loaded,
    Loader,
    pack_reference,
    reference_key,
    unpack_reference,
)
from beam_jobs.memory import give_back_freed
from beam_jobs.output import Output
from beam_jobs.plan import PlanShards
from beam_jobs.pool import Pool, call, shared_pool
from beam_jobs.resume import ShardResult
from beam_jobs.shard_writer import Run, ShardWriter, check_records, count_shard, rows_in_order
from beam_jobs.statistics import Statistics
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
        for file in self._job.inputs.files(pattern):
            found += 1
            key = file.path
            block = builder.add(placement.order(key), placement.split(key), pack_reference(file))
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
        files = [unpack_reference(payload) for payload in block.payloads]
        summary = Summary.empty(self._splits)
        summary.inputs = len(files)
        summary.add_block(block)
        for split, file in zip(block.splits.tolist(), files, strict=True):
            summary.splits[split].bytes += file.size
        labels = (self._job.labels.of(file.path) for file in files if is_utf8(file.path))
        summary.add_labels({label for label in labels if label is not None})
        smallest = np.argsort(block.hashes)[:SAMPLE].tolist()
        summary.add_sample(
            Sampled(int(block.hashes[row]), files[row].path, files[row].size) for row in smallest
        )
        Metrics.counter("files", "planned").inc(len(files))
        yield block.without_payloads().pack()
        yield TaggedOutput(self.SUMMARY, summary)


class _Measure:
    """The bytes of records by their keys, framing included; None where one cannot be loaded."""

    def __init__(self, job: FileJob, output: Output, processes: int) -> None:
        self._loader, self._processes = Loader(job, output.schema, stored=output.stored), processes

    def __call__(self, keys: list[str]) -> list[int | None]:
        packed = pickle.dumps(self._loader)
        tasks = ((packed, "measure", [key]) for key in keys)
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
        self, element: tuple[int, Iterable[bytes]], plan: bytes, names: tuple[str, ...]
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
    """Yields the label of each file: a table of labels may change though no file does."""
    for reference in references:
        key = unpack_reference(reference).path
        label = loader.job.labels.of(key) if is_utf8(key) else None
        yield (label or "").encode("utf-8", "surrogateescape")


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
        (packed, "load", [reference_key(r) for r in references[start : start + step]])
        for start in range(0, len(references), step)
    )
    loaded: Loaded
    for loaded in pool.map(call, tasks, step * record_bytes):
        statistics.merge(loaded.statistics)
        yield loaded.frames, loaded.lengths, loaded.rejects


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
        places = blocks | "Summarise" >> beam.ParDo(_Summarise(job, output)).with_outputs(
            _Summarise.SUMMARY, main="blocks"
        )
        plan, summary = (
            places[_Summarise.SUMMARY],
            places["blocks"],
            listed[_ListFiles.FOUND],
        ) | "Plan" >> PlanShards(
            output, _Measure(job, output, self._processes), len(job.inputs.patterns)
        )
        names = summary | "LabelNames" >> beam.Map(label_names_of)
        written = (
            (blocks, plan)
            | "Group" >> GroupByShard(compress=True)
            | "Write"
            >> beam.ParDo(
                _WriteReferences(job, output, self._processes),
                AsSingleton(plan),
                AsSingleton(names),
            ).with_outputs(STATISTICS, main="results")
        )
        nothing = pipeline | "NoVocabulary" >> beam.Create([()])
        return (plan, written["results"], written[STATISTICS], names, nothing) | CommitDataset(
            output
        )
