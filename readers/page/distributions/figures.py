"""The figures of a feature: of all records where the manifest has them, and else of the sample."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from readers.format.splits import Split
from readers.page.distributions.drawings import finite

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class Figures:
    """Figures of values; NaN where they are unknown, or no value is finite.

    Attributes:
        count: How many values there are.
        nan, infinite, zero: Their shares. Those of all records have no infinite ones: all that are no finite
            numbers are in `nan`.
        low, high, mean, std: Of the finite values.
        quantiles: Those of `QUANTILES`, of the finite ones.
    """

    count: int
    nan: float
    infinite: float
    zero: float
    low: float = math.nan
    high: float = math.nan
    mean: float = math.nan
    std: float = math.nan
    quantiles: tuple[float, ...] = (math.nan,) * len(QUANTILES)

    @property
    def missing(self) -> float:
        """The share of values that are no finite numbers."""
        return self.nan + self.infinite


def sampled(values: np.ndarray) -> Figures:
    """The figures of values of any real dtype and shape."""
    total = values.size
    numbers = finite(values)
    unknown = int(np.isnan(values).sum()) if values.dtype.kind == "f" else 0
    counts = unknown, total - len(numbers) - unknown, int((numbers == 0).sum())
    nan, infinite, zero = (count / total if total else math.nan for count in counts)
    shares = Figures(total, nan, infinite, zero)
    if not len(numbers):
        return shares
    low, high = float(numbers.min()), float(numbers.max())
    # Sums of the largest floats would be infinite.
    scale = max(abs(low), abs(high)) or 1.0
    scaled = numbers / scale
    mean, std = float(scaled.mean()) * scale, float(scaled.std()) * scale
    # Each quantile is one of the numbers, so that those of whole numbers are whole.
    quantiles = np.quantile(numbers, QUANTILES, method="inverted_cdf")
    quantiles = tuple(map(float, quantiles))
    return replace(shares, low=low, high=high, mean=mean, std=std, quantiles=quantiles)


def joint(found: Figures, of_all: Figures | None) -> Figures:
    """The figures of a sample, with those of all records in their place where these are known."""
    if of_all is None:
        return found
    nan = of_all.nan * (found.nan / found.missing if found.missing > 0 else 1.0)
    infinite = of_all.nan - nan
    return replace(of_all, nan=nan, infinite=infinite, zero=found.zero, quantiles=found.quantiles)


def counted(splits: Sequence[Split], feature: str) -> Figures | None:
    """The figures of all records of some splits; None if a split that has records lacks them."""
    found: list[Any] = [split.statistics.get(feature) for split in splits if split.records]
    if not found or not all(map(_are_figures, found)):
        return None
    count, missing = (sum(each.get(name, 0) for each in found) for name in ("count", "nan"))
    shares = Figures(count + missing, missing / (count + missing), 0.0, math.nan)
    parts = [(each["count"] / count, each) for each in found if each.get("count")]
    if not parts:
        return shares
    low, high = min(each["min"] for _, each in parts), max(each["max"] for _, each in parts)
    scale = max(abs(low), abs(high)) or 1.0
    mean = math.fsum(share * (each["mean"] / scale) for share, each in parts)
    variance = math.fsum(
        share * ((each["std"] / scale) ** 2 + (each["mean"] / scale - mean) ** 2)
        for share, each in parts
    )
    std = math.sqrt(variance) * scale
    return replace(shares, low=float(low), high=float(high), mean=mean * scale, std=std)


def _are_figures(figures: Any) -> bool:
    """Whether what the manifest has of a split makes sense."""
    if not isinstance(figures, Mapping):
        return False
    counts = figures.get("count", 0), figures.get("nan", 0)
    if any(type(count) is not int or count < 0 for count in counts) or not any(counts):
        return False
    numbers = [figures.get(name) for name in ("min", "max", "mean", "std")]
    return not counts[0] or all(type(number) in (int, float) for number in numbers)
