"""Runs a job on an engine, and says what became of it."""

from __future__ import annotations

import contextlib
import io
import json
import socket
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import NamedTuple, TextIO

import apache_beam as beam
from apache_beam.metrics import MetricsFilter
from apache_beam.options.pipeline_options import (
    PipelineOptions,
    PortableOptions,
    SetupOptions,
    StandardOptions,
)
from apache_beam.runners.runner import PipelineResult

from beam_jobs import progress
from beam_jobs.dataflow import follow, is_followed, on_dataflow, prepare_dataflow, refusal, told
from beam_jobs.direct import on_this_machine, prepare_direct_runner
from beam_jobs.encode import check_crc32c
from beam_jobs.errors import DataError, UsageError, find_job_error
from beam_jobs.files import is_local, read_bytes
from beam_jobs.options import Command
from beam_jobs.pool import close_shared_pools
from beam_jobs.rejects import REJECTS
from beam_jobs.survey import Findings, Survey, check_findings, format_findings
from readers.format.display import format_balance, format_bytes, format_table
from readers.format.manifest import MANIFEST, DatasetError, Manifest, join

# Of a job service: it takes the connection at once, or it is not there.
_SECONDS_TO_ANSWER = 10


class _WithoutTracebacks(io.TextIOBase):
    """A stream that passes on everything but tracebacks, which Beam's workers print as they fail.

    The driver gets the same text with the exception, and tells it in one line.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._dropped = False

    def write(self, text: str) -> int:
        end_of_dropped = self._dropped and text == "\n"
        self._dropped = text.startswith("Traceback (most recent call last)")
        if not self._dropped and not end_of_dropped:
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        self._stream.flush()


class Outcome(NamedTuple):
    """What a job did.

    Attributes:
        manifest: Of the dataset, read back from where it was written.
        kept: How many shards of an earlier, unfinished run are in it.
    """

    manifest: Manifest
    kept: int


def run_job(command: Command) -> Outcome | None:
    """Runs a job to its end; None where it goes on, or begins, without this command.

    Raises:
        JobError: It failed; no manifest was written.
    """
    if told_of := standstill(command):
        print(told_of, file=sys.stderr)
    result = _run(command, command.name.capitalize() >> command.transform)
    if on_dataflow(command.beam) and not is_followed(command.beam):
        return None
    try:
        return Outcome(_manifest(command.output.directory), _kept(result))
    except (DatasetError, OSError, ValueError) as error:
        raise DataError(
            f"the runner says it is done, but {error}; no dataset was written, run the job again"
        ) from None


def standstill(command: Command) -> str:
    """What a user should know before a job that may never end; empty for any other."""
    runner = command.beam.view_as(StandardOptions).runner
    if (
        runner not in ("FlinkRunner", "SparkRunner", "PortableRunner")
        or not command.in_parts
        or is_local(command.output.directory)
    ):
        return ""
    return (
        f"warning: --output {command.output.directory}: records pass the engine on their way there; "
        "on Flink and Spark a task with more than 400 MB of them may stand still for ever: write to a "
        "disk that all workers share, or use more tasks (docs/scale.md)"
    )


def _manifest(directory: str) -> Manifest:
    """The manifest of a dataset, read with the options of the job that wrote it.

    Raises:
        DatasetError, OSError: There is none, or none that can be read.
    """
    if is_local(directory):
        return Manifest.read(directory)
    return Manifest.from_json(json.loads(read_bytes(join(directory, MANIFEST))))


def survey_job(command: Command) -> Findings:
    """What a job would find and write; nothing of it is written.

    Raises:
        JobError: The job could not be planned.
    """
    with tempfile.TemporaryDirectory(prefix="beam_jobs-") as directory:
        path = Path(directory, "findings.json")
        survey = Survey(command.job, command.output, command.processes, command.in_parts, str(path))
        _run(command, "Survey" >> survey)
        return Findings.from_json(path.read_text(encoding="utf-8"))


def _run(command: Command, transform: beam.PTransform) -> PipelineResult:
    """Runs a pipeline to its end.

    Raises:
        JobError: It failed.
    """
    check_crc32c()
    options = command.beam
    _check_job_service(options)
    if on_this_machine(options):
        prepare_direct_runner(options)
    options.view_as(SetupOptions).save_main_session = False
    pipeline = _pipeline(options)
    if on_dataflow(options):
        inputs = command.job.inputs
        prepare_dataflow(options, command.output.directory, [*inputs.patterns, inputs.root])
    pipeline | transform
    try:
        with (
            progress.shown(sys.stderr),
            contextlib.redirect_stderr(_WithoutTracebacks(sys.stderr)),
        ):
            if on_dataflow(options):
                with told(sys.stderr):
                    result = _submit(pipeline)
                    follow(pipeline.runner, result, options, sys.stderr)
            else:
                result = pipeline.run()
                _wait(result, not on_this_machine(options))
    except Exception as error:
        if _is_interrupt(error):
            raise KeyboardInterrupt from None
        raise (find_job_error(error) or _unforeseen(error)) from error
    finally:
        close_shared_pools()
    return result


def _wait(result: PipelineResult, elsewhere: bool) -> None:
    """Waits for the end of a job.

    Raises:
        DataError: It was cancelled where it runs.
        KeyboardInterrupt: With what to tell, of a job that runs elsewhere.
    """
    try:
        result.wait_until_finish()
    except BaseException as error:
        if elsewhere and _is_interrupt(error):
            result.cancel()
            raise KeyboardInterrupt(
                "interrupted; the job service was asked to cancel the job, but Flink's lets it go on "
                "to its end: cancel it there. Once it has stopped, the same command goes on with the "
                "shards that are done"
            ) from None
        if "JobCancellationException" in str(error):
            raise DataError(
                "the job was cancelled; no dataset was written; run the same command again: it keeps "
                "the shards that are done"
            ) from error
        raise


def _pipeline(options: PipelineOptions) -> beam.Pipeline:
    """An empty pipeline.

    Raises:
        UsageError: The runner needs an option that is missing or has no such value.
    """
    try:
        return beam.Pipeline(options=options)
    except ValueError as error:
        _, _, wrong = str(error).rpartition("validations errors:")
        raise UsageError(" ".join(wrong.split())) from None


def _submit(pipeline: beam.Pipeline) -> PipelineResult:
    """Stages and hands over a pipeline to Dataflow.

    Raises:
        JobError: The service does not take it.
    """
    try:
        return pipeline.run()
    except Exception as error:
        if refused := refusal(error):
            raise refused from error
        raise


def _check_job_service(options: PipelineOptions) -> None:
    """Looks whether somebody answers at `--job_endpoint`, for which Beam would wait without a word.

    Raises:
        UsageError: Nobody does.
    """
    endpoint = options.view_as(PortableOptions).job_endpoint
    if not endpoint or endpoint == "embed":
        return
    host, _, port = endpoint.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _SECONDS_TO_ANSWER).close()
    except (OSError, ValueError, OverflowError) as error:
        raise UsageError(
            f"--job_endpoint {endpoint}: no job service answers ({error}); expected HOST:PORT of one "
            "that runs"
        ) from None


def _is_interrupt(error: BaseException | None) -> bool:
    """Whether Ctrl-C is what a runner's exception tells of."""
    while error and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _kept(result: PipelineResult) -> int:
    try:
        counters = result.metrics().query(MetricsFilter().with_name("kept"))["counters"]
    except Exception:  # A service may refuse to tell; the dataset is there all the same.
        return 0
    return sum(counter.result for counter in counters)


