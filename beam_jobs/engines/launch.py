"""Runs a pipeline on an engine and waits for it, unless the command ends before the job."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import socket
import sys
import tempfile
import traceback
from typing import Any, TextIO

import apache_beam as beam
from apache_beam.options.pipeline_options import (
    GoogleCloudOptions,
    JobServerOptions,
    PipelineOptions,
    PortableOptions,
    SetupOptions,
    StandardOptions,
)
from apache_beam.runners.runner import PipelineResult

from beam_jobs import progress
from beam_jobs.engines.dataflow import (
    follow_dataflow,
    on_dataflow,
    rejection,
    service_log_shown,
)
from beam_jobs.engines.direct import on_this_machine, prepare_direct_runner
from beam_jobs.engines.pool import close_shared_pools
from beam_jobs.engines.watch import Watch
from beam_jobs.engines.worker_progress import note_progress
from beam_jobs.errors import AGAIN, TRACEBACK, DataError, UsageError, find_job_error, root_cause
from beam_jobs.packages import check_crc32c

EXECUTABLE, NO_WAIT = "--output_executable_path", "--no_wait_until_finish"

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
        self._dropped = text.startswith(TRACEBACK)
        if not self._dropped and not end_of_dropped:
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        self._stream.flush()


def ends_early(options: PipelineOptions) -> str:
    """The flag with which the command ends before the dataset is complete; empty if it waits for the job."""
    if on_this_machine(options):
        return ""  # The DirectRunner ignores all of them.
    if on_dataflow(options):
        flag, value = "--template_location", options.view_as(GoogleCloudOptions).template_location
    else:
        flag, value = EXECUTABLE, options.view_as(PortableOptions).output_executable_path
    if value:
        return flag
    return NO_WAIT if options.view_as(StandardOptions).no_wait_until_finish else ""


def check_job_service(options: PipelineOptions) -> None:
    """Checks that a job service answers, or that Beam can start one; its jar is downloaded if it is missing.

    Raises:
        UsageError: Beam would wait silently for the service, or fail with a traceback.
    """
    endpoint = options.view_as(PortableOptions).job_endpoint
    runner = (options.view_as(StandardOptions).runner or "").rpartition(".")[2]
    if not endpoint and runner in ("FlinkRunner", "SparkRunner"):
        _get_jar(runner.removesuffix("Runner").lower(), options)
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


def _get_jar(engine: str, options: PipelineOptions) -> None:
    """Downloads the jar of the job server that Beam starts, unless it is on this machine."""
    from apache_beam.runners.portability.flink_runner import FlinkJarJobServer
    from apache_beam.runners.portability.spark_runner import SparkJarJobServer
    from apache_beam.utils.subprocess_server import JavaJarServer

    server = {"flink": FlinkJarJobServer, "spark": SparkJarJobServer}[engine](options)
    folder = options.view_as(JobServerOptions).jar_cache_dir or JavaJarServer.JAR_CACHE
    how = f"with --{engine}_job_server_jar; or add --job_endpoint HOST:PORT of a running job server"
    try:
        url = server.path_to_jar()
    except ValueError:
        raise UsageError(f"the jar of Beam's job server is missing: name it {how}") from None
    if os.path.exists(url) or os.path.exists(os.path.join(folder, os.path.basename(url))):
        return
    print(f"downloading Beam's job server: {url}", file=sys.stderr, flush=True)
    try:
        server.local_jar(url, folder)
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"Beam's job server for --engine {engine} is not on this machine, and cannot be downloaded "
            f"({error.__context__ or error}): download {url} and put it into {folder}, or name it {how}"
        ) from None


def launch(
    transform: beam.PTransform, options: PipelineOptions, watch: Watch | None = None
) -> tuple[PipelineResult, dict[str, float]]:
    """Runs a pipeline to its end; returns the seconds of its phases, too.

    Other engines do not report phases; if `ends_early`, the pipeline may still run, or run later.

    Args:
        transform: The whole pipeline.
        options: Beam's options, which name the engine.
        watch: Follows a job on another engine; None on this machine.

    Raises:
        JobError: The pipeline failed.
    """
    check_crc32c()
    if on_this_machine(options):
        prepare_direct_runner(options)
    options.view_as(SetupOptions).save_main_session = False
    try:
        with (
            progress.display(sys.stderr) as seconds,
            contextlib.redirect_stderr(_WithoutTracebacks(sys.stderr)),
        ):
            if not watch:
                progress.begin("starting")
                result = _pipeline(transform, options, watch).run()
                result.wait_until_finish()
            elif on_dataflow(options):
                with service_log_shown(sys.stderr):
                    pipeline = _pipeline(transform, options, watch)
                    result = pipeline.run()
                    follow_dataflow(pipeline.runner, result, options, watch)
            else:
                result = _pipeline(transform, options, watch).run()
                _wait_elsewhere(result, watch, options)
    except Exception as error:
        if _is_interrupt(error):
            raise KeyboardInterrupt from None
        rejected = rejection(error) if on_dataflow(options) else None
        raise (find_job_error(error) or rejected or _unforeseen(error)) from error
    finally:
        if watch:
            watch.stop()
        close_shared_pools()
    return result, seconds


def _pipeline(
    transform: beam.PTransform, options: PipelineOptions, watch: Watch | None
) -> beam.Pipeline:
    """The pipeline, once the runner has accepted the options."""
    try:
        pipeline = beam.Pipeline(options=options)
    except ValueError as error:
        _, _, wrong = str(error).rpartition("validations errors:")
        raise UsageError(" ".join(wrong.split())) from None
    if watch and not ends_early(options):
        note_progress(pipeline.options, watch.staging)
    pipeline | transform
    return pipeline


def _wait_elsewhere(result: Any, watch: Watch, options: PipelineOptions) -> None:
    """Waits for a job of a portable runner, unless the command ends early; Ctrl-C cancels the job."""
    early = ends_early(options)
    if early == EXECUTABLE:
        result.wait_until_finish()
        path = options.view_as(PortableOptions).output_executable_path
        watch.say(f"the job is in {path}; nothing has run. To run it\n{how_to_run(path)}")
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
            raise DataError(f"the job was cancelled; no dataset was written; {AGAIN}") from error
        if lost := watch.lost(error):
            raise lost from error
        messages = (message.message_response.message_text for message in result._messages)
        raise error from RuntimeError("\n".join(messages))  # It has the engine's whole traceback.


def how_to_run(path: str) -> str:
    """The commands that run the job in a jar, which the job service wrote instead of running it."""
    jar = shlex.quote(path)
    # A classpath, because `flink run` does not find the job in a jar whose classes Flink has loaded
    # from its own folder, where docs/deploy/flink.md puts Beam's.
    flink = f'java -cp "$FLINK_HOME/lib/*:"{jar} org.apache.beam.runners.flink.FlinkPipelineRunner'
    return f"on Flink: {flink}\non Spark: spark-submit --master $SPARK_MASTER {jar}"


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
