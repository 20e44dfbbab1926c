"""The memory that tests allocate."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Iterator


@contextlib.contextmanager
def peak_below(limit: int) -> Iterator[None]:
    """Asserts that Python's objects of the block never take `limit` bytes or more."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()
