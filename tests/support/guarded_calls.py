"""What the process of `beam_jobs.engines.guarded` does in the tests."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np


def shifted(data: bytes, by: int) -> tuple[dict[str, np.ndarray], str, np.ndarray]:
    octets = np.frombuffer(data, np.uint8) + np.uint8(by)
    arrays = {"a": octets, "b": np.arange(len(data) // 7, dtype=">i8")}
    return arrays, f"{len(data)} bytes", np.empty((0, 3), np.float32)


def pid(data: bytes) -> int:
    return os.getpid()


def meet(name: bytes, count: int) -> int:
    """Returns the process's number when so many processes have called this."""
    path, deadline = Path(name.decode()), time.monotonic() + 60
    with path.open("a") as file:
        file.write(f"{os.getpid()}\n")
    while len(set(path.read_text().splitlines())) < count:
        assert time.monotonic() < deadline, "the other process does not come"
        time.sleep(0.005)
    return os.getpid()


def fail(data: bytes, error: bytes) -> None:
    raise pickle.loads(error)


def die(tries: bytes, number: int, times: int) -> int:
    """Ends its process with a signal the first times; then returns how often it was called."""
    path = Path(tries.decode())
    path.write_text(path.read_text() + "x" if path.exists() else "x")
    if len(path.read_text()) <= times:
        os.kill(os.getpid(), number)
    return len(path.read_text())


def allocate(data: bytes, size: int) -> int:
    return np.empty(size, np.uint8).nbytes  # Memory that is not written takes no time.


def in_a_fork(function: Callable[[], int]) -> int:
    """The result of a function in a process that is forked from this one."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, str(function()).encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as pipe:
        return int(pipe.read())
