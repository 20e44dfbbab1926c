"""A job behind a job service: the note that finds it again, and whether it runs."""

from __future__ import annotations

import json
from typing import NamedTuple

import grpc
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

from beam_jobs.engines.remote.flink import FlinkJob, NoAnswer

_SECONDS_TO_ANSWER = 10

# Flink's answers are up to 3 s old.
_SECONDS_TO_END = 5.0

_ENDED = ("DONE", "FAILED", "CANCELLED", "DRAINED")


class RemoteJob(NamedTuple):
    """What finds a job again, also after the command that submitted it has ended.

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
        """The job in a note; None if it is no such note."""
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
        """Whether the engine says that the job has not ended.

        Raises:
            NoAnswer: The engine says nothing.
        """
        if self.flink:
            return not self.flink.ends_within(_SECONDS_TO_END)
        request = beam_job_api_pb2.GetJobStateRequest(job_id=self.id)
        try:
            with grpc.insecure_channel(self.service) as channel:
                stub = beam_job_api_pb2_grpc.JobServiceStub(channel)
                state = stub.GetState(request, timeout=_SECONDS_TO_ANSWER).state
        except grpc.RpcError as error:
            raise NoAnswer(f"{self.service} does not answer ({error.details()})") from None
        return beam_job_api_pb2.JobState.Enum.Name(state) not in _ENDED
