"""A job on an engine: what finds it again, and what is seen of it at one moment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

State = Literal["starting", "running", "done", "failed", "cancelled"]

# How the names of engines are written.
TITLES = {"flink": "Flink", "spark": "Spark", "prism": "Prism", "dataflow": "Dataflow"}


class NoAnswer(Exception):
    """An engine, or its job service, does not say anything about a job; the message says why."""


@dataclass(frozen=True)
class RemoteJob:
    """What finds a job again, also after the command that submitted it has ended.

    Attributes:
        engine: "flink", "spark", "prism" or "dataflow"; empty if only its job service is known.
        name: The job's name.
        service: host:port of Beam's job service; empty on Dataflow.
        service_id: The id that the job service, or Dataflow, gave the job.
        address: Where the engine answers, such as http://host:8081; empty if that is unknown.
        id: The engine's own id of the job; empty if that is unknown.
        project, region: Those of a job on Dataflow.
        submitted: Seconds since 1970.
    """

    engine: str
    name: str
    service: str = ""
    service_id: str = ""
    address: str = ""
    id: str = ""
    project: str = ""
    region: str = ""
    submitted: float = 0.0

    @classmethod
    def parse(cls, data: bytes) -> RemoteJob | None:
        """The job in a note; None if it is no such note."""
        try:
            values = json.loads(data)
            job = cls(**values)
        except (ValueError, TypeError, RecursionError):
            return None
        texts = [getattr(job, each.name) for each in fields(cls) if each.name != "submitted"]
        fits = all(isinstance(text, str) for text in texts)
        return job if fits and isinstance(job.submitted, int | float) else None

    def to_bytes(self) -> bytes:
        """The note from which `parse` makes the job."""
        return json.dumps(self.to_json()).encode()

    def to_json(self) -> dict[str, Any]:
        """The attributes as JSON values."""
        return asdict(self)

    @property
    def title(self) -> str:
        """The engine's name, for people."""
        return TITLES.get(self.engine, f"the job service {self.service}")

    @property
    def shown_id(self) -> str:
        """The id by which people find the job."""
        return self.id or self.service_id


@dataclass(frozen=True)
class Seen:
    """What an engine says about a job at one moment.

    Attributes:
        state: What the job does.
        stages_done: The number of its stages that have ended.
        stages: The number of all its stages; 0 if that is unknown.
        counters: Name -> value of the job's own counters, such as "shards/records".
        workers: How many TaskManagers or executors answer; None if the engine does not say.
        trace: The text of the failure that ended the job or made it start again; empty without one.
    """

    state: State
    stages_done: int = 0
    stages: int = 0
    counters: Mapping[str, int] = field(default_factory=dict)
    workers: int | None = None
    trace: str = ""

    @property
    def is_active(self) -> bool:
        """Whether the job has not ended."""
        return self.state in ("starting", "running")
