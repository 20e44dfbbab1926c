"""A job on Spark, by the REST interface of the page of its driver, which is Beam's job server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from beam_jobs.engines.remote.counters import counters_in
from beam_jobs.engines.remote.job import NoAnswer, Seen
from beam_jobs.engines.remote.rest import ask

_API = "/api/v1/applications"

# Where Beam's runner keeps all metrics of a job.
_METRICS = "Beam.Metrics"


def job_ids(address: str) -> set[str]:
    """The ids of the applications of a driver.

    Raises:
        NoAnswer: No driver answers there.
    """
    answer = ask(address, _API)
    if not isinstance(answer, list):
        raise NoAnswer(f"{address} is not the address of the page of Spark's driver")
    return {each["id"] for each in answer}


def find(address: str, name: str, since: float, known: Set[str]) -> str:
    """The id of an application that is none of the known ones; empty if there is none.

    A job server has one application at a time, and Beam calls all of them the same, whatever the job.

    Raises:
        NoAnswer: No driver answers there.
    """
    return max(job_ids(address) - known, default="")


def page(address: str, id_: str) -> str:
    """The address of the page of an application."""
    return f"{address}/jobs/"


def look(address: str, id_: str) -> Seen:
    """What Spark says about a job, which runs as long as its driver's page exists.

    Raises:
        NoAnswer: The driver does not answer, or does not know the application.
    """
    application = f"{_API}/{id_}"
    return seen_in(ask(address, f"{application}/stages"), ask(address, f"{application}/executors"))


def seen_in(stages: Sequence[Mapping[str, Any]], executors: Sequence[Mapping[str, Any]]) -> Seen:
    """What the answers to two requests say.

    Spark learns of stages one after another, so the number of all of them is unknown.

    Args:
        stages: The answer to /applications/<id>/stages.
        executors: That to /applications/<id>/executors.
    """
    counters: dict[str, int] = {}
    for stage in stages:
        for each in stage.get("accumulatorUpdates", ()):
            if each["name"] == _METRICS:
                for name, value in counters_in(each["value"]).items():
                    counters[name] = max(value, counters.get(name, 0))
    return Seen(
        state="running",
        stages_done=sum(stage["status"] == "COMPLETE" for stage in stages),
        counters=counters,
        workers=sum(each["id"] != "driver" and each["isActive"] for each in executors),
    )
