"""A Flink session cluster of one JobManager and two TaskManagers, and Beam's job server for it."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.engines import packages
from tests.engines.java import java
from tests.engines.services import Service, answers, listens

TASK_MANAGERS = 2

_LOGGING = """\
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = Console
appender.console.type = CONSOLE
appender.console.name = Console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %-5p %c{1} - %m%n
"""


@dataclass(frozen=True)
class Flink:
    """Where a cluster lies, and where it listens.

    Attributes:
        folder: Its own, for configuration, logs and temporary files.
        ports: Three: the JobManager's for its managers and for people, and the job server's.
        slots: Of each TaskManager.
    """

    folder: Path
    ports: tuple[int, int, int] = (16123, 18081, 18099)
    slots: int = 2

    @property
    def flags(self) -> list[str]:
        """What sends a job to it."""
        return ["--engine=flink", f"--job_endpoint=localhost:{self.ports[2]}"]

    def services(self) -> list[Service]:
        """What has to run, in this order."""
        conf = self.folder / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        lines = [f"{key}: {value}\n" for key, value in self._configuration().items()]
        (conf / "config.yaml").write_text("".join(lines))
        (conf / "log4j2.properties").write_text(_LOGGING)
        return [
            self._cluster_process(
                "jobmanager",
                "entrypoint.StandaloneSessionClusterEntrypoint",
                lambda: answers(f"{self._address}/overview"),
            ),
            *(self.task_manager(number) for number in range(1, TASK_MANAGERS + 1)),
            self._job_server(),
        ]

    def task_manager(self, number: int) -> Service:
        """One of them; it is ready once the JobManager knows it."""
        name = f"taskmanager{number}"
        return self._cluster_process(
            name,
            "taskexecutor.TaskManagerRunner",
            lambda: answers(f"{self._address}/taskmanagers", f'"{name}"'),
            "-D",
            f"taskmanager.resource-id={name}",
        )

    def ask(self, path: str, method: str = "GET") -> Any:
        """What the JobManager's REST interface says."""
        asked = urllib.request.Request(self._address + path, method=method)
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return json.load(answer)

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs, the last one first."""
        found = self.ask("/jobs/overview")["jobs"]
        return sorted(found, key=lambda job: -job["start-time"])

    @property
    def _address(self) -> str:
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
            "taskmanager.host": "localhost",
            "taskmanager.bind-host": "localhost",
            "taskmanager.numberOfTaskSlots": self.slots,
            "taskmanager.cpu.cores": 1,
            # A job of two tasks at once has one on each: otherwise it is chance who gets them.
            "taskmanager.load-balance.mode": "SLOTS",
            "taskmanager.memory.task.heap.size": "384m",
            "taskmanager.memory.task.off-heap.size": "128m",
            "taskmanager.memory.managed.size": "128m",
            # An exchange wants 512 buffers of 32 KiB unless told otherwise, and a job opens a dozen.
            "taskmanager.network.sort-shuffle.min-buffers": 64,
            "taskmanager.memory.network.min": "128m",
            "taskmanager.memory.network.max": "128m",
            "taskmanager.memory.framework.heap.size": "128m",
            "taskmanager.memory.framework.off-heap.size": "128m",
            "taskmanager.memory.jvm-metaspace.size": "320m",
            "taskmanager.memory.jvm-overhead.min": "192m",
            "taskmanager.memory.jvm-overhead.max": "192m",
            # Beam's classes are the cluster's own: those that come with a job are new for every
            # stage, and so are its Python workers then.
            "classloader.resolve-order": "parent-first",
            # A stage is tried again, once Beam has forgotten a worker that died: see beam_jobs/engines.py.
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": 2,
            "restart-strategy.fixed-delay.delay": "6 s",
            # A thread of Flink's that dies, as of a full heap, ends its TaskManager: otherwise jobs
            # wait for what it should have done.
            "cluster.uncaught-exception-handling": "FAIL",
            # A TaskManager that was killed is missed after 10 s instead of 50.
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
        arguments = {
            "flink-master": f"localhost:{self.ports[1]}",
            "artifacts-dir": self.folder / "artifacts",
            "job-port": port,
            "artifact-port": 0,
            "expansion-port": 0,
        }
        command = java(
            "512m",
            classes,
            "org.apache.beam.runners.flink.FlinkJobServerDriver",
            [text for name, value in arguments.items() for text in (f"--{name}", str(value))],
            [self._logging],
        )
        return Service("jobserver", command, lambda: listens(port))

    @property
    def _logging(self) -> str:
        return f"-Dlog4j.configurationFile=file:{self.folder / 'conf/log4j2.properties'}"
