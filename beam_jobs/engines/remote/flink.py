"""Flink's REST interface: where a job runs, what it has counted, and how it is cancelled."""

from __future__ import annotations

import base64
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Set
from typing import Any, NamedTuple

from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    PipelineOptions,
    PortableOptions,
)

_PORT = 8081

_SECONDS_TO_ANSWER = 5
_POLL_SECONDS = 0.5

# Where Beam's runner keeps all metrics of a job, and the URN of a counter among them.
_METRICS = "__metricscontainers"
_COUNTER = "beam:metric:user:sum_int64:v1"

_ENDED = ("FINISHED", "CANCELED", "FAILED")


class NoAnswer(Exception):
    """An engine says nothing about a job; the message says why."""


class Seen(NamedTuple):
    """What Flink says about a job at one moment.

    Attributes:
        stages_done: The number of its stages that have ended.
        stages: The number of all its stages; 0 if that is unknown.
        counters: Name -> value of the job's own counters, such as "shards/records".
    """

    stages_done: int = 0
    stages: int = 0
    counters: Mapping[str, int] = {}


class FlinkJob(NamedTuple):
    """A job on Flink.

    Attributes:
        address: That of the JobManager, such as http://host:8081.
        id: The id that Flink gave the job.
    """

    address: str
    id: str

    @property
    def page(self) -> str:
        """The address of the job's page."""
        return f"{self.address}/#/job/running/{self.id}/overview"

    @property
    def cancel_command(self) -> str:
        """The command that cancels the job."""
        return f"curl -X PATCH '{self.address}/jobs/{self.id}?mode=cancel'"

    def look(self) -> Seen:
        """What Flink says about the job.

        Raises:
            NoAnswer: The JobManager does not answer, or does not know the job.
        """
        stages = _ask(self.address, f"/jobs/{self.id}")["vertices"]
        done = sum(stage["status"] == "FINISHED" for stage in stages)
        counters = counters_in(_ask(self.address, f"/jobs/{self.id}/accumulators"))
        return Seen(done, len(stages), counters)

    def cancel(self) -> None:
        """Asks Flink to cancel the job.

        Raises:
            NoAnswer: The JobManager does not answer, or does not know the job.
        """
        if not self.ends_within(0):
            _ask(self.address, f"/jobs/{self.id}?mode=cancel", "PATCH")

    def ends_within(self, seconds: float) -> str:
        """The state in which the job has ended, in Flink's words; empty if it runs after the seconds.

        Raises:
            NoAnswer: The JobManager does not answer, or does not know the job.
        """
        deadline = time.monotonic() + seconds
        while (state := _ask(self.address, f"/jobs/{self.id}")["state"]) not in _ENDED:
            if time.monotonic() >= deadline:
                return ""
            time.sleep(_POLL_SECONDS)
        return str(state)


def jobs_at(options: PipelineOptions, given: str) -> dict[str, set[str]]:
    """Addresses of JobManagers that answer -> the ids of all their jobs.

    Args:
        options: Beam's options: tells `--flink_master`, and the machine of the job service.
        given: The address that the user gave; if it is empty, those two are tried.
    """
    service = options.view_as(PortableOptions).job_endpoint or "localhost"
    master = options.view_as(FlinkRunnerOptions).flink_master
    likely = [f"{service.rpartition(':')[0] or service}:{_PORT}"]
    likely += [] if master.startswith("[") else [master]
    found = {}
    for typed in [given] if given else likely:
        address = typed.strip().rstrip("/")
        address = address if "://" in address else f"http://{address}"
        try:
            found[address] = {job["jid"] for job in _jobs(address)}
        except NoAnswer:
            continue
    return found


def find(name: str, others: Mapping[str, Set[str]]) -> FlinkJob | None:
    """The only job with a name that is not one of the others; None without one.

    Args:
        name: The job's name.
        others: Address -> the ids of other jobs there.

    Raises:
        NoAnswer: A JobManager does not answer.
    """
    found = [
        FlinkJob(address, job["jid"])
        for address, ids in others.items()
        for job in _jobs(address)
        if job["name"] == name and job["jid"] not in ids
    ]
    return found[0] if len(found) == 1 else None


def _jobs(address: str) -> list[dict[str, Any]]:
    answer = _ask(address, "/jobs/overview")
    if not isinstance(answer, dict) or "jobs" not in answer:
        raise NoAnswer(f"{address} is not the address of Flink's JobManager")
    return list(answer["jobs"])


def counters_in(accumulators: Mapping[str, Any]) -> dict[str, int]:
    """The job's own counters in the answer to /jobs/<id>/accumulators.

    Returns:
        "namespace/name" -> the sum over all steps; nothing for an answer of another form.
    """
    found: dict[str, int] = {}
    try:
        for accumulator in accumulators["user-task-accumulators"]:
            if accumulator["name"] != _METRICS:
                continue
            for info in json.loads(accumulator["value"])["metrics"]["attempted"]:
                if info["urn"] == _COUNTER:
                    name = f"{info['labels']['NAMESPACE']}/{info['labels']['NAME']}"
                    found[name] = found.get(name, 0) + _varint(base64.b64decode(info["payload"]))
    except (ValueError, KeyError, TypeError):
        return {}
    return found


def _varint(data: bytes) -> int:
    """The number in Beam's encoding: seven bits a byte, the lowest first."""
    return sum((byte & 0x7F) << (7 * place) for place, byte in enumerate(data))


def _ask(address: str, path: str, method: str = "GET") -> Any:
    """The JSON that Flink answers; None if the answer is empty.

    Raises:
        NoAnswer: Nothing answers there, or something else than JSON.
    """
    try:
        request = urllib.request.Request(address + path, method=method)
        with urllib.request.urlopen(request, timeout=_SECONDS_TO_ANSWER) as answer:
            data = answer.read()
            return json.loads(data) if data else None
    except urllib.error.URLError as error:
        raise NoAnswer(f"{address} does not answer ({error.reason})") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise NoAnswer(f"{address} does not answer ({error})") from None
