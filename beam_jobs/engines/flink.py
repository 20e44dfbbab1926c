"""Jobs on Flink, through its REST interface, and the note with which a job on any engine is found again."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from typing import Any, NamedTuple

import grpc
from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    PipelineOptions,
    PortableOptions,
)
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

_PORT = 8081

_SECONDS_TO_ANSWER = 5
_POLL_SECONDS = 0.5

# Flink's answers are up to 3 s old.
SECONDS_TO_END = 5.0

# In the words of Flink, and of a job service.
_ENDED = ("FINISHED", "CANCELED", "FAILED", "DONE", "CANCELLED", "DRAINED")


class NoAnswer(Exception):
    """An engine gives no answer about a job; the message gives the reason."""


class FlinkJob(NamedTuple):
    """A job on Flink.

    Attributes:
        address: The JobManager's address, such as http://host:8081.
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

    def cancel(self) -> None:
        """Asks Flink to cancel the job.

        Raises:
            NoAnswer: The JobManager does not answer, or does not know the job.
        """
        if not self.ends_within(0):
            _ask(self.address, f"/jobs/{self.id}?mode=cancel", "PATCH")

    def ends_within(self, seconds: float) -> str:
        """The state in which the job ended, in Flink's words; empty if it still runs after the seconds.

        Raises:
            NoAnswer: The JobManager does not answer, or does not know the job.
        """
        deadline = time.monotonic() + seconds
        while (state := _ask(self.address, f"/jobs/{self.id}")["state"]) not in _ENDED:
            if time.monotonic() >= deadline:
                return ""
            time.sleep(_POLL_SECONDS)
        return str(state)


class RemoteJob(NamedTuple):
    """A note with which a job is found again, even after the command that submitted it has ended.

    Attributes:
        name: The job's name.
        service: host:port of the job service; empty if the service ends with the command.
        id: The id that the job service gave the job.
        flink: The (address, id) of the job on Flink, if they are known.
    """

    name: str
    service: str
    id: str
    flink: FlinkJob | None = None

    @classmethod
    def parse(cls, data: bytes) -> RemoteJob | None:
        """The job in a note; None if the note is not valid."""
        try:
            name, service, id_, flink = json.loads(data)
            return cls(str(name), str(service), str(id_), flink and FlinkJob(*map(str, flink)))
        except (ValueError, TypeError, RecursionError):
            return None

    def to_bytes(self) -> bytes:
        """The note from which `parse` makes the job."""
        return json.dumps(self).encode()

    def __str__(self) -> str:
        return f"the job {self.name} ({self.flink.id if self.flink else self.id})"

    def runs(self) -> bool:
        """Whether the job still runs, as its engine reports.

        Raises:
            NoAnswer: The engine gives no answer.
        """
        if self.flink:
            return not self.flink.ends_within(SECONDS_TO_END)
        request = beam_job_api_pb2.GetJobStateRequest(job_id=self.id)
        try:
            with grpc.insecure_channel(self.service) as channel:
                stub = beam_job_api_pb2_grpc.JobServiceStub(channel)
                state = stub.GetState(request, timeout=_SECONDS_TO_ANSWER).state
        except grpc.RpcError as error:
            raise NoAnswer(f"{self.service} does not answer ({error.details()})") from None
        return beam_job_api_pb2.JobState.Enum.Name(state) not in _ENDED


def addresses(options: PipelineOptions, page: str) -> list[str]:
    """Addresses at which a JobManager may answer.

    Args:
        options: Beam's options, with `--flink_master` and the machine of the job service.
        page: The address that the user gave; if it is empty, those two are tried.
    """
    service = options.view_as(PortableOptions).job_endpoint or "localhost"
    master = options.view_as(FlinkRunnerOptions).flink_master
    likely = [f"{service.rpartition(':')[0] or service}:{_PORT}"]
    likely += [] if master.startswith("[") else [master]
    stripped = (typed.strip().rstrip("/") for typed in ([page] if page else likely))
    return [typed if "://" in typed else f"http://{typed}" for typed in stripped]


def jobs_at(address: str, name: str) -> dict[FlinkJob, bool]:
    """The jobs with a name that a JobManager lists -> whether each one runs.

    Raises:
        NoAnswer: Nothing answers there, or no JobManager.
    """
    answer = _ask(address, "/jobs/overview")
    if not isinstance(answer, dict) or "jobs" not in answer:
        raise NoAnswer(f"{address} is not the address of Flink's JobManager")
    return {
        FlinkJob(address, job["jid"]): job["state"] not in _ENDED
        for job in answer["jobs"]
        if job["name"] == name
    }


def _ask(address: str, path: str, method: str = "GET") -> Any:
    """The JSON that Flink answers; None if the answer is empty.

    Raises:
        NoAnswer: Nothing answers there, or the answer is not JSON.
    """
    try:
        request = urllib.request.Request(address + path, method=method)
        with urllib.request.urlopen(request, timeout=_SECONDS_TO_ANSWER) as answer:
            data = answer.read()
            return json.loads(data) if data else None
    except urllib.error.HTTPError as error:
        raise NoAnswer(f"Flink at {address} answers {error.code} ({error.reason})") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        reason = getattr(cause, "strerror", None) or cause
        raise NoAnswer(f"Flink does not answer at {address} ({reason})") from None
