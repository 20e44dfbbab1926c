"""Runs code that releases the interpreter's lock on all processors of this machine."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from readers.hosts import torch_worker


def processors() -> int:
    """The number of processors for this process, which may be one of the workers of a `DataLoader`."""
    has_affinity = hasattr(os, "sched_getaffinity")  # macOS lacks it.
    usable = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    _, workers = torch_worker()
    return max(usable // workers, 1)


def on_all_processors(work: Callable[[int], None], count: int) -> None:
    """Calls `work` with each number below a count, in threads; raises the error of the lowest number, and then stops."""
    helpers = min(processors(), count) - 1
    numbers = itertools.count()
    failed: dict[int, BaseException] = {}

    def work_through() -> None:
        # Not a task per number: a task costs as much as decoding a small image.
        while not failed and (number := next(numbers)) < count:
            try:
                work(number)
            except BaseException as error:
                failed[number] = error

    started = []
    # Once the main thread has ended, executors take no work.
    with contextlib.suppress(RuntimeError):
        for _ in range(helpers):
            started.append(_threads(os.getpid()).submit(work_through))
    work_through()
    for thread in started:
        # It has not begun if all threads were busy with other callers' images.
        if not thread.cancel():
            thread.result()
    if failed:
        raise failed[min(failed)]


@cache
def _threads(process: int) -> ThreadPoolExecutor:
    """The threads of this process; a fork does not inherit those of its parent."""
    return ThreadPoolExecutor(max(processors(), 2) - 1, f"readers-{process}")
