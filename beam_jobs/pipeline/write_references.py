"""The pipeline of jobs whose record is a file: references are shuffled, bytes are not.

The writer of a shard opens, decodes and encodes each file of its shard.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import TaggedOutput

from beam_jobs.dataset.output import Output
from beam_jobs.dataset.resume import ShardResult
from beam_jobs.engines.memory import give_back_freed
from beam_jobs.engines.pool import Window
from beam_jobs.jobs.file_shards import FileShards, Loader, Pieces
from beam_jobs.jobs.job import FileJob
from beam_jobs.jobs.passes import Learned
from beam_jobs.pipeline.commit_dataset import CommitDataset
from beam_jobs.pipeline.planning.records import PlanRecords
from beam_jobs.pipeline.steps import STATISTICS, PoolStep, counted, loading_pool, with_list
from beam_jobs.plan.shards import divided
from beam_jobs.records.statistics import Statistics
from readers.files.local import is_local

# The bytes of packed references that are divided among shards together: about 200,000 references, 20 for each of
# 10,000 shards. While they are divided they take ten times as much.
_DIVIDED_BYTES = 4 << 20


def _divider(plan: bytes) -> Callable[[list[bytes]], list[tuple[int, bytes]]]:
    return partial(divided, plan=plan)


def _writer(job: FileJob, output: Output, plan: bytes, learned: Learned) -> Callable[..., Any]:
    # Without the splits of groups, which may be large.
    return FileShards(Loader(output, Learned(learned.schema, learned.names), job), plan).write


class _WriteShards(PoolStep[tuple[ShardResult, Statistics]]):
    """(split and shard, packed blocks of its references) -> the result of each shard, and its statistics."""

    def __init__(self, job: FileJob, output: Output, processes: int) -> None:
        super().__init__(partial(_writer, job, output), processes)
        self._staging = output.staging

    def setup(self) -> None:
        super().setup()
        self._open = contextlib.ExitStack()

    def start_bundle(self) -> None:
        give_back_freed()  # Free the memory of planning before the results of the pool need it.
        super().start_bundle()

    def _begun(self, *sides: Any) -> Callable[..., Any]:
        """Chooses who writes a shard: a process, or a thread that joins the pieces of all processes."""
        write = self._function(*sides)
        shards: FileShards = write.__self__
        records = shards.piece_records(self._processes)
        if not records:
            return super()._begun(*sides)
        folder = self._staging
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
        return partial(write, pieces=pieces)

    def finish_bundle(self) -> Iterator[Any]:
        yield from super().finish_bundle()
        self._open.close()

    def teardown(self) -> None:
        self._open.close()  # The bundle failed.


def _outputs_of(written: tuple[ShardResult, Statistics]) -> Iterator[Any]:
    """Yields the result of a shard, and (split, statistics)."""
    result, statistics = written
    yield counted(result)
    yield TaggedOutput(STATISTICS, (result.split, statistics))


class WriteReferences(beam.PTransform):
    """The whole pipeline of a `FileJob`: a pipeline -> PCollection of one Manifest."""

    def __init__(self, job: FileJob, planning: PlanRecords) -> None:
        super().__init__()
        self._job, self._planning = job, planning

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        output, processes = self._planning.output, self._planning.processes
        planned = pipeline | "Read" >> self._planning
        shards, learned = planned.shards, planned.learned
        write = _WriteShards(self._job, output, processes)
        written = (
            planned.references
            | "Collect" >> beam.BatchElements(_DIVIDED_BYTES, _DIVIDED_BYTES, element_size_fn=len)
            | "Filled"
            >> beam.Filter(len)  # Before a block that is larger, Beam makes a batch of nothing.
            | "Assign" >> beam.ParDo(PoolStep(_divider, processes), shards.plan)
            | "Parts" >> beam.FlatMap()
            | "GroupByShard" >> beam.GroupByKey()
            | "Listed" >> beam.MapTuple(with_list)
            | "Write" >> beam.ParDo(write, shards.plan, learned)
            | "Written" >> beam.FlatMap(_outputs_of).with_outputs(STATISTICS, main="results")
        )
        return (written["results"], written[STATISTICS]) | CommitDataset(output, shards, learned)
