"""Exact statistics of the values of one feature, which can be merged in any order.

A float64 is an integer times a power of two, so sums of floats are kept as integers. Adding integers
is exact, commutative and associative; adding floats is not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

# Sums are integers in units of 2**-1074, the smallest float64, of which every float64 is a multiple.
UNIT_BITS = 1074

# A text of `exact_text`, and the most binary digits of such a number: it is a sum of less than 2**60 squares.
_EXACT = re.compile(r"(-?)0x([0-9a-f]{1,2000})p([+-][0-9]{1,4})")
_MOST_BITS = 8000

# float64 holds all integers up to this.
_FLOAT64_EXACT = 1 << 53

# The square of this, and a sum of 2**32 numbers up to this, are in int64.
_INT32_EXACT = (1 << 31) - 1

# The products of the two halves of numbers up to this are in int64.
_INT63_EXACT = 1 << 62

# Between these, a product of two values and a count is a float64, and so is its rounding error.
_SMALLEST, _LARGEST = 1e-100, 1e100

# The sum of 256 squares of bytes is below 2**24, and float32 holds all integers up to that.
_BYTES_EXACT = 256

# Bytes that are converted to float32 and summed at a time: about one task of the pool.
_BYTES_AT_ONCE = 1 << 17

# Values that are converted to float64 and summed at a time, in megabytes of memory.
_VALUES_AT_ONCE = 1 << 19

# Values whose exact integers, of a hundred bytes and more, are summed at a time.
_EXACT_AT_ONCE = 1 << 12


@dataclass
class Numbers:
    """Count, extremes and power sums of many values.

    Attributes:
        count: Number of finite values.
        nan: Number of values that are NaN or infinite, which no other count includes.
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
        columns = [array.reshape(-1, 1) for array in arrays if array.size]
        if columns:
            add_channels([self], np.concatenate(columns), np.array([*map(len, columns)]))

    def add_integers(self, flat: np.ndarray) -> None:
        """Adds integers or booleans [n]."""
        for part in _parts(flat):
            total, squares = sums_of_integers(part)
            self.add_sums(len(part), int(part.min()), int(part.max()), total, squares)

    def add_sums(self, count: int, low: int, high: int, total: int, squares: int) -> None:
        """Adds integers by their number, extremes, sum and sum of squares."""
        self.merge(Numbers(count, 0, low, high, total << UNIT_BITS, squares << UNIT_BITS))

    def add_extreme(self, flat: np.ndarray) -> None:
        """Adds a record with values that are not finite, or whose squares are not."""
        for part in _parts(flat, _EXACT_AT_ONCE):
            finite = part[np.isfinite(part)]
            self.nan += int(part.size - finite.size)
            if finite.size:
                items = [exact(item) for item in finite.tolist()]
                sums = (sum(items), sum(item * item for item in items) >> UNIT_BITS)
                self.merge(Numbers(finite.size, 0, float(finite.min()), float(finite.max()), *sums))

    def merge(self, other: Numbers) -> None:
        """Adds the values that another object has counted."""
        self.count += other.count
        self.nan += other.nan
        if other.low is not None and other.high is not None:
            # -0.0 becomes 0.0: of both, the first would be kept.
            low, high = other.low + 0, other.high + 0
            self.low = low if self.low is None else min(self.low, low)
            self.high = high if self.high is None else max(self.high, high)
        self.total += other.total
        self.squares += other.squares

    def negative(self) -> Numbers:
        """Numbers that take these away where they are merged, but leave the extremes."""
        return Numbers(-self.count, -self.nan, None, None, -self.total, -self.squares)

    def to_json(self) -> dict[str, Any]:
        """count, min, max, mean and (population) std, and the sums, which merging keeps exact; `nan` if it is not 0."""
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

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Numbers:
        """The numbers whose `to_json` is a value; ValueError, KeyError or TypeError if there are none."""
        numbers = cls(int(value.get("count", 0)), int(value.get("nan", 0)))
        if numbers.count:
            numbers.low, numbers.high = value["min"], value["max"]
            numbers.total, numbers.squares = exact_of(value["sum"]), exact_of(value["squares"])
        return numbers


