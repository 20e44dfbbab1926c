"""Jobs in separate processes that start immediately: forked from one that has loaded Beam.

Importing Beam takes longer than a small job, and most tests that kill jobs or fill their disk do not
test imports. A forked process runs `python -m beam_jobs` from its first line to the end of the
interpreter, with its own arguments, streams, environment, limits and pid; only its modules are loaded
already. Tests in test_progress_cli.py and test_dry_run.py start fresh processes.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import resource
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.checkout import ROOT

_LONGEST_REQUEST = 1 << 20


class Job:
    """`python -m beam_jobs`, with the methods of `subprocess.Popen`.

    Args:
        arguments: The command's arguments.
        stdout: A file descriptor, or `subprocess.PIPE`.
        stderr: A file descriptor, or `subprocess.PIPE`.
        env: Its environment variables; None takes those of this process.
        file_bytes: The size limit of each file that it writes (`RLIMIT_FSIZE`).
        before: "module:function" that its process calls before the command begins.
    """

    def __init__(
        self,
        *arguments: Any,
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
        env: Mapping[str, str] | None = None,
        file_bytes: int = resource.RLIM_INFINITY,
        before: str = "",
    ) -> None:
        env = dict(os.environ if env is None else env)
        for name in {*env, *os.environ}:
            if name.startswith("PYTHON") and env.get(name) != os.environ.get(name):
                raise ValueError(f"{name} is read when an interpreter starts: this one has started")
        self.returncode: int | None = None
        self.stdout = self.stderr = None
        theirs = []
        for name, stream in (("stdout", stdout), ("stderr", stderr)):
            if stream == subprocess.PIPE:
                end, stream = os.pipe()
                setattr(self, name, os.fdopen(end, encoding="utf-8"))
            elif stream == subprocess.DEVNULL:
                stream = os.open(os.devnull, os.O_WRONLY)
            else:
                stream = os.dup(stream)
            theirs.append(stream)
        self._news, news = _pair(socket.SOCK_STREAM)
        request = [[str(argument) for argument in arguments], env, file_bytes, before]
        socket.send_fds(_server(), [json.dumps(request).encode()], [*theirs, news.fileno()])
        for stream in theirs:
            os.close(stream)
        news.close()
        self.pid = int(self._hear())

    def _hear(self) -> str:
        line = self._news.recv(32).decode()
        assert line, "the process that forks jobs has died"
        return line

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end; returns the exit code, or the negative signal that killed it."""
        if self.returncode is None:
            self._news.settimeout(timeout)
            try:
                self.returncode = int(self._hear())
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired("python -m beam_jobs", timeout or 0) from None
            self._news.close()
        return self.returncode

    def poll(self) -> int | None:
        """Its exit code, or None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Waits for the end; returns all of stdout and stderr."""
        printed = {}

        def listen(name: str, stream: Any) -> None:
            with stream:
                printed[name] = stream.read()

        streams = {"stdout": self.stdout, "stderr": self.stderr}
        threads = [
            threading.Thread(target=listen, args=item, daemon=True)
            for item in streams.items()
            if item[1]
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout)
        if len(printed) < len(threads):
            raise subprocess.TimeoutExpired("python -m beam_jobs", timeout or 0)
        self.wait(timeout)
        return printed.get("stdout", ""), printed.get("stderr", "")

    def send_signal(self, number: int) -> None:
        """Sends it a signal if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kills it if it still runs."""
        self.send_signal(signal.SIGKILL)


def run(*arguments: Any, timeout: float = 120, **how: Any) -> subprocess.CompletedProcess[str]:
    """Runs a job to its end."""
    job = Job(*arguments, **how)
    try:
        stdout, stderr = job.communicate(timeout)
    finally:
        job.kill()
    return subprocess.CompletedProcess(arguments, job.wait(), stdout, stderr)


def _pair(kind: socket.SocketKind) -> tuple[socket.socket, socket.socket]:
    """Two connected sockets that wait, whatever time limit a library has set for all new ones."""
    sockets = socket.socketpair(socket.AF_UNIX, kind)
    for end in sockets:
        end.settimeout(None)
    return sockets


@functools.cache
def _server() -> socket.socket:
    """The connection to the process that forks jobs."""
    here, there = _pair(socket.SOCK_SEQPACKET)
    # No threads: a lock that one holds during a fork is never released.
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.forked", str(there.fileno())],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        env=env,
        pass_fds=[there.fileno()],
        start_new_session=True,
    )
    there.close()

    @atexit.register
    def end() -> None:
        here.close()
        process.wait()

    here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LONGEST_REQUEST)
    return here


def _serve(requests: socket.socket) -> tuple[list[str], str] | None:
    """Forks a job for each request, and beside it a process that waits for its end.

    Returns the arguments and the function to call before in the fork, and None here at the end.
    """
    while True:
        request, fds, _, _ = socket.recv_fds(requests, _LONGEST_REQUEST, 3)
        if not request:
            return None
        if not os.fork():
            break
        for fd in fds:
            os.close(fd)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    requests.close()
    stdout, stderr, news = fds
    arguments, env, file_bytes, before = json.loads(request)
    if not (pid := os.fork()):
        os.close(news)
        _become(stdout, stderr, env, file_bytes)
        return arguments, before
    for fd in (stdout, stderr):
        os.close(fd)
    with socket.socket(fileno=news) as there, contextlib.suppress(OSError):
        there.send(str(pid).encode())
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        there.send(str(code).encode())
    os._exit(0)


def _become(stdout: int, stderr: int, env: dict[str, str], file_bytes: int) -> None:
    """Gives this process the streams, the environment and the limits of a request."""
    for fd, standard in ((stdout, 1), (stderr, 2)):
        os.dup2(fd, standard)
        os.close(fd)
    # The old ones know whether those of the forking process can seek.
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    os.environ.clear()
    os.environ.update(env)
    tempfile.tempdir = None
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))


def _main(fd: int) -> None:
    from apache_beam.runners.portability import fn_api_runner  # noqa: F401

    import beam_jobs.cli.command
    import beam_jobs.cli.run  # noqa: F401
    from tests.support import quick_beam  # noqa: F401

    # Arrow's allocator has one, and survives a fork.
    threads = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    threads = [name for name in threads if name != "jemalloc_bg_thd"]
    assert len(threads) == 1, f"importing Beam started threads: {threads}"
    # A collection in a job would look at a million objects that it shares with this process, and copy them.
    gc.collect()
    gc.freeze()
    forked = _serve(socket.socket(fileno=fd))
    if forked is not None:
        arguments, before = forked
        sys.argv = ["beam_jobs", *arguments]
        if before:
            module, _, function = before.partition(":")
            getattr(importlib.import_module(module), function)()
        runpy.run_module("beam_jobs", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main(int(sys.argv[1]))
