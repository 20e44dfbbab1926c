"""Arrays whose memory is used again once nobody refers to it."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

# TensorFlow takes an array as it is, without a copy, where it is aligned to this.
_ALIGNMENT = 64

# Smaller arrays come from memory that the allocator keeps anyway.
_WORTH = 64 << 10

# Looked through for each array. Of those that nobody uses fewer are kept: batches of very different
# sizes leave some that fit none.
_MAX_SLABS, _MAX_UNUSED = 64, 16

# So often the slab that was used longest ago is let go: what a consumer has held once, and arrays of
# a size that came once, are not kept for ever.
_REQUESTS = 64


def _references(slabs: list[np.ndarray], number: int) -> int:
    return sys.getrefcount(slabs[number])


# Those of a slab that nobody uses.
_UNUSED = _references([np.empty(0)], 0)


class Recycled:
    """A source of arrays; safe to share between threads.

    New memory costs a page fault for every 4 KiB, which is more than it takes to decode what is
    written there: batches come twice as fast from memory that a batch before them has had. A slab
    is free when no array, view or tensor that was made of it is left.
    """

    def __init__(self) -> None:
        self._slabs: list[np.ndarray] = []
        self._requests = 0
        self._lock = threading.Lock()

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> np.ndarray:
        """An array of undefined values, C-contiguous."""
        nbytes = math.prod(shape) * dtype.itemsize
        if dtype.hasobject or nbytes < _WORTH:
            return np.empty(shape, dtype)
        slab = self._slab(nbytes + _ALIGNMENT)
        start = -slab.ctypes.data % _ALIGNMENT
        return slab[start : start + nbytes].view(dtype).reshape(shape)

    def _slab(self, nbytes: int) -> np.ndarray:
        slabs = self._slabs
        with self._lock:
            unused = [n for n in range(len(slabs)) if _references(slabs, n) == _UNUSED]
            self._requests += 1
            if self._requests % _REQUESTS == 0 and len(unused) > 1:
                del slabs[unused.pop()]
            for number in unused:
                if nbytes <= len(slabs[number]) <= 4 * nbytes:
                    # To the front: what was used last is likeliest to be in the processor's cache.
                    slabs.insert(0, slabs.pop(number))
                    return slabs[0]
            for number in reversed(unused[_MAX_UNUSED:]):
                del slabs[number]
            # An eighth more, so that batches of slightly different sizes share a slab.
            slabs.insert(0, np.empty(nbytes + nbytes // 8, np.uint8))
            del slabs[_MAX_SLABS:]
            return slabs[0]
