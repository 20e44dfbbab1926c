"""Runs a job or a dry run, checks the dataset, and reports the result."""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from apache_beam.metrics import MetricsFilter
from apache_beam.options.pipeline_options import GoogleCloudOptions
from apache_beam.runners.runner import PipelineResult

from beam_jobs.cli.command import Command
from beam_jobs.cli.parser import Report
from beam_jobs.cli.report import (
    alike_classes,
    findings_as_json,
    format_encodings,
    format_findings,
    format_reasons,
    format_seconds,
    fractions_as_names,
    next_step,
    reasons_as_json,
    size_line,
    splits_as_json,
    splits_of,
    tried_rejects,
    unused_classes,
    warnings_of,
)
from beam_jobs.dataset.generations import state_of
from beam_jobs.dataset.lease import leased, note_remote
from beam_jobs.dataset.output import not_writable
from beam_jobs.dataset.resume import noted_shards
from beam_jobs.engines.direct import on_this_machine
from beam_jobs.engines.flags import job_name
from beam_jobs.engines.flink import RemoteJob
from beam_jobs.engines.launch import check_job_service, ends_early, launch
from beam_jobs.engines.watch import Watch
from beam_jobs.errors import CompleteError, DataError, JobError
from beam_jobs.pipeline.dry_run import Findings, Survey, check_findings
from beam_jobs.pipeline.planning.drop_near import KEPT_OUT
from beam_jobs.pipeline.planning.shards import INPUT_BYTES
from beam_jobs.pipeline.tried_encodings import try_encodings
from beam_jobs.plan.shards import ONE_KEY
from beam_jobs.records.rejects import first_rejects
from beam_jobs.sources.labels import LABEL
from beam_jobs.storage.atomic import list_files
from beam_jobs.storage.files import read_bytes
from beam_jobs.writing.append import added_line
from readers.format.display import counted, format_table, splits_table
from readers.format.manifest import Manifest, generation_file, join
from readers.format.rejects import reasons_of

# Why two records of a job may have one key.
_ONE_KEY_OF_FILES = (
    "every record needs a unique key; do two --input patterns match the same file, does an "
    "archive (with --key member, do all archives together) have two members of one name, or do two rows "
    "of a --table name the same file (--key row distinguishes them)?"
)


def run_job(command: Command) -> tuple[PipelineResult | None, dict[str, float]]:
    """Runs a job until it ends, or an engine runs it without this command; returns Beam's result and the seconds by phase.

    There is no result if an earlier run has completed the dataset. A job that fails raises a JobError.
    """
    check_job_service(command.beam)
    watch = None if on_this_machine(command.beam) else _watch_of(command)
    transform = command.flags.name.capitalize() >> command.transform
    try:
        with leased(command.output, command.flags.name, keeps=bool(ends_early(command.beam))):
            return launch(transform, command.beam, watch)
    except CompleteError:
        return None, {}
    except OSError as error:
        raise not_writable(command.output.directory, error) from None


def _watch_of(command: Command) -> Watch:
    """Follows the job of a command on another engine; names the job if it has no name yet."""
    output, run = command.output, command.flags.run
    google = command.beam.view_as(GoogleCloudOptions)
    google.job_name = google.job_name or job_name(command.flags.name, output.directory)

    def shards() -> tuple[int, int]:
        try:
            found = list_files(output.directory)
        except Exception:  # It may be about to be made, and each filesystem has its own errors.
            return 0, 0
        return noted_shards(file.path for file in found)

    def note(job: RemoteJob) -> None:
        note_remote(output, job.to_bytes())

    return Watch(
        command.beam, run.engine, run.engine_page, output.staging, shards, note, sys.stderr
    )


def _manifest(directory: str, generation: int) -> Manifest:
    """The manifest of a generation; ValueError if it is damaged, OSError if it cannot be read."""
    return Manifest.from_bytes(read_bytes(join(directory, generation_file(generation))))


def survey_job(command: Command) -> Findings:
    """The result of a dry run, which writes no part of the dataset; JobError if the job cannot be planned."""
    with tempfile.TemporaryDirectory(prefix="beam_jobs-") as directory:
        path = Path(directory, "findings.json")
        survey = Survey(command.planned(dry_run=True), str(path))
        result, _ = launch("Survey" >> survey, command.beam)
        findings: Findings = pickle.loads(path.read_bytes())
        return replace(findings, kept_out=_counted(result, KEPT_OUT))


