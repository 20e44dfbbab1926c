"""A job by Beam's job service, which Prism has, and the job servers for Flink and Spark."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

import grpc
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

from beam_jobs.engines.remote.counters import COUNTER, summed
from beam_jobs.engines.remote.job import NoAnswer, Seen, State

# A stub of Beam's job service.
Stub = Any

_SECONDS = 10

_POLL_SECONDS = 0.5

# The state before a job runs, and those after which it does not run again; any other is running.
_STATES: Mapping[str, State] = {
    "UNSPECIFIED": "starting",
    "STOPPED": "starting",
    "STARTING": "starting",
    "DONE": "done",
    "DRAINED": "failed",  # The step that commits the dataset has not run.
    "FAILED": "failed",
    "CANCELLED": "cancelled",
}


@contextlib.contextmanager
def _answers(service: str, id_: str) -> Iterator[None]:
    """Reports a service that does not answer during the context.

    Raises:
        NoAnswer: It does not answer, or does not know the job.
    """
    try:
        yield
    except grpc.RpcError as error:
        if error.code() == grpc.StatusCode.NOT_FOUND:
            reason = f"does not know the job {id_}: was it restarted?"
        else:
            reason = f"does not answer ({error.details()})"
        raise NoAnswer(f"the job service {service} {reason}") from None


@contextlib.contextmanager
def _asking(service: str, id_: str) -> Iterator[Stub]:
    """Asks a job service about a job during the context.

    Raises:
        NoAnswer: It does not answer, or does not know the job.
    """
    if not service:
        raise NoAnswer("the job service that Beam started ended with its command")
    with grpc.insecure_channel(service) as channel, _answers(service, id_):
        yield beam_job_api_pb2_grpc.JobServiceStub(channel)


def look(service: str, id_: str) -> Seen:
    """What a job service says about a job. Only Prism's counts while the job runs.

    Raises:
        NoAnswer: The service does not answer, or does not know the job.
    """
    with _asking(service, id_) as stub:
        return _seen(stub, id_)


def seen_by_own(stub: Stub, id_: str) -> Seen:
    """What the job service says about a job that Beam has started for this command.

    Raises:
        NoAnswer: The service does not answer.
    """
    with _answers("that Beam started", id_):
        return _seen(stub, id_)


def _seen(stub: Stub, id_: str) -> Seen:
    state = _state(stub, id_)
    trace = _last_error(stub, id_) if state == "failed" else ""
    return Seen(state, counters=_counters(stub, id_), trace=trace)


def cancel(service: str, id_: str, seconds: float) -> State:
    """Asks a job service to cancel a job; returns the state that it reports within some seconds.

    Raises:
        NoAnswer: The service does not answer, or does not know the job.
    """
    with _asking(service, id_) as stub:
        stub.Cancel(beam_job_api_pb2.CancelJobRequest(job_id=id_), timeout=_SECONDS)
        deadline = time.monotonic() + seconds
        while (state := _state(stub, id_)) == "running" and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return state


def _state(stub: Stub, id_: str) -> State:
    request = beam_job_api_pb2.GetJobStateRequest(job_id=id_)
    state = stub.GetState(request, timeout=_SECONDS).state
    return _STATES.get(beam_job_api_pb2.JobState.Enum.Name(state), "running")


def _counters(stub: Stub, id_: str) -> dict[str, int]:
    with contextlib.suppress(grpc.RpcError):  # A service need not have metrics.
        request = beam_job_api_pb2.GetJobMetricsRequest(job_id=id_)
        metrics = stub.GetJobMetrics(request, timeout=_SECONDS).metrics
        infos = metrics.attempted or metrics.committed
        return summed((info.labels, info.payload) for info in infos if info.urn == COUNTER)
    return {}


def _last_error(stub: Stub, id_: str) -> str:
    """The last error among the messages about a job that has ended."""
    text = ""
    with contextlib.suppress(grpc.RpcError):
        request = beam_job_api_pb2.JobMessagesRequest(job_id=id_)
        for message in stub.GetMessageStream(request, timeout=_SECONDS):
            found = message.message_response
            if found.importance == beam_job_api_pb2.JobMessage.JOB_MESSAGE_ERROR:
                text = found.message_text
    return text
