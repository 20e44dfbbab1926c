"""Background processes; their folder holds pids and logs."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

# A JVM on a busy machine with two cores takes some 20 s until it answers.
_SECONDS_TO_START = 120
_SECONDS_TO_STOP = 10


class EngineError(Exception):
    """An engine cannot be installed or does not start; the message is for the user."""


@dataclass(frozen=True)
class Service:
    """One process.

    Attributes:
        name: The name of its log and of its pid file.
        command: The command.
        ready: Whether it can be used.
        environment: Variables in addition to those of this process.
    """

    name: str
    command: list[str]
    ready: Callable[[], bool]
    environment: Mapping[str, str] = field(default_factory=dict)

    def start(self, folder: Path) -> None:
        """Starts the process as the leader of its own group."""
        with self._log(folder).open("ab") as output:
            process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=folder,
                env={**os.environ, **self.environment},
                start_new_session=True,
            )
        self._pid_file(folder).write_text(str(process.pid))

    def wait(self, folder: Path) -> None:
        """Waits until the process is ready.

        Raises:
            EngineError: The process ends, or is not ready in two minutes.
        """
        pid = int(self._pid_file(folder).read_text())
        deadline = time.monotonic() + _SECONDS_TO_START
        while not self.ready():
            alive = is_alive(pid)
            if not alive or time.monotonic() > deadline:
                what = "is not ready" if alive else "ended"
                log = self._log(folder)
                lines = log.read_text("utf-8", "replace").splitlines()[-20:]
                raise EngineError("\n".join([f"{self.name} {what}; the end of {log}:", *lines]))
            time.sleep(0.1)

    def _log(self, folder: Path) -> Path:
        return folder / f"{self.name}.log"

    def _pid_file(self, folder: Path) -> Path:
        return folder / f"{self.name}.pid"


def start(folder: Path, services: Sequence[Service]) -> list[str]:
    """Starts the services that do not run, at the same time, because they connect to each other; returns their names.

    Raises:
        EngineError: One does not start; then none of those does.
    """
    folder.mkdir(parents=True, exist_ok=True)
    started = [service for service in services if service.name not in pids(folder)]
    try:
        for service in started:
            service.start(folder)
        for service in started:
            service.wait(folder)
    except BaseException:
        stop(folder, [service.name for service in started])
        raise
    return [service.name for service in started]


def stop(folder: Path, names: Collection[str] | None = None) -> list[str]:
    """Stops some services of a folder, by default all, the last one first; returns their names."""
    running = reversed(pids(folder).items())
    found = {name: pid for name, pid in running if names is None or name in names}
    for pid in found.values():
        _end(pid)
    for file in folder.glob("*.pid"):
        if names is None or file.stem in names:
            file.unlink()
    return list(found)


def pids(folder: Path) -> dict[str, int]:
    """Name -> pid of a folder's services, in the order of their start."""
    files = sorted(folder.glob("*.pid"), key=lambda file: file.stat().st_mtime_ns)
    found = {file.stem: int(file.read_text()) for file in files}
    return {name: pid for name, pid in found.items() if is_alive(pid)}


def is_alive(pid: int) -> bool:
    """Whether a process runs; zombies do not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def _end(pid: int) -> None:
    """Ends a process with its whole group: SIGTERM, then SIGKILL."""
    for sent, seconds in ((signal.SIGTERM, _SECONDS_TO_STOP), (signal.SIGKILL, _SECONDS_TO_STOP)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, sent)
        deadline = time.monotonic() + seconds
        while is_alive(pid) and time.monotonic() < deadline:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
            time.sleep(0.05)
    # Processes that its group started in the meantime, such as workers.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def free_ports(count: int) -> list[int]:
    """Unused ports of this machine, which nothing takes before a service listens there.

    The operating system would choose among the ports of outgoing connections.
    """
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(10_000, 32_000)
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("localhost", port))
            found += [port] if port not in found else []
    return found


def answers(url: str, text: str = "") -> bool:
    """Whether a page exists and contains a text."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return text in answer.read().decode("utf-8", "replace")
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def listens(port: int) -> bool:
    """Whether a process listens at a port of this machine."""
    with contextlib.suppress(OSError), socket.create_connection(("localhost", port), timeout=5):
        return True
    return False
