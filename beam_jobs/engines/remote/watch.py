"""Follows a job on an engine: says where it is, prints a line every ten seconds, and cancels it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TextIO

import grpc
from apache_beam.options.pipeline_options import (
    GoogleCloudOptions,
    PipelineOptions,
    PortableOptions,
    StandardOptions,
)
from apache_beam.runners.runner import PipelineState
from tqdm import tqdm

from beam_jobs.engines.remote import flink
from beam_jobs.engines.remote.flink import NoAnswer, Seen
from beam_jobs.engines.remote.job import RemoteJob
from beam_jobs.progress import progress_line

_LINE_SECONDS = 10.0
_POLL_SECONDS = 1.0

# How long Flink takes at most to list a job that its job service has accepted, and to stop one.
_SECONDS_TO_LIST = 20.0
_SECONDS_TO_CANCEL = 60.0

_UNKNOWN = "Flink's page is unknown: add --engine_page http://JOBMANAGER:8081"


@dataclass(frozen=True)
class Follow:
    """How a command follows a job.

    Attributes:
        engine: The value of `--engine`.
        flink_page: The value of `--engine_page`.
        shards: Counts the finished shards of the output, and all that there will be (0: unknown).
        note: Keeps what finds the job again; None if nothing need be kept.
    """

    engine: str
    flink_page: str
    shards: Callable[[], tuple[int, int]]
    note: Callable[[RemoteJob], None] | None


class Lines:
    """Makes a line of what is seen of a job each time that it is looked at.

    Args:
        began: When the job was submitted, in seconds on any clock.
    """

    def __init__(self, began: float) -> None:
        self._began = began
        # Name of a phase -> when it was first seen, and what was done then.
        self._first: dict[str, tuple[float, int]] = {}
        self._shards = (0, 0)

    def line(self, seconds: float, seen: Seen, shards: tuple[int, int]) -> str:
        """The line about a job.

        Args:
            seconds: The time, on the same clock.
            seen: What Flink says.
            shards: The finished shards of the output, and all that there will be (0: unknown).
        """
        # A shard that changes once more is unfinished for a moment.
        self._shards = done, planned = max(self._shards, shards)
        parts = [self._phase(seconds, seen)]
        if seen.stages:
            parts.append(f"{seen.stages_done:,} of {seen.stages:,} stages")
        if planned:
            parts.append(f"{done:,} of {planned:,} shards")
        return "; ".join(parts)

    def _phase(self, seconds: float, seen: Seen) -> str:
        """The last phase of a job that has counted something, with its rate and the time left."""
        count = seen.counters.get
        files, records = count("files/found", 0), count("parts/found", 0)
        written = count("shards/records", 0) + count("shards/rejected", 0)
        for name, done, total, unit in (
            ("writing", written, records or files, "records"),
            ("encoding", count("parts/encoded", 0), records, "records"),
            ("reading", records, 0, "records"),
            ("planning", count("files/planned", 0), files, "files"),
            ("listing", files, 0, "files"),
        ):
            if done:
                began, before = self._first.setdefault(name, (seconds, done))
                rate = max(done - before, 0) / max(seconds - began, 1e-3)
                return progress_line(name, done, total, unit, rate)
        return f"running for {tqdm.format_interval(seconds - self._began)}"


class Watch:
    """Follows one job in a thread of its own.

    Args:
        follow: How.
        options: Beam's options of the job that will be submitted.
        stream: Where lines are printed.
    """

    def __init__(self, follow: Follow, options: PipelineOptions, stream: TextIO) -> None:
        self._follow, self._stream = follow, stream
        self._service = options.view_as(PortableOptions).job_endpoint or ""
        self._name = options.view_as(GoogleCloudOptions).job_name or ""
        runner = options.view_as(StandardOptions).runner or ""
        self._on_flink = follow.engine == "flink" or runner.endswith("FlinkRunner")
        # Only a JobManager is believed that lists a job of this name after the submission, and not before.
        self._others = flink.jobs_at(options, follow.flink_page) if self._on_flink else {}
        self._job = RemoteJob(self._name, "", "")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def submitted(self, id_: str) -> None:
        """Announces a job that a job service has accepted, by the id that it gave the job."""
        self._set(RemoteJob(self._name, self._service, id_))
        self.say(f"{self._job} was submitted")
        if self._on_flink and not self._others:
            self.say(f"{_UNKNOWN} to see stages and counters, and to cancel the job with Ctrl-C")

    def _set(self, job: RemoteJob) -> None:
        self._job = job
        if self._follow.note and (job.flink or job.service):
            self._follow.note(job)

    def begin(self) -> None:
        """Follows the job until `stop`."""
        self._thread.start()

    def say(self, line: str) -> None:
        """Prints a line."""
        print(line, file=self._stream, flush=True)

    def _run(self) -> None:
        began = time.monotonic()
        lines, due = Lines(began), began + _LINE_SECONDS
        try:
            while not self._ended.wait(_POLL_SECONDS):
                self._locate()
                if (now := time.monotonic()) >= due:
                    due = now + _LINE_SECONDS
                    self.say(self._line(lines, now))
        except Exception as error:  # Whatever it is, the job runs, and the command waits for it.
            self.say(f"the job cannot be followed ({type(error).__name__}: {error})")

    def _line(self, lines: Lines, now: float) -> str:
        seen, silence = Seen(), ""
        try:
            seen = self._job.flink.look() if self._job.flink else seen
        except NoAnswer as error:
            silence = f"; {error}"
        return lines.line(now, seen, self._follow.shards()) + silence

    def locate(self) -> None:
        """Waits until Flink lists the job, if Flink's address is known."""
        deadline = time.monotonic() + _SECONDS_TO_LIST
        while not self._locate() and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)

    def _locate(self) -> bool:
        """Whether there is nothing left to find; announces the job's page when it is found."""
        if self._job.flink or not self._others:
            return True
        with contextlib.suppress(NoAnswer):
            if found := flink.find(self._name, self._others):
                self._set(self._job._replace(flink=found))
                self.say(f"Flink runs {self._job}: {found.page}")
        return self._job.flink is not None

    def cancel(self, result: Any) -> str:
        """Cancels the job after Ctrl-C; returns the line that says what became of it.

        Args:
            result: The `PipelineResult` of a portable runner.
        """
        self.stop()
        reason = ""
        try:
            if state := self._cancelled_on_flink() if self._on_flink else _cancelled(result):
                done = state in ("FINISHED", PipelineState.DONE)
                again = "run the same command again: it keeps the shards that are done"
                rest = "the dataset is complete" if done else f"no dataset was written; {again}"
                return f"interrupted; {self._job} ended as {state}; {rest}"
            reason = f": it has not ended in {_SECONDS_TO_CANCEL:.0f} s"
        except NoAnswer as error:
            reason = f": {error}"
        except KeyboardInterrupt:  # A second one ends the wait for the engine.
            pass
        line = f"interrupted; {self._job} may continue{reason}"
        job = self._job.flink
        return f"{line}; {job.page}; cancel it with `{job.cancel_command}`" if job else line

    def _cancelled_on_flink(self) -> str:
        """The state in which the job has ended; empty if it runs after a minute."""
        self.locate()
        if not self._job.flink:
            # The job service would report the job as cancelled, and let it run.
            raise NoAnswer(
                f"Beam's job service cancels no jobs on Flink, and {_UNKNOWN} next time, and cancel this "
                "one on the cluster with `flink cancel`"
            )
        self._job.flink.cancel()
        return self._job.flink.ends_within(_SECONDS_TO_CANCEL)

    def stop(self) -> None:
        """Prints no more lines."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(_LINE_SECONDS)


def _cancelled(result: Any) -> str:
    """The state in which a job has ended that its job service was asked to cancel; empty if it runs."""
    deadline = time.monotonic() + _SECONDS_TO_CANCEL
    try:
        result.cancel()
        while not PipelineState.is_terminal(state := result.state):
            if time.monotonic() >= deadline:
                return ""
            time.sleep(_POLL_SECONDS)
    except grpc.RpcError as error:
        raise NoAnswer(f"its job service does not answer ({error.details()})") from None
    return str(state)
