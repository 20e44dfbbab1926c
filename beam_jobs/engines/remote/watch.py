"""Follows a job on an engine: says where it is, prints a line every ten seconds, and cancels it."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TextIO

from apache_beam.options.pipeline_options import (
    GoogleCloudOptions,
    PipelineOptions,
    PortableOptions,
)

from beam_jobs.engines.remote import job_service
from beam_jobs.engines.remote.job import TITLES, NoAnswer, RemoteJob, Seen
from beam_jobs.engines.remote.lines import Lines, Shards, troubles
from beam_jobs.engines.remote.look import (
    addresses,
    cancel,
    engine_of,
    known_ids,
    located,
    look,
    name_of,
    page_of,
)
from beam_jobs.engines.traces import root_cause

_LINE_SECONDS = 10.0

# How long an engine takes at most to list a job that its job service has accepted, and how long a
# command with `--detach` waits for an engine that has not answered so far.
_SECONDS_TO_LIST = 20.0
_SECONDS_TO_APPEAR = 3.0

_POLL_SECONDS = 1.0

# Flink renews its answers every 3 seconds.
_SECONDS_TO_END = 10.0


@dataclass(frozen=True)
class Follow:
    """How a command follows a job.

    Attributes:
        engine: The value of `--engine`.
        address: The value of `--engine_page`.
        detach: Whether the command ends once the engine has the job.
        status: The command that follows the job again.
        shards: Counts the noted shards of the output.
        note: Keeps what finds the job again; None forgets it.
    """

    engine: str
    address: str
    detach: bool
    status: str
    shards: Callable[[], Shards]
    note: Callable[[RemoteJob | None], None]


class Watch:
    """Follows one job in a thread of its own.

    Args:
        follow: How.
        options: Beam's options of the job that will be submitted.
        stream: Where lines are printed.
    """

    def __init__(self, follow: Follow, options: PipelineOptions, stream: TextIO) -> None:
        self._follow, self._options, self._stream = follow, options, stream
        self._engine = engine_of(options, follow.engine)
        found = addresses(self._engine, options, follow.address)
        listed = {address: known_ids(self._engine, address) for address in found}
        self._answers = any(ids is not None for ids in listed.values())
        self._known = {address: ids or set() for address, ids in listed.items()}
        self._lines = Lines(self._engine)
        self._job: RemoteJob | None = None
        self._result: Any = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def detaches(self) -> bool:
        """Whether the command does not wait for the job."""
        return self._follow.detach

    def submitted(self, result: Any) -> None:
        """Announces a job that a portable runner of Beam has submitted, and follows it.

        Args:
            result: The runner's `PipelineResult`.

        Raises:
            RuntimeError: The job ended at once, though the command does not wait for it.
        """
        self._result = result
        job = RemoteJob(
            engine=self._engine,
            name=self._options.view_as(GoogleCloudOptions).job_name or "",
            service=self._options.view_as(PortableOptions).job_endpoint or "",
            service_id=result._job_id,
            submitted=time.time(),
        )
        self._print(f"{name_of(job)} was submitted to {job.title}")
        self.begin(job)

    def begin(self, job: RemoteJob) -> None:
        """Follows a job that was submitted, or hands back with `--detach`."""
        self._job = job
        self._follow.note(job)
        if not self.detaches:
            self._thread.start()
            return
        seconds = _SECONDS_TO_LIST if self._answers else _SECONDS_TO_APPEAR
        self._locate_until(time.monotonic() + seconds)
        with contextlib.suppress(NoAnswer):
            if self._look().state in ("failed", "cancelled"):
                raise RuntimeError("the job ended at once")
        self._print(
            f"not waiting for it; follow it with `{self._follow.status}`, cancel it with "
            f"`{self._follow.status} --cancel`"
        )

    def _print(self, line: str) -> None:
        print(line, file=self._stream, flush=True)

    def _run(self) -> None:
        began = time.monotonic()
        due, advised = began + _LINE_SECONDS, False
        try:
            while not self._ended.wait(_POLL_SECONDS):
                now = time.monotonic()
                # Each second at first, because the address is wanted at once.
                if not advised or now >= due:
                    found = self._locate()
                    if not (found or advised) and now >= began + _SECONDS_TO_LIST:
                        advised = True
                        self._print(self._advice())
                if now >= due:
                    due = now + _LINE_SECONDS
                    self._print(self._line())
        except Exception as error:  # Whatever it is, the job runs, and the command waits for it.
            self._print(f"the job cannot be followed ({type(error).__name__}: {error})")

    def _advice(self) -> str:
        """What to type to see more of a job that no engine lists."""
        where = " or ".join(self._known)
        return (
            f"{where} does not list the job: --engine_page names the address of "
            f"{TITLES[self._engine]}'s page, which shows stages and counters"
        )

    def _line(self) -> str:
        silence = ""
        try:
            seen = self._look()
        except NoAnswer as error:
            seen, silence = Seen("running"), f"; {error}"
        return self._lines.line(time.monotonic(), seen, self._follow.shards()) + silence

    def _look(self) -> Seen:
        job = self._job
        if not job:
            raise NoAnswer("nothing was submitted")
        if self._result and not job.service and not (job.id and job.engine == "flink"):
            # Beam has started the job service for this command, and only the result knows where.
            return job_service.seen_by_own(self._result._job_service, job.service_id)
        return look(job, self._options)

    def _locate_until(self, deadline: float) -> None:
        while not self._locate() and time.monotonic() < deadline:
            with contextlib.suppress(NoAnswer):
                if not self._look().is_active:
                    return
            time.sleep(_POLL_SECONDS)

    def _locate(self) -> bool:
        """Whether there is nothing left to find; announces the engine's own id when it is found."""
        job = self._job
        if not job or job.id or not self._known:
            return True
        found = located(job, self._known)
        if not found.id:
            return False
        self._job = found
        self._follow.note(found)
        self._print(f"{found.title} runs {name_of(found)}: {page_of(found)}")
        return True

    def wait_for_end(self) -> Seen:
        """Waits until the engine's page, which is some seconds old, says that the job has ended.

        Returns:
            What the engine said last; after ten seconds, that may be that the job runs.

        Raises:
            NoAnswer: Neither the engine nor its job service says anything.
        """
        deadline = time.monotonic() + _SECONDS_TO_END
        while (seen := self._look()).is_active and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return seen

    def end(self) -> None:
        """Stops following a job that has ended well."""
        self.stop()
        self._follow.note(None)

    def failure(self) -> tuple[str, str]:
        """The trace of a job that failed, and its cause in one line; empty if the engine says nothing.

        Dataflow has reported the failure already, and answers late if the network is the reason.
        """
        self.stop()
        try:
            seen = Seen("running") if self._engine == "dataflow" else self.wait_for_end()
        except NoAnswer:
            return "", ""
        if seen.is_active:
            return "", ""
        self._follow.note(None)
        lost = troubles(self._engine, dataclasses.replace(seen, trace=""))
        return seen.trace, "; ".join(filter(None, [*lost, root_cause(seen.trace)]))

    def cancel(self) -> str:
        """Cancels the job after Ctrl-C; returns the line that says whether it stopped."""
        self.stop()
        if not self._job:
            return ""
        self._locate()
        state, text = "running", f"{name_of(self._job)} may continue"
        with contextlib.suppress(KeyboardInterrupt):  # A second one ends the wait for the engine.
            state, text = cancel(self._job, self._options)
        if state == "cancelled":
            rest = "no dataset was written; the same command again keeps the shards that are done"
        else:
            rest = f"follow it with `{self._follow.status}`"
        return f"interrupted; {text}; {rest}"

    def stop(self) -> None:
        """Prints no more lines."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(_LINE_SECONDS)
