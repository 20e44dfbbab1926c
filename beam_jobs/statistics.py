"""Numbers about every feature, exact and the same whatever the order they are merged in.

A float64 is an integer times a power of two, so sums of floats are kept as integers: adding them
is exact, commutative and associative, which no float sum is. Within one record values are added
by NumPy, in the record's own fixed order.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from readers.format.schema import PICTURES, Feature, Schema

# Sums are integers in units of the smallest float64 square: 2**-1074 for values, and the squares
# of values are floats themselves.
_UNIT_BITS = 1074
_FLOAT64_EXACT = 1 << 53

# Distinct labels that are counted one by one; more is no classification.
MAX_COUNTED = 10_000


def exact(value: float) -> int:
    """A finite float64 as an integer number of 2**-1074."""
    numerator, denominator = value.as_integer_ratio()
    return numerator << (_UNIT_BITS - denominator.bit_length() + 1)


def _square_root(variance: Fraction) -> float:
    """Zero where rounding left a constant a hair below it."""
    if variance <= 0:
        return 0.0
    # The square of a float64 may lie far outside of float64.
    half = (variance.numerator.bit_length() - variance.denominator.bit_length()) // 2
    return math.ldexp(math.sqrt(variance / Fraction(4) ** half), half)


@dataclass
class Numbers:
    """Count, extremes and power sums of many values.

    Attributes:
        count: Values that are numbers.
        nan: Values that are NaN or infinite; they are in no other figure.
        total, squares: Sum of the values and of their squares, in units of 2**-1074.
    """

    count: int = 0
    nan: int = 0
    low: float | int | None = None
    high: float | int | None = None
    total: int = 0
    squares: int = 0

    def add(self, values: np.ndarray) -> None:
        """Adds all values of an array of any shape; complex ones have no order and are left out."""
        flat = values.reshape(-1)
        if not flat.size or flat.dtype.kind == "c":
            return
        if flat.dtype.kind in "biu":
            self._add_integers(flat)
        else:
            self._add_floats(flat.astype(np.float64))

    def _add_integers(self, flat: np.ndarray) -> None:
        low, high = int(flat.min()), int(flat.max())
        largest = max(abs(low), abs(high))
        if largest * largest * flat.size < _FLOAT64_EXACT:
            # Every partial sum is a whole number below 2**53, so float64 is exact: half the time
            # of int64. Not `wide @ wide`: BLAS starts threads for it, which nearly doubled the
            # time of a whole job beside the workers' own.
            wide = flat.astype(np.float64)
            total, squares = int(wide.sum()), int(np.einsum("i,i->", wide, wide))
        else:
            items = flat.tolist()
            total, squares = sum(items), sum(item * item for item in items)
        self._merge(flat.size, 0, low, high, total << _UNIT_BITS, squares << _UNIT_BITS)

    def _add_floats(self, flat: np.ndarray) -> None:
        # Measured from the least value: the squares of a large mean would drown a small deviation.
        with np.errstate(over="ignore", invalid="ignore"):
            low, high = float(flat.min()), float(flat.max())
            above = flat - low
            total, squares = float(above.sum()), float(np.square(above).sum())
        if math.isfinite(squares):
            base, rest = exact(low), exact(total)
            moved = (flat.size * base * base + 2 * base * rest >> _UNIT_BITS) + exact(squares)
            self._merge(flat.size, 0, low, high, flat.size * base + rest, moved)
            return
        finite = flat[np.isfinite(flat)]
        self.nan += int(flat.size - finite.size)
        if finite.size:
            # Beyond 1e150 a square overflows; such values are summed one by one.
            items = [exact(item) for item in finite.tolist()]
            sums = (sum(items), sum(item * item for item in items) >> _UNIT_BITS)
            self._merge(finite.size, 0, float(finite.min()), float(finite.max()), *sums)

    def _merge(self, count: int, nan: int, low: Any, high: Any, total: int, squares: int) -> None:
        self.count += count
        self.nan += nan
        if low is not None:
            low, high = low + 0, high + 0  # of -0.0 and 0.0 the least would be the first
            self.low = low if self.low is None else min(self.low, low)
            self.high = high if self.high is None else max(self.high, high)
        self.total += total
        self.squares += squares

    def merge(self, other: Numbers) -> None:
        """Adds what another one has seen."""
        self._merge(other.count, other.nan, other.low, other.high, other.total, other.squares)

    def to_json(self) -> dict[str, Any]:
        """count, min, max, mean and (population) std; `nan` where there are any."""
        result: dict[str, Any] = {"count": self.count}
        if self.nan:
            result["nan"] = self.nan
        if self.count:
            unit = 1 << _UNIT_BITS
            mean = Fraction(self.total, self.count * unit)
            variance = Fraction(self.squares, self.count * unit) - mean * mean
            result |= {
                "min": self.low,
                "max": self.high,
                "mean": float(mean),
                "std": _square_root(variance),
            }
        return result


@dataclass
class FeatureStatistics:
    """What is known of one feature: its numbers, its lengths, and how often each label occurs.

    Attributes:
        values: Of a numeric feature that is not an encoded picture.
        lengths: Of each unknown dimension, or the bytes of a string or a picture.
        counted: Of the label, occurrences by value.
    """

    values: Numbers = field(default_factory=Numbers)
    lengths: dict[str, Numbers] = field(default_factory=dict)
    counted: Counter[int] | None = None

    def _add_length(self, name: str, *lengths: int) -> None:
        self.lengths.setdefault(name, Numbers()).add(np.array(lengths, np.int64))

    def add(self, feature: Feature, value: Any) -> None:
        """Adds one record's value, as `Encoder` takes it."""
        if feature.encoding in PICTURES:
            self._add_length("bytes", len(value))
        elif feature.encoding == "sequence":
            self._add_length("0", len(value))
            for array in value:
                self.values.add(array)
        elif feature.dtype == "string":
            items = np.asarray(value, object).reshape(-1).tolist()
            encoded = [item.encode() if isinstance(item, str) else item for item in items]
            self._add_length("bytes", *map(len, encoded))
        else:
            array = np.asarray(value)
            self.values.add(array)
            if self.counted is not None:
                self.counted.update(array.reshape(-1).tolist())
                if len(self.counted) > MAX_COUNTED:
                    self.counted = None
            for axis, size in enumerate(feature.shape):
                if size is None:
                    self._add_length(str(axis), array.shape[axis])

    def merge(self, other: FeatureStatistics) -> None:
        """Adds what another one has seen."""
        self.values.merge(other.values)
        for name, numbers in other.lengths.items():
            self.lengths.setdefault(name, Numbers()).merge(numbers)
        if self.counted is not None and other.counted is not None:
            self.counted.update(other.counted)
            if len(self.counted) > MAX_COUNTED:
                self.counted = None
        else:
            self.counted = None

    def to_json(self) -> dict[str, Any]:
        result: dict[str, Any] = {}
        if self.values.count or self.values.nan:
            result |= self.values.to_json()
        if self.lengths:
            result["lengths"] = {
                name: numbers.to_json() for name, numbers in sorted(self.lengths.items())
            }
        if self.counted:
            result["values"] = {str(value): n for value, n in sorted(self.counted.items())}
        return result


class Statistics:
    """The statistics of every feature of some records, and of how many.

    Args:
        schema: Of the records.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self.features = {name: FeatureStatistics() for name in schema}
        label = schema.get("label")
        if label is not None and not label.shape and label.dtype == "int64":
            self.features["label"].counted = Counter()

    def add(self, record: Mapping[str, Any]) -> None:
        """Adds one record that fits the schema."""
        for name, statistics in self.features.items():
            statistics.add(self._schema[name], record[name])

    def merge(self, other: Statistics) -> None:
        """Adds what another one has seen."""
        for name, statistics in self.features.items():
            statistics.merge(other.features[name])

    def to_json(self) -> dict[str, Any]:
        """Feature name -> its figures, as the manifest holds them."""
        return {name: statistics.to_json() for name, statistics in self.features.items()}
