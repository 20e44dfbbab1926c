"""Processes that load and encode for the one process in which the DirectRunner runs a pipeline.

Chosen by measurement: for recordings, pictures and texts alike a job is done first, or within a
twentieth of it, with these processes; one worker, threads and Beam's own processes each take 1.4 to
1.6 times as long for one of them (docs/design.md has the figures). They start in a fraction of the
time of Beam's workers, as they never import Beam, share the work of a single shard, and return
bytes that are ready to be written.
"""

from __future__ import annotations

import atexit
import functools
import multiprocessing
import os
import pickle
import queue
import signal
import tempfile
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Generic, Protocol, TypeVar

from beam_jobs.engines.memory import keep_freed
from beam_jobs.errors import DataError, JobError, UsageError
from beam_jobs.storage.options import ProcessContext, adopt, process_context

T = TypeVar("T")

# Tasks that wait for each process, so that none is idle while results are written.
_AHEAD = 2

# Results that wait to be written, unless there are fewer than processes.
_BYTES_AHEAD = 64 << 20

# The fork server listens at a socket below the folder for temporary files, whose whole name the kernel
# takes up to 107 bytes of; `/pymp-xxxxxxxx/listener-xxxxxxxx` is what Python adds.
_LONGEST_FOLDER = 107 - 32

_SHORT_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")


class Executor(Protocol):
    """What runs tasks, `concurrent.futures.Executor` among others."""

    def submit(self, function: Callable[..., T], /, *arguments: Any) -> Future[T]:
        """The future result of `function(*arguments)`."""


class Window(Generic[T]):
    """Tasks under way, few at a time, whose results come back in order.

    Args:
        executor: Runs them.
        ahead: How many may be under way when a result is waited for; memory is bounded by it.
    """

    def __init__(self, executor: Executor, ahead: int) -> None:
        self._executor, self._ahead = executor, ahead
        self._waiting: deque[Future[T]] = deque()

    def submit(self, function: Callable[..., T], *arguments: Any) -> Iterator[T]:
        """Starts `function(*arguments)`; yields results that there is no more room to wait for."""
        self._waiting.append(self._executor.submit(function, *arguments))
        while len(self._waiting) > self._ahead:
            yield self._waiting.popleft().result()

    def drain(self) -> Iterator[T]:
        """Yields the results of all that is under way."""
        while self._waiting:
            yield self._waiting.popleft().result()


