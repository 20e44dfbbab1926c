"""What the processes of a pool do in the tests; it imports nothing that takes time."""

import multiprocessing.connection
import os
import signal
import sys
import threading
import time
from pathlib import Path

from beam_jobs import progress
from beam_jobs.engines.pool import note_reading
from beam_jobs.errors import DataError, RejectError, UsageError


def pid_after(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def echo_after(seconds: float, value):
    time.sleep(seconds)
    return value


def doubled(value):
    return value * 2


def loaded_modules() -> set[str]:
    return {name.split(".")[0] for name in sys.modules}


def advances(steps: int) -> None:
    for _ in range(steps):
        progress.advance("writing", 10, 1)


class OwnError(ValueError):
    """Keeps more than its text."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message, number)
        self.number = number


class UnpicklableError(Exception):
    def __init__(self) -> None:
        super().__init__("nobody can pickle me")
        self.lock = threading.Lock()


class OneWayError(Exception):
    """Pickles, but cannot be made again."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"one way {one + two}")


ERRORS = {
    "reject": RejectError("no picture"),
    "usage": UsageError("a mistake"),
    "data": DataError("lost"),
    "value": ValueError("x", 3),
    "own": OwnError("why", 7),
    "key": KeyError("k"),
    "memory": MemoryError("all of it"),
}


def fail(kind: str):
    raise ERRORS[kind]


def fail_unpicklably():
    raise UnpicklableError


def fail_one_way():
    raise OneWayError(1, 2)


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def die_while_sending(size: int) -> bytes:
    """A result in the middle of which the process is killed."""

    def send(self, buffer, write=os.write):
        if len(buffer) < 1000:
            write(self._handle, buffer)  # the header says how long the message is
            return
        left = buffer[: len(buffer) // 2]
        while left:
            left = left[write(self._handle, left) :]
        die()

    multiprocessing.connection.Connection._send = send
    return bytes(size)


def touch_and_wait(path: str, until: str) -> str:
    """Shows by a file that it has begun, and lasts until another file exists."""
    Path(path).touch()
    while not os.path.exists(until):
        time.sleep(0.01)
    return path


def die_reading(name: str, number: int) -> None:
    note_reading(name)
    os.kill(os.getpid(), number)
