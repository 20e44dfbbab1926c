"""Exact statistics of the values of one feature, which can be merged in any order.

A float64 is an integer times a power of two, so sums of floats are kept as integers. Adding integers
is exact, commutative and associative; adding floats is not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

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

# Values that are converted to float64 and summed at a time, in megabytes of memory.
_VALUES_AT_ONCE = 1 << 19

# Values whose exact integers, of a hundred bytes and more, are summed at a time.
_EXACT_AT_ONCE = 1 << 12


@dataclass
class Numbers:
    """Count, extremes and power sums of many values.

    Attributes:
        count: Number of finite values.
        nan: Number of values that are NaN or infinite, which nothing else counts.
        low, high: The smallest and the largest value; None without values.
        total, squares: Sums of the values and of their squares, in units of 2**-1074.
    """

    count: int = 0
    nan: int = 0
    low: float | int | None = None
    high: float | int | None = None
    total: int = 0
    squares: int = 0

    def add(self, arrays: Sequence[np.ndarray]) -> None:
        """Adds the values of arrays, one for each record, of one dtype and any shapes.

        Complex values have no order and are ignored.
        """
        flats = [array.reshape(-1) for array in arrays if array.size]
        if flats:
            flat = flats[0] if len(flats) == 1 else np.concatenate(flats)
            self.add_flat(flat, np.fromiter(map(len, flats), np.int64))

    def add_flat(self, flat: np.ndarray, sizes: np.ndarray) -> None:
        """Adds the values of m records, joined: [n], given how many each has: int64 [m], none of them 0."""
        if flat.dtype.kind in "biu":
            for part in _parts(flat):
                total, squares = sums_of_integers(part)
                self.add_sums(len(part), int(part.min()), int(part.max()), total, squares)
        elif flat.dtype.kind != "c":
            for records, values in _slices(sizes):
                self._add_floats(flat[values], sizes[records])

    def add_sums(self, count: int, low: int, high: int, total: int, squares: int) -> None:
        """Adds integers by their number, extremes, sum and sum of squares."""
        self._merge(count, 0, low, high, total << UNIT_BITS, squares << UNIT_BITS)

    def _add_floats(self, flat: np.ndarray, sizes: np.ndarray) -> None:
        """Adds the values of records that together have few values, or of one that has many."""
        # Relative to the smallest value of the record: beside squares of a large mean, a small
        # deviation would be lost. Each sum is within one record, so it does not depend on which
        # records are added together; adding each record by itself takes four times as long.
        with np.errstate(over="ignore", invalid="ignore"):
            if len(sizes) == 1:
                lows, highs, totals, squares = _sums_of_one(flat)
            else:
                lows, highs, totals, squares = _sums(flat.astype(np.float64), sizes)
        finite = np.isfinite(squares)
        starts = np.cumsum(sizes) - sizes
        for row in np.flatnonzero(~finite).tolist():
            self._add_extreme(flat[starts[row] : starts[row] + sizes[row]])
        if not finite.any():
            return
        columns = (sizes[finite], lows[finite], totals[finite], squares[finite])
        total, moved = moved_sums(*columns)
        least, greatest = float(lows[finite].min()), float(highs[finite].max())
        self._merge(int(columns[0].sum()), 0, least, greatest, total, moved)

    def _add_extreme(self, flat: np.ndarray) -> None:
        """Adds a record with values that are not finite, or whose squares are not."""
        for part in _parts(flat, _EXACT_AT_ONCE):
            finite = part[np.isfinite(part)]
            self.nan += int(part.size - finite.size)
            if finite.size:
                items = [exact(item) for item in finite.tolist()]
                sums = (sum(items), sum(item * item for item in items) >> UNIT_BITS)
                self._merge(finite.size, 0, float(finite.min()), float(finite.max()), *sums)

    def _merge(self, count: int, nan: int, low: Any, high: Any, total: int, squares: int) -> None:
        self.count += count
        self.nan += nan
        if low is not None:
            low, high = low + 0, high + 0  # -0.0 becomes 0.0: of both, the first would be kept.
            self.low = low if self.low is None else min(self.low, low)
            self.high = high if self.high is None else max(self.high, high)
        self.total += total
        self.squares += squares

    def merge(self, other: Numbers) -> None:
        """Adds the values that another object has counted."""
        self._merge(other.count, other.nan, other.low, other.high, other.total, other.squares)

    def state(self) -> list[Any]:
        """Its exact state as JSON values."""
        return [self.count, self.nan, self.low, self.high, self.total, self.squares]

    def to_json(self) -> dict[str, Any]:
        """count, min, max, mean and (population) std, and the sums, which merging keeps exact; `nan` if there are any."""
        result: dict[str, Any] = {"count": self.count}
        if self.nan:
            result["nan"] = self.nan
        if self.count:
            unit = 1 << UNIT_BITS
            mean = Fraction(self.total, self.count * unit)
            variance = Fraction(self.squares, self.count * unit) - mean * mean
            result |= {
                "min": self.low,
                "max": self.high,
                "mean": float(mean),
                "std": square_root(variance),
                "sum": exact_text(self.total),
                "squares": exact_text(self.squares),
            }
        return result


def _parts(flat: np.ndarray, most: int = _VALUES_AT_ONCE) -> Iterator[np.ndarray]:
    """Yields the values [n] in parts of at most `most` values."""
    for start in range(0, len(flat), most):
        yield flat[start : start + most]


def _slices(sizes: np.ndarray) -> Iterator[tuple[slice, slice]]:
    """Yields the records and the values of successive parts: at most `_VALUES_AT_ONCE`, or one record."""
    ends = np.cumsum(sizes)
    first = start = 0
    while first < len(sizes):
        last = max(int(ends.searchsorted(start + _VALUES_AT_ONCE, side="right")), first + 1)
        yield slice(first, last), slice(start, int(ends[last - 1]))
        first, start = last, int(ends[last - 1])


def _sums(flat: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, ...]:
    """The extremes of each of m records, and the sums of its distances from the low one and of their squares.

    The values of all records are float64 [n], and each has int64 [m] of them.
    """
    starts = np.cumsum(sizes) - sizes
    lows, highs = np.minimum.reduceat(flat, starts), np.maximum.reduceat(flat, starts)
    above = flat - np.repeat(lows, sizes)
    return lows, highs, np.add.reduceat(above, starts), np.add.reduceat(np.square(above), starts)


def _sums_of_one(flat: np.ndarray) -> tuple[np.ndarray, ...]:
    """As `_sums`, of one record of any number of values."""
    low = np.float64(np.min([part.min() for part in _parts(flat)]))
    high = np.float64(np.max([part.max() for part in _parts(flat)]))
    sums = np.zeros(2)
    for part in _parts(flat):
        above = part.astype(np.float64) - low
        sums += np.add.reduceat(above, [0])[0], np.add.reduceat(np.square(above), [0])[0]
    return tuple(np.array([number]) for number in (low, high, *sums))


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
