"""The figures of a feature: of all records where the manifest has them, and else of the sample."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from readers.format.splits import Split
from readers.pages.numbers import percent, short

_SUMS = ("count", "nan", "min", "max", "mean", "std")


class Figures(NamedTuple):
    """Figures of values; NaN where no value is finite.

    Attributes:
        number: How many values there are.
        missing: The share of those that are no finite numbers.
        low, high, mean, std: Of the finite values.
    """

    number: int
    missing: float
    low: float = math.nan
    high: float = math.nan
    mean: float = math.nan
    std: float = math.nan

    def cells(self) -> dict[str, str]:
        """The figures as text, by the titles of their columns."""
        levels = {"min": self.low, "max": self.high, "mean": self.mean, "std": self.std}
        return {
            "values": f"{self.number:,}",
            "missing": percent(self.missing),
            **{title: short(level) for title, level in levels.items()},
        }


def pooled(parts: Mapping[str, np.ndarray]) -> Figures:
    """The figures of all values, given those of parts of them.

    Args:
        parts: Of each part the number of finite values (`count`) and of others (`nan`), and the `min`, `max`, `mean` and
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


def of_sample(measures: Mapping[str, np.ndarray]) -> Figures:
    """The figures of the values of some records, given the measures of each, as `measure_array` names them."""
    sizes, missing = measures["size"], np.nan_to_num(measures.get("missing", np.zeros(1)))
    levels = {name: measures.get(name, np.full(len(sizes), np.nan)) for name in _SUMS[2:]}
    return pooled({"count": np.rint(sizes * (1 - missing)), "nan": sizes * missing, **levels})


def of_all(splits: Sequence[Split], feature: str) -> Figures | None:
    """The figures of all records of some splits; None if a split that has records lacks them."""
    stated: list[Any] = [split.statistics.get(feature) for split in splits if split.records]
    if not stated or not all(map(_are_figures, stated)):
        return None
    parts = {name: [float(each.get(name, 0)) for each in stated] for name in _SUMS}
    return pooled({name: np.array(values) for name, values in parts.items()})


def _are_figures(stated: Any) -> bool:
    """Whether what the manifest has of a feature in a split are figures of numbers that make sense."""
    if not isinstance(stated, Mapping):
        return False
    counts = stated.get("count", 0), stated.get("nan", 0)
    if any(type(count) is not int or count < 0 for count in counts) or not any(counts):
        return False
    numbers = [stated.get(name) for name in _SUMS[2:]]
    return not counts[0] or all(type(number) in (int, float) for number in numbers)
