"""Runs a pipeline on an engine and waits for it."""

from __future__ import annotations

import contextlib
import io
import socket
import sys
import tempfile
import traceback
from collections.abc import Sequence
from typing import TextIO

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions, SetupOptions
from apache_beam.runners.runner import PipelineResult

from beam_jobs import progress
from beam_jobs.engines.dataflow import (
    follow,
    on_dataflow,
    prepare_dataflow,
    refusal,
    service_log_shown,
)
from beam_jobs.engines.direct import on_this_machine, prepare_direct_runner
from beam_jobs.engines.executable import executable_path, how_to_run
from beam_jobs.engines.notebooks import allow_notebooks
from beam_jobs.engines.pool import close_shared_pools
from beam_jobs.errors import DataError, UsageError, find_job_error
from beam_jobs.packages import check_crc32c

# A running job service accepts a connection immediately.
_SECONDS_TO_ANSWER = 10


class _WithoutTracebacks(io.TextIOBase):
    """A stream without the tracebacks that Beam's workers print when they fail.

    The driver gets the same text with the exception, and reports it in one line.
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


def launch(
    transform: beam.PTransform, options: PipelineOptions, directory: str, inputs: Sequence[str]
) -> tuple[PipelineResult, dict[str, float]]:
    """Runs a pipeline to its end; returns the seconds of its phases, too.

    Other engines do not report phases.

    Args:
        transform: The whole pipeline.
        options: Beam's options, which name the engine.
        directory: The output directory.
        inputs: Patterns and folders of the inputs, which Dataflow's workers must be able to read.

    Raises:
        JobError: The pipeline failed.
    """
    check_crc32c()
    allow_notebooks()
    _check_job_service(options)
    if on_this_machine(options):
        prepare_direct_runner(options)
    options.view_as(SetupOptions).save_main_session = False
    pipeline = _pipeline(options)
    if on_dataflow(options):
        prepare_dataflow(options, directory, inputs)
    pipeline | transform
    try:
        with (
            progress.display(sys.stderr) as seconds,
            contextlib.redirect_stderr(_WithoutTracebacks(sys.stderr)),
        ):
            if on_dataflow(options):
                with service_log_shown(sys.stderr):
                    result = pipeline.run()
                    follow(pipeline.runner, result, options, sys.stderr)
            else:
                if on_this_machine(options):
                    progress.begin("starting")
                result = pipeline.run()
                _wait(result, not on_this_machine(options))
                if path := executable_path(options):
                    print(f"the job is in {path}; nothing has run. Run it with", file=sys.stderr)
                    print(f"  {how_to_run(path)}", file=sys.stderr)
    except Exception as error:
        if _is_interrupt(error):
            raise KeyboardInterrupt from None
        refused = refusal(error) if on_dataflow(options) else None
        raise (find_job_error(error) or refused or _unforeseen(error)) from error
    finally:
        close_shared_pools()
    return result, seconds


def _wait(result: PipelineResult, elsewhere: bool) -> None:
    """Waits for the end of a job; Ctrl-C cancels one that runs elsewhere."""
    try:
        result.wait_until_finish()
    except BaseException as error:
        if elsewhere and _is_interrupt(error):
            result.cancel()
            raise KeyboardInterrupt(
                "interrupted; the job service was asked to cancel the job, but Flink's lets it run to its "
                "end: cancel it there. Once it has stopped, the same command resumes with the shards "
                "that are done"
            ) from None
        if "JobCancellationException" in str(error):
            raise DataError(
                "the job was cancelled; no dataset was written; run the same command again: it keeps "
                "the shards that are done"
            ) from error
        raise


def _pipeline(options: PipelineOptions) -> beam.Pipeline:
    """An empty pipeline, once the runner has accepted the options."""
    try:
        return beam.Pipeline(options=options)
    except ValueError as error:
        _, _, wrong = str(error).rpartition("validations errors:")
        raise UsageError(" ".join(wrong.split())) from None


def _check_job_service(options: PipelineOptions) -> None:
    """Refuses a `--job_endpoint` that does not answer; Beam would wait for it silently."""
    endpoint = options.view_as(PortableOptions).job_endpoint
    if not endpoint or endpoint == "embed":
        return
    host, _, port = endpoint.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _SECONDS_TO_ANSWER).close()
    except (OSError, ValueError, OverflowError) as error:
        raise UsageError(
            f"--job_endpoint {endpoint}: no job service answers ({error}); expected HOST:PORT of a "
            "running one"
        ) from None


def _is_interrupt(error: BaseException | None) -> bool:
    """Whether Ctrl-C caused a runner's exception."""
    while error and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


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
