"""The figures of a feature: of all records where the manifest has them, and else of the sample."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from readers.format.splits import Split
from readers.pages.numbers import percent, short
from readers.pages.values.histograms import finite

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


class Figures(NamedTuple):
    """Figures of values; NaN where they are unknown, or no value is finite.

    Attributes:
        number: How many values there are.
        missing: The share of those that are no finite numbers.
        zero: The share of zeros.
        low, high, mean, std: Of the finite values.
        quantiles: At 5, 25, 50, 75 and 95 %, of the finite values.
    """

    number: int
    missing: float
    zero: float
    low: float = math.nan
    high: float = math.nan
    mean: float = math.nan
    std: float = math.nan
    quantiles: tuple[float, ...] = (math.nan,) * len(_QUANTILES)

    def cells(self) -> dict[str, str]:
        """The figures as text, by the titles of their columns."""
        low, quarter, median, three_quarters, high = map(short, self.quantiles)
        return {
            "values": f"{self.number:,}",
            "missing": percent(self.missing),
            "zeros": percent(self.zero),
            "min": short(self.low),
            "5%": low,
            "25%": quarter,
            "median": median,
            "75%": three_quarters,
            "95%": high,
            "max": short(self.high),
            "mean": short(self.mean),
            "std": short(self.std),
        }


def sampled(values: np.ndarray) -> Figures:
    """The figures of values of any real dtype and shape."""
    numbers = finite(values)
    if not len(numbers):
        return Figures(values.size, 1.0 if values.size else math.nan, math.nan)
    low, high = float(numbers.min()), float(numbers.max())
    # Sums of the largest floats would be infinite.
    scale = max(abs(low), abs(high)) or 1.0
    scaled = numbers / scale
    # Each quantile is one of the numbers, so that those of whole numbers are whole.
    quantiles = np.quantile(numbers, _QUANTILES, method="inverted_cdf")
    return Figures(
        values.size,
        1 - len(numbers) / values.size,
        int((numbers == 0).sum()) / values.size,
        low,
        high,
        float(scaled.mean()) * scale,
        float(scaled.std()) * scale,
        tuple(map(float, quantiles)),
    )


def with_all(found: Figures, splits: Sequence[Split], feature: str) -> Figures:
    """The figures of a sample, with those of all records of some splits in their place where the manifest has them."""
    stated: list[Any] = [split.statistics.get(feature) for split in splits if split.records]
    if not stated or not all(map(are_figures, stated)):
        return found
    count, missing = (sum(each.get(name, 0) for each in stated) for name in ("count", "nan"))
    found = found._replace(number=count + missing, missing=missing / (count + missing))
    parts = [(each["count"] / count, each) for each in stated if each.get("count")]
    if not parts:
        return found
    low, high = min(each["min"] for _, each in parts), max(each["max"] for _, each in parts)
    scale = max(abs(low), abs(high)) or 1.0
    mean = math.fsum(share * (each["mean"] / scale) for share, each in parts)
    variance = math.fsum(
        share * ((each["std"] / scale) ** 2 + (each["mean"] / scale - mean) ** 2)
        for share, each in parts
    )
    std = math.sqrt(variance) * scale
    return found._replace(low=float(low), high=float(high), mean=mean * scale, std=std)


def are_figures(stated: Any) -> bool:
    """Whether what the manifest has of a feature in a split are figures of numbers that make sense."""
    if not isinstance(stated, Mapping):
        return False
    counts = stated.get("count", 0), stated.get("nan", 0)
    if any(type(count) is not int or count < 0 for count in counts) or not any(counts):
        return False
    numbers = [stated.get(name) for name in ("min", "max", "mean", "std")]
    return not counts[0] or all(type(number) in (int, float) for number in numbers)
