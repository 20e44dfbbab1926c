"""Exact sums of many numbers.

A float64 is an integer times a power of two, so sums of floats are kept as integers: adding them
is exact, commutative and associative, which no float sum is.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

# Sums are integers in units of the smallest float64 square: 2**-1074 for values, and the squares
# of values are floats themselves.
UNIT_BITS = 1074

# Between these, products of two values, a count and an error of rounding are float64 as well.
_SMALLEST, _LARGEST = 1e-100, 1e100

# So many squares of bytes add up to less than 2**24, up to where float32 holds all integers.
_BYTES_EXACT = 256

# Bytes whose sums are taken at once, as float32: about a task of the pool.
_BYTES_AT_ONCE = 1 << 20


def exact(value: float) -> int:
    """A finite float64 as an integer number of 2**-1074."""
    numerator, denominator = value.as_integer_ratio()
    return numerator << (UNIT_BITS - denominator.bit_length() + 1)


def square_root(variance: Fraction) -> float:
    """Zero where rounding left a constant a hair below it."""
    if variance <= 0:
        return 0.0
    # The square of a float64 may lie far outside of float64.
    half = (variance.numerator.bit_length() - variance.denominator.bit_length()) // 2
    return math.ldexp(math.sqrt(variance / Fraction(4) ** half), half)


def sums_of_integers(flat: np.ndarray) -> tuple[int, int]:
    """The sums of integers [n] and of their squares, where the latter is below 2**53.

    Every partial sum is a whole number that float64 holds: half the time of int64. Not
    `wide @ wide`: BLAS starts threads for it, which nearly doubled the time of a whole job beside
    the workers' own.
    """
    if flat.itemsize > 1:
        wide = flat.astype(np.float64)
        return int(wide.sum()), int(np.einsum("i,i->", wide, wide))
    ((total, squares),) = sums_of_bytes(flat, 1)
    return total, squares


def sums_of_bytes(flat: np.ndarray, channels: int) -> list[tuple[int, int]]:
    """The sums of bytes [n * channels] of each channel, and of their squares.

    Columns of 256 bytes of one channel fit into float32, which takes half the time of float64; to
    take the channels apart first would take twice as long.
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
    """The sum of finite float64 [n], at most 2**26 of them, as an integer number of 2**-1074.

    Halves of mantissas of one exponent add up to whole numbers that float64 holds, so it takes
    nanoseconds of a value, and gives the same in any order.
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
    """float64 products, and what rounding took from each: together exact (Dekker, 1971)."""
    product = a * b
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    error = a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)
    return product, error


def _halves(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two float64 of half the digits, whose sum is each (Veltkamp)."""
    moved = a * float((1 << 27) + 1)
    high = moved - (moved - a)
    return high, a - high


def moved_sums(
    sizes: np.ndarray, lows: np.ndarray, totals: np.ndarray, squares: np.ndarray
) -> tuple[int, int]:
    """The sums of values and of their squares, of records measured from their least value.

    Args:
        sizes: How many values each has, [n].
        lows: Their least ones, finite.
        totals, squares: The sums of what they are above it, and of its squares.
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
    """Where float64 holds products of three of them, and what rounding takes from those."""
    size = np.abs(values)
    return (size == 0) | ((size > _SMALLEST) & (size < _LARGEST))
