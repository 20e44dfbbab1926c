"""Random orders of the numbers 0 to n-1, computed instead of stored.

Each is a Feistel network of additions over pairs (left, right) that stand for the numbers, as described by Black and Rogaway in
"Ciphers with Arbitrary Finite Domains" (2002). It takes no memory, and any part of the order is available immediately. `hash32`
uses only operators that NumPy arrays and TensorFlow's tensors share, and therefore no shifts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from readers.format.compiled import library

# Fewer rounds leave patterns in the orders of a few numbers, see tests/readers/order/test_permutation.py.
_ROUNDS = 8

_LOW, _TWO_32 = 0xFFFFFFFF, 1 << 32


class Permutation:
    """A permutation of the numbers 0 to n-1, n below 2**62, as a pure function of its arguments.

    The key is a sequence of numbers from 0 to 2**63 - 1; an int64 array [orders, 1] in it gives several permutations, also of
    several n, int64 [orders].
    """

    def __init__(self, n: int | np.ndarray, *key: int | np.ndarray) -> None:
        self._keys = np.ascontiguousarray(round_keys(key))
        self._sizes = np.array(np.broadcast_to(n, self._keys.shape[:-1] or (1,)), np.int64)
        widths = {size: math.isqrt(max(size - 1, 0)) + 1 for size in np.unique(n).tolist()}
        self._widths = np.array([widths[size] for size in self._sizes.tolist()], np.int64)

    def __call__(self, places: np.ndarray, orders: np.ndarray | None = None) -> np.ndarray:
        """The numbers at some places, int64 [k]; `orders`, int64 [k], selects one of several permutations for each."""
        return library.permuted(places, self._sizes, self._widths, self._keys, orders)


def round_keys(key: Sequence[Any]) -> np.ndarray:
    """The key of each round, int64 [rounds], or [orders, rounds] if the key contains an array [orders, 1]."""
    state: Any = 0
    for part in key:
        state = hash32(state ^ part)
        state = hash32(state + part // _TWO_32 + 1)
    return hash32(state + np.arange(_ROUNDS) * 0x9E3779B9)


def record_keys(places: np.ndarray, key: Sequence[int]) -> np.ndarray:
    """A pseudo-random number below 2**63 for each place of an epoch, int64 [k]; the key contains numbers such as a seed."""
    keys = round_keys(key)
    low = hash32(hash32(places ^ keys[0]) ^ places // _TWO_32 ^ keys[1])
    high = hash32(low ^ places ^ keys[2]) & 0x7FFFFFFF
    return high * _TWO_32 + low


def hash32(numbers: Any) -> Any:
    """A 32-bit hash of the lower 32 bits of int64: `lowbias32` of Chris Wellons' hash-prospector (public domain)."""
    low = numbers & _LOW
    low = low ^ low // 65536
    low = (low * 0x7FEB352D) & _LOW
    low = low ^ low // 32768
    # One factor is split because the product would not fit into 63 bits.
    low = ((low & 0xFFFF) * 0x846CA68B + (low // 65536 * 0x846CA68B & 0xFFFF) * 65536) & _LOW
    return low ^ low // 65536
