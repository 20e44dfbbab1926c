"""Beam's worker pool, which starts workers for any runner, and Beam's own job service."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from tests.engines.services import Service, listens


@dataclass(frozen=True)
class Pool:
    """A worker pool and a job service.

    Attributes:
        folder: The folder of their logs.
        ports: The port for runners that need workers, and the port for jobs.
        python: The interpreter of the environment in which workers run.
    """

    folder: Path
    ports: tuple[int, int] = (15000, 18097)
    python: str = sys.executable

    @property
    def worker_flags(self) -> list[str]:
        """The flags with which any runner uses workers of the pool."""
        return ["--environment_type=EXTERNAL", f"--environment_config=localhost:{self.ports[0]}"]

    @property
    def flags(self) -> list[str]:
        """The flags that send a job to the service, with workers of the pool."""
        service = f"--job_endpoint=localhost:{self.ports[1]}"
        return ["--runner=PortableRunner", service, *self.worker_flags]

    def services(self) -> list[Service]:
        """The processes to start."""
        workers, jobs = self.ports
        program = Path(self.python).with_name("beam-shards-worker")
        module = "apache_beam.runners.worker.worker_pool_main"
        pool = [self.python, "-m", module]
        pool += [f"--service_port={workers}", f"--container_executable={program}"]
        module = "apache_beam.runners.portability.local_job_service_main"
        # Another environment must have the package itself.
        environment = {} if self.python == sys.executable else {"PYTHONPATH": ""}
        service = [sys.executable, "-m", module, f"--port={jobs}"]
        return [
            Service("workerpool", pool, lambda: listens(workers), environment),
            Service("jobservice", service, lambda: listens(jobs)),
        ]
