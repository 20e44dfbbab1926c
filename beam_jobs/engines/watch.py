"""Follows a job on an engine: prints its address and a line of progress every ten seconds, and cancels it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TextIO

from apache_beam.options.pipeline_options import (
    GoogleCloudOptions,
    PipelineOptions,
    PortableOptions,
    StandardOptions,
)
from apache_beam.runners.runner import PipelineState
from grpc import RpcError
from tqdm import tqdm

from beam_jobs.engines import flink
from beam_jobs.engines.flink import FlinkJob, NoAnswer, RemoteJob
from beam_jobs.engines.worker_progress import Phase, progress_in
from beam_jobs.errors import AGAIN, DataError, JobError, UsageError
from beam_jobs.progress import progress_line

_LINE_SECONDS = 10.0
_POLL_SECONDS = 1.0

# The longest that Flink takes to list a job that its job service has accepted, and to stop one.
_SECONDS_TO_LIST = 20.0
_SECONDS_TO_CANCEL = 60.0

_UNKNOWN = "Flink's page is unknown: add --engine_page http://JOBMANAGER:8081"


def phase_line(name: str, phase: Phase, now: float, unchanged: float = 0.0) -> str:
    """The line about a phase.

    Args:
        name: Its name.
        phase: Its progress.
        now: The time in seconds since 1970.
        unchanged: The seconds since its progress last changed: it waits, or the next phase has not begun.
    """
    if not phase.done and not phase.total:
        return name
    total = phase.total if phase.done <= phase.total else 0  # Tasks that are repeated count twice.
    is_going = phase.done != total and not unchanged
    rate = phase.done / max(now - phase.began, 1.0) if is_going else 0.0
    line = progress_line(name, phase.done, total, phase.unit, rate, phase.rejected)
    return line + (f", nothing new for {tqdm.format_interval(unchanged)}" if unchanged else "")


class Watch:
    """Follows one job in a separate thread.

    Args:
        options: Beam's options of the job that will be submitted.
        engine, page: The values of `--engine` and `--engine_page`.
        staging: The folder of the run, where its workers note their progress.
        shards: Returns the number of finished shards, and of all shards (0: unknown).
        note: Keeps the note that finds the job again.
        stream: Where lines are printed.

    Raises:
        UsageError: Flink runs a job of this name, or does not answer at `--engine_page`.
    """

    def __init__(
        self,
        options: PipelineOptions,
        engine: str,
        page: str,
        staging: str,
        shards: Callable[[], tuple[int, int]],
        note: Callable[[RemoteJob], None],
        stream: TextIO,
    ) -> None:
        self.staging, self._shards_written, self._note = staging, shards, note
        self._stream, self._began = stream, time.monotonic()
        self._service = options.view_as(PortableOptions).job_endpoint or ""
        self._name = options.view_as(GoogleCloudOptions).job_name or ""
        runner = options.view_as(StandardOptions).runner or ""
        self._on_flink = engine == "flink" or runner.endswith("FlinkRunner")
        # A JobManager is the right one only if it lists a job of this name after the submission, and not before.
        self._places: list[str] = []
        self._others: set[FlinkJob] = set()
        if self._on_flink:
            self._look_for_others(options, page)
        self._job, self._shards = RemoteJob(self._name, "", ""), (0, 0)
        # The phase and its progress in the last line, and since when.
        self._last, self._since = ("", 0), 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _look_for_others(self, options: PipelineOptions, page: str) -> None:
        for address in flink.addresses(options, page):
            try:
                found = flink.jobs_at(address, self._name)
                # The list is some seconds old.
                running = [
                    job for job in found if found[job] and not job.ends_within(flink.SECONDS_TO_END)
                ]
            except NoAnswer as error:
                if page:
                    raise UsageError(
                        f"--engine_page: {error}; expected the address of a running JobManager"
                    ) from None
                continue
            for job in running:
                raise UsageError(
                    f"Flink already runs the job {self._name} ({job.id}) of an earlier command: {job.page}; "
                    f"wait for it to end, or cancel it with `{job.cancel_command}`, and run the same "
                    "command again. If it writes another output, give this job another --job_name"
                )
            self._places.append(address)
            self._others.update(found)

    def submitted(self, id_: str) -> None:
        """Announces a job that a job service has accepted, by the id that it gave the job."""
        self._set(RemoteJob(self._name, self._service, id_))
        self.say(f"{self._job} was submitted")
        if self._on_flink and not self._places:
            self.say(f"{_UNKNOWN} to find an earlier job, and to cancel this one with Ctrl-C")

    def _set(self, job: RemoteJob) -> None:
        self._job = job
        if job.flink or job.service:
            self._note(job)

    def begin(self) -> None:
        """Follows the job until `stop`."""
        self._thread.start()

    def say(self, line: str) -> None:
        """Prints a line."""
        print(line, file=self._stream, flush=True)

    def _run(self) -> None:
        due = self._began + _LINE_SECONDS
        try:
            while not self._ended.wait(_POLL_SECONDS):
                self._locate()
                if (now := time.monotonic()) >= due:
                    due = now + _LINE_SECONDS
                    self.say("; ".join(filter(None, (self._state(), self._written()))))
        except Exception as error:  # The job runs, and the command waits for it, in any case.
            self.say(f"the job cannot be followed ({type(error).__name__}: {error})")

    def _state(self) -> str:
        """The job's progress, or that its engine does not answer."""
        try:
            if self._job.flink:
                self._job.flink.ends_within(0)
            if latest := progress_in(self.staging):
                now, (name, phase) = time.time(), latest
                if (name, phase.done) != self._last:
                    self._last, self._since = (name, phase.done), now
                return phase_line(name, phase, now, now - self._since)
            if self._since:
                return "finishing"  # A commit deletes the notes.
        except NoAnswer as error:
            return str(error)
        except (OSError, ValueError, TypeError, JobError):  # A store may fail for a moment.
            pass
        return f"running for {tqdm.format_interval(time.monotonic() - self._began)}"

    def _written(self) -> str:
        """How many shards are written; empty if the number of all shards is unknown."""
        # A commit deletes the notes of shards, and a shard that is rewritten is unfinished for a moment.
        self._shards = done, planned = max(self._shards, self._shards_written())
        return f"{done:,} of {planned:,} shards" if planned else ""

    def locate(self) -> None:
        """Waits until Flink lists the job, if Flink's address is known."""
        deadline = time.monotonic() + _SECONDS_TO_LIST
        while not self._locate() and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)

    def _locate(self) -> bool:
        """Whether the search for the job is over; announces the job's page once it is found."""
        if self._job.flink or not self._places:
            return True
        with contextlib.suppress(NoAnswer):
            listed = {job for place in self._places for job in flink.jobs_at(place, self._name)}
            if len(new := listed - self._others) == 1:
                (found,) = new
                self._set(self._job._replace(flink=found))
                self.say(f"Flink runs {self._job}: {found.page}")
        return self._job.flink is not None

    def lost(self, error: BaseException) -> DataError | None:
        """The error of a job whose engine or job service does not answer; None if both do."""
        job, service = self._job, f"the job service at {self._service or 'this machine'}"
        what = (
            f"{service} does not answer ({error.details()})" if isinstance(error, RpcError) else ""
        )
        fate, first = f"{job} may continue", "when it has ended, "
        try:
            if job.flink and job.flink.ends_within(0):
                return None
            if job.flink:
                fate = f"{job} continues: {job.flink.page}"
            elif "java.net.ConnectException" in str(error):
                what = f"the cluster does not answer {service}"
        except NoAnswer as silence:
            what, fate, first = str(silence), f"{job} is lost or unreachable", "start Flink, and "
        written = self._written() or "no shards"
        line = f"{what}: {fate}; {written} are written, and no dataset; {first}{AGAIN}"
        return DataError(line) if what else None

    def cancel(self, result: Any) -> str:
        """Cancels the job after Ctrl-C; returns a line about the outcome.

        Args:
            result: The `PipelineResult` of a portable runner.
        """
        self.stop()
        ask = self._cancelled_on_flink if self._on_flink else partial(_cancelled, result)
        reason = f": it has not ended in {_SECONDS_TO_CANCEL:.0f} s"
        try:
            if state := ask():
                done = state in ("FINISHED", PipelineState.DONE)
                rest = "the dataset is complete" if done else f"no dataset was written; {AGAIN}"
                return f"interrupted; {self._job} ended as {state}; {rest}"
        except NoAnswer as error:
            reason = f": {error}"
        except KeyboardInterrupt:  # A second one ends the wait for the engine.
            reason = ""
        line = f"interrupted; {self._job} may continue{reason}"
        job = self._job.flink
        return f"{line}; {job.page}; cancel it with `{job.cancel_command}`" if job else line

    def _cancelled_on_flink(self) -> str:
        """The state in which the job ended; empty if it still runs after a minute."""
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
    """The state in which a job ended after its job service was asked to cancel it; empty if it still runs."""
    deadline = time.monotonic() + _SECONDS_TO_CANCEL
    try:
        result.cancel()
        while not PipelineState.is_terminal(state := result.state):
            if time.monotonic() >= deadline:
                return ""
            time.sleep(_POLL_SECONDS)
    except RpcError as error:
        raise NoAnswer(f"its job service does not answer ({error.details()})") from None
    return str(state)