def _counted(result: PipelineResult | None, name: str) -> int:
    """The sum of Beam's counters of a name; 0 if they are not known."""
    if result is None:
        return 0
    try:
        counters = result.metrics().query(MetricsFilter().with_name(name))["counters"]
    except Exception:  # A service may not report counters; the dataset is complete.
        return 0
    return sum(counter.result for counter in counters)


def _report_rejects(report: Report, directory: str, manifest: Manifest) -> None:
    """Reports where rejects are listed, and their most frequent reasons."""
    count, folder = manifest.rejected, os.path.dirname(manifest.rejects[0])
    report.note(f"{count:,} rejected, listed in {join(directory, folder)}/")
    try:
        rejects = first_rejects(directory, manifest.rejects)
    except (OSError, ValueError) as error:  # The dataset is complete anyway.
        report.note(f"  the list cannot be read: {error}")
        return
    if len(rejects) < count:
        report.note(f"  the first {len(rejects):,} of them:")
    reasons = reasons_of((reject.key, reject.error) for reject in rejects)
    report.note(*format_reasons(reasons), rejects=reasons_as_json(reasons))


def main_job(command: Command, report: Report) -> None:
    """Runs a job, and reports what it wrote, or would write, or why it failed, or cannot be planned."""
    note = command.flags.dataset.note(command.job)
    report.note(f"note: {note}" if note else "", job=command.flags.name)
    report.warn(*command.flags.job.warnings(command.job))
    try:
        if command.flags.run.dry_run:
            _survey(command, report)
        else:
            _run(command, report)
    except JobError as error:
        report.fail(error.exit_code, error.message.replace(ONE_KEY, _ONE_KEY_OF_FILES))


def _survey(command: Command, report: Report) -> None:
    findings = survey_job(command)
    report.show(format_findings(findings), **findings_as_json(findings))
    encoded = partial(command.flags.job.encoded_job, command.job)
    if tried := list(try_encodings(findings, command.output, encoded)):
        report.show(format_encodings(tried, findings.input_bytes))
    report.note(encodings=[each._asdict() for each in tried])
    report.warn(
        *warnings_of(command.output, findings.splits, command.job.has_windows, findings.kept_out),
        *alike_classes(findings.labels),
        tried_rejects(findings, command.output.max_rejects),
    )
    report.note("nothing was written: this was a dry run")
    check_findings(findings, command.output.max_rejects)


def _run(command: Command, report: Report) -> None:
    began = time.monotonic()
    output, directory = command.output, command.output.directory
    result, seconds = run_job(command)
    if result and ends_early(command.beam):
        report.note(directory=directory, complete=False)
        return
    try:
        generation = output.generation if result else state_of(directory).generations[-1]
        manifest = _manifest(directory, generation)
    except (OSError, ValueError) as error:
        raise DataError(
            f"the runner reports success, but {error}; no dataset was written: run the same command again"
        ) from None
    appends, kept_shards = output.append is not None, _counted(result, "kept")
    if not result:
        advice = "" if appends else ". Add --overwrite to write it again"
        report.note(
            f"{directory} is complete already, from the same options and inputs of the same names and sizes; "
            f"nothing was changed{advice}",
            was_complete=True,
        )
    splits = splits_of(manifest)
    report.show(
        format_table(splits_table(manifest.splits)),
        splits=splits_as_json(splits),
        kept_shards=kept_shards,
        rejects=[],
        seconds=time.monotonic() - began,
        phases=seconds,
    )
    if appends and result:
        before = _manifest(directory, manifest.generation - 1)
        report.note(added_line(before, manifest, bool(command.drops)))
    if not appends:  # The sizes are those of all generations.
        inputs = _counted(result, INPUT_BYTES) if command.job.whole_files else 0
        report.note(size_line(sum(split.bytes for split in splits), inputs))
    if kept_shards:
        report.note(f"kept {counted(kept_shards, 'shard')} of an unfinished run")
    if remarks := manifest.remarks:
        report.note(
            "remarks about the inputs:",
            *(f"  {line}" for line in remarks.lines()),
            remarks=remarks.to_json(),
        )
    if manifest.rejected:
        _report_rejects(report, directory, manifest)
    report.warn(
        *warnings_of(command.output, splits, command.job.has_windows, _counted(result, KEPT_OUT)),
        *alike_classes({LABEL: manifest.label_names, **manifest.class_names}),
        unused_classes(manifest, command.output.feature_names.get(LABEL, LABEL)),
        fractions_as_names(manifest),
    )
    report.note(
        format_seconds(seconds),
        next_step(directory),
        directory=directory,
    )
