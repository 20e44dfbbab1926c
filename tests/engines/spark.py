"""A Spark standalone cluster of one master and two workers, and Beam's job server for it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.engines import packages
from tests.engines.java import FAST_START, LOGGING, java, job_server_arguments
from tests.engines.services import Service, listens

WORKERS = 2


@dataclass(frozen=True)
class Spark:
    """A cluster.

    Attributes:
        folder: The folder of its logs and temporary files.
        ports: The master's ports for jobs and for people, the job server's port for jobs, and that
            of the page of its driver.
        cores: The number of cores for a job, shared by two workers.
    """

    folder: Path
    ports: tuple[int, int, int, int] = (17077, 18080, 18098, 18040)
    cores: int = 4

    @property
    def flags(self) -> list[str]:
        """The flags that send a job to it."""
        return ["--engine=spark", f"--job_endpoint=localhost:{self.ports[2]}"]

    def services(self) -> list[Service]:
        """The processes to start, in this order."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "log4j2.properties").write_text(LOGGING)
        master, pages, _, _ = self.ports
        flags = ["--host", "localhost", "--port", str(master), "--webui-port", str(pages)]
        workers = [self._worker(number) for number in range(1, WORKERS + 1)]
        return [
            self._process("master", "master.Master", flags, lambda: self._alive() >= 0),
            *workers,
            self._job_server(),
        ]

    def _worker(self, number: int) -> Service:
        folder = self.folder / f"worker{number}"
        flags = ["--host", "localhost", "--cores", "2", "--memory", "1g"]
        flags += ["--webui-port", "0", "--work-dir", str(folder), self._master]
        return self._process(
            f"worker{number}", "worker.Worker", flags, lambda: self._alive() >= number
        )

    @property
    def _master(self) -> str:
        return f"spark://localhost:{self.ports[0]}"

    def _alive(self) -> int:
        """The number of workers that the master knows; -1 while it does not answer."""
        try:
            with urllib.request.urlopen(
                f"http://localhost:{self.ports[1]}/json/", timeout=5
            ) as answer:
                return int(json.load(answer)["aliveworkers"])
        except (urllib.error.URLError, ConnectionError, TimeoutError, ValueError):
            return -1

    def _process(
        self, name: str, main: str, flags: list[str], ready: Callable[[], bool]
    ) -> Service:
        classes = [packages.spark() / "jars/*"]
        command = java("384m", classes, f"org.apache.spark.deploy.{main}", flags, [self._logging])
        return Service(name, command, ready, self._environment)

    def _job_server(self) -> Service:
        port = self.ports[2]
        jar = packages.runner_jar("spark")
        properties = {
            # Executors load Beam's classes before Spark's older ones of the same names.
            "spark.executor.extraClassPath": jar,
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": " ".join(FAST_START),
            "spark.cores.max": self.cores,
            "spark.driver.host": "localhost",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.port": self.ports[3],
            "spark.local.dir": self.folder / "tmp",
        }
        command = java(
            "640m",
            [packages.sends_nothing(), jar, packages.spark() / "jars/*"],
            "org.apache.beam.runners.spark.SparkJobServerDriver",
            job_server_arguments(self.folder, port, "spark-master-url", self._master),
            [self._logging, *(f"-D{name}={value}" for name, value in properties.items())],
        )
        return Service("jobserver", command, lambda: listens(port), self._environment)

    @property
    def _environment(self) -> dict[str, str]:
        return {
            "SPARK_HOME": str(packages.spark()),
            "SPARK_SCALA_VERSION": "2.12",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }

    @property
    def _logging(self) -> str:
        return f"-Dlog4j.configurationFile=file:{self.folder / 'log4j2.properties'}"