def add_channels(channels: Sequence[Numbers], joined: np.ndarray, sizes: np.ndarray) -> None:
    """Adds the values [rows, channels] of records with some numbers of rows, int64 [records], each to its channel."""
    if joined.dtype.kind in "biu":
        for channel, numbers in enumerate(channels):
            numbers.add_integers(joined[:, channel])
    elif joined.dtype.kind != "c":
        sizes = sizes[sizes > 0]
        for some, rows in _slices(sizes, _VALUES_AT_ONCE // len(channels)):
            _add_floats(channels, joined[rows], sizes[some])


def _add_floats(channels: Sequence[Numbers], joined: np.ndarray, sizes: np.ndarray) -> None:
    """Adds the values [n, channels] of m records with few rows in all, or of one with many; rows: int64 [m]."""
    # Relative to the smallest value of the record: a small deviation would be lost among squares of a large
    # mean. Each sum is of one record, so it does not depend on which records are added together.
    with np.errstate(over="ignore", invalid="ignore"):
        sums = _sums_of_one(joined) if len(sizes) == 1 else _sums(joined, sizes)
    finite = np.isfinite(sums[-1])
    starts = np.cumsum(sizes) - sizes
    for channel, row in np.argwhere(~finite).tolist():
        rows = slice(starts[row], starts[row] + sizes[row])
        channels[channel].add_extreme(joined[rows, channel])
    counts = np.where(finite, sizes, 0)
    lows, highs, totals, squares = (np.where(finite, each, 0) for each in sums)
    moved = moved_sums(counts, lows, totals, squares)
    least = np.where(finite, lows, np.inf).min(axis=1).tolist()
    greatest = np.where(finite, highs, -np.inf).max(axis=1).tolist()
    each = zip(channels, counts.sum(axis=1).tolist(), least, greatest, moved, strict=True)
    for numbers, count, low, high, (total, square) in each:
        if count:
            numbers.merge(Numbers(count, 0, low, high, total, square))


def _parts(flat: np.ndarray, most: int = _VALUES_AT_ONCE) -> Iterator[np.ndarray]:
    """Yields the values [n] in parts of at most `most` values."""
    for start in range(0, len(flat), most):
        yield flat[start : start + most]


def _slices(sizes: np.ndarray, most: int) -> Iterator[tuple[slice, slice]]:
    """Yields the records and the rows of successive parts: of at most `most` rows, or one record."""
    ends = np.cumsum(sizes)
    first = start = 0
    while first < len(sizes):
        last = max(int(ends.searchsorted(start + most, side="right")), first + 1)
        yield slice(first, last), slice(start, int(ends[last - 1]))
        first, start = last, int(ends[last - 1])


def _sums(joined: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, ...]:
    """The extremes of each of m records, and the sums of its distances from the low one and of their squares.

    The values of all records are [n, channels], and each has int64 [m] rows of them. Each result is float64
    [channels, m].
    """
    columns = _columns(joined)
    if len(joined) == len(sizes):
        nothing = columns - columns  # NaN if the value is not finite.
        return columns, columns, nothing, nothing
    values, lengths = columns.reshape(-1), np.tile(sizes, len(columns))
    starts = np.cumsum(lengths) - lengths
    lows, highs = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
    values -= np.repeat(lows, lengths)
    totals = np.add.reduceat(values, starts)
    values *= values
    sums = lows, highs, totals, np.add.reduceat(values, starts)
    return tuple(each.reshape(len(columns), len(sizes)) for each in sums)


def _sums_of_one(joined: np.ndarray) -> tuple[np.ndarray, ...]:
    """As `_sums`, of one record of any number of rows."""
    parts = list(_parts(joined, _VALUES_AT_ONCE // joined.shape[1] or 1))
    extremes = [(values.min(axis=1), values.max(axis=1)) for values in map(_columns, parts)]
    lows, highs = np.min(extremes, axis=0)[0], np.max(extremes, axis=0)[1]
    totals, squares = np.zeros_like(lows), np.zeros_like(lows)
    for values in map(_columns, parts):
        values -= lows[:, None]
        totals += _totals(values)
        values *= values
        squares += _totals(values)
    return tuple(each[:, None] for each in (lows, highs, totals, squares))


def _totals(values: np.ndarray) -> np.ndarray:
    """The sum of each row, added in the order of `_sums`, which is not that of `sum`."""
    starts = np.arange(len(values)) * values.shape[1]
    totals: np.ndarray = np.add.reduceat(values.reshape(-1), starts)
    return totals


def _columns(rows: np.ndarray) -> np.ndarray:
    """The values of rows [n, channels] as float64 [channels, n]; column by column it takes six times as long."""
    return rows.T.astype(np.float64, order="C")


def exact(value: float) -> int:
    """A finite float64 in units of 2**-1074."""
    numerator, denominator = value.as_integer_ratio()
    return numerator << (UNIT_BITS - denominator.bit_length() + 1)


def exact_text(total: int) -> str:
    """A number of units of 2**-1074 as a hexadecimal float of any length, which `float.fromhex` reads."""
    zeros = (total & -total).bit_length() - 1 if total else UNIT_BITS
    return f"{'-' * (total < 0)}0x{abs(total) >> zeros:x}p{zeros - UNIT_BITS:+d}"


def exact_of(text: str) -> int:
    """The number of units in a text of `exact_text`; ValueError if it is another text."""
    found = _EXACT.fullmatch(text)
    if not found or (bits := UNIT_BITS + int(found[3])) < 0 or bits > _MOST_BITS:
        raise ValueError(f"expected a hexadecimal number such as 0x1b7p-3, found {text[:80]!r}")
    total = int(found[2], 16) << bits
    return -total if found[1] else total


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
        return _sum_of(flat.astype(np.int64)), _sum_of(np.square(flat, dtype=np.int64))
    if largest <= _INT63_EXACT:
        whole: np.ndarray = flat.astype(np.int64)
        high, low = whole >> 31, whole & _INT32_EXACT
        squares = (_sum_of(high * high) << 62) + (_sum_of(high * low) << 32) + _sum_of(low * low)
        return _sum_of(whole), squares
    items = flat.tolist()
    return sum(items), sum(item * item for item in items)


def _sum_of(wide: np.ndarray) -> int:
    """The sum of integers up to 2**62, int64 [n], n up to 2**31."""
    return (int((wide >> 31).sum()) << 31) + int((wide & _INT32_EXACT).sum())


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


def sums_exactly(values: np.ndarray) -> list[int]:
    """The sums of each row of finite float64 [m, n], n up to 2**26, in units of 2**-1074.

    Halves of mantissas with the same exponent add up to integers that float64 holds, so a value takes
    nanoseconds, and the result does not depend on the order.
    """
    if not values.size:
        return [0] * len(values)
    mantissas, exponents = np.frexp(values)
    whole = mantissas * 2.0**53  # Exact, and a tenth of the time of ldexp.
    high = np.floor(whole * 2.0**-27)
    low = whole - high * 2.0**27
    least = int(exponents.min())
    width = int(exponents.max()) - least + 1
    bins = (exponents + (np.arange(len(values)) * width - least)[:, None]).reshape(-1)
    above, below = (
        np.bincount(bins, half.reshape(-1), len(values) * width) for half in (high, low)
    )
    totals = [0] * len(values)
    for at in np.flatnonzero((above != 0) | (below != 0)).tolist():
        row, exponent = divmod(at, width)
        totals[row] += (int(above[at]) << 27) + int(below[at]) << exponent
    shift = least - 53 + UNIT_BITS
    return [total << shift if shift >= 0 else total >> -shift for total in totals]


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
) -> list[tuple[int, int]]:
    """The sums of values and of their squares, in units of 2**-1074, for each of some channels of n records.

    Args:
        sizes: Number of values in each record, int [channels, n].
        lows: The smallest value in each record, finite float64 [channels, n].
        totals: Sum of (value - low) in each record, float64 [channels, n].
        squares: Sum of (value - low)**2 in each record, float64 [channels, n].
    """
    ordinary = _is_ordinary(lows) & _is_ordinary(totals)
    columns = (sizes.astype(np.float64), lows, totals, squares)
    counts, usual, above, square = (np.where(ordinary, column, 0) for column in columns)
    linear = _product(counts, usual)
    total = _sum_of_all(*linear, above)
    factors = [factor for factor in (*linear, 2 * above) if factor.any()]
    moved = _sum_of_all(square, *(part for one in factors for part in _product(usual, one)))
    odd = (column[~ordinary].tolist() for column in (sizes, lows, totals, squares))
    for channel, size, low, rest_above, rest in zip(
        np.nonzero(~ordinary)[0].tolist(), *odd, strict=True
    ):
        base, linear_rest = exact(low), exact(rest_above)
        total[channel] += size * base + linear_rest
        moved[channel] += (base * (size * base + 2 * linear_rest) >> UNIT_BITS) + exact(rest)
    return list(zip(total, moved, strict=True))


def _sum_of_all(first: np.ndarray, *others: np.ndarray) -> list[int]:
    """The sums of each row of some arrays together, as from `sums_exactly`."""
    # Often most are zeros, as the rounding errors of float32.
    rest = [other for other in others if other.any()]
    return sums_exactly(np.concatenate([first, *rest], axis=1))


def _is_ordinary(values: np.ndarray) -> np.ndarray:
    """Whether float64 holds products of three such values and their rounding errors."""
    size = np.abs(values)
    return (size == 0) | ((size > _SMALLEST) & (size < _LARGEST))
