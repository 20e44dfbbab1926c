"""Exact statistics of the values of one feature, which can be merged in any order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from beam_jobs.records.exact_sums import (
    UNIT_BITS,
    exact,
    exact_text,
    moved_sums,
    square_root,
    sums_of_integers,
)

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
