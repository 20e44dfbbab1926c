"""Runs a job or a dry run, and prints its result."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import apache_beam as beam
from apache_beam.metrics import MetricsFilter
from apache_beam.options.pipeline_options import StandardOptions
from apache_beam.runners.runner import PipelineResult

from beam_jobs.cli.command import Command
from beam_jobs.cli.report import HEADER, format_findings, summary_rows, unused_classes
from beam_jobs.engines.dataflow import is_followed, on_dataflow
from beam_jobs.engines.launch import launch
from beam_jobs.errors import DataError
from beam_jobs.pipeline.dry_run import Findings, Survey, check_findings
from beam_jobs.records.rejects import REJECTS
from beam_jobs.sources.labels import LABEL
from beam_jobs.storage.files import read_bytes
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
    result = _launch(command, command.name.capitalize() >> command.transform)
    if on_dataflow(command.beam) and not is_followed(command.beam):
        return None
    try:
        return Outcome(_manifest(command.output.directory), _kept_shards(result))
    except (DatasetError, OSError, ValueError) as error:
        raise DataError(
            f"the runner reports success, but {error}; no dataset was written: run the job again"
        ) from None


def _launch(command: Command, transform: beam.PTransform) -> PipelineResult:
    inputs = command.job.inputs
    return launch(
        transform, command.beam, command.output.directory, [*inputs.patterns, inputs.root]
    )


def stall_warning(command: Command) -> str:
    """A warning about a job that may hang; empty for any other."""
    runner = command.beam.view_as(StandardOptions).runner
    if (
        runner not in ("FlinkRunner", "SparkRunner", "PortableRunner")
        or command.job.as_file_job()
        or is_local(command.output.directory)
    ):
        return ""
    return (
        f"warning: --output {command.output.directory}: records are shuffled through the engine on "
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


def main_job(command: Command) -> None:
    """Runs a job and prints what it wrote, or would write.

    Raises:
        JobError: The job failed, or could not be planned.
    """
    if command.dry_run:
        findings = survey_job(command)
        print(format_findings(findings))
        print("nothing was written: this was a dry run", file=sys.stderr)
        check_findings(findings, command.output.on_reject)
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
    if manifest.rejected:
        print(
            f"{manifest.rejected} rejected, listed in {join(command.output.directory, REJECTS)}/",
            file=sys.stderr,
        )
    label = command.output.feature_names.get(LABEL, LABEL)
    if warning := unused_classes(manifest, label):
        print(warning, file=sys.stderr)
