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
class Sampled:
    """Figures of values that were drawn.

    Attributes:
        drawn: How many were drawn.
        nan, infinite, zero: Their shares; NaN without values.
        low, high, mean, std: Of the finite values; NaN if no value is finite.
        quantiles: Those of `QUANTILES`, of the finite ones.
    """

    drawn: int
    nan: float
    infinite: float
    zero: float
    low: float
    high: float
    mean: float
    std: float
    quantiles: tuple[float, ...]

    @property
    def missing(self) -> float:
        """The share of values that are no finite numbers."""
        return self.nan + self.infinite


@dataclass(frozen=True)
class Counted:
    """Figures of all records, from a manifest.

    Attributes:
        count: The number of finite values.
        missing: How many are NaN or infinite.
        low, high, mean, std: Of the finite values.
    """

    count: int
    missing: int
    low: float
    high: float
    mean: float
    std: float

    @property
    def missing_share(self) -> float:
        """The share of values that are no finite numbers."""
        return self.missing / max(1, self.count + self.missing)


def sampled(values: np.ndarray) -> Sampled:
    """The figures of values.

    Args:
        values: Numbers of any real dtype and shape.
    """
    total = values.size
    numbers = finite(values)
    unknown = int(np.isnan(values).sum()) if values.dtype.kind == "f" else 0
    nan, infinite = (_share(n, total) for n in (unknown, total - len(numbers) - unknown))
    zero = _share(int((numbers == 0).sum()), total)
    if not len(numbers):
        nothing = math.nan, math.nan, math.nan, math.nan
        return Sampled(total, nan, infinite, zero, *nothing, (math.nan,) * len(QUANTILES))
    low, high = float(numbers.min()), float(numbers.max())
    # Sums of the largest floats would be infinite.
    scale = max(abs(low), abs(high)) or 1.0
    scaled = numbers / scale
    mean, std = float(scaled.mean()) * scale, float(scaled.std()) * scale
    # Each quantile is one of the numbers, so that those of whole numbers are whole.
    quantiles = np.quantile(numbers, QUANTILES, method="inverted_cdf")
    return Sampled(total, nan, infinite, zero, low, high, mean, std, tuple(map(float, quantiles)))


def _share(count: int, total: int) -> float:
    return count / total if total else math.nan


def joint(found: Sampled, of_all: Counted | None) -> Sampled:
    """The figures of a sample, with those of all records in their place where these are known."""
    if of_all is None:
        return found
    missing, share = found.missing, of_all.missing_share
    nan = share * found.nan / missing if missing > 0 else share
    return replace(
        found,
        drawn=of_all.count + of_all.missing,
        nan=nan,
        infinite=share - nan,
        low=of_all.low,
        high=of_all.high,
        mean=of_all.mean,
        std=of_all.std,
    )


def counted(splits: Sequence[Split], feature: str) -> Counted | None:
    """The figures of all records of some splits; None if a split that has records lacks them."""
    found = [_figures(split, feature) for split in splits if split.records]
    if not found or None in found:
        return None
    parts = [part for part in found if part is not None and part.count]
    missing = sum(part.missing for part in found if part is not None)
    if not parts:
        return Counted(0, missing, math.nan, math.nan, math.nan, math.nan)
    count = sum(part.count for part in parts)
    scale = max(max(abs(part.low), abs(part.high)) for part in parts) or 1.0
    mean = math.fsum(part.mean / scale * (part.count / count) for part in parts)
    variance = math.fsum(
        (part.count / count) * ((part.std / scale) ** 2 + (part.mean / scale - mean) ** 2)
        for part in parts
    )
    return Counted(
        count,
        missing,
        min(part.low for part in parts),
        max(part.high for part in parts),
        mean * scale,
        math.sqrt(variance) * scale,
    )


def _figures(split: Split, feature: str) -> Counted | None:
    """The figures of a split; None if the manifest has none that make sense."""
    figures: Any = split.statistics.get(feature)
    if not isinstance(figures, Mapping):
        return None
    count, missing = figures.get("count", 0), figures.get("nan", 0)
    if type(count) is not int or type(missing) is not int or not (count or missing):
        return None
    if not count:
        return Counted(0, missing, math.nan, math.nan, math.nan, math.nan)
    numbers = [figures.get(name) for name in ("min", "max", "mean", "std")]
    if not all(type(number) in (int, float) for number in numbers):
        return None
    return Counted(count, missing, *map(float, numbers))  # type: ignore[arg-type]
