"""Beam's worker pool, which starts workers for any runner, and Beam's own job service."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from tests.engines.services import Service, listens


@dataclass(frozen=True)
class Pool:
    """Where they lie and listen.

    Attributes:
        folder: Their own, for logs.
        ports: Two: for runners that want workers, and for jobs.
    """

    folder: Path
    ports: tuple[int, int] = (15000, 18097)

    @property
    def worker_flags(self) -> list[str]:
        """What makes any runner take workers of the pool."""
        return ["--environment_type=EXTERNAL", f"--environment_config=localhost:{self.ports[0]}"]

    @property
    def flags(self) -> list[str]:
        """What sends a job to the service, with workers of the pool."""
        service = f"--job_endpoint=localhost:{self.ports[1]}"
        return ["--runner=PortableRunner", service, *self.worker_flags]

    def services(self) -> list[Service]:
        """What has to run."""
        workers, jobs = self.ports
        program = Path(sys.executable).with_name("beam-shards-worker")
        return [
            _module(
                "workerpool",
                "worker.worker_pool_main",
                workers,
                f"--service_port={workers}",
                f"--container_executable={program}",
            ),
            _module("jobservice", "portability.local_job_service_main", jobs, f"--port={jobs}"),
        ]


def _module(name: str, module: str, port: int, *flags: str) -> Service:
    command = [sys.executable, "-m", f"apache_beam.runners.{module}", *flags]
    return Service(name, command, lambda: listens(port))
