"""What one input may take: memory, by the peak of the process, and processor time.

Linux resets the peak of the resident memory before each input, and it is read after it; tracemalloc takes
several times the time of the input. Memory that the allocator has kept from earlier inputs, up to 64 MiB, does
not show there, nor does memory that is allocated but never written. For that, campaigns limit the address space
(`fuzz.worker`), which gives a MemoryError; no function documents one. Time is that of the process, not of the
clock, because other processes run beside it.
"""

from __future__ import annotations

import contextlib
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Limits:
    """What one input may take.

    Attributes:
        memory: Bytes beside twice the input: what the input may unpack to, several times over, and the
            first use of libraries.
        seconds: Seconds beside one for each megabyte.
    """

    memory: int = 64 << 20
    seconds: float = 1.0


def measured(function: Callable[[bytes], None], data: bytes, limits: Limits) -> None:
    """Calls a function with an input.

    An input that seems to take too much is tried again: the first may have imported a library.

    Raises:
        AssertionError: It took too much memory or time.
        Exception: What the function raises.
    """
    allowed, most = limits.seconds + len(data) / 1e6, limits.memory + 2 * len(data)
    seconds, memory = _taken(function, data)
    if seconds > allowed or memory > most:
        again, memory = _taken(function, data)
        seconds = min(seconds, again)
    assert seconds <= allowed, f"too much time: {seconds:.1f} s, at most {allowed:.1f}"
    assert memory <= most, f"too much memory: {memory >> 20} MiB, at most {most >> 20}"


def _taken(function: Callable[[bytes], None], data: bytes) -> tuple[float, int]:
    """The processor time of a call, in seconds, and how far it raised the resident memory, in bytes."""
    # Systems other than Linux have no such file: there the memory counts that raises the peak of all inputs.
    with contextlib.suppress(OSError), Path("/proc/self/clear_refs").open("wb", 0) as file:
        file.write(b"5")  # man 5 proc: the peak becomes what the process has now.
    before, began = _peak(), time.process_time()
    function(data)
    return time.process_time() - began, _peak() - before


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