class Pool:
    """Runs tasks in other processes, or at once in this one.

    Every process has a thread here that hands it one task after another over a connection of
    their own. So a process that is killed, in the middle of a result even, is an end of file for
    its thread; `concurrent.futures.ProcessPoolExecutor`, whose processes share a pipe, may wait
    for the rest of the result for ever.

    Args:
        processes: How many; with 1 there are no others.
        preload: Modules that the processes have imported when they start.
    """

    def __init__(self, processes: int, preload: Sequence[str] = ()) -> None:
        self.processes = processes
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._broken = self._closed = False
        self._lock = threading.Lock()
        self._ahead = _AHEAD * processes if processes > 1 else 0
        if processes > 1:
            keep_freed()  # Results are megabytes, each of which is freed when it is written.
        self._threads = [
            threading.Thread(
                target=self._serve, args=(_context(preload), process_context()), daemon=True
            )
            for _ in range(processes if processes > 1 else 0)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, function: Callable[..., T], /, *arguments: Any) -> Future[T]:
        """The future result of `function(*arguments)`; all must be picklable.

        The future raises what the function raises, and DataError if a process was killed.
        """
        future: Future[T] = Future()
        if not self._threads:
            future.set_result(function(*arguments))
            return future
        with self._lock:  # Behind the end of a closed pool nobody would ever answer.
            if self._closed:
                future.set_exception(_killed())
            else:
                self._tasks.put((future, function, arguments))
        return future

    def window(self) -> Window[Any]:
        """A new window of tasks in this pool."""
        return Window(self, self._ahead)

    def map(
        self, function: Callable[..., T], tasks: Iterable[tuple[Any, ...]], result_bytes: int = 0
    ) -> Iterator[T]:
        """Yields the results of `function(*task)` in the order of the tasks.

        Args:
            result_bytes: About how large a result is: of large ones fewer are ahead.
        """
        room = max(self.processes, _BYTES_AHEAD // max(result_bytes, 1))
        window: Window[T] = Window(self, min(self._ahead, room))
        for task in tasks:
            yield from window.submit(function, *task)
        yield from window.drain()

    def close(self) -> None:
        """Ends the processes once they are done with what they do now; what waits fails."""
        with self._lock:
            self._broken = self._closed = True
            for _ in self._threads:
                self._tasks.put(None)
        for thread in self._threads:
            thread.join()
        _unpickled.cache_clear()  # The next run may find other files behind the same names.

    def _serve(self, context: Any, here_known: ProcessContext) -> None:
        """Hands tasks to a process of its own until the pool is closed."""
        here, there = context.Pipe()
        process = context.Process(target=_work, args=(there, here_known), daemon=True)
        failure: JobError = _killed()
        try:
            process.start()
        except (EOFError, OSError):  # The fork server was killed.
            self._broken = True
        except RuntimeError:  # Python starts none while it imports the program itself.
            self._broken = True
            failure = UsageError(
                "no process can be started while a program is imported: run the job below "
                "if __name__ == '__main__', or with --direct_num_workers 1"
            )
        there.close()
        while task := self._tasks.get():
            future, *call = task
            try:
                if self._broken:
                    raise EOFError
                here.send(call)
                result, error = here.recv()
            except (EOFError, OSError):
                # All that waits must fail: its own thread may be gone.
                self._broken = True
                future.set_exception(failure)
                continue
            except Exception as raised:  # It cannot be pickled, or its result not unpickled.
                future.set_exception(raised)
                continue
            if error:
                future.set_exception(error)
            else:
                future.set_result(result)
        here.close()


_Task = tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]


def _killed() -> DataError:
    return DataError(
        "a process that loads records was killed, by hand or for want of memory; no dataset was "
        "written. Run the same command again: it keeps the shards that are done "
        "(--direct_num_workers 1 takes the least memory)"
    )


def _work(connection: Any, given: ProcessContext) -> None:
    """Does tasks until the other side is gone."""
    adopt(given)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent.
    keep_freed()
    while True:
        try:
            function, arguments = connection.recv()
        except (EOFError, OSError):
            return
        result, error = None, None
        try:
            result = function(*arguments)
        except Exception as raised:
            error = _portable(raised)
        try:
            connection.send((result, error))
        except OSError:
            return
        except Exception as raised:  # The result cannot be pickled.
            connection.send((None, _portable(raised)))


def _portable(error: Exception) -> Exception:
    """The exception itself where it survives pickling, else one with the text of its traceback."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError("".join(traceback.format_exception(error)))
    return error


def call(packed: bytes, *arguments: Any) -> Any:
    """Calls a pickled function, which each process unpickles once.

    A bound method is a function too: all its calls, from any thread, share one object.
    """
    return _unpickled(packed)(*arguments)


@functools.lru_cache(maxsize=4)
def _unpickled(packed: bytes) -> Any:
    return pickle.loads(packed)


_pools: dict[int, Pool] = {}

_pools_lock = threading.Lock()


def shared_pool(processes: int, preload: Sequence[str] = ()) -> Pool:
    """The pool that all steps of a pipeline share in this process.

    Args:
        processes: The number of its processes.
        preload: Modules that its processes have imported when they start, if the pool is new.
    """
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


def _context(preload: Sequence[str]) -> Any:
    # Not fork: Beam and gRPC run threads. A fork server is a clean process that has the modules
    # loaded once, so that each further process is there in milliseconds and shares their memory.
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    from multiprocessing import forkserver  # Not there on Windows.

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
