"""Reads ahead in a thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any, TypeVar

from readers.batches.batch_format import is_number

_Item = TypeVar("_Item")


def check_prefetch(count: int) -> None:
    """Checks the argument `prefetch` of a reader.

    Raises:
        ValueError: It is not a number of at least 0.
    """
    if not is_number(count, 0):
        raise ValueError(f"prefetch={count!r}: expected a number of at least 0")


def prefetched(items: Iterator[_Item], count: int) -> Iterator[_Item]:
    """The same items, up to `count` of them made by a thread before they are asked for.

    An exception of `items` is raised at its place. The thread ends when the iterator is closed or
    no longer referred to.

    Args:
        items: Used by the thread alone.
        count: At least 1.
    """
    made: queue.Queue[tuple[bool, Any]] = queue.Queue(count)
    closed = threading.Event()
    thread = threading.Thread(target=_make, args=(items, made, closed), daemon=True)
    thread.start()
    try:
        while True:
            is_item, item = made.get()
            if is_item:
                yield item
            elif item is None:
                return
            else:
                raise item
    finally:
        closed.set()
        while not made.empty():  # The thread may wait for room.
            made.get_nowait()


def _make(items: Iterator[Any], made: queue.Queue[Any], closed: threading.Event) -> None:
    end: Exception | None = None
    try:
        for item in items:
            made.put((True, item))
            del item  # Its memory can be reused while the next one waits for room.
            if closed.is_set():
                return
    except Exception as error:
        end = error
    made.put((False, end))
