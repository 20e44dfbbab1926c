"""Numbers of any range as levels between 0 and 1, to be drawn."""

from __future__ import annotations

import numpy as np


def finite_range(values: np.ndarray) -> tuple[float, float]:
    """The smallest and the largest finite number of an array of floats; 0 and 0 if no number is finite."""
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)


def levels(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Numbers, float64, such that `low` is 0 and `high` is 1; all are 0 if both are the same."""
    # Halves, because the difference of two large numbers may be infinite.
    span = high / 2 - low / 2
    if not span:
        return np.where(np.isfinite(values), 0.0, values)
    return np.asarray((values / 2 - low / 2) / span, np.float64)
