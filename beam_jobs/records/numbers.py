"""Exact statistics of the values of one feature, which can be merged in any order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from beam_jobs.records.exact_sums import UNIT_BITS, exact, moved_sums, square_root, sums_of_integers

# float64 holds all integers up to this.
_FLOAT64_EXACT = 1 << 53


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
        """Adds the values of m records.

        Args:
            flat: The values of all records, joined: [n].
            sizes: Number of values in each record, int64 [m], none of them 0.
        """
        if flat.dtype.kind in "biu":
            self._add_integers(flat)
        elif flat.dtype.kind != "c":
            self._add_floats(flat.astype(np.float64), sizes)

    def _add_integers(self, flat: np.ndarray) -> None:
        low, high = int(flat.min()), int(flat.max())
        largest = max(abs(low), abs(high))
        if largest * largest * flat.size < _FLOAT64_EXACT:
            total, squares = sums_of_integers(flat)
        else:
            items = flat.tolist()
            total, squares = sum(items), sum(item * item for item in items)
        self.add_sums(flat.size, low, high, total, squares)

    def add_sums(self, count: int, low: int, high: int, total: int, squares: int) -> None:
        """Adds integers by their number, extremes, sum and sum of squares."""
        self._merge(count, 0, low, high, total << UNIT_BITS, squares << UNIT_BITS)

    def _add_floats(self, flat: np.ndarray, sizes: np.ndarray) -> None:
        # Relative to the smallest value of the record: beside squares of a large mean, a small
        # deviation would be lost. Each sum is within one record, so it does not depend on which
        # records are added together; adding each record by itself takes four times as long.
        starts = np.cumsum(sizes) - sizes
        with np.errstate(over="ignore", invalid="ignore"):
            lows = np.minimum.reduceat(flat, starts)
            highs = np.maximum.reduceat(flat, starts)
            above = flat - np.repeat(lows, sizes)
            totals = np.add.reduceat(above, starts)
            squares = np.add.reduceat(np.square(above), starts)
        finite = np.isfinite(squares)
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
        finite = flat[np.isfinite(flat)]
        self.nan += int(flat.size - finite.size)
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
        """count, min, max, mean and (population) std; `nan` if there are any."""
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
            }
        return result
