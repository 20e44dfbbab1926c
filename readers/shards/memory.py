"""An allocator that reuses the memory of arrays that are no longer in use."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

# In bytes: TensorFlow can use an aligned array without a copy.
_ALIGNMENT = 64

# Smaller arrays are left to NumPy, whose allocator reuses their memory anyway.
_MIN_BYTES = 64 << 10

# All slabs are searched for each array. Fewer unused slabs are kept, because batches of very different
# sizes leave some that fit no other batch.
_MAX_SLABS, _MAX_UNUSED = 64, 16

# The number of calls for which the memory of rows is kept: rows of the last call are in use while the next are made.
_KEPT_CALLS = 4

# How often the slab that has been unused longest is freed, so that the memory of arrays that were kept
# once, or of a size that occurred once, is freed at some time.
_REQUESTS_PER_FREED_SLAB = 64


def _references(slabs: list[np.ndarray], number: int) -> int:
    return sys.getrefcount(slabs[number])


# The reference count of a slab that no array uses.
_UNUSED = _references([np.empty(0)], 0)


class RecyclingAllocator:
    """Allocates arrays in reused memory. It is safe to share between threads.

    New memory costs a page fault for every 4 KiB, which takes longer than decoding the data written
    there: batches are made twice as fast in memory that an earlier batch has used. A slab of memory
    is free when no array, view or tensor in it is left.
    """

    def __init__(self) -> None:
        self._slabs: list[np.ndarray] = []
        self._rows: list[np.ndarray] = []
        self._requests = 0
        self._lock = threading.Lock()

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> np.ndarray:
        """A C-contiguous array of undefined values."""
        nbytes = math.prod(shape) * dtype.itemsize
        if dtype.hasobject or nbytes < _MIN_BYTES:
            return np.empty(shape, dtype)
        slab = self._slab(nbytes + _ALIGNMENT)
        start = -slab.ctypes.data % _ALIGNMENT
        return slab[start : start + nbytes].view(dtype).reshape(shape)

    def rows(self, shapes: Sequence[Sequence[int]], dtype: np.dtype[Any]) -> np.ndarray:
        """An array of undefined values for each shape, each a separate allocation: object [n]."""
        sizes = [math.prod(shape) * dtype.itemsize for shape in shapes]
        with self._lock:
            pool = self._rows
            free = [n for n in range(len(pool)) if _references(pool, n) == _UNUSED]
            chosen, given = set[int](), list[np.ndarray]()
            for nbytes in sizes:
                fit = next((n for n in free if nbytes <= len(pool[n]) <= 4 * nbytes), None)
                if fit is not None:
                    free.remove(fit)
                    chosen.add(fit)
                given.append(np.empty(nbytes, np.uint8) if fit is None else pool[fit])
            others = [slab for n, slab in enumerate(pool) if n not in chosen]
            self._rows = [*given, *others][: _KEPT_CALLS * len(given)]
        out = np.empty(len(given), object)
        for row, (slab, nbytes, shape) in enumerate(zip(given, sizes, shapes, strict=True)):
            out[row] = slab[:nbytes].view(dtype).reshape(shape)
        return out

    def _slab(self, nbytes: int) -> np.ndarray:
        """An unused slab of `nbytes` or more, uint8 [n]."""
        slabs = self._slabs
        with self._lock:
            unused = [n for n in range(len(slabs)) if _references(slabs, n) == _UNUSED]
            self._requests += 1
            if self._requests % _REQUESTS_PER_FREED_SLAB == 0 and len(unused) > 1:
                del slabs[unused.pop()]
            for number in unused:
                if nbytes <= len(slabs[number]) <= 4 * nbytes:
                    # Move it to the front: the slab used last is most likely in the CPU's cache.
                    slabs.insert(0, slabs.pop(number))
                    return slabs[0]
            for number in reversed(unused[_MAX_UNUSED:]):
                del slabs[number]
            # An eighth more, so that batches of slightly different sizes can share a slab.
            slabs.insert(0, np.empty(nbytes + nbytes // 8, np.uint8))
            del slabs[_MAX_SLABS:]
            return slabs[0]
