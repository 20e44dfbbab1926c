"""A job on Spark, by the REST interface of the page of its driver, which is Beam's job server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from beam_jobs.engines.remote.job import NoAnswer, Seen
from beam_jobs.engines.remote.rest import ask

_API = "/api/v1/applications"


def job_ids(address: str) -> set[str]:
    """The ids of the applications of a driver.

    Raises:
        NoAnswer: No driver answers there.
    """
    return {each["id"] for each in _applications(address)}


def _applications(address: str) -> list[dict[str, Any]]:
    answer = ask(address, _API)
    if not isinstance(answer, list):
        raise NoAnswer(f"{address} is not the address of the page of Spark's driver")
    return answer


def find(address: str, name: str, since: float, known: Set[str]) -> str:
    """The id of the application of a job; empty if the driver has no such application.

    Args:
        address: That of the page of the driver, which has one application at a time.
        name: The job's name; Beam adds an id of its own.
        since: When it was submitted; not needed.
        known: Ids of other applications.

    Raises:
        NoAnswer: No driver answers there.
    """
    found = [each["id"] for each in _applications(address) if each["name"].startswith(name)]
    return max(set(found) - known, default="")


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

    Spark learns of stages one after another, so the number of all of them is unknown. Beam's counters are
    left out: its runner shows those of some stages of the first job of a job server, and then none.

    Args:
        stages: The answer to /applications/<id>/stages.
        executors: That to /applications/<id>/executors.
    """
    return Seen(
        state="running",
        stages_done=sum(stage["status"] == "COMPLETE" for stage in stages),
        workers=sum(each["id"] != "driver" and each["isActive"] for each in executors),
    )
