"""Prism, Beam's own runner in Go."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.engines import packages
from tests.engines.services import Service, listens


@dataclass(frozen=True)
class Prism:
    """Where it lies and listens.

    Attributes:
        folder: Its own, for its log.
        ports: One: for jobs.
    """

    folder: Path
    ports: tuple[int] = (18073,)

    @property
    def flags(self) -> list[str]:
        """What sends a job to it."""
        return ["--engine=prism", f"--job_endpoint=localhost:{self.ports[0]}"]

    def services(self) -> list[Service]:
        """What has to run."""
        (port,) = self.ports
        command = [str(packages.prism()), f"--job_port={port}", "--serve_http=false"]
        return [Service("prism", command, lambda: listens(port))]
