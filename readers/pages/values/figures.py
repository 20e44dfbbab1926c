"""The figures of a feature: of all records where the manifest has them, and else of the sample."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from readers.format.splits import Split
from readers.pages.numbers import percent, short

_LEVELS = ("min", "max", "mean", "std")


class Figures(NamedTuple):
    """Figures of values: their number, the share of those that are no finite numbers, and levels of the finite ones.

    Levels are NaN where no value is finite.
    """

    number: int
    missing: float
    low: float = math.nan
    high: float = math.nan
    mean: float = math.nan
    std: float = math.nan

    def cells(self) -> dict[str, str]:
        """The figures as text, by the titles of their columns."""
        levels = map(short, (self.low, self.high, self.mean, self.std))
        counts = {"values": f"{self.number:,}", "missing": percent(self.missing)}
        return counts | dict(zip(_LEVELS, levels, strict=True))


def pooled(parts: Mapping[str, np.ndarray]) -> Figures:
    """The figures of all values, given those of parts of them.

    Args:
        parts: The number of finite values of each part (`count`) and of others (`nan`), and the `min`, `max`, `mean` and
            `std` of the finite ones, float64 [parts] each.
    """
    counts, total = parts["count"], float(parts["count"].sum())
    every = total + float(parts["nan"].sum())
    missing = 1 - total / every if every else math.nan
    some = counts > 0
    if not some.any():
        return Figures(int(every), missing)
    low, high = float(parts["min"][some].min()), float(parts["max"][some].max())
    # Squares of the largest floats would be infinite.
    scale = max(abs(low), abs(high)) or 1.0
    shares, means = counts[some] / total, parts["mean"][some] / scale
    mean = float(shares @ means)
    variance = float(shares @ ((parts["std"][some] / scale) ** 2 + (means - mean) ** 2))
    return Figures(int(every), missing, low, high, mean * scale, math.sqrt(variance) * scale)


def of_sample(measured: Callable[[str], np.ndarray]) -> Figures:
    """The figures of the values of some records, given each number of `measure_array` by its name."""
    sizes, missing = np.nan_to_num(measured("size")), np.nan_to_num(measured("missing"))
    counts = {"count": np.rint(sizes * (1 - missing)), "nan": sizes * missing}
    return pooled(counts | {name: measured(name) for name in _LEVELS})


def of_all(splits: Sequence[Split], feature: str) -> Figures | None:
    """The figures of all records of some splits; None if a split that has records lacks them."""
    stated: list[Any] = [split.statistics.get(feature) for split in splits if split.records]
    if not stated or not all(map(_are_figures, stated)):
        return None
    names = ("count", "nan", *_LEVELS)
    return pooled({n: np.array([float(each.get(n, 0)) for each in stated]) for n in names})


def _are_figures(stated: Any) -> bool:
    """Whether what the manifest has of a feature in a split are figures that make sense."""
    if not isinstance(stated, Mapping):
        return False
    counts = stated.get("count", 0), stated.get("nan", 0)
    if any(type(count) is not int or count < 0 for count in counts) or not any(counts):
        return False
    return not counts[0] or all(type(stated.get(name)) in (int, float) for name in _LEVELS)
