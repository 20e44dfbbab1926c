"""Calls functions in processes that may die: libraries in native code crash on some damaged files.

Each process answers one call at a time, so there is one for each calling thread, and at most one for each
processor. They are started when they are needed. Bytes and arrays are passed in files in memory: a pipe would
take several times as long.
"""

from __future__ import annotations

import atexit
import itertools
import mmap
import os
import pickle
import queue
import resource
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import IO, Any, NoReturn, TypeVar

from beam_jobs.engines.memory import keep_freed
from beam_jobs.errors import DataError, RejectError, portable
from readers.files.processors import processors

T = TypeVar("T")

# Memory that the process may allocate for Python and the libraries, in addition to that of a call.
_OWN_BYTES = 1 << 30

# The alignment of arrays in bytes that NumPy and its compiled loops expect.
_ALIGNMENT = 64


def guarded(function: Callable[..., T], data: bytes, *arguments: Any, memory: int) -> T:
    """Returns `function(data, *arguments)`, computed in another process.

    Args:
        function: A function of a module.
        data: Bytes, of any number.
        arguments: Picklable.
        memory: The bytes that the call may allocate; it gets a MemoryError for more.

    Raises:
        RejectError: The process crashed, and so did a new one.
        DataError: Both were killed, or could not start.
        Exception: What the function raises.
    """
    guard = _guards.get()
    try:
        for _ in range(2):
            guard = guard or _Guard()
            try:
                result, error = guard.call(function, data, arguments, memory)
            except EOFError:
                code, words = guard.end()
                guard = None
            except BaseException:  # The next call must not get the answer to this one.
                guard.kill()
                guard = None
                raise
            else:
                if error:
                    raise error
                found: T = result
                return found
    finally:
        _guards.put(guard)
    _fail(code, words)


def _fail(code: int, words: str) -> NoReturn:
    """Raises the error for a process that ended twice, given its exit code and its last line."""
    if code == -signal.SIGKILL:
        raise DataError(
            "the process that reads it was killed twice, perhaps for lack of memory; no dataset was "
            "written. Give the job more memory, or leave the file out"
        )
    if code >= 0:
        raise DataError(f"the process that reads it ended with exit code {code}: {words:.500}")
    name = signal.Signals(-code).name
    raise RejectError(f"the library that reads it crashed twice ({name}): the file is damaged")


class _Guard:
    """A process that answers calls."""

    def __init__(self) -> None:
        self._connection, there = Pipe()
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - `end` closes it.
        with there:
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"import {__name__} as g; g.serve({there.fileno()})"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._words,
                pass_fds=[there.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
            )

    def call(
        self, function: Callable[..., T], data: bytes, arguments: tuple[Any, ...], memory: int
    ) -> tuple[Any, Exception | None]:
        """The result of a call, or the exception of the function; raises EOFError if the process has ended."""
        try:
            _send(self._connection, (function, arguments, memory), [data])
            (packed, error), buffers = _receive(self._connection)
        except OSError:  # A broken pipe.
            raise EOFError from None
        return (None if error else pickle.loads(packed, buffers=buffers)), error

    def end(self) -> tuple[int, str]:
        """Ends the process; returns its exit code, and the last line that it wrote."""
        self._connection.close()
        code = self._process.wait()
        with self._words as words:
            words.seek(0)
            lines = words.read().decode(errors="replace").splitlines()
        return code, lines[-1] if lines else "it wrote nothing"

    def kill(self) -> None:
        """Ends the process, even during a call."""
        self._process.kill()
        self.end()


def _none_started() -> queue.LifoQueue[_Guard | None]:
    """A pool with at most one process for each processor."""
    found = queue.LifoQueue[_Guard | None]()
    for _ in range(processors()):
        found.put(None)
    return found


# The idle processes, the most recently used one on top.
_guards = _none_started()


def _forget() -> None:
    """Leaves the processes to the parent after a fork."""
    global _guards
    _guards = _none_started()


@atexit.register
def _kill() -> None:
    while not _guards.empty():
        if guard := _guards.get():
            guard.kill()


os.register_at_fork(after_in_child=_forget)


def serve(descriptor: int) -> None:
    """Answers calls until the other end of the connection is closed; runs in the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the caller.
    keep_freed()
    with Connection(descriptor) as connection:
        while True:
            try:
                (function, arguments, memory), (data,) = _receive(connection)
            except EOFError:
                return
            _limit(memory)
            arrays: list[pickle.PickleBuffer] = []
            packed, error = b"", None
            try:
                result = function(bytes(data), *arguments)
                packed = pickle.dumps(result, 5, buffer_callback=arrays.append)
            except Exception as raised:
                error = portable(raised)
                arrays.clear()
            _send(connection, (packed, error), [array.raw() for array in arrays])


def _limit(memory: int) -> None:
    """Limits what this process may allocate: the memory of a call, in bytes, and its own."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = memory + _OWN_BYTES
    soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _send(connection: Connection, message: Any, buffers: Sequence[bytes | memoryview]) -> None:
    """Sends a picklable message, and buffers in a file."""
    sizes = [memoryview(buffer).nbytes for buffer in buffers]
    connection.send((message, sizes))
    if not any(sizes):
        return
    with _memory_file() as file:
        for buffer, size in zip(buffers, sizes, strict=True):
            file.write(buffer)
            file.write(bytes(-size % _ALIGNMENT))
        file.flush()
        with _socket_of(connection) as channel:
            socket.send_fds(channel, [b"."], [file.fileno()])


def _receive(connection: Connection) -> tuple[Any, list[memoryview]]:
    """A message and its buffers, in separate writable memory; EOFError if the other end is closed."""
    message, sizes = connection.recv()
    if not any(sizes):
        return message, [memoryview(bytearray()) for _ in sizes]
    with _socket_of(connection) as channel:
        _, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
    if not descriptors:
        raise EOFError
    (descriptor,) = descriptors
    try:
        data = memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY))
    finally:
        os.close(descriptor)
    starts = itertools.accumulate((size + -size % _ALIGNMENT for size in sizes), initial=0)
    return message, [data[at : at + size] for at, size in zip(starts, sizes, strict=False)]


def _socket_of(connection: Connection) -> socket.socket:
    """The socket of a connection, which waits as long as it takes.

    `multiprocessing.reduction` would give the connection the default timeout, which Beam's libraries set.
    """
    found = socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM)
    found.settimeout(None)
    return found


def _memory_file() -> IO[bytes]:
    """An unnamed file in memory."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("guarded"), "wb")
    return tempfile.TemporaryFile()
