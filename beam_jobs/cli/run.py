"""Runs a job or a dry run, and prints its result."""

from __future__ import annotations

import json
import os
import pickle
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from apache_beam.metrics import MetricsFilter
from apache_beam.runners.runner import PipelineResult

from beam_jobs.cli.checks.check import checked
from beam_jobs.cli.checks.readers_command import run_readers
from beam_jobs.cli.command import Command
from beam_jobs.cli.report import (
    HEADER,
    findings_as_json,
    format_findings,
    format_reasons,
    format_seconds,
    fractions_as_names,
    kept_out_warning,
    next_step,
    reasons_as_json,
    splits_as_json,
    splits_of,
    summary_rows,
    unused_classes,
    warnings_of,
)
from beam_jobs.dataset.lease import leased
from beam_jobs.dataset.reasons import first_rejects
from beam_jobs.dataset.shard_file import not_writable
from beam_jobs.dataset.state import state_of
from beam_jobs.engines.launch import check_job_service, ends_early, launch
from beam_jobs.engines.remote.watch import Watch
from beam_jobs.errors import CompleteError, DataError
from beam_jobs.pipeline.dry_run import Findings, Survey, check_findings
from beam_jobs.pipeline.near.drop import KEPT_OUT
from beam_jobs.sources.labels import LABEL
from beam_jobs.storage.files import read_bytes
from readers.format.display import format_table, visible, visible_line, without_credentials
from readers.format.manifest import Manifest, generation_file, join
from readers.format.rejects import reasons_of


class Outcome(NamedTuple):
    """What a job that ran to its end left."""

    manifest: Manifest
    kept_shards: int  # shards of an unfinished run, which were not written again
    seconds: dict[str, float]  # by phase
    kept_out: int = 0  # records that are near one of --keep_out
    was_complete: bool = False  # an earlier run of the job had completed the dataset


def run_job(command: Command) -> Outcome | None:
    """Runs a job to its end; None if it continues on an engine, or runs later, without this command.

    Raises:
        JobError: The job failed; no manifest was written.
    """
    directory, early = command.output.directory, ends_early(command.beam)
    check_job_service(command.beam)
    watch = Watch(command.follow, command.beam, sys.stderr) if command.follow else None
    transform = command.name.capitalize() >> command.transform
    try:
        with leased(command.output, command.name, keeps=bool(early)):
            result, seconds = launch(transform, command.beam, watch)
    except CompleteError:
        return Outcome(
            _manifest(directory, state_of(directory).generations[-1]), 0, {}, was_complete=True
        )
    except OSError as error:
        raise not_writable(directory, error) from None
    if early:
        return None
    try:
        manifest = _manifest(directory, command.output.generation)
        kept_out = _counted(result, KEPT_OUT)
        return Outcome(manifest, _counted(result, "kept"), seconds, kept_out)
    except (OSError, ValueError) as error:
        raise DataError(
            f"the runner reports success, but {error}; no dataset was written: run the job again"
        ) from None


def _manifest(directory: str, generation: int) -> Manifest:
    """The manifest of a generation, read with the options of the job.

    Raises:
        ValueError: It is damaged.
        OSError: It cannot be read.
    """
    return Manifest.from_bytes(read_bytes(join(directory, generation_file(generation))))


def survey_job(command: Command) -> Findings:
    """The result of a dry run; no part of the dataset is written.

    Raises:
        JobError: The job could not be planned.
    """
    with tempfile.TemporaryDirectory(prefix="beam_jobs-") as directory:
        path = Path(directory, "findings.json")
        survey = Survey(command.job, command.output, command.processes, str(path), command.near)
        result, _ = launch("Survey" >> survey, command.beam)
        findings: Findings = pickle.loads(path.read_bytes())
        return replace(findings, kept_out=_counted(result, KEPT_OUT))


def _counted(result: PipelineResult, name: str) -> int:
    """The sum of Beam's counters of a name; 0 if they are not known."""
    try:
        counters = result.metrics().query(MetricsFilter().with_name(name))["counters"]
    except Exception:  # A service may refuse to report counters; the dataset is complete.
        return 0
    return sum(counter.result for counter in counters)


class Report:
    """Prints the result of a command: text, or one JSON object on stdout with the same contents.

    Args:
        as_json: Whether stdout gets the object, and nothing else.
    """

    def __init__(self, as_json: bool) -> None:
        self._as_json, self._code = as_json, 0
        self._values: dict[str, Any] = {}
        self._warnings: list[str] = []
        self._unprinted = ""

    def show(self, text: str, **values: Any) -> None:
        """Prints text on stdout; the object gets the values instead."""
        self._values |= values
        if not self._as_json:
            self._print(visible(text))

    def _print(self, text: str) -> None:
        """Prints on stdout; that it cannot be written does not keep a job from its end."""
        try:
            print(text, flush=True)
        except OSError as error:
            # A closed pipe, as after `head`, is no failure.
            self._unprinted = "" if isinstance(error, BrokenPipeError) else str(error)
            # Python would write the rest at its end, and fail once more.
            with Path(os.devnull).open("w") as nothing:
                os.dup2(nothing.fileno(), sys.stdout.fileno())

    def note(self, *lines: str, **values: Any) -> None:
        """Prints lines on stderr; the object gets the values, too."""
        self._values |= values
        for line in filter(None, lines):
            print(visible_line(without_credentials(line)), file=sys.stderr)

    def warn(self, *warnings: str) -> None:
        """Prints warnings on stderr; the object gets them, too."""
        found = [without_credentials(warning) for warning in filter(None, warnings)]
        self._warnings += found
        self.note(*(f"warning: {warning}" for warning in found))

    def fail(self, code: int, message: str) -> None:
        """Prints the error that ends the command with an exit code."""
        self._code = code
        self.note(f"error: {message}", error=without_credentials(message))

    def end_with(self, code: int) -> None:
        """Sets the exit code of a command that did not fail."""
        self._code = code

    def end(self) -> int:
        """Prints the object; returns the exit code: 1 if stdout could not be written."""
        if self._as_json:
            ending = {"warnings": self._warnings, "exit_code": self._code}
            self._print(json.dumps(self._values | ending))
        if self._unprinted and not self._code:
            self.fail(1, f"stdout cannot be written: {self._unprinted}; all else was done")
        return self._code


