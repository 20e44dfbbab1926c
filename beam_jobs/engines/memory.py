"""Limits the memory that a call may allocate, and keeps or returns freed memory."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import resource
import threading
from collections.abc import Iterator
from pathlib import Path

# From glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_freed() -> None:
    """Keeps freed memory in this process for the next allocation.

    Returning megabytes to the system and taking them again costs a page fault for every 4 KiB: a
    quarter of the processor time of a job of recordings, and in the process that writes, up to ten
    times the cost of receiving the same bytes into memory that it already has.
    """
    with contextlib.suppress(AttributeError, OSError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 32 << 20)  # the maximum
        libc.mallopt(_M_TRIM_THRESHOLD, 64 << 20)


def give_back_freed() -> None:
    """Returns all memory that this process has freed to the system."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


@contextlib.contextmanager
def limited(size: int) -> Iterator[None]:
    """Limits the bytes that pyarrow may allocate in this context; MemoryError for more. Linux only.

    It limits the process, so all threads share their limits: it is for calls that take milliseconds.

    Args:
        size: The bytes.
    """
    if not _USED.exists():
        yield
        return
    _use_system_pool()
    _LIMITS.add(size)
    try:
        yield
    finally:
        _LIMITS.add(-size)


# The sixth number counts the pages to which the limit applies.
_USED = Path("/proc/self/statm")


class _Limits:
    """The limits of the threads of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._allowed = 0
        self._own = resource.getrlimit(resource.RLIMIT_DATA)

    def forget(self) -> None:
        """Gives a forked process its own limit, independent of the threads of its parent."""
        if self._allowed:
            resource.setrlimit(resource.RLIMIT_DATA, self._own)
        self.__init__()  # type: ignore[misc]

    def add(self, size: int) -> None:
        """Adds a limit to those of other threads, or one below 0, after the last of which the original limit is back."""
        with self._lock:
            if not self._allowed:
                self._own = resource.getrlimit(resource.RLIMIT_DATA)
            self._allowed += size
            wanted, most = self._own
            if self._allowed:
                used = int(_USED.read_bytes().split()[5]) * resource.getpagesize()
                stated = [n for n in self._own if n != resource.RLIM_INFINITY]
                wanted = min([used + self._allowed, *stated])
            resource.setrlimit(resource.RLIMIT_DATA, (wanted, most))


_LIMITS = _Limits()
os.register_at_fork(after_in_child=_LIMITS.forget)


@functools.cache
def _use_system_pool() -> None:
    """Makes Arrow allocate with `malloc`: its own pools never unmap what one large page took."""
    import pyarrow

    pyarrow.set_memory_pool(pyarrow.system_memory_pool())
