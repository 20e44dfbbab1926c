"""Prism, Beam's own runner in Go."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.engines import packages
from tests.engines.services import Service, listens


@dataclass(frozen=True)
class Prism:
    """Prism.

    Attributes:
        folder: The folder of its log.
        ports: The port for jobs.
    """

    folder: Path
    ports: tuple[int] = (18073,)

    @property
    def flags(self) -> list[str]:
        """The flags that send a job to it."""
        return ["--engine=prism", f"--job_endpoint=localhost:{self.ports[0]}"]

    def services(self) -> list[Service]:
        """The processes to start."""
        (port,) = self.ports
        command = [str(packages.prism()), f"--job_port={port}", "--serve_http=false"]
        return [Service("prism", command, lambda: listens(port))]