def _unforeseen(error: Exception) -> DataError:
    """One line for a failure that no check foresaw; its traceback goes to a file."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="beam_jobs-", suffix=".log", delete=False
        ) as file:
            file.write("".join(traceback.format_exception(error)))
        where = f"the traceback is in {file.name}"
    except OSError as unwritable:
        where = f"{tempfile.gettempdir()} has no room for the traceback ({unwritable})"
    return DataError(f"the pipeline failed: {lines[-1][:500]}; no dataset was written; {where}")


def summary_rows(job: str, manifest: Manifest, seconds: float) -> list[list[str]]:
    """A row for every split: what `HEADER` names."""
    rows = []
    for name, split in manifest.splits.items():
        sizes = [shard.records for shard in split.shards]
        rows.append(
            [
                job,
                name,
                f"{split.records:,}",
                str(len(sizes)),
                format_balance(sizes),
                format_bytes(split.bytes),
                f"{split.rejected:,}",
                f"{seconds:.1f}",
            ]
        )
    return rows


HEADER = ["job", "split", "records", "shards", "records a shard", "bytes", "rejects", "seconds"]


def main_job(command: Command) -> None:
    """Runs a job and prints what it wrote, or would write.

    Raises:
        JobError: As `run_job` and `survey_job`.
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
    manifest, kept = outcome
    rows = summary_rows(command.name, manifest, time.monotonic() - began)
    print(format_table([HEADER, *rows]))
    if kept:
        print(f"kept {kept:,} shards of an unfinished run", file=sys.stderr)
    if manifest.duplicates:
        print(f"duplicates dropped: {manifest.duplicates:,}", file=sys.stderr)
    if manifest.rejected:
        print(
            f"{manifest.rejected} rejected, listed in {join(command.output.directory, REJECTS)}/",
            file=sys.stderr,
        )
