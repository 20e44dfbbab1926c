"""A random order of the numbers 0 to n-1 that is computed, not stored.

A Feistel network of additions over the pairs (left, right) that number them, as Black and Rogaway
describe it in "Ciphers with Arbitrary Finite Domains" (2002). It takes no memory, and any part of
the order is there at once. All of it is arithmetic of int64 values with the operators that arrays of
NumPy and tensors of TensorFlow share, so that both find the same order on every machine.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

# Fewer leave traces in orders of a handful; see tests/test_permutation.py.
_ROUNDS = 8

_LOW = 0xFFFFFFFF

Shift = Callable[[Any, int], Any]


class Permutation:
    """A bijection of 0 to n-1, a pure function of its arguments.

    Args:
        n: How many numbers, below 2**62.
        key: What the order depends on, each a number from 0 to 2**63 - 1.
    """

    def __init__(self, n: int, *key: int) -> None:
        self._n = n
        self._width = max(math.isqrt(max(n - 1, 0)) + 1, 1)
        self._keys = round_keys(key)

    def __len__(self) -> int:
        return self._n

    def __call__(self, numbers: np.ndarray) -> np.ndarray:
        """What stands at some places of the order, int64 [k]; numbers is int64 [k]."""
        found = np.asarray(permuted(numbers, self._n, self._width, self._keys))
        while (beyond := np.flatnonzero(found >= self._n)).size:
            found[beyond] = permuted(found[beyond], self._n, self._width, self._keys)
        return found


def permuted(numbers: Any, n: Any, width: Any, keys: Any, shift: Shift = operator.rshift) -> Any:
    """A bijection of 0 to m-1, where m >= n is less than n + width.

    One of 0 to n-1 comes of it by applying it again to what is not below n, until all is.

    Args:
        numbers: int64 [k].
        n: How many numbers there are.
        width: The smallest number whose square is at least n; 1 if that is 0.
        keys: As `round_keys` gives them.
        shift: To the right.
    """
    height = (n + width - 1) // width
    left, right = numbers // height, numbers % height
    for number in range(_ROUNDS):
        if number % 2:
            right = (right + mixed(left ^ keys[number], shift)) % height
        else:
            left = (left + mixed(right ^ keys[number], shift)) % width
    return left * height + right


def round_keys(key: Sequence[Any], shift: Shift = operator.rshift) -> Any:
    """The key of each round, int64 [rounds]."""
    state: Any = 0
    for part in key:
        state = mixed(state ^ part, shift)
        state = mixed(state + shift(part, 32) + 1, shift)
    return mixed(state + np.arange(_ROUNDS) * 0x9E3779B9, shift)


def record_keys(places: Any, key: Sequence[Any], shift: Shift = operator.rshift) -> Any:
    """A pseudo-random number below 2**63 for each place, int64 [k].

    Args:
        places: int64 [k].
        key: What the numbers depend on, as of a `Permutation`.
    """
    keys = round_keys(key, shift)
    low = mixed(mixed(places ^ keys[0], shift) ^ shift(places, 32) ^ keys[1], shift)
    high = mixed(low ^ places ^ keys[2], shift) & 0x7FFFFFFF
    return high * 4294967296 + low


def mixed(numbers: Any, shift: Shift = operator.rshift) -> Any:
    """A 32-bit hash of the lower 32 bits of int64 values.

    Source: the finalizer `lowbias32` of Chris Wellons' hash-prospector, which is public domain.
    """
    low = numbers & _LOW
    low = low ^ shift(low, 16)
    low = (low * 0x7FEB352D) & _LOW
    low = low ^ shift(low, 15)
    # Each factor is split, as the product would not fit into 63 bits.
    low = ((low & 0xFFFF) * 0x846CA68B + (shift(low, 16) * 0x846CA68B & 0xFFFF) * 65536) & _LOW
    return low ^ shift(low, 16)
