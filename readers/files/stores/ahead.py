"""Requests to a store before their responses are needed: tens at once, in the order of the reads.

A request takes tens of milliseconds, but only one of processor time. A `Window` requests the data that
its thread will read next, and `taken` returns the responses, or raises the errors of the requests.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

from readers.files.stores.per_process import PerProcess

T = TypeVar("T")

# The most requests in flight in a process.
_THREADS = 64

# The most of one window. At 50 ms each, 32 fetch 640 small files per second: as many of the smallest images as one
# core decodes.
_AT_ONCE = 32

# Bytes of responses that wait for their reads; one more may be larger.
_BYTES_AHEAD = 64 << 20


class Part(NamedTuple):
    """A range of an object, shorter at its end; `total` is the object's size, `version` identifies its content."""

    data: bytes
    total: int
    version: Any


class Read(NamedTuple):
    """A range of an object to read, to its end without a size; `expected` is the number of bytes to come, 0 if unknown."""

    path: str
    start: int = 0
    size: int | None = None
    expected: int = 0

    def covers(self, start: int, size: int | None) -> bool:
        """Whether its response has the byte at `start`, and all later bytes if `size` is None."""
        if self.size is None:
            return self.start <= start
        return size is not None and self.start <= start < self.start + self.size


class Window:
    """The next reads of a thread, in order; within this context they are requested in advance, and some may be skipped."""

    def __init__(self, reads: Sequence[Read], request: Callable[[Read], Part]) -> None:
        self._reads, self._request = reads, request
        self._places: dict[str, deque[int]] = {}
        for place, read in enumerate(reads):
            self._places.setdefault(read.path, deque()).append(place)
        self._requested: dict[int, tuple[Future[Part], int]] = {}
        # The first read that may still be made, the first that is not requested yet, and the bytes in between.
        self._first = self._next = self._held = 0
        self._usual = _BYTES_AHEAD // _AT_ONCE

    def __enter__(self) -> Window:
        self._outer: Window | None = getattr(_current, "window", None)
        _current.window = self
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        _current.window = self._outer
        self._skip(len(self._reads))

    def take(self, path: str, start: int, size: int | None) -> tuple[int, Part] | None:
        """The same as the function `taken`, for this window."""
        places = self._places.get(path, deque())
        while places and places[0] < self._first:
            places.popleft()
        place = next((at for at in places if self._reads[at].covers(start, size)), None)
        if place is None:
            return None
        # Earlier reads were skipped: the mask of a rejected image, for example.
        self._skip(place)
        self._start()
        future = self._taken(place)
        self._first = place + 1
        self._start()
        part = future.result()
        self._usual = (3 * self._usual + len(part.data)) // 4
        return self._reads[place].start, part

    def _taken(self, place: int) -> Future[Part]:
        future, size = self._requested.pop(place)
        self._held -= size
        return future

    def _skip(self, first: int) -> None:
        """Gives up the reads before `first`; their requests are not sent, unless they are in flight."""
        for place in [place for place in self._requested if place < first]:
            self._taken(place).cancel()
        self._first, self._next = first, max(self._next, first)

    def _start(self) -> None:
        """Requests the next reads, as many as there is room for, but at least one."""
        while self._next < len(self._reads):
            size = self._reads[self._next].expected or self._usual
            full = len(self._requested) >= _AT_ONCE or self._held + size > _BYTES_AHEAD
            if self._requested and full:
                return
            future = in_background(self._request, self._reads[self._next])
            self._requested[self._next] = future, size
            self._held += size
            self._next += 1


_current = threading.local()


def taken(path: str, start: int, size: int | None) -> tuple[int, Part] | None:
    """The first byte and the response of a request that has the range (to the end without a size); None without one."""
    window: Window | None = getattr(_current, "window", None)
    return window.take(path, start, size) if window else None


def in_background(function: Callable[..., T], *arguments: Any) -> Future[T]:
    """The future result of `function(*arguments)`, called in one of this process's request threads."""
    future: Future[T] = Future()
    _queues.get("", _calls).put((future, function, arguments))
    return future


_queues = PerProcess["queue.SimpleQueue[Any]"](1)


def _calls() -> queue.SimpleQueue[Any]:
    """The calls that wait for a thread of this process."""
    calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for _ in range(_THREADS):
        # Daemons, unlike the threads of an executor: a process that failed does not wait for retries.
        threading.Thread(target=_answer, args=(calls,), daemon=True).start()
    return calls


def _answer(calls: queue.SimpleQueue[Any]) -> None:
    """Makes calls, one after another, until the process ends."""
    while True:
        future, function, arguments = calls.get()
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(function(*arguments))
            except BaseException as error:
                future.set_exception(error)
        del future, function, arguments  # Do not keep the result until the next call.
