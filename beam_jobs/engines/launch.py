"""Runs a pipeline on an engine and waits for it."""

from __future__ import annotations

import contextlib
import io
import re
import socket
import sys
import tempfile
import traceback
from collections.abc import Sequence
from typing import Any, TextIO

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
from beam_jobs.engines.early_end import EXECUTABLE, NO_WAIT, ends_early, how_to_run
from beam_jobs.engines.notebooks import allow_notebooks
from beam_jobs.engines.pool import close_shared_pools
from beam_jobs.engines.remote.watch import Follow, Watch
from beam_jobs.errors import DataError, UsageError, find_job_error
from beam_jobs.packages import check_crc32c

# A running job service accepts a connection immediately.
_SECONDS_TO_ANSWER = 10

# How Beam begins the error of a portable runner.
_STATE = re.compile(r"Pipeline \S+ failed in state [A-Z]+: ")

_TRACEBACK = "Traceback (most recent call last):"

_MOST = 500


class _WithoutTracebacks(io.TextIOBase):
    """A stream without the tracebacks that Beam's workers print when they fail.

    The driver gets the same text with the exception, and reports it in one line.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._dropped = False

    def write(self, text: str) -> int:
        end_of_dropped = self._dropped and text == "\n"
        self._dropped = text.startswith(_TRACEBACK)
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

    Other engines do not report phases; if `ends_early`, the pipeline may run when this returns, or later.

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
            if not watch:
                progress.begin("starting")
                result = pipeline.run()
                result.wait_until_finish()
            elif on_dataflow(options):
                with service_log_shown(sys.stderr):
                    result = pipeline.run()
                    follow_dataflow(pipeline.runner, result, options, watch)
            else:
                result = pipeline.run()
                _wait_elsewhere(result, watch, options)
    except Exception as error:
        if _is_interrupt(error):
            raise KeyboardInterrupt from None
        refused = refusal(error) if on_dataflow(options) else None
        raise (find_job_error(error) or refused or _unforeseen(error)) from error
    finally:
        if watch:
            watch.stop()
        close_shared_pools()
    return result, seconds


def _wait_elsewhere(result: Any, watch: Watch, options: PipelineOptions) -> None:
    """Waits for a job of a portable runner, unless the command ends early; Ctrl-C cancels the job."""
    early = ends_early(options)
    if early == EXECUTABLE:
        result.wait_until_finish()
        path = options.view_as(PortableOptions).output_executable_path
        watch.say(f"the job is in {path}; nothing has run. It runs\n{how_to_run(path)}")
        return
    try:
        watch.submitted(result._job_id)
        if early == NO_WAIT:
            watch.locate()
            return
        watch.begin()
        result.wait_until_finish()
    except BaseException as error:
        if _is_interrupt(error):
            raise KeyboardInterrupt(watch.cancel(result)) from None
        if "JobCancellationException" in str(error):
            raise DataError(
                "the job was cancelled; no dataset was written; run the same command again: it keeps "
                "the shards that are done"
            ) from error
        messages = (message.message_response.message_text for message in result._messages)
        raise error from RuntimeError("\n".join(messages))  # Has the whole trace of the engine.


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
    cause = root_cause(str(error)) or type(error).__name__
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="beam_jobs-", suffix=".log", delete=False
        ) as file:
            file.write("".join(traceback.format_exception(error)))
        where = f"the traceback is in {file.name}"
    except OSError as unwritable:
        where = f"{tempfile.gettempdir()} has no room for the traceback ({unwritable})"
    return DataError(f"the pipeline failed: {cause}; no dataset was written; {where}")


def root_cause(text: str) -> str:
    """The line of an error that says most about a failure, at most 500 characters; empty without one.

    It is the exception that ends the last Python traceback in the text, or else the first line.
    """
    lines = [line for line in _STATE.sub("", text, count=1).splitlines() if line.strip()]
    begins = [number for number, line in enumerate(lines) if line.rstrip().endswith(_TRACEBACK)]
    after = lines[begins[-1] + 1 :] if begins else []
    exceptions = (line for line in after if not line[0].isspace())
    return next(exceptions, next(iter(lines), "")).strip()[:_MOST]
