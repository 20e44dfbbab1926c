"""The lines about a job on an engine: what it does, how fast, what is left, and what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from beam_jobs.engines.remote.job import Seen
from beam_jobs.engines.traces import root_cause
from beam_jobs.errors import job_error_in
from beam_jobs.progress import progress_line, time_left
from readers.format.display import counted, format_bytes

# How a machine of an engine is called.
_WORKERS = {"flink": "TaskManager", "spark": "executor"}

# A job whose bundles take longer is rare: a task is a few chunks of files, or one shard.
_STALLED_SECONDS = 300


class Shards(NamedTuple):
    """The shards of an output whose notes exist, and how many their names say there will be."""

    done: int = 0
    planned: int = 0


class Phase(NamedTuple):
    """What a job does, and how much of that is done.

    Attributes:
        name: Its name; empty before anything is counted.
        done: What is finished.
        total: What there is to do; 0 if that is unknown.
        unit: The unit of both.
    """

    name: str = ""
    done: int = 0
    total: int = 0
    unit: str = "records"


def phase_of(counters: Mapping[str, int], shards: Shards) -> Phase:
    """The last phase of a job that has counted something."""
    count = counters.get
    inputs = count("parts/found", 0) or count("files/found", 0)
    written = count("shards/records", 0) + count("shards/rejected", 0)
    phases = (
        Phase("writing", written, inputs),
        Phase("writing", shards.done, shards.planned, "shards"),
        Phase("encoding", count("parts/encoded", 0), count("parts/found", 0)),
        Phase("reading", count("parts/found", 0)),
        Phase("planning", count("files/planned", 0), count("files/found", 0), "files"),
        Phase("listing", count("files/found", 0), unit="files"),
        Phase("listing", count("files/chunks", 0), unit="pieces of files"),
    )
    return next((phase for phase in phases if phase.done), Phase())


def troubles(engine: str, seen: Seen) -> list[str]:
    """What is wrong with a job that has not ended: nothing answers, or it started again."""
    found = []
    if seen.workers == 0:
        found.append(f"no {_WORKERS.get(engine, 'worker')} answers")
    if seen.trace:
        error = job_error_in(seen.trace)
        found.append(f"it starts again after: {error or root_cause(seen.trace)}")
    return found


class Lines:
    """Makes a line of what is seen of a job each time that it is looked at.

    Args:
        engine: The engine that runs the job.
    """

    def __init__(self, engine: str) -> None:
        self._engine = engine
        # (phase, unit) -> when it was first seen, and what was done then.
        self._first: dict[tuple[str, str], tuple[float, int]] = {}
        self._seen: tuple[object, ...] = ()
        self._moved = 0.0
        self._shards = Shards()

    def line(self, seconds: float, seen: Seen, shards: Shards) -> str:
        """The line about a job.

        Args:
            seconds: The time, on any clock.
            seen: What the engine says.
            shards: The shards that are noted in the output.
        """
        # A shard that changes once more has no note for a moment.
        self._shards = shards = max(self._shards, shards)
        parts = [self._phase(seconds, seen, shards)]
        if seen.stages:
            parts.append(f"{seen.stages_done:,} of {seen.stages:,} stages")
        elif seen.stages_done:
            parts.append(f"{counted(seen.stages_done, 'stage')} done")
        if shards.planned:
            parts.append(f"{shards.done:,} of {counted(shards.planned, 'shard')}")
        if written := seen.counters.get("shards/bytes", 0):
            parts.append(f"{format_bytes(written)} written")
        elif size := seen.counters.get("files/bytes", 0):
            parts.append(f"{format_bytes(size)} of inputs")
        return "; ".join(
            [*parts, *troubles(self._engine, seen), *self._stall(seconds, seen, shards)]
        )

    def _phase(self, seconds: float, seen: Seen, shards: Shards) -> str:
        phase = phase_of(seen.counters, shards)
        if not phase.name:
            return seen.state
        began, before = self._first.setdefault((phase.name, phase.unit), (seconds, phase.done))
        rate = max(phase.done - before, 0) / max(seconds - began, 1e-3)
        if phase.unit == "shards":
            left = rate and time_left(phase.total - phase.done, rate)
            return phase.name + (f": {left}" if left else "")
        return progress_line(phase.name, phase.done, phase.total, phase.unit, rate)

    def _stall(self, seconds: float, seen: Seen, shards: Shards) -> list[str]:
        found = (seen.state, seen.stages_done, dict(seen.counters), shards)
        if found != self._seen:
            self._seen, self._moved = found, seconds
        idle = seconds - self._moved
        if idle < _STALLED_SECONDS:
            return []
        return [f"no counter moved for {idle // 60:.0f} minutes (docs/engines.md#what-is-going-on)"]
