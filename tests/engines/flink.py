"""A Flink session cluster of one JobManager and two TaskManagers, and Beam's job server for it."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.engines import packages
from tests.engines.java import LOGGING, java, job_server_arguments
from tests.engines.services import Service, answers, listens

TASK_MANAGERS = 2


@dataclass(frozen=True)
class Flink:
    """A cluster.

    Attributes:
        folder: The folder of its configuration, logs and temporary files.
        ports: The JobManager's ports for TaskManagers and for people, and the job server's port.
        slots: The number of slots of each TaskManager.
        restarts: How often Flink starts stages of a job again before the job fails.
        refresh_ms: How old the answers of its page may be.
    """

    folder: Path
    ports: tuple[int, int, int] = (16123, 18081, 18099)
    slots: int = 2
    restarts: int = 2
    refresh_ms: int = 3000

    @property
    def flags(self) -> list[str]:
        """The flags that send a job to it."""
        endpoint = f"--job_endpoint=localhost:{self.ports[2]}"
        return ["--engine=flink", endpoint, f"--engine_page={self.address}"]

    def services(self) -> list[Service]:
        """The processes to start, in this order."""
        conf = self.folder / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        lines = [f"{key}: {value}\n" for key, value in self._configuration().items()]
        (conf / "config.yaml").write_text("".join(lines))
        (conf / "log4j2.properties").write_text(LOGGING)
        return [
            self._cluster_process(
                "jobmanager",
                "entrypoint.StandaloneSessionClusterEntrypoint",
                lambda: answers(f"{self.address}/overview"),
            ),
            *(self.task_manager(number) for number in range(1, TASK_MANAGERS + 1)),
            self._job_server(),
        ]

    def task_manager(self, number: int) -> Service:
        """A TaskManager, which is ready once the JobManager knows it."""
        name = f"taskmanager{number}"
        return self._cluster_process(
            name,
            "taskexecutor.TaskManagerRunner",
            lambda: answers(f"{self.address}/taskmanagers", f'"{name}"'),
            "-D",
            f"taskmanager.resource-id={name}",
        )

    def ask(self, path: str, method: str = "GET") -> Any:
        """Sends a request to the JobManager's REST interface; returns the answer."""
        asked = urllib.request.Request(self.address + path, method=method)
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return json.load(answer)

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs, the latest first."""
        found = self.ask("/jobs/overview")["jobs"]
        return sorted(found, key=lambda job: -job["start-time"])

    @property
    def address(self) -> str:
        """The address of its page."""
        return f"http://localhost:{self.ports[1]}"

    def _configuration(self) -> dict[str, Any]:
        rpc, rest, _ = self.ports
        return {
            "jobmanager.rpc.address": "localhost",
            "jobmanager.rpc.port": rpc,
            "jobmanager.bind-host": "localhost",
            "rest.address": "localhost",
            "rest.bind-address": "localhost",
            "rest.port": rest,
            "web.refresh-interval": self.refresh_ms,
            "taskmanager.host": "localhost",
            "taskmanager.bind-host": "localhost",
            "taskmanager.numberOfTaskSlots": self.slots,
            "taskmanager.cpu.cores": 1,
            # Puts two concurrent tasks of a job on different TaskManagers, otherwise up to chance.
            "taskmanager.load-balance.mode": "SLOTS",
            "taskmanager.memory.task.heap.size": "384m",
            "taskmanager.memory.task.off-heap.size": "128m",
            "taskmanager.memory.managed.size": "128m",
            # By default an exchange needs 512 buffers of 32 KiB, and a job opens a dozen.
            "taskmanager.network.sort-shuffle.min-buffers": 64,
            "taskmanager.memory.network.min": "128m",
            "taskmanager.memory.network.max": "128m",
            "taskmanager.memory.framework.heap.size": "128m",
            "taskmanager.memory.framework.off-heap.size": "128m",
            "taskmanager.memory.jvm-metaspace.size": "320m",
            "taskmanager.memory.jvm-overhead.min": "192m",
            "taskmanager.memory.jvm-overhead.max": "192m",
            # Beam's classes are the cluster's: those of a job are loaded again for every stage, which
            # restarts its Python workers.
            "classloader.resolve-order": "parent-first",
            # Stages are retried once Beam has forgotten a dead worker: beam_jobs/engines/flags.py.
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": self.restarts,
            "restart-strategy.fixed-delay.delay": "6 s",
            # If one of Flink's threads dies, for example of a full heap, its TaskManager exits.
            # Otherwise jobs hang.
            "cluster.uncaught-exception-handling": "FAIL",
            # A killed TaskManager is noticed after 10 s instead of 50.
            "heartbeat.interval": 2000,
            "heartbeat.timeout": 10000,
            "io.tmp.dirs": self.folder / "tmp",
        }

    def _cluster_process(self, name: str, main: str, ready: Any, *arguments: str) -> Service:
        configuration = ["--configDir", str(self.folder / "conf"), *arguments]
        main = f"org.apache.flink.runtime.{main}"
        command = java("640m", self._classes(), main, configuration, [self._logging])
        return Service(name, command, ready)

    def _classes(self) -> list[Path]:
        return [packages.flink() / "lib/*", packages.runner_jar("flink")]

    def _job_server(self) -> Service:
        port = self.ports[2]
        classes = [packages.sends_nothing(), *self._classes()]
        command = java(
            "512m",
            classes,
            "org.apache.beam.runners.flink.FlinkJobServerDriver",
            job_server_arguments(self.folder, port, "flink-master", f"localhost:{self.ports[1]}"),
            [self._logging],
        )
        return Service("jobserver", command, lambda: listens(port))

    @property
    def _logging(self) -> str:
        return f"-Dlog4j.configurationFile=file:{self.folder / 'conf/log4j2.properties'}"
