"""Runs a job on an engine, and says what became of it."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import tempfile
import time
import traceback
from typing import TextIO

import apache_beam as beam
from apache_beam.options.pipeline_options import (
    DirectOptions,
    PipelineOptions,
    SetupOptions,
    StandardOptions,
    TypeOptions,
)

from beam_jobs.encode import check_crc32c
from beam_jobs.errors import DataError, find_job_error
from beam_jobs.options import Command
from beam_jobs.rejects import REJECTS
from readers.format.display import format_balance, format_bytes, format_table
from readers.format.manifest import DatasetError, Manifest, join


def on_this_machine(options: PipelineOptions) -> bool:
    """Whether the pipeline runs on Beam's DirectRunner."""
    runner = options.view_as(StandardOptions).runner
    return runner is None or runner == "DirectRunner"


def prepare_direct_runner(options: PipelineOptions) -> None:
    """Sets what the DirectRunner needs to be fast and to lose nothing; the user's own flags stay."""
    from apache_beam.runners.portability.fn_api_runner import worker_handlers

    # The timed flush of a worker's data channel drops what is written meanwhile; 0 turns the timer
    # off. Every job checks its counts all the same.
    worker_handlers.DATA_BUFFER_TIME_LIMIT_MS = 0
    # Otherwise DirectRunner tries to download Prism, another runner, and runs the job there.
    options.view_as(TypeOptions).allow_unsafe_triggers = True
    direct = options.view_as(DirectOptions)
    given = options.get_all_options(drop_default=True)
    if "direct_running_mode" not in given and "direct_num_workers" not in given:
        direct.direct_running_mode = "multi_threading"
        direct.direct_num_workers = os.cpu_count() or 1


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


def run_job(command: Command) -> Manifest:
    """Runs a job to its end.

    Returns:
        The manifest of the dataset, read back from where it was written.

    Raises:
        JobError: It failed; no manifest was written.
    """
    check_crc32c()
    options = command.beam
    if on_this_machine(options):
        options.view_as(StandardOptions).runner = "DirectRunner"
        prepare_direct_runner(options)
    options.view_as(SetupOptions).save_main_session = False
    try:
        with (
            contextlib.redirect_stderr(_WithoutTracebacks(sys.stderr)),
            beam.Pipeline(options=options) as pipeline,
        ):
            pipeline | command.name.capitalize() >> command.transform
    except Exception as error:
        raise (find_job_error(error) or _unforeseen(error)) from error
    try:
        return Manifest.read(command.output.directory)
    except DatasetError as error:
        raise DataError(
            f"the runner says it is done, but {error}; no dataset was written, run the job again"
        ) from None


def _unforeseen(error: Exception) -> DataError:
    """One line for a failure that no check foresaw; its traceback goes to a file."""
    with tempfile.NamedTemporaryFile("w", prefix="beam_jobs-", suffix=".log", delete=False) as file:
        file.write("".join(traceback.format_exception(error)))
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return DataError(
        f"the pipeline failed: {lines[-1][:500]}; no dataset was written; the traceback is in "
        f"{file.name}"
    )


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


def main_job(command: Command) -> Manifest:
    """Runs a job and prints what it wrote.

    Raises:
        JobError: As `run_job`.
    """
    if on_this_machine(command.beam):
        # Its workers log every exception in full; the command prints one line instead.
        logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    began = time.monotonic()
    manifest = run_job(command)
    rows = summary_rows(command.name, manifest, time.monotonic() - began)
    print(format_table([HEADER, *rows]))
    if manifest.rejected:
        print(
            f"{manifest.rejected} rejected, listed in {join(command.output.directory, REJECTS)}/",
            file=sys.stderr,
        )
    return manifest
