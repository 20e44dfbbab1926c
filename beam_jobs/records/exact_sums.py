"""Exact sums of many numbers.

A float64 is an integer times a power of two, so sums of floats are kept as integers. Adding integers
is exact, commutative and associative; adding floats is not.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

# Sums are integers in units of 2**-1074, the smallest float64, of which every float64 is a multiple.
UNIT_BITS = 1074

# float64 holds all integers up to this.
_FLOAT64_EXACT = 1 << 53

# The square of this, and a sum of 2**32 numbers up to this, are in int64.
_INT32_EXACT = (1 << 31) - 1

# Between these, a product of two values and a count is a float64, and so is its rounding error.
_SMALLEST, _LARGEST = 1e-100, 1e100

# The sum of 256 squares of bytes is below 2**24, and float32 holds all integers up to that.
_BYTES_EXACT = 256

# Bytes that are converted to float32 and summed at a time: about one task of the pool.
_BYTES_AT_ONCE = 1 << 20


def exact(value: float) -> int:
    """A finite float64 in units of 2**-1074."""
    numerator, denominator = value.as_integer_ratio()
    return numerator << (UNIT_BITS - denominator.bit_length() + 1)


def exact_text(total: int) -> str:
    """A number of units of 2**-1074 as a hexadecimal float of any length, which `float.fromhex` reads."""
    zeros = (total & -total).bit_length() - 1 if total else UNIT_BITS
    return f"{'-' * (total < 0)}0x{abs(total) >> zeros:x}p{zeros - UNIT_BITS:+d}"


def square_root(variance: Fraction) -> float:
    """The square root of a variance; 0 if rounding made it slightly negative."""
    if variance <= 0:
        return 0.0
    # The square of a float64 may be far outside the range of float64.
    half = (variance.numerator.bit_length() - variance.denominator.bit_length()) // 2
    return math.ldexp(math.sqrt(variance / Fraction(4) ** half), half)


def sums_of_integers(flat: np.ndarray) -> tuple[int, int]:
    """The sums of integers [n], n up to 2**31, and of their squares.

    If every partial sum is an integer that float64 holds, it takes half the time of int64. Not
    `wide @ wide`: BLAS would start threads, which compete with the workers and nearly doubled the time
    of a whole job.
    """
    if flat.itemsize == 1:
        ((total, squares),) = sums_of_bytes(flat, 1)
        return total, squares
    largest = max(abs(int(flat.min())), abs(int(flat.max())))
    if largest * largest * flat.size < _FLOAT64_EXACT:
        wide = flat.astype(np.float64)
        return int(wide.sum()), int(np.einsum("i,i->", wide, wide))
    if largest <= _INT32_EXACT:
        wide = flat.astype(np.int64)
        squared = np.square(wide)
        high, low = squared >> 31, squared & _INT32_EXACT
        return int(wide.sum()), (int(high.sum()) << 31) + int(low.sum())
    items = flat.tolist()
    return sum(items), sum(item * item for item in items)


def sums_of_bytes(flat: np.ndarray, channels: int) -> list[tuple[int, int]]:
    """The sums of bytes [n * channels] and of their squares, for each channel.

    Sums of 256 bytes of a channel fit into float32, which takes half the time of float64. Separating the
    channels first would take twice as long.
    """
    sums = np.zeros((channels, 2))
    step = _BYTES_AT_ONCE // channels * channels
    for start in range(0, len(flat), step):
        part = flat[start : start + step].astype(np.float32)
        width = channels * -(-len(part) // (channels * _BYTES_EXACT))
        whole = len(part) // width * width
        rows, rest = part[:whole].reshape(-1, width), part[whole:].reshape(-1, channels)
        for power, product in enumerate(("ij->j", "ij,ij->j")):
            columns = np.einsum(product, *[rows] * (power + 1))
            sums[:, power] += columns.reshape(-1, channels).sum(axis=0, dtype=np.float64)
            sums[:, power] += np.power(rest, power + 1).sum(axis=0, dtype=np.float64)
    return [(int(total), int(squares)) for total, squares in sums]


def sum_exactly(values: np.ndarray) -> int:
    """The sum of finite float64 [n], n up to 2**26, in units of 2**-1074.

    Halves of mantissas with the same exponent add up to integers that float64 holds, so a value takes
    nanoseconds, and the result does not depend on the order.
    """
    if not len(values):
        return 0
    mantissas, exponents = np.frexp(values)
    whole = np.ldexp(mantissas, 53)
    high = np.floor(np.ldexp(whole, -27))
    low = whole - np.ldexp(high, 27)
    least = int(exponents.min())
    bins = exponents - least
    total = 0
    halves = (np.bincount(bins, half).tolist() for half in (high, low))
    for exponent, (above, below) in enumerate(zip(*halves, strict=True)):
        total += (int(above) << 27) + int(below) << exponent
    shift = least - 53 + UNIT_BITS
    return total << shift if shift >= 0 else total >> -shift


def _product(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """float64 products and their rounding errors, which together are exact (Dekker, 1971)."""
    product = a * b
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    error = a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)
    return product, error


def _halves(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Splits each float64 into a sum of two with half the digits (Veltkamp)."""
    moved = a * float((1 << 27) + 1)
    high = moved - (moved - a)
    return high, a - high


def moved_sums(
    sizes: np.ndarray, lows: np.ndarray, totals: np.ndarray, squares: np.ndarray
) -> tuple[int, int]:
    """The sums of values and of their squares, in units of 2**-1074, over n records.

    Args:
        sizes: Number of values in each record, int [n].
        lows: The smallest value in each record, finite float64 [n].
        totals: Sum of (value - low) in each record, float64 [n].
        squares: Sum of (value - low)**2 in each record, float64 [n].
    """
    ordinary = _is_ordinary(lows) & _is_ordinary(totals)
    total = moved = 0
    odd = (column[~ordinary].tolist() for column in (sizes, lows, totals, squares))
    for size, low, above, square in zip(*odd, strict=True):
        base, rest = exact(low), exact(above)
        total += size * base + rest
        moved += (base * (size * base + 2 * rest) >> UNIT_BITS) + exact(square)
    counts, lows, totals = sizes[ordinary].astype(np.float64), lows[ordinary], totals[ordinary]
    linear = _product(counts, lows)
    total += sum_exactly(np.concatenate([*linear, totals]))
    parts = [part for factor in (*linear, 2 * totals) for part in _product(lows, factor)]
    moved += sum_exactly(np.concatenate([*parts, squares[ordinary]]))
    return total, moved


def _is_ordinary(values: np.ndarray) -> np.ndarray:
    """Whether float64 holds products of three such values and their rounding errors."""
    size = np.abs(values)
    return (size == 0) | ((size > _SMALLEST) & (size < _LARGEST))
