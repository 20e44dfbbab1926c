"""Bins of histograms."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

# The most bins of whole numbers, and of other numbers.
MOST_BINS, _BINS = 60, 40

# Positive numbers get bins of equal ratios if the largest is more than this many times the 5% quantile.
_WIDE = 1e4

# Below this, floats can represent halves between whole numbers.
_WHOLE = 2.0**52

# Edges beyond the largest float would be infinite.
_ENDS = np.finfo(np.float64).min, np.finfo(np.float64).max


class Bins(NamedTuple):
    """The edges of bins, float64 [bins + 1], ascending; `is_log` is whether their ratios are equal rather than their differences."""

    edges: np.ndarray
    is_log: bool

    def counts(self, values: np.ndarray) -> np.ndarray:
        """The number of finite values in each bin, int64 [bins]."""
        return np.histogram(finite([values]), self.edges)[0]


def finite(parts: Iterable[np.ndarray]) -> np.ndarray:
    """The finite numbers of several arrays, float64 [n]."""
    numbers = np.concatenate([np.empty(0), *(part.reshape(-1) for part in parts)])
    return numbers[np.isfinite(numbers)]


def bins_of(parts: Iterable[np.ndarray]) -> Bins | None:
    """Bins for several arrays together, of equally many whole numbers if all are whole; None if no value is finite."""
    numbers = finite(parts)
    if not len(numbers):
        return None
    low, high = float(numbers.min()), float(numbers.max())
    if low / 2 == high / 2:  # They are equal, or the smallest numbers above 0.
        half = max(0.5, abs(low) / 100)
        return Bins(np.clip([low - half, high + half], *_ENDS), False)
    if low > 0 and high / _WIDE > np.quantile(numbers, 0.05):
        with np.errstate(over="ignore"):
            return Bins(np.clip(np.geomspace(low, high, _BINS + 1), low, high), True)
    if max(-low, high) < _WHOLE and (numbers == np.rint(numbers)).all():
        width = -(-(high - low + 1) // MOST_BINS)
        return Bins(low - 0.5 + width * np.arange(-(-(high - low + 1) // width) + 1), False)
    shares = np.linspace(0, 1, _BINS + 1)
    # There is no float between two neighbouring floats.
    return Bins(np.unique(low * (1 - shares) + high * shares), False)
