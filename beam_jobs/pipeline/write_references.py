"""The pipeline of jobs whose record is a file: references are shuffled, bytes are not.

The writer of a shard opens, decodes and encodes each file of its shard.
"""

from __future__ import annotations

import contextlib
import itertools
import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import TaggedOutput

from beam_jobs.dataset.output import Output
from beam_jobs.dataset.resume import ShardResult
from beam_jobs.dataset.shard_writer import Run, ShardWriter, check_records, rows_in_order
from beam_jobs.engines.memory import give_back_freed
from beam_jobs.engines.pool import Pool, call_pickled
from beam_jobs.jobs.loading import FramedRecords, Loader
from beam_jobs.jobs.protocols import FileJob
from beam_jobs.pipeline.commit import CommitDataset
from beam_jobs.pipeline.near.rules import NearRules
from beam_jobs.pipeline.planning.records import PlanRecords
from beam_jobs.pipeline.steps import (
    STATISTICS,
    AsWhole,
    ShardStep,
    at_end_of_bundle,
    count_shard,
    loading_pool,
)
from beam_jobs.plan.shards import HeldBlocks, Plan
from beam_jobs.records.blocks import Block, is_reject, unpack_reject
from beam_jobs.records.rejects import Reject, format_rejects
from beam_jobs.records.statistics import Statistics
from beam_jobs.sources.classes import Names
from beam_jobs.sources.source import reference_key

# A process loads files of about this many bytes of records at a time: handing them over (0.2 ms)
# is then cheap beside making them (5 ms or more), and a few in flight take little memory.
_BATCH_BYTES = 1 << 20

# A task waits only for the first of its requests to a store, some 60 ms. Decoding 16 MiB takes longer, and
# the results of a few tasks still take little memory.
_STORE_BATCH_BYTES = 16 << 20

_BATCH_FILES = 256


class _AssignShards(beam.DoFn):
    """Packed blocks of references -> (split and shard, packed blocks of the references of that shard)."""

    def start_bundle(self) -> None:
        self._held, self._plan = HeldBlocks(compress=True), b""

    def process(self, packed: bytes, plan: bytes) -> Iterator[tuple[int, bytes]]:
        self._plan = plan
        yield from self._held.add(Block.unpack(packed), plan)

    def finish_bundle(self) -> Iterator[Any]:
        yield from map(at_end_of_bundle, self._held.release(self._plan))


class _WriteReferences(ShardStep[tuple[ShardResult, Statistics]]):
    """(split and shard, its packed blocks) -> the result of each shard, and statistics by split."""

    def __init__(self, job: FileJob, output: Output, processes: int) -> None:
        super().__init__(processes)
        self._job, self._output = job, output

    def start_bundle(self) -> None:
        give_back_freed()  # The memory of planning, before the results of the pool need some.
        super().start_bundle()
        self._loader: Loader | None = None

    def process(
        self, element: tuple[int, Iterable[bytes]], plan: bytes, names: Names
    ) -> Iterator[ShardResult | TaggedOutput]:
        key, packed = element
        # A list, because the runner may free the elements once this returns.
        blocks = list(packed)
        writer = ShardWriter(self._output, Plan.unpack(plan), key, self._output.schema)
        if self._loader is None:
            schema, renamed = self._output.schema, self._output.feature_names
            self._loader = Loader(self._job, schema, names, renamed, self._output.mapper)
            # Before any shard is begun: threads that write one compute properties that the job keeps, and what
            # changes cannot be pickled.
            self._load = pickle.dumps(self._loader.load)
        pool = loading_pool(self._processes)
        yield from self.submit(write_references, writer, blocks, self._loader, self._load, pool)

    def outputs(
        self, result: tuple[ShardResult, Statistics]
    ) -> Iterator[ShardResult | TaggedOutput]:
        written, statistics = result
        count_shard(written)
        yield written
        yield TaggedOutput(STATISTICS, (written.split, statistics))


