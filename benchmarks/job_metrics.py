"""Metrics of a finished job: the stages from Flink, the collections from Beam."""

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
        name: The steps in the stage.
        grouped: Whether it receives all values of a key at once.
        seconds: Time from the start of its first task to the end of its last.
        read, written: Number of elements.
        read_bytes, written_bytes: Bytes received from and sent to other tasks.
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
    """A collection that Beam's workers have written or read.

    Attributes:
        name: The step that writes it.
        elements: Number of elements.
        mean, largest: Bytes per element, among those that workers have sampled.
        side: The steps that read all of it at once, as a side input.
    """

    name: str
    elements: int
    mean: float
    largest: int
    side: tuple[str, ...]

    @property
    def size(self) -> float:
        """The approximate number of bytes of all elements."""
        return self.elements * self.mean


def stages(vertices: Iterable[dict[str, Any]]) -> list[Stage]:
    """Returns the stages of a job from the vertices that Flink's REST interface lists."""
    found = []
    for vertex in vertices:
        metrics = vertex["metrics"]
        found.append(
            Stage(
                _short_name(vertex["name"]),
                vertex["name"].startswith("GroupReduce"),
                vertex["duration"] / 1000,
                metrics["read-records"],
                metrics["write-records"],
                metrics["read-bytes"],
                metrics["write-bytes"],
            )
        )
    return found


def _short_name(name: str) -> str:
    """Returns the first step of a vertex, without Flink's operators and Beam's wrappers."""
    steps = re.findall(r" at (GroupCombine: )?(?:\[\d+\])?(.*?)\)(?: ->|$)", name)
    steps = [step for step in steps if not step[1].startswith("ExtractOutput")]
    if not steps:
        return "(one output of a stage before)" if "ExtractOutput" in name else name
    combines, step = steps[0]
    step = step.replace("(<lambda at core.py:4094>)", "")
    return f"{step}, on each worker" if combines else step


def collections(job_endpoint: str, job_id: str) -> list[Collection]:
    """Returns the collections of a job from the metrics of Beam's job service."""
    with grpc.insecure_channel(job_endpoint) as channel:
        service = beam_job_api_pb2_grpc.JobServiceStub(channel)
        request = beam_job_api_pb2.GetJobPipelineRequest(job_id=job_id)
        components = service.GetPipeline(request).pipeline.components
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
    writers, sides = _writers_and_sides(components)
    found = []
    for collection, elements in counts.items():
        number, total, largest = sizes.get(collection, (0, 0, 0))
        found.append(
            Collection(
                writers.get(collection, collection),
                elements,
                total / number if number else 0,
                largest,
                tuple(sides.get(collection, ())),
            )
        )
    return found


def newest_job(job_endpoint: str) -> str:
    """Returns the id of the last job that a job service accepted; "" before the first."""
    with grpc.insecure_channel(job_endpoint) as channel:
        service = beam_job_api_pb2_grpc.JobServiceStub(channel)
        jobs = service.GetJobs(beam_job_api_pb2.GetJobsRequest()).job_info
    return max(jobs, key=lambda job: job.job_id.rpartition("-")[0]).job_id if jobs else ""


def _varints(payload: bytes, count: int) -> list[int]:
    stream = create_InputStream(payload)
    return [stream.read_var_int64() for _ in range(count)]


def _writers_and_sides(components: Any) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Returns the step that writes each collection, and the steps that have it as a side input."""
    writers: dict[str, str] = {}
    sides: dict[str, list[str]] = {}
    for transform in components.transforms.values():
        for tag, collection in transform.outputs.items():
            name = transform.unique_name
            name += "" if len(transform.outputs) == 1 else f" [{tag}]"
            if len(name) > len(writers.get(collection, "")):  # the innermost step
                writers[collection] = name
        if transform.spec.urn == _SIDE_INPUTS:
            payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
            for tag in payload.side_inputs:
                sides.setdefault(transform.inputs[tag], []).append(transform.unique_name)
    return writers, sides
