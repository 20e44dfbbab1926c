"""A job on Flink, by the REST interface of its JobManager."""

from __future__ import annotations

import time
from collections.abc import Mapping, Set
from typing import Any

from beam_jobs.engines.remote.counters import counters_in
from beam_jobs.engines.remote.job import NoAnswer, Seen, State
from beam_jobs.engines.remote.rest import ask

_STATES: Mapping[str, State] = {
    "INITIALIZING": "starting",
    "CREATED": "starting",
    "FINISHED": "done",
    "FAILED": "failed",
    "CANCELED": "cancelled",
}

# States in which the engine knows of a failure.
_FAILED = ("FAILED", "FAILING", "RESTARTING")

# Where Beam's runner keeps all metrics of a job.
_METRICS = "__metricscontainers"

_POLL_SECONDS = 0.5

# How much the clocks of two machines may differ.
_CLOCK_SECONDS = 120


def job_ids(address: str) -> set[str]:
    """The ids of all jobs of a cluster.

    Raises:
        NoAnswer: No JobManager answers there.
    """
    return {job["jid"] for job in _jobs(address)}


def find(address: str, name: str, since: float, known: Set[str]) -> str:
    """The id of the latest job with a name, except known ones; empty if there is no such job.

    Args:
        address: The JobManager's.
        name: The job's name.
        since: When it was submitted, in seconds since 1970.
        known: Ids of other jobs.

    Raises:
        NoAnswer: No JobManager answers there.
    """
    earliest = 1000 * (since - _CLOCK_SECONDS)
    found = [
        job
        for job in _jobs(address)
        if job["name"] == name and job["jid"] not in known and job["start-time"] >= earliest
    ]
    return str(max(found, key=lambda job: job["start-time"])["jid"]) if found else ""


def _jobs(address: str) -> list[dict[str, Any]]:
    answer = ask(address, "/jobs/overview")
    if not isinstance(answer, dict) or "jobs" not in answer:
        raise NoAnswer(f"{address} is not the address of Flink's JobManager")
    return list(answer["jobs"])


def page(address: str, id_: str) -> str:
    """The address of a job's page."""
    return f"{address}/#/job/running/{id_}/overview"


def look(address: str, id_: str) -> Seen:
    """What Flink says about a job.

    Raises:
        NoAnswer: The JobManager does not answer, or does not know the job.
    """
    job = ask(address, f"/jobs/{id_}")
    failed = job["state"] in _FAILED
    return seen_in(
        job,
        ask(address, f"/jobs/{id_}/accumulators"),
        ask(address, "/taskmanagers"),
        ask(address, f"/jobs/{id_}/exceptions") if failed else {},
    )


def seen_in(
    job: Mapping[str, Any],
    accumulators: Mapping[str, Any],
    managers: Mapping[str, Any],
    exceptions: Mapping[str, Any],
) -> Seen:
    """What the answers to four requests say.

    Args:
        job: The answer to /jobs/<id>.
        accumulators: That to /jobs/<id>/accumulators.
        managers: That to /taskmanagers.
        exceptions: That to /jobs/<id>/exceptions; empty for a job without a failure.
    """
    stages = job.get("vertices", ())
    texts = [
        each["value"]
        for each in accumulators.get("user-task-accumulators", ())
        if each["name"] == _METRICS
    ]
    history = exceptions.get("exceptionHistory", {}).get("entries", ())
    return Seen(
        state=_STATES.get(job["state"], "running"),
        stages_done=sum(stage["status"] == "FINISHED" for stage in stages),
        stages=len(stages),
        counters=counters_in(texts[0]) if texts else {},
        workers=len(managers.get("taskmanagers", ())),
        trace=history[0]["stacktrace"] if history else exceptions.get("root-exception") or "",
    )


def cancel(address: str, id_: str, seconds: float) -> State:
    """Cancels a job; returns its state when it has ended, or when the seconds are over.

    Raises:
        NoAnswer: The JobManager does not answer, or refuses.
    """
    state = _state(address, id_)
    if state in ("starting", "running"):
        ask(address, f"/jobs/{id_}?mode=cancel", "PATCH")
    deadline = time.monotonic() + seconds
    while state in ("starting", "running") and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        state = _state(address, id_)
    return state


def _state(address: str, id_: str) -> State:
    return _STATES.get(ask(address, f"/jobs/{id_}")["state"], "running")


def cancel_command(address: str, id_: str) -> str:
    """The command that cancels a job."""
    return f"curl -X PATCH '{address}/jobs/{id_}?mode=cancel'"
