"""Writes jobs whose records are parts of files, or members of streamed archives.

Files are read twice: first for keys, labels and words, then to encode. Encoded records are written to
runs in the output's `.staging/`, and only their locators are shuffled, once.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.pvalue import TaggedOutput

from beam_jobs.dataset.output import Output
from beam_jobs.jobs.job import Job
from beam_jobs.jobs.passes import Learned, SecondPassResult
from beam_jobs.pipeline.commit_dataset import CommitDataset
from beam_jobs.pipeline.planning.records import ENCODING, PlanRecords
from beam_jobs.pipeline.steps import STATISTICS, ReadTasks, at_end_of_bundle, loading_pool
from beam_jobs.pipeline.write_runs import WriteRuns
from beam_jobs.records.runs import BundleRuns
from beam_jobs.records.spool import Spool
from beam_jobs.sources.chunks import Task


class _SecondPass(ReadTasks[SecondPassResult]):
    """Task -> indexes of runs of its records, and statistics."""

    def __init__(self, job: Job, output: Output, processes: int) -> None:
        super().__init__(ENCODING, self._encoder, processes)
        self._job, self._output = job, output
        self._runs: BundleRuns | None = None

    def start_bundle(self) -> None:
        super().start_bundle()
        self._runs = BundleRuns(Spool(self._output.staging), uuid.uuid4().hex)

    def _encoder(self, plan: bytes, learned: Learned) -> Callable[[Task], SecondPassResult]:
        assert self._runs
        return partial(self._job.second_pass(self._output, learned).encode, plan, self._runs)

    def finish_bundle(self) -> Iterator[Any]:
        yield from super().finish_bundle()
        if self._runs:
            for runs in loading_pool(self._processes).each(self._runs.finish):
                yield at_end_of_bundle((runs, []))
        self._runs = None

    def teardown(self) -> None:
        if self._runs:  # The bundle failed.
            self._runs.give_up()


def _outputs_of(result: SecondPassResult) -> Iterator[Any]:
    """Yields the packed indexes of runs, and statistics."""
    runs, statistics = result
    Metrics.counter("parts", "encoded").inc(sum(of_split.records for _, of_split in statistics))
    for item in statistics:
        yield TaggedOutput(STATISTICS, item)
    yield from (run.pack() for run in runs)


class WriteRecords(beam.PTransform):
    """The whole pipeline of a `Job`: a pipeline -> PCollection of one Manifest."""

    def __init__(self, planning: PlanRecords) -> None:
        super().__init__()
        self._planning = planning

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        job, output, processes = self._planning.job, self._planning.output, self._planning.processes
        planned = pipeline | "Read" >> self._planning
        shards, learned = planned.shards, planned.learned
        encoded = (
            planned.tasks
            | "SpreadEncoding" >> beam.Reshuffle()
            | "Encode" >> beam.ParDo(_SecondPass(job, output, processes), shards.plan, learned)
            | "Encoded" >> beam.FlatMap(_outputs_of).with_outputs(STATISTICS, main="runs")
        )
        results = encoded["runs"] | WriteRuns(output, processes, shards.plan, learned)
        return (results, encoded[STATISTICS]) | CommitDataset(output, shards, learned)
