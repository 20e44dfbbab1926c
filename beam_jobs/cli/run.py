"""Runs a job or a dry run, and prints its result."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import apache_beam as beam
from apache_beam.metrics import MetricsFilter
from apache_beam.options.pipeline_options import StandardOptions
from apache_beam.runners.runner import PipelineResult

from beam_jobs.cli.command import Command
from beam_jobs.cli.report import (
    HEADER,
    format_findings,
    fractions_as_names,
    next_step,
    reject_reasons,
    splits_of,
    summary_rows,
    unused_classes,
    warnings_of,
)
from beam_jobs.dataset.reservation import reserved
from beam_jobs.engines.dataflow import is_followed, on_dataflow
from beam_jobs.engines.launch import launch
from beam_jobs.errors import DataError
from beam_jobs.pipeline.dry_run import Findings, SplitSurvey, Survey, check_findings
from beam_jobs.records.rejects import REJECTS, Reject
from beam_jobs.sources.labels import LABEL
from beam_jobs.storage.atomic import list_files
from beam_jobs.storage.files import open_file, read_bytes
from beam_jobs.storage.paths import is_local
from readers.format.display import format_table
from readers.format.manifest import MANIFEST, DatasetError, Manifest, join


class Outcome(NamedTuple):
    """What a job that ran to its end left."""

    manifest: Manifest
    kept_shards: int  # shards of an unfinished run, which were not written again


def run_job(command: Command) -> Outcome | None:
    """Runs a job to its end; None if it continues on Dataflow without this command.

    Raises:
        JobError: The job failed; no manifest was written.
    """
    if warning := stall_warning(command):
        print(warning, file=sys.stderr)
    with reserved(command.output.destination, command.name):
        result = _launch(command, command.name.capitalize() >> command.transform)
    if on_dataflow(command.beam) and not is_followed(command.beam):
        return None
    try:
        return Outcome(_manifest(command.output.destination), _kept_shards(result))
    except (DatasetError, OSError, ValueError) as error:
        raise DataError(
            f"the runner reports success, but {error}; no dataset was written: run the job again"
        ) from None


def _launch(command: Command, transform: beam.PTransform) -> PipelineResult:
    inputs = command.job.inputs
    return launch(
        transform, command.beam, command.output.destination, [*inputs.patterns, inputs.root]
    )


def stall_warning(command: Command) -> str:
    """A warning about a job that may hang; empty for any other."""
    runner = command.beam.view_as(StandardOptions).runner
    if (
        runner not in ("FlinkRunner", "SparkRunner", "PortableRunner")
        or command.job.as_file_job()
        or is_local(command.output.destination)
    ):
        return ""
    return (
        f"warning: --output {command.output.destination}: records are shuffled through the engine on "
        "their way to a store; on Flink and Spark a task with more than 400 MB of them may hang: write "
        "to a disk that all workers share, or use more tasks (docs/scale.md)"
    )


def _manifest(directory: str) -> Manifest:
    """The manifest of a dataset, read with the options of the job that wrote it."""
    if is_local(directory):
        return Manifest.read(directory)
    return Manifest.from_json(json.loads(read_bytes(join(directory, MANIFEST))))


def survey_job(command: Command) -> Findings:
    """The result of a dry run; no part of the dataset is written.

    Raises:
        JobError: The job could not be planned.
    """
    with tempfile.TemporaryDirectory(prefix="beam_jobs-") as directory:
        path = Path(directory, "findings.json")
        survey = Survey(command.job, command.output, command.processes, str(path))
        _launch(command, "Survey" >> survey)
        return Findings.from_json(path.read_text(encoding="utf-8"))


def _kept_shards(result: PipelineResult) -> int:
    try:
        counters = result.metrics().query(MetricsFilter().with_name("kept"))["counters"]
    except Exception:  # A service may refuse to report counters; the dataset is complete.
        return 0
    return sum(counter.result for counter in counters)


def _print_rejects(folder: str, count: int) -> None:
    """Prints where rejects are listed, and their most frequent reasons."""
    print(f"{count:,} rejected, listed in {folder}/", file=sys.stderr)
    try:
        rejects = first_rejects(folder)
    except (OSError, ValueError) as error:  # The dataset is complete all the same.
        print(f"  the list cannot be read: {error}", file=sys.stderr)
        return
    if len(rejects) < count:
        print(f"  the first {len(rejects):,} of them:", file=sys.stderr)
    for line in reject_reasons(rejects):
        print(line, file=sys.stderr)


def first_rejects(folder: str, files: int = 64, size: int = 8 << 20) -> list[Reject]:
    """The rejects that the files in a folder list, up to a number and a size that are read in a moment.

    Args:
        files: The most files to read.
        size: The most bytes to read.

    Raises:
        OSError, ValueError: A file cannot be read, or lists something else.
    """
    rejects: list[Reject] = []
    for file in sorted(list_files(folder))[:files]:
        with open_file(file.path) as lines:
            data = lines.read(size)
        size -= len(data)
        rejects += map(Reject.from_json, data[: data.rfind(b"\n") + 1].splitlines())
        if not size:
            break
    return rejects


def _warn(command: Command, splits: Sequence[SplitSurvey]) -> None:
    for warning in warnings_of(command.output, splits, command.job.has_windows):
        print(f"warning: {warning}", file=sys.stderr)


def main_job(command: Command) -> None:
    """Runs a job and prints what it wrote, or would write.

    Raises:
        JobError: The job failed, or could not be planned.
    """
    if command.note:
        print(f"note: {command.note}", file=sys.stderr)
    if command.dry_run:
        findings = survey_job(command)
        print(format_findings(findings))
        _warn(command, findings.splits)
        print("nothing was written: this was a dry run", file=sys.stderr)
        check_findings(findings, command.output.on_reject, command.output.max_rejects)
        return
    began = time.monotonic()
    outcome = run_job(command)
    if outcome is None:
        return
    manifest = outcome.manifest
    rows = summary_rows(command.name, manifest, time.monotonic() - began)
    print(format_table([HEADER, *rows]))
    if outcome.kept_shards:
        print(f"kept {outcome.kept_shards:,} shards of an unfinished run", file=sys.stderr)
    if manifest.duplicates:
        print(f"duplicates dropped: {manifest.duplicates:,}", file=sys.stderr)
    if manifest.more_frames:
        print(
            f"images whose frames after the first are left out: {manifest.more_frames:,}; "
            "--frames all makes a record of each frame",
            file=sys.stderr,
        )
    if manifest.rejected:
        _print_rejects(join(command.output.destination, REJECTS), manifest.rejected)
    _warn(command, splits_of(manifest))
    label = command.output.feature_names.get(LABEL, LABEL)
    for warning in (unused_classes(manifest, label), fractions_as_names(manifest)):
        if warning:
            print(warning, file=sys.stderr)
    print(next_step(command.output.destination), file=sys.stderr)