def _report_rejects(report: Report, directory: str, manifest: Manifest) -> None:
    """Reports where rejects are listed, and their most frequent reasons."""
    count, folder = manifest.rejected, os.path.dirname(manifest.rejects[0])
    report.note(f"{count:,} rejected, listed in {join(directory, folder)}/")
    try:
        rejects = first_rejects(directory, manifest.rejects)
    except (OSError, ValueError) as error:  # The dataset is complete all the same.
        report.note(f"  the list cannot be read: {error}")
        return
    if len(rejects) < count:
        report.note(f"  the first {len(rejects):,} of them:")
    reasons = reasons_of((reject.key, reject.error) for reject in rejects)
    report.note(*format_reasons(reasons), rejects=reasons_as_json(reasons))


def main_job(command: Command, report: Report) -> None:
    """Runs a job and reports what it wrote, or would write.

    Raises:
        JobError: The job failed, or could not be planned.
    """
    report.note(f"note: {command.note}" if command.note else "", job=command.name)
    report.warn(*command.warnings)
    if command.dry_run:
        _survey(command, report)
    else:
        _run(command, report)


def _survey(command: Command, report: Report) -> None:
    findings = survey_job(command)
    report.show(format_findings(findings), **findings_as_json(findings))
    report.warn(
        *warnings_of(command.output, findings.splits, command.job.has_windows),
        kept_out_warning(findings.kept_out, "would be"),
    )
    report.note("nothing was written: this was a dry run")
    report.note("--check looks at the dataset that the job writes" if command.check else "")
    check_findings(findings, command.output.on_reject, command.output.max_rejects)


def _check(command: Command, manifest: Manifest, report: Report) -> None:
    """Reports the findings about a written dataset; with one that is as bad as asked for the exit code is 1."""
    assert command.check
    directory, asked = command.output.directory, command.check
    follow, options = command.follow, command.beam
    watch = Watch(replace(follow, note=None), options, sys.stderr) if follow else None
    found = checked(
        directory,
        manifest,
        asked.threshold,
        command.processes,
        lambda transform: launch(transform, options, watch),
    )
    report.show("\n".join(map(str, (*found.findings, found))), findings=found.to_json()["findings"])
    if found.fails(asked.fail_on):
        report.end_with(1)


def _run(command: Command, report: Report) -> None:
    began = time.monotonic()
    outcome = run_job(command)
    directory = command.output.directory
    if outcome is None:
        report.note(directory=directory, complete=False)
        return
    manifest = outcome.manifest
    seconds = time.monotonic() - began
    if outcome.was_complete:
        report.note(
            f"{directory} is complete: the same options, and inputs of the same names and sizes, have written "
            "it; nothing was changed. Add --overwrite to write it again",
            was_complete=True,
        )
    splits = splits_of(manifest)
    report.show(
        format_table([HEADER, *summary_rows(command.name, manifest, seconds)]),
        splits=splits_as_json(splits),
        kept_shards=outcome.kept_shards,
        rejects=[],
        seconds=seconds,
        phases=outcome.seconds,
    )
    if outcome.kept_shards:
        report.note(f"kept {outcome.kept_shards:,} shards of an unfinished run")
    if manifest.duplicates:
        report.note(f"duplicates dropped: {manifest.duplicates:,}")
    if manifest.more_frames:
        report.note(
            f"images whose frames after the first are left out: {manifest.more_frames:,}; "
            "--frames all makes a record of each frame",
            more_frames=manifest.more_frames,
        )
    if manifest.unannotated:
        report.note(
            f"images without an annotation that are kept: {manifest.unannotated:,}",
            unannotated=manifest.unannotated,
        )
    if manifest.rejected:
        _report_rejects(report, directory, manifest)
    report.warn(
        *warnings_of(command.output, splits, command.job.has_windows),
        unused_classes(manifest, command.output.feature_names.get(LABEL, LABEL)),
        fractions_as_names(manifest),
        kept_out_warning(outcome.kept_out, "were"),
    )
    if command.check:
        _check(command, manifest, report)
    report.note(
        format_seconds(outcome.seconds),
        next_step(directory),
        directory=directory,
    )
    if command.page:
        _write_page(directory, command.page, report)


def _write_page(directory: str, file: str, report: Report) -> None:
    """Writes the report on a dataset."""
    try:
        run_readers("report", directory, "--output", file)
    except DataError as error:
        raise DataError(f"the dataset is written, but not the report: {error}") from None
    report.note(f"report in {file}", report=file)
