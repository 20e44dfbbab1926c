"""Pairs of records: runs of equal keys, and the distance of hashes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

# As many 8-byte numbers as fit into a cache.
_PART = 1 << 16


def pairs_in_runs(is_next_equal: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields places i < j of all pairs of items in the same run, each pair once, int64, at most 2**16 at a time.

    `is_next_equal`, bool [n - 1], is whether each item is in the same run as the next.
    """
    breaks = np.flatnonzero(~is_next_equal)
    starts = np.concatenate([[0], breaks + 1])
    sizes = np.diff(np.concatenate([starts, [len(is_next_equal) + 1]]))
    starts, sizes = starts[sizes > 1], sizes[sizes > 1]
    # The number of later items in the run of each item.
    later = np.repeat(sizes, sizes) - _places(sizes) - 1
    items = np.repeat(starts, sizes) + _places(sizes)
    items, later = items[later > 0], later[later > 0]
    ends = np.cumsum(later)
    begin = 0
    while begin < len(items):
        done = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, done + _PART, side="right")))
        counts, firsts = later[begin:end], items[begin:end]
        i = np.repeat(firsts, counts)
        yield i, i + 1 + _places(counts)
        begin = end


def _places(sizes: np.ndarray) -> np.ndarray:
    """0 to size - 1 for each size, int64 [sum of sizes]."""
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def popcount(numbers: np.ndarray) -> np.ndarray:
    """The number of set bits in each uint64 number, uint8."""
    if hasattr(np, "bitwise_count"):
        return np.bitwise_count(numbers)
    # NumPy 1 cannot count bits.
    octets = np.ascontiguousarray(numbers)[..., None].view(np.uint8)
    return np.unpackbits(octets, axis=-1).sum(axis=-1, dtype=np.uint8)
