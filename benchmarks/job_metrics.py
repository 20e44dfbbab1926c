"""What an engine says of a job that has ended: Flink of its stages, Beam of its collections."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import grpc
from apache_beam.coders.coder_impl import create_InputStream
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc, beam_runner_api_pb2

_SIDE_INPUTS = "beam:transform:pardo:v1"
_COUNT, _SIZE = "beam:metric:element_count:v1", "beam:metric:sampled_byte_size:v1"


@dataclass(frozen=True)
class Stage:
    """A stage of a job on Flink.

    Attributes:
        name: What it does.
        grouped: Whether it gets all values of a key at once.
        seconds: From its first task's start to its last one's end.
        read, written: Elements.
        read_bytes, written_bytes: What it got from other tasks and handed to them.
    """

    name: str
    grouped: bool
    seconds: float
    read: int
    written: int
    read_bytes: int
    written_bytes: int


@dataclass(frozen=True)
class Collection:
    """A collection of elements that Beam's workers have made or read.

    Attributes:
        name: The step that makes it.
        elements: How many.
        mean, largest: Bytes of an element, of those that workers have looked at.
        side: The steps that hold all of it at once.
    """

    name: str
    elements: int
    mean: float
    largest: int
    side: tuple[str, ...]

    @property
    def size(self) -> float:
        """Bytes of all elements together, about."""
        return self.elements * self.mean


def stages(vertices: Iterable[dict[str, Any]]) -> list[Stage]:
    """The stages of a job, from what Flink's REST interface says of its vertices."""
    found = []
    for vertex in vertices:
        of = vertex["metrics"]
        found.append(
            Stage(
                _short(vertex["name"]),
                vertex["name"].startswith("GroupReduce"),
                vertex["duration"] / 1000,
                of["read-records"],
                of["write-records"],
                of["read-bytes"],
                of["write-bytes"],
            )
        )
    return found


def _short(name: str) -> str:
    """What a vertex does, without what Flink calls its operators and Beam its wrappers."""
    steps = re.findall(r" at (GroupCombine: )?(?:\[\d+\])?(.*?)\)(?: ->|$)", name)
    steps = [step for step in steps if not step[1].startswith("ExtractOutput")]
    if not steps:
        return "(one output of a stage before)" if "ExtractOutput" in name else name
    combines, what = steps[0]
    what = what.replace("(<lambda at core.py:4094>)", "")
    return f"{what}, on each worker" if combines else what


def collections(job_endpoint: str, job_id: str) -> list[Collection]:
    """The collections of a job, from what Beam's job service has gathered of its workers."""
    with grpc.insecure_channel(job_endpoint) as channel:
        service = beam_job_api_pb2_grpc.JobServiceStub(channel)
        asked = beam_job_api_pb2.GetJobPipelineRequest(job_id=job_id)
        components = service.GetPipeline(asked).pipeline.components
        metrics = service.GetJobMetrics(beam_job_api_pb2.GetJobMetricsRequest(job_id=job_id))
    counts: dict[str, int] = {}
    sizes: dict[str, tuple[int, int, int]] = {}
    for info in metrics.metrics.committed or metrics.metrics.attempted:
        collection = info.labels.get("PCOLLECTION", "")
        if info.urn == _COUNT:
            (counts[collection],) = _varints(info.payload, 1)
        elif info.urn == _SIZE:
            number, total, _, largest = _varints(info.payload, 4)
            sizes[collection] = number, total, largest
    makers, sides = _makers_and_sides(components)
    found = []
    for collection, elements in counts.items():
        number, total, largest = sizes.get(collection, (0, 0, 0))
        found.append(
            Collection(
                makers.get(collection, collection),
                elements,
                total / number if number else 0,
                largest,
                tuple(sides.get(collection, ())),
            )
        )
    return found


def newest_job(job_endpoint: str) -> str:
    """The id of the job that came last to a job service that runs one after another."""
    with grpc.insecure_channel(job_endpoint) as channel:
        service = beam_job_api_pb2_grpc.JobServiceStub(channel)
        jobs = service.GetJobs(beam_job_api_pb2.GetJobsRequest()).job_info
    return max(jobs, key=lambda job: job.job_id.rpartition("-")[0]).job_id if jobs else ""


def _varints(payload: bytes, count: int) -> list[int]:
    stream = create_InputStream(payload)
    return [stream.read_var_int64() for _ in range(count)]


def _makers_and_sides(components: Any) -> tuple[dict[str, str], dict[str, list[str]]]:
    """The step that makes each collection, and the steps to which it is a side input."""
    makers: dict[str, str] = {}
    sides: dict[str, list[str]] = {}
    for transform in components.transforms.values():
        for tag, collection in transform.outputs.items():
            name = transform.unique_name
            name += "" if len(transform.outputs) == 1 else f" [{tag}]"
            if len(name) > len(makers.get(collection, "")):  # The innermost one.
                makers[collection] = name
        if transform.spec.urn == _SIDE_INPUTS:
            of = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
            for tag in of.side_inputs:
                sides.setdefault(transform.inputs[tag], []).append(transform.unique_name)
    return makers, sides
