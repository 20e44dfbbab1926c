"""The pipeline of jobs whose records are parts of files, or lie in archives read from their front.

Files are read twice: once for keys, labels and words, once to encode. The encoded records of a
shard pass the one shuffle as references to blocks on the disk of the output, or, where that is no
disk, as blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsSingleton, TaggedOutput

from beam_jobs.dataset.output import Output
from beam_jobs.jobs.file_passes import FileSecondPass
from beam_jobs.jobs.passes import Encoded, Places, SecondPass
from beam_jobs.jobs.reshard.job import ReshardJob
from beam_jobs.jobs.reshard.passes import ReshardSecondPass
from beam_jobs.jobs.text.job import TextJob
from beam_jobs.jobs.text.passes import TextSecondPass
from beam_jobs.pipeline.commit import CommitDataset, TokenFiles, Written
from beam_jobs.pipeline.plan_records import ENCODING, ReadParts, WorkJob, tokenizer_apart
from beam_jobs.pipeline.shuffle import WriteEncoded, WriteSpooled
from beam_jobs.pipeline.steps import STATISTICS, WorkStep, at_end_of_bundle
from beam_jobs.records.spool import HeldReferences, Spool
from beam_jobs.sources.classes import Names
from beam_jobs.storage.atomic import STAGING
from beam_jobs.storage.paths import is_local
from readers.format.manifest import join
from readers.format.schema import Schema


@dataclass(frozen=True)
class _Known:
    """What the second pass has to know of the first.

    Attributes:
        names: Of classes.
        vocabulary: All words by id.
        tokenizer: The text of the tokenizer's file; empty without subwords.
        strata: Packed, the splits by label.
        schema: Of the records.
    """

    names: Names
    vocabulary: tuple[bytes, ...]
    tokenizer: str
    strata: bytes
    schema: Schema


class _Encode(WorkStep[Encoded]):
    """The second pass: work -> (split and shard, packed records or references to them)."""

    PHASE, METHOD = ENCODING, "encode"

    def __init__(self, job: WorkJob, output: Output, processes: int, spool: Spool | None) -> None:
        super().__init__(processes)
        self._job, self._output, self._spool = job, output, spool

    def start_bundle(self) -> None:
        super().start_bundle()
        self._references = HeldReferences()

    def made(self, plan: bytes, *sides: Any) -> SecondPass:
        job, output, known = self._job, self._output, _Known(*sides)
        common: dict[str, Any] = {
            "places": Places(output.placement, known.strata),
            "schema": known.schema,
            "names": known.names,
            "plan": plan,
            "spool": self._spool,
            "stored": output.stored,
        }
        if isinstance(job, TextJob):
            return TextSecondPass(
                **common, job=job, vocabulary=known.vocabulary, tokenizer=known.tokenizer
            )
        if isinstance(job, ReshardJob):
            return ReshardSecondPass(**common, job=job)
        return FileSecondPass(**common, job=job)

    def finish_bundle(self) -> Iterator[Any]:
        yield from super().finish_bundle()
        if self._spool:
            self._spool.hand_over()  # What processes of ours append, only this machine reads.
        yield from map(at_end_of_bundle, self._release())

    def outputs(self, result: Encoded) -> Iterator[Any]:
        records = sum(statistics.records for _, statistics in result.statistics)
        Metrics.counter("parts", "encoded").inc(records)
        for item in result.statistics:
            yield TaggedOutput(STATISTICS, item)
        if not self._spool:
            yield from result.shards
            return
        yield from self._references.add(result.shards)

    def _release(self) -> Iterator[tuple[int, bytes]]:
        yield from self._references.release()


class WriteParts(beam.PTransform):
    """The whole pipeline of a job, from patterns to a PCollection of one Manifest.

    Args:
        job: What a record is.
        output: The dataset.
        processes: That read and encode, in each of the runner's workers.
    """

    def __init__(self, job: WorkJob, output: Output, processes: int = 1) -> None:
        super().__init__()
        self._job, self._output, self._processes = job, output, processes

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        output, processes = self._output, self._processes
        job, _ = tokenizer_apart(self._job)
        spool = None
        write: beam.DoFn = WriteEncoded(output)
        if is_local(output.directory):
            spool = Spool(join(output.directory, STAGING))
            write = WriteSpooled(output, processes, spool)
        read = pipeline | "Read" >> ReadParts(self._job, output, processes)
        encoded = (
            read.works
            | "SpreadAgain" >> beam.Reshuffle()
            | "Encode"
            >> beam.ParDo(
                _Encode(job, output, processes, spool),
                *map(AsSingleton, (read.plan, read.names, read.vocabulary)),
                read.tokenizer,
                read.strata,
                AsSingleton(read.schema),
            ).with_outputs(STATISTICS, main="shards")
        )
        results = (
            encoded["shards"]
            | "GroupByShard" >> beam.GroupByKey()
            | "Write" >> beam.ParDo(write, AsSingleton(read.plan))
        )
        tokens = (
            pipeline
            | "Files" >> beam.Create([None])
            | "TokenFiles" >> beam.Map(_token_files, AsSingleton(read.vocabulary), read.tokenizer)
        )
        return Written(
            read.plan,
            results,
            encoded[STATISTICS],
            read.names,
            tokens,
            read.summary,
            read.schema,
        ) | CommitDataset(output)


def _token_files(_: None, vocabulary: tuple[bytes, ...], tokenizer: str) -> TokenFiles:
    return TokenFiles(vocabulary, tokenizer)
