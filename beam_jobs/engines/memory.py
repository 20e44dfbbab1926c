"""What the allocator does with memory that was freed, where it is glibc's; nothing elsewhere."""

from __future__ import annotations

import contextlib
import ctypes

# From glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_freed() -> None:
    """Lets this process keep what it frees for the next time.

    Handing megabytes back to the system and taking them again is a page fault for every 4 KiB: a
    quarter of all processor time of a job of recordings, and in the process that writes up to ten
    times what it takes to receive the same bytes into memory that it has.
    """
    with contextlib.suppress(AttributeError, OSError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 32 << 20)  # the most it takes
        libc.mallopt(_M_TRIM_THRESHOLD, 64 << 20)


def give_back_freed() -> None:
    """Hands back to the system all that this process has freed, wherever it lies."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
