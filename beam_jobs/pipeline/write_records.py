"""Writes jobs whose records are parts of files, or members of streamed archives.

Files are read twice: once for keys, labels and words, once to encode. The encoded records of a
shard pass the one shuffle as locators of blocks on the output's disk or, if the output is in a
store, as blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.pvalue import TaggedOutput

from beam_jobs.dataset.output import Output
from beam_jobs.jobs.passes import EncodingPlan, SecondPassResult
from beam_jobs.jobs.protocols import RecordJob
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.pipeline.commit import CommitDataset
from beam_jobs.pipeline.plan_records import PlanRecords
from beam_jobs.pipeline.shuffle import spool_of, write_encoded
from beam_jobs.pipeline.steps import STATISTICS, AsWhole, TaskStep, at_end_of_bundle
from beam_jobs.records.spool import HeldLocators, Spool
from beam_jobs.sources.chunks import Task
from beam_jobs.sources.classes import Names
from readers.format.schema import Schema


class _SecondPass(TaskStep[SecondPassResult]):
    """Task -> (split and shard, packed records or locators of them), and statistics."""

    PHASE = "encoding"

    def __init__(self, job: RecordJob, output: Output, processes: int, spool: Spool | None) -> None:
        super().__init__(processes)
        self._job, self._output, self._spool = job, output, spool

    def start_bundle(self) -> None:
        super().start_bundle()
        self._locators = HeldLocators()

    def work(
        self,
        plan: bytes,
        names: Names,
        schema: Schema,
        vocabulary: tuple[bytes, ...],
        tokenizer: str,
        strata: bytes,
    ) -> Callable[[Task], SecondPassResult]:
        encoding = EncodingPlan(
            rules=SplitRules(self._output.placement, strata),
            schema=schema,
            names=names,
            shard_plan=plan,
            feature_names=self._output.feature_names,
            spool=self._spool,
            vocabulary=vocabulary,
            tokenizer=tokenizer,
        )
        return self._job.second_pass(encoding).encode

    def finish_bundle(self) -> Iterator[Any]:
        yield from super().finish_bundle()
        if self._spool:
            self._spool.hand_over()  # Other machines can read only files that are closed.
        yield from map(at_end_of_bundle, self._locators.release())

    def outputs(self, result: SecondPassResult) -> Iterator[Any]:
        records = sum(statistics.records for _, statistics in result.statistics)
        Metrics.counter("parts", "encoded").inc(records)
        for item in result.statistics:
            yield TaggedOutput(STATISTICS, item)
        if self._spool:
            yield from self._locators.add(result.shards)
        else:
            yield from result.shards


class WriteRecords(beam.PTransform):
    """The whole pipeline of a `RecordJob`: a pipeline -> PCollection of one Manifest.

    Args:
        job: Defines the records.
        output: The dataset.
        processes: The number of processes that read and encode, in each of the runner's workers.
    """

    def __init__(self, job: RecordJob, output: Output, processes: int = 1) -> None:
        super().__init__()
        self._job, self._output, self._processes = job, output, processes

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        output, processes = self._output, self._processes
        spool = spool_of(output)
        planned = pipeline | "Read" >> PlanRecords(
            self._job, output, processes, later=[_SecondPass.PHASE]
        )
        job = self._job.without_tokenizer()
        encoded = (
            planned.inputs
            | "SpreadEncoding" >> beam.Reshuffle()
            | "Encode"
            >> beam.ParDo(
                _SecondPass(job, output, processes, spool),
                AsWhole(planned.shards.plan),
                planned.names,
                planned.schema,
                planned.vocabulary,
                planned.tokenizer,
                planned.strata,
            ).with_outputs(STATISTICS, main="shards")
        )
        results = (
            encoded["shards"]
            | "GroupByShard" >> beam.GroupByKey()
            | "Write" >> write_encoded(output, processes, spool, planned.shards.plan)
        )
        return (results, encoded[STATISTICS]) | CommitDataset(output, planned)
