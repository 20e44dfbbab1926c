"""A dry run: what a job would find and write, without writing it."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton

from beam_jobs.dataset.output import Output, renamed_schema
from beam_jobs.errors import DataError, UsageError
from beam_jobs.jobs.passes import Learned
from beam_jobs.pipeline.planning.records import PlanRecords
from beam_jobs.pipeline.steps import once
from beam_jobs.plan.shards import ONE_KEY, Plan
from beam_jobs.plan.summary import SampledRecord, Summary
from beam_jobs.records.blocks import Block
from beam_jobs.records.rejects import ANY_NUMBER, MaxRejects, Reject
from readers.format.schema import Schema

# Hashes are compared in 16 groups: 500 MB each for a billion records.
_PARTITION_BITS = 4


@dataclass(frozen=True)
class SplitSurvey:
    """One split as a job would write it.

    Attributes:
        records: The number of records that the job would try to write.
        bytes: The approximate size of the records, framing included.
        rejected: The number of known rejects.
        duplicates: The number of records that are dropped because they equal others, or are near them.
    """

    name: str
    records: int
    shards: int
    bytes: int
    rejected: int
    duplicates: int


@dataclass(frozen=True)
class Findings:
    """The result of a dry run.

    Attributes:
        splits: The splits, in order.
        labels: The number of records with each label, by feature.
        rejects: The first known rejects, in the order of their keys.
        tried: The number of records that were loaded to measure them.
        failed: The rejects among those.
        schema: The schema of the records.
        input_bytes: The size of the inputs if each record is a file, else that of the records.
        repeated: The number of keys that several records share.
        kept_out: The number of records that are near one of `--keep_out`, from Beam's counters.
        parts, rejected_parts: As in `Summary`.
        sampled: The tried records, and the size in bytes or the reject of each.
    """

    splits: tuple[SplitSurvey, ...]
    labels: dict[str, dict[str, int]]
    rejects: tuple[Reject, ...]
    tried: int
    failed: tuple[Reject, ...]
    schema: Schema
    input_bytes: int = 0
    repeated: int = 0
    kept_out: int = 0
    parts: int = 0
    rejected_parts: int = 0
    sampled: tuple[tuple[SampledRecord, int | Reject], ...] = ()

    @property
    def tried_all(self) -> bool:
        """Whether every record was tried, so that all rejects are known."""
        return self.tried == sum(split.records for split in self.splits)


def findings_of(
    output: Output,
    plan: Plan,
    summary: Summary,
    measured: list[int | Reject],
    learned: Learned,
    repeated: int = 0,
) -> Findings:
    """The findings that follow from the results of the planning half."""
    splits = []
    names = output.placement.splits.names
    for name, known, planned in zip(names, summary.splits, plan.splits, strict=True):
        size = planned.records * planned.record_bytes
        counts = planned.records, planned.shards, size, planned.rejected, known.duplicates
        splits.append(SplitSurvey(name, *counts))
    failed = sorted(reject for reject in measured if isinstance(reject, Reject))
    return Findings(
        tuple(splits),
        {feature: dict(counts) for feature, counts in summary.labels.items() if counts},
        tuple(summary.rejects),
        len(measured),
        tuple(failed),
        renamed_schema(learned.schema, output.feature_names),
        sum(split.bytes for split in summary.splits),
        repeated,
        parts=summary.parts,
        rejected_parts=summary.rejected_parts,
        sampled=tuple(zip(summary.sample, measured, strict=False)),
    )


def check_findings(findings: Findings, max_rejects: MaxRejects = ANY_NUMBER) -> None:
    """Fails if the job is known to fail.

    Raises:
        UsageError: Records share a key.
        DataError: All records are rejected, or more than `max_rejects` allows. Rejects among tried records count only if all records were tried.
    """
    if findings.repeated:
        raise UsageError(f"keys of several records: {findings.repeated:,}; {ONE_KEY}")
    rejects = (*findings.rejects, *findings.failed)
    left = sum(split.records for split in findings.splits) - len(findings.failed)
    if not left:
        raise DataError(f"the job would reject all records; the first: {rejects[0]}")
    rejected = sum(split.rejected for split in findings.splits)
    found = rejected + sum(split.records + split.duplicates for split in findings.splits)
    rejected += len(findings.failed) if findings.tried_all else 0
    for some, every in ((findings.rejected_parts, findings.parts), (rejected, found)):
        max_rejects.check(some, every, rejects, planned=True)


def count_repeated(hashes: Iterable[bytes]) -> int:
    """The number of hashes, uint64 in little-endian bytes, that occur more than once."""
    ordered = np.sort(np.frombuffer(b"".join(hashes), "<u8"))
    again = np.flatnonzero(ordered[1:] == ordered[:-1])
    return len(np.unique(ordered[again]))


def _by_first_bits(packed: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields (first bits, the hashes of a packed block that begin with them)."""
    hashes = Block.unpack(packed).hashes
    first = hashes >> np.uint64(64 - _PARTITION_BITS)
    for partition in np.unique(first).tolist():
        yield partition, hashes[first == partition].astype("<u8").tobytes()


def _report(path: str, output: Output, plan: bytes, *answers: Any) -> None:
    """Writes the findings to a local file for the process that started the pipeline."""
    found = findings_of(output, Plan.unpack(plan), *answers)
    Path(path).write_bytes(pickle.dumps(found))


class Survey(beam.PTransform):
    """The dry run of a job, from patterns to a local file with the pickled `Findings`."""

    def __init__(self, planning: PlanRecords, path: str) -> None:
        super().__init__()
        self._planning, self._path = planning, path

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        planned = pipeline | "Read" >> self._planning
        repeated = (
            planned.hashes
            | "FirstBits" >> beam.FlatMap(_by_first_bits)
            | "GroupHashes" >> beam.GroupByKey()
            | "DropFirstBits" >> beam.Values()
            | "CountRepeated" >> beam.Map(count_repeated)
            | "AllRepeated" >> beam.CombineGlobally(sum)
        )
        return once(
            pipeline,
            "Report",
            _report,
            self._path,
            self._planning.output,
            planned.shards.plan,
            planned.shards.summary,
            AsSingleton(planned.shards.measured),
            planned.learned,
            AsSingleton(repeated),
        )