def write_references(
    writer: ShardWriter, packed: list[bytes], loader: Loader, load: bytes, pool: Pool
) -> tuple[ShardResult, Statistics]:
    """Writes a shard from the packed references of its files, unless a finished one exists.

    Args:
        writer: Writes the shard.
        packed: Blocks of references.
        loader: Loads and encodes the records.
        load: Its method `load`, pickled.
        pool: Where records are loaded.

    Raises:
        JobError: References are missing or repeated, a file is rejected and `on_reject` is "fail",
            or the shard cannot be written.
    """
    hashes, references, rejects = _references_in_order(writer, packed)
    digest = writer.digest(loader.names).update(references)
    digest.update([hashes.tobytes(), format_rejects(rejects)])
    found = writer.find_done(writer.read_note(), digest.text())
    if found:
        result, state = found
        # If its statistics cannot be read, the shard is written again.
        with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
            return result, Statistics.of_state(loader.schema, state)
    statistics = Statistics(loader.schema)
    runs = _runs(hashes, references, writer.record_bytes, loader, load, pool, statistics)
    listed = Run(b"", np.empty(0, np.int64), np.empty(0, np.uint64), b"", rejects)
    return writer.write(itertools.chain(runs, [listed]), digest, statistics.state), statistics


def _references_in_order(
    writer: ShardWriter, packed: list[bytes]
) -> tuple[np.ndarray, list[bytes], list[Reject]]:
    """The hashes of a shard's records and their references, in order; and its rejects."""
    blocks = [Block.unpack(block) for block in packed]
    hashes = np.concatenate([block.hashes for block in blocks])
    payloads = [payload for block in blocks for payload in block.payloads]
    rejected = np.fromiter(map(is_reject, payloads), bool, len(payloads))
    rejects = [unpack_reject(payloads[row]) for row in np.flatnonzero(rejected).tolist()]
    hashes, payloads = hashes[~rejected], list(itertools.compress(payloads, ~rejected))
    order = rows_in_order(hashes, lambda row: reference_key(payloads[row]))
    hashes, references = hashes[order], [payloads[row] for row in order]
    check_records(hashes, lambda row: reference_key(references[row]), writer.name, writer.expected)
    return hashes, references, rejects


def _runs(
    hashes: np.ndarray,
    references: list[bytes],
    record_bytes: int,
    loader: Loader,
    load: bytes,
    pool: Pool,
    statistics: Statistics,
) -> Iterator[Run]:
    """Yields the records of files in order, and merges their statistics."""
    batch_bytes = _STORE_BATCH_BYTES if loader.job.inputs.in_store else _BATCH_BYTES
    step = max(1, min(batch_bytes // max(record_bytes, 1), _BATCH_FILES))
    tasks = ((load, references[start : start + step]) for start in range(0, len(references), step))
    loaded: FramedRecords
    for start, loaded in zip(
        itertools.count(0, step), pool.map(call_pickled, tasks, step * record_bytes)
    ):
        statistics.merge(loaded.statistics)
        of_records = hashes[start + loaded.sources]
        yield Run(loaded.frames, loaded.lengths, of_records, loaded.rows, loaded.rejects)


class WriteReferences(beam.PTransform):
    """The whole pipeline of a `FileJob`: a pipeline -> PCollection of one Manifest.

    Args:
        job: Defines the records.
        output: The dataset.
        processes: The number of processes that load and encode, in each of the runner's workers.
        near: Which near duplicates are dropped; None if they are kept.
    """

    def __init__(
        self, job: FileJob, output: Output, processes: int = 1, near: NearRules | None = None
    ) -> None:
        super().__init__()
        self._job, self._output, self._processes = job, output, processes
        self._near = near

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        job, output = self._job, self._output
        planned = pipeline | "Read" >> PlanRecords(job, output, self._processes, near=self._near)
        plan = AsWhole(planned.shards.plan)
        written = (
            planned.references
            | "Assign" >> beam.ParDo(_AssignShards(), plan)
            | "GroupByShard" >> beam.GroupByKey()
            | "Write"
            >> beam.ParDo(
                _WriteReferences(job, output, self._processes), plan, planned.names
            ).with_outputs(STATISTICS, main="results")
        )
        return (written["results"], written[STATISTICS]) | CommitDataset(output, planned)
