"""Processes that load and encode for the process in which the DirectRunner runs a pipeline.

Measurements led to this design (docs/internals/design.md has the figures). For recordings, images and texts,
jobs with these processes are the fastest, or within 5 % of it; with one worker, threads or Beam's
own processes, one of the three takes 1.4 to 1.6 times as long. They never import Beam, so they
start in a fraction of the time of Beam's workers; they share the work of a single shard, and
return bytes that are ready to be written.
"""

from __future__ import annotations

import atexit
import functools
import gc
import multiprocessing
import os
import pickle
import queue
import signal
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from multiprocessing import forkserver
from multiprocessing.sharedctypes import RawArray
from typing import Any, Generic, TypeVar

from beam_jobs import progress
from beam_jobs.engines.memory import keep_freed
from beam_jobs.errors import DataError, JobError, UsageError, portable
from beam_jobs.storage.files import adopt, process_context

T = TypeVar("T")

# Receives the result of a call; the function and its arguments; and a barrier at which the threads of all processes meet,
# so that each takes one such task.
_Task = tuple[Future[Any], Callable[..., Any], tuple[Any, ...], threading.Barrier | None]

# Tasks queued per process, so that none is idle while results are written.
_AHEAD = 2

# How long a process may take to end after its connection is closed.
_SECONDS_TO_END = 10

# The longest name of an input that is kept, in bytes.
_NAME_BYTES = 1024


class Window(Generic[T]):
    """A limited number of running tasks, whose results are returned in order.

    Args:
        executor: Runs the tasks.
        ahead: The number of tasks that may run ahead of the next result; it limits memory.
    """

    def __init__(self, executor: Pool | Executor, ahead: int) -> None:
        self._executor, self._ahead = executor, ahead
        self._waiting: deque[Future[T]] = deque()

    def submit(self, function: Callable[..., T], *arguments: Any) -> Iterator[T]:
        """Starts `function(*arguments)`; yields the results of tasks beyond the limit."""
        self._waiting.append(self._executor.submit(function, *arguments))
        while len(self._waiting) > self._ahead:
            yield self._waiting.popleft().result()

    def drain(self) -> Iterator[T]:
        """Yields the results of all running tasks."""
        while self._waiting:
            yield self._waiting.popleft().result()


class Pool:
    """Runs tasks in other processes, or immediately in this one.

    A thread here hands tasks to each process, one after another, over their own connection. If a
    process is killed, even in the middle of a result, its thread reads an end of file. The
    processes of `concurrent.futures.ProcessPoolExecutor` share a pipe, so it may wait forever for
    the rest of the result.

    Args:
        processes: The number of processes; with 1, tasks run in this one.
        preload: Modules that the processes have imported when they start.
    """

    def __init__(self, processes: int, preload: Sequence[str] = ()) -> None:
        self.processes = processes
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._broken = self._closed = False
        self._failure: JobError = _killed()
        self._lock = threading.Lock()
        self._ahead = _AHEAD * processes if processes > 1 else 0
        self._busy: set[Any] = set()
        keep_freed()  # Results may be megabytes, each of which is freed soon.
        self._threads = [
            threading.Thread(
                target=self._serve, args=(fork_context(preload), process_context()), daemon=True
            )
            for _ in range(processes if processes > 1 else 0)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, function: Callable[..., T], /, *arguments: Any) -> Future[T]:
        """The future result of `function(*arguments)`, all of which must be picklable.

        The future raises the exceptions of the function, and DataError if a process was killed.
        """
        future: Future[T] = Future()
        if not self._threads:
            future.set_result(function(*arguments))
            return future
        with self._lock:  # No process takes tasks after the pool is closed.
            if self._closed:
                future.set_exception(_killed())
            else:
                self._tasks.put((future, function, arguments, None))
        return future

    def each(self, function: Callable[[], T]) -> list[T]:
        """The results of `function()` in every process.

        Raises DataError if a process was killed, and what the function raises.
        """
        if not self._threads:
            return [function()]
        meeting = threading.Barrier(len(self._threads))
        futures: list[Future[T]] = [Future() for _ in self._threads]
        with self._lock:
            if self._closed:
                raise _killed()
            for future in futures:
                self._tasks.put((future, function, (), meeting))
        return [future.result() for future in futures]

    def window(self) -> Window[Any]:
        """A new window of tasks in this pool."""
        return Window(self, self._ahead)

    def map(self, function: Callable[..., T], tasks: Iterable[tuple[Any, ...]]) -> Iterator[T]:
        """Yields the results of `function(*task)` in the order of the tasks."""
        window: Window[T] = self.window()
        for task in tasks:
            yield from window.submit(function, *task)
        yield from window.drain()

    def close(self) -> None:
        """Ends the processes; running and waiting tasks fail, because the caller has given up on them."""
        with self._lock:
            self._broken = self._closed = True
            for process in self._busy:
                process.terminate()
            for _ in self._threads:
                self._tasks.put(None)
        for thread in self._threads:
            thread.join()
        _unpickled.cache_clear()  # The next run may find other files under the same names.

    def _serve(self, context: Any, known: tuple[Any, ...]) -> None:
        """Starts a process and hands tasks to it until the pool is closed."""
        here: Any = None
        process: Any = None
        reading: Any = None
        try:
            here, process, reading = _start(context, known)
        except RuntimeError:  # Python cannot start processes while it imports the main program.
            self._broken = True
            self._failure = UsageError(
                "processes cannot be started while the main program is imported: run the job below "
                "if __name__ == '__main__', or with --direct_num_workers 1"
            )
        except (EOFError, OSError):  # The fork server was killed, or no file can be opened.
            self._broken = True
        while task := self._tasks.get():
            future, function, arguments, meeting = task
            if meeting:
                meeting.wait()
            try:
                with self._lock:
                    if self._broken:
                        raise EOFError
                    self._busy.add(process)
                here.send((function, arguments))
                result, error = _received(here)
            except (EOFError, OSError):
                if not self._broken:
                    process.join(_SECONDS_TO_END)
                    self._failure = _killed(process.exitcode, reading.value if reading else b"")
                # All waiting tasks must fail: no thread may be left for them.
                self._broken = True
                future.set_exception(self._failure)
                continue
            except Exception as raised:  # The task cannot be pickled, or its result not unpickled.
                future.set_exception(raised)
                continue
            finally:
                with self._lock:
                    self._busy.discard(process)
            if error:
                future.set_exception(error)
            else:
                future.set_result(result)
        if here:
            here.close()


