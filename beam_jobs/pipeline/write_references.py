"""The pipeline of jobs whose record is a file: references are shuffled, bytes are not.

The writer of a shard opens, decodes and encodes each file of its shard.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import TaggedOutput

from beam_jobs.dataset.output import Output
from beam_jobs.dataset.resume import ShardResult
from beam_jobs.engines.memory import give_back_freed
from beam_jobs.engines.pool import Window, call_pickled
from beam_jobs.jobs.file_shards import FileShards, Loader, Pieces
from beam_jobs.jobs.job import FileJob
from beam_jobs.jobs.passes import Learned
from beam_jobs.pipeline.commit_dataset import CommitDataset
from beam_jobs.pipeline.planning.records import PlanRecords
from beam_jobs.pipeline.steps import (
    STATISTICS,
    AsWhole,
    WindowStep,
    at_end_of_bundle,
    count_shard,
    loading_pool,
)
from beam_jobs.plan.shards import divided
from beam_jobs.records.statistics import Statistics
from readers.files.local import is_local

# The bytes of packed references that are divided among shards together: about 200,000 references, 20 for each of
# 10,000 shards. While they are divided they take ten times as much.
_DIVIDED_BYTES = 4 << 20


class _AssignShards(WindowStep[list[tuple[int, bytes]]]):
    """Packed blocks of references -> (split and shard, packed blocks of the references of that shard)."""

    def start_bundle(self) -> None:
        super().start_bundle()
        self._blocks, self._bytes, self._plan = list[bytes](), 0, b""

    def process(self, packed: bytes, plan: bytes) -> Iterator[tuple[int, bytes]]:
        self._blocks.append(packed)
        self._bytes += len(packed)
        self._plan = plan
        if self._bytes >= _DIVIDED_BYTES:
            yield from self._divide()

    def _divide(self) -> Iterator[tuple[int, bytes]]:
        blocks, self._blocks, self._bytes = self._blocks, [], 0
        yield from self.submit(divided, blocks, self._plan)

    def outputs(self, result: list[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
        yield from result

    def finish_bundle(self) -> Iterator[Any]:
        if self._blocks:
            yield from map(at_end_of_bundle, self._divide())
        yield from super().finish_bundle()


class _WriteReferences(WindowStep[tuple[ShardResult, Statistics]]):
    """(split and shard, its packed blocks) -> the result of each shard, and statistics by split."""

    def __init__(self, job: FileJob, output: Output, processes: int) -> None:
        super().__init__(processes)
        self._job, self._output = job, output

    def setup(self) -> None:
        super().setup()
        self._open = contextlib.ExitStack()

    def start_bundle(self) -> None:
        give_back_freed()  # Free the memory of planning before the results of the pool need it.
        super().start_bundle()
        self._write: Callable[..., Any] | None = None

    def process(
        self, element: tuple[int, Iterable[bytes]], plan: bytes, learned: Learned
    ) -> Iterator[ShardResult | TaggedOutput]:
        key, packed = element
        # A list, because the runner may free the elements once this returns.
        blocks = list(packed)
        if self._write is None:
            self._write = self._begun(plan, learned)
        yield from self.submit(self._write, key, blocks)

    def _begun(self, plan: bytes, learned: Learned) -> Callable[..., Any]:
        """Chooses who writes a shard: a process, or a thread that joins the pieces of all processes."""
        shards = FileShards(Loader(self._job, self._output, learned.names), plan)
        records = shards.piece_records(self._processes)
        if not records:
            return partial(call_pickled, pickle.dumps(shards.write))
        folder = self._output.staging
        if not is_local(folder):
            folder = self._open.enter_context(tempfile.TemporaryDirectory(prefix="beam_jobs-"))
        os.makedirs(folder, exist_ok=True)
        # Enough shards at once that their pieces keep all processes busy, and one more while one is committed.
        joined = min(len(shards.sizes), self._processes + 1)
        threads = ThreadPoolExecutor(joined)
        # All shards are done before the bundle ends. If it failed, the others fail with the pool; do not wait.
        self._open.callback(threads.shutdown, wait=False, cancel_futures=True)
        self._window = Window(threads, joined)
        pieces = Pieces(loading_pool(self._processes), pickle.dumps(shards.piece), folder, records)
        return partial(shards.write, pieces=pieces)

    def finish_bundle(self) -> Iterator[Any]:
        yield from super().finish_bundle()
        self._open.close()

    def teardown(self) -> None:
        self._open.close()  # The bundle failed.

    def outputs(
        self, result: tuple[ShardResult, Statistics]
    ) -> Iterator[ShardResult | TaggedOutput]:
        written, statistics = result
        count_shard(written)
        yield written
        yield TaggedOutput(STATISTICS, (written.split, statistics))


class WriteReferences(beam.PTransform):
    """The whole pipeline of a `FileJob`: a pipeline -> PCollection of one Manifest."""

    def __init__(self, job: FileJob, planning: PlanRecords) -> None:
        super().__init__()
        self._job, self._planning = job, planning

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        output, processes = self._planning.output, self._planning.processes
        planned = pipeline | "Read" >> self._planning
        plan = AsWhole(planned.shards.plan)
        written = (
            planned.references
            | "Assign" >> beam.ParDo(_AssignShards(processes), plan)
            | "GroupByShard" >> beam.GroupByKey()
            | "Write"
            >> beam.ParDo(
                _WriteReferences(self._job, output, processes), plan, planned.learned
            ).with_outputs(STATISTICS, main="results")
        )
        return (written["results"], written[STATISTICS]) | CommitDataset(output, planned)
