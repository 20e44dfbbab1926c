"""Reads ahead in threads."""

from __future__ import annotations

import atexit
import functools
import itertools
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


def prefetched(items: Iterator[_Item], count: int) -> Iterator[_Item]:
    """Yields the same items, of which a thread prepares up to `count`, at least 1, ahead.

    Exceptions are raised in order. The thread ends when the iterator is closed or no longer referred to.
    """
    made, room = queue.SimpleQueue[tuple[bool, Any]](), queue.SimpleQueue[bool]()
    closed = threading.Event()
    for _ in range(count):
        room.put(True)

    def close() -> None:
        closed.set()
        room.put(False)

    thread = threading.Thread(target=_make, args=(items, made, room, closed), daemon=True)
    _CLOSES[thread] = close
    _end_threads_at_exit("jax" in sys.modules)
    thread.start()
    try:
        while True:
            is_item, item = made.get()
            if is_item:
                room.put(True)
                yield item
                del item  # Its memory can be reused while waiting for the next one.
            elif item is None:
                return
            else:
                raise item
    finally:
        close()


def _make(
    items: Iterator[Any],
    made: queue.SimpleQueue[Any],
    room: queue.SimpleQueue[bool],
    closed: threading.Event,
) -> None:
    """Makes an item for each True in `room`, until it is closed."""
    end: BaseException | None = None
    try:
        while room.get() and not closed.is_set():
            made.put((True, next(items)))
        # Whoever still waits must not take this for the end of the items.
        end = RuntimeError("the program ends, so no more is read")
    except StopIteration:
        pass
    except BaseException as error:  # Any error, because somebody waits for an item.
        end = error
    finally:
        _CLOSES.pop(threading.current_thread(), None)
    made.put((False, end))


# What closes the items of each thread that runs.
_CLOSES: dict[threading.Thread, Callable[[], None]] = {}


@functools.cache
def _end_threads_at_exit(with_jax: bool) -> None:
    """Ends the threads before JAX ends, in whose code an interpreter that ends would abort them.

    Functions that are registered later run earlier, so it is called when the first thread starts, and when the first one
    starts after JAX was imported.
    """
    atexit.register(_end_threads)


def _end_threads() -> None:
    threads = dict(_CLOSES)
    for close in threads.values():
        close()
    until = time.monotonic() + 5
    for thread in filter(threading.Thread.is_alive, threads):
        thread.join(max(0.0, until - time.monotonic()))


def mapped_ahead(
    make: Callable[[_Item], _Answer], items: Iterable[_Item], count: int
) -> Iterator[_Answer]:
    """Yields the answer for each item, in order. Up to `count` threads, at least 1, prepare the next answers.

    Exceptions of `make` are raised in order. If the iterator is no longer referred
    to, each thread ends after the item it is working on.
    """
    items = iter(items)
    # The caller makes the first one, so that it can be interrupted.
    begun = deque[Callable[[], _Answer]](partial(make, item) for item in itertools.islice(items, 1))
    while begun:
        answer = begun.popleft()()
        begun.extend(_begun(make, item) for item in itertools.islice(items, count - len(begun)))
        yield answer
        del answer  # Its memory can be reused while waiting for the next one.


def _begun(make: Callable[[_Item], _Answer], item: _Item) -> Callable[[], _Answer]:
    """Starts making the answer for an item in a thread; returns a function that waits for it."""
    future = Future[_Answer]()

    def run() -> None:
        try:
            future.set_result(make(item))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future.result