def _start(context: Any, known: tuple[Any, ...]) -> tuple[Any, Any, Any]:
    """A connection to a new process, the process, and the input it reads, if that can be noted.

    Raises EOFError or OSError if no process can be started, and RuntimeError while a program is
    imported.
    """
    here, there = context.Pipe()
    with there:
        try:
            reading = RawArray("c", _NAME_BYTES)
        except OSError:  # The disk of this file is full. Errors will not name the input.
            reading = None
        process = context.Process(target=_work, args=(there, known, reading), daemon=True)
        process.start()
    return here, process, reading


def _killed(code: int | None = None, reading: bytes = b"") -> DataError:
    """The error for a process that ended while it read an input, given the exit code if it is known."""
    if code and code > 0:
        return DataError(
            f"a process ended with exit code {code} and an error above; does the program begin its work below if "
            "__name__ == '__main__'?"
        )
    where = f" while it read {reading.decode(errors='backslashreplace')!r}" if reading else ""
    if code and code < 0 and -code not in (signal.SIGKILL, signal.SIGTERM):
        cure = "leave the file out and run" if reading else "run"
        return DataError(
            f"a process that loads records crashed{where} ({signal.Signals(-code).name}); no dataset was "
            f"written: {cure} the same command again"
        )
    return DataError(
        f"a process that loads records was killed{where}, perhaps for lack of memory; no dataset "
        "was written. Run the same command again: it keeps the shards that are done "
        "(--direct_num_workers 1 takes the least memory)"
    )


def note_reading(name: str) -> None:
    """Notes the input that this process reads, for the error if the process is killed."""
    if _reading is not None:
        _reading.value = name.encode(errors="surrogateescape")[: _NAME_BYTES - 1]


_reading: Any = None  # In a process of a pool: memory that it shares with its parent.


def _work(connection: Any, given: tuple[Any, ...], reading: Any) -> None:
    """Runs tasks until the parent closes the connection or dies."""
    global _reading
    _reading = reading
    adopt(*given)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent.
    keep_freed()
    # Nearly all objects are freed with their last reference: collecting cycles took a fifth of the time of listing.
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    relay = progress.Relay(connection.send)
    progress.report_to(relay)
    while True:
        try:
            function, arguments = connection.recv()
        except (EOFError, OSError):
            return
        result, error = None, None
        try:
            result = function(*arguments)
        except Exception as raised:
            error = portable(raised)
        note_reading("")
        try:
            relay.send()
            connection.send((result, error))
        except OSError:
            return
        except Exception as raised:  # The result cannot be pickled.
            connection.send((None, portable(raised)))


def _received(connection: Any) -> tuple[Any, Exception | None]:
    """The answer of a process, which may report progress before it."""
    while isinstance(received := connection.recv(), list):
        for step in received:
            progress.advance(*step)
    answer: tuple[Any, Exception | None] = received
    return answer


def call_pickled(packed: bytes, *arguments: Any) -> Any:
    """Calls a pickled function or bound method, which each process unpickles once; a list of all that an iterator yields.

    All calls of a bound method, from any thread, share one object.
    """
    return _unpickled(packed)(*arguments)


@functools.lru_cache(maxsize=4)
def _unpickled(packed: bytes) -> Any:
    return pickle.loads(packed)


_pools: dict[int, Pool] = {}

_pools_lock = threading.Lock()


def shared_pool(processes: int, preload: Sequence[str] = ()) -> Pool:
    """The pool that all steps of a pipeline share in this process, with the arguments of `Pool`."""
    with _pools_lock:
        if processes not in _pools:
            _pools[processes] = Pool(processes, preload)
        return _pools[processes]


@atexit.register
def close_shared_pools() -> None:
    """Ends the processes of all shared pools."""
    with _pools_lock:
        while _pools:
            _pools.popitem()[1].close()


# The fork server listens at a socket in the folder for temporary files. The kernel accepts names of
# up to 107 bytes, to which Python contributes `/pymp-xxxxxxxx/listener-xxxxxxxx`.
_LONGEST_FOLDER = 107 - 32

_SHORT_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")


def fork_context(preload: Sequence[str]) -> Any:
    """A multiprocessing context whose processes have modules imported when they start.

    They are not forked from this process, because Beam and gRPC run threads in it.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    folder = tempfile.gettempdir()
    if len(os.fsencode(folder)) > _LONGEST_FOLDER:
        tempfile.tempdir = next(
            (name for name in _SHORT_FOLDERS if os.access(name, os.W_OK)), folder
        )
        try:
            forkserver.ensure_running()
        finally:
            tempfile.tempdir = folder
    return context
