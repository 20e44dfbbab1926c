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
    follow_dataflow,
    on_dataflow,
    prepare_dataflow,
    refusal,
    service_log_shown,
)
from beam_jobs.engines.direct import on_this_machine, prepare_direct_runner
from beam_jobs.engines.executable import executable_path, how_to_run
from beam_jobs.engines.notebooks import allow_notebooks
from beam_jobs.engines.pool import close_shared_pools
from beam_jobs.engines.remote.job import NoAnswer
from beam_jobs.engines.remote.watch import Follow, Watch
from beam_jobs.engines.traces import root_cause
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
    transform: beam.PTransform,
    options: PipelineOptions,
    directory: str,
    inputs: Sequence[str],
    follow: Follow | None = None,
) -> tuple[PipelineResult, dict[str, float]]:
    """Runs a pipeline to its end; returns the seconds of its phases, too.

    Other engines do not report phases; with `--detach` the pipeline may run when this returns.

    Args:
        transform: The whole pipeline.
        options: Beam's options, which name the engine.
        directory: The output directory.
        inputs: Patterns and folders of the inputs, which Dataflow's workers must be able to read.
        follow: How to follow a job on another engine; None on this machine.

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
    watch = Watch(follow, options, sys.stderr) if follow else None
    try:
        with (
            progress.display(sys.stderr) as seconds,
            contextlib.redirect_stderr(_WithoutTracebacks(sys.stderr)),
        ):
            if watch and on_dataflow(options):
                with service_log_shown(sys.stderr):
                    result = pipeline.run()
                    follow_dataflow(pipeline.runner, result, options, sys.stderr, watch)
            elif watch:
                result = pipeline.run()
                if path := executable_path(options):
                    result.wait_until_finish()
                    print(f"the job is in {path}; nothing has run. Run it with", file=sys.stderr)
                    print(f"  {how_to_run(path)}", file=sys.stderr)
                else:
                    _wait_elsewhere(result, watch)
            else:
                progress.begin("starting")
                result = pipeline.run()
                result.wait_until_finish()
    except Exception as error:
        if _is_interrupt(error):
            raise KeyboardInterrupt from None
        refused = refusal(error) if on_dataflow(options) else None
        trace, cause = watch.failure() if watch else ("", "")
        found = find_job_error(error) or find_job_error(Exception(trace)) or refused
        raise (found or _unforeseen(error, trace, cause)) from error
    finally:
        if watch:
            watch.stop()
        close_shared_pools()
    return result, seconds


def _wait_elsewhere(result: PipelineResult, watch: Watch) -> None:
    """Follows a job of a portable runner to its end, unless it is detached; Ctrl-C cancels it."""
    try:
        watch.submitted(result)
        if not watch.detaches:
            result.wait_until_finish()
            watch.end()
    except BaseException as error:
        if _is_interrupt(error):
            raise KeyboardInterrupt(watch.cancel()) from None
        if "JobCancellationException" in str(error):
            with contextlib.suppress(NoAnswer):
                watch.wait_for_end()
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


def _unforeseen(error: Exception, trace: str, cause: str) -> DataError:
    """One line for a failure that no check foresaw; its traceback goes to a file.

    Args:
        error: The runner's exception.
        trace: What the engine itself says of the failure, for the file.
        cause: The same in one line; empty if the engine says nothing.
    """
    cause = cause or root_cause(str(error)) or type(error).__name__
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="beam_jobs-", suffix=".log", delete=False
        ) as file:
            file.write("\n".join(["".join(traceback.format_exception(error)), trace]))
        where = f"the traceback is in {file.name}"
    except OSError as unwritable:
        where = f"{tempfile.gettempdir()} has no room for the traceback ({unwritable})"
    return DataError(f"the pipeline failed: {cause}; no dataset was written; {where}")
