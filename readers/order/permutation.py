"""Random orders of the numbers 0 to n-1 that are computed instead of stored.

Each is a Feistel network of additions over pairs (left, right) that stand for the numbers, as
described by Black and Rogaway in "Ciphers with Arbitrary Finite Domains" (2002). It takes no
memory, and any part of the order is available at once. Everything is int64 arithmetic; `hash32`
uses operators that NumPy arrays and TensorFlow's tensors share, and so no shift.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from readers.format.compiled import library

# Fewer rounds leave patterns in the orders of a few numbers, see
# tests/readers/order/test_permutation.py.
_ROUNDS = 8

_LOW, _TWO_32 = 0xFFFFFFFF, 1 << 32


class Permutation:
    """A permutation of the numbers 0 to n-1 that is a pure function of its arguments.

    Args:
        n: How many numbers there are, below 2**62.
        key: Numbers from 0 to 2**63 - 1 that determine the order, such as a seed and an epoch. If
            one of them is an int64 array [orders, 1], there is a permutation for each of its numbers.
    """

    def __init__(self, n: int, *key: int | np.ndarray) -> None:
        self._n = n
        self._width = max(math.isqrt(max(n - 1, 0)) + 1, 1)
        self._keys = round_keys(key)

    def __len__(self) -> int:
        return self._n

    def __call__(self, places: np.ndarray, orders: np.ndarray | None = None) -> np.ndarray:
        """The numbers at some places of the order, int64 [k].

        Args:
            places: int64 [k], each from 0 to n-1.
            orders: int64 [k], the permutation for each place, if there are several.
        """
        if orders is None:
            compiled = library.permuted(places, self._n, self._width, self._keys)
            if compiled is not None:
                return compiled
        keys = self._keys if orders is None else self._keys[orders].T
        found = np.asarray(permuted(places, self._n, self._width, keys))
        while (beyond := np.flatnonzero(found >= self._n)).size:
            keys = self._keys if orders is None else self._keys[orders[beyond]].T
            found[beyond] = permuted(found[beyond], self._n, self._width, keys)
        return found


def permuted(numbers: Any, n: Any, width: Any, keys: Any) -> Any:
    """A permutation of the numbers 0 to m-1, for some m from n to n + width - 1.

    To get a permutation of 0 to n-1, it is applied again to all results that are not below n.

    Args:
        numbers: int64 [k], the numbers to permute.
        n: How many numbers there are.
        width: The smallest number whose square is at least n, and at least 1.
        keys: The key of each round, int64 [rounds], or for each number, int64 [rounds, k].
    """
    height = (n + width - 1) // width
    left, right = numbers // height, numbers % height
    for number in range(_ROUNDS):
        if number % 2:
            right = (right + hash32(left ^ keys[number])) % height
        else:
            left = (left + hash32(right ^ keys[number])) % width
    return left * height + right


def round_keys(key: Sequence[Any]) -> Any:
    """The key of each round of `permuted`, int64 [rounds], or [orders, rounds] for several.

    Args:
        key: Numbers from 0 to 2**63 - 1, or int64 arrays [orders, 1], that determine the order.
    """
    state: Any = 0
    for part in key:
        state = hash32(state ^ part)
        state = hash32(state + part // _TWO_32 + 1)
    return hash32(state + np.arange(_ROUNDS) * 0x9E3779B9)


def record_keys(places: Any, key: Sequence[Any]) -> Any:
    """A pseudo-random number below 2**63 for each place, int64 [k].

    Args:
        places: int64 [k], the places of records in an epoch.
        key: Numbers from 0 to 2**63 - 1 that determine the result, such as a seed and an epoch.
    """
    keys = round_keys(key)
    low = hash32(hash32(places ^ keys[0]) ^ places // _TWO_32 ^ keys[1])
    high = hash32(low ^ places ^ keys[2]) & 0x7FFFFFFF
    return high * _TWO_32 + low


def hash32(numbers: Any) -> Any:
    """A 32-bit hash of the lower 32 bits of int64 values.

    Source: the finalizer `lowbias32` from Chris Wellons' hash-prospector, in the public domain.
    """
    low = numbers & _LOW
    low = low ^ low // 65536
    low = (low * 0x7FEB352D) & _LOW
    low = low ^ low // 32768
    # One factor is split because the product would not fit into 63 bits.
    low = ((low & 0xFFFF) * 0x846CA68B + (low // 65536 * 0x846CA68B & 0xFFFF) * 65536) & _LOW
    return low ^ low // 65536
