"""Figures that cover all records of a feature, from the manifest."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from readers.format.splits import Split
from readers.pages.numbers import percent, short

_LEVELS = ("min", "max", "mean", "std")

# JSON allows numbers larger than the largest float.
_MOST, _LARGEST = 1 << 63, sys.float_info.max


class Figures(NamedTuple):
    """Figures of values: their number, the share that is not finite, and statistics of the finite ones, NaN if there are none."""

    number: int
    missing: float
    low: float = math.nan
    high: float = math.nan
    mean: float = math.nan
    std: float = math.nan
    bounds: bool = False

    def cells(self) -> dict[str, str]:
        """The figures as text, by column title."""
        levels = list(map(short, (self.low, self.high, self.mean, self.std)))
        if self.bounds:
            levels[:2] = f"≥ {levels[0]}", f"≤ {levels[1]}"
        counts = {"values": f"{self.number:,}", "missing": percent(self.missing)}
        return counts | dict(zip(_LEVELS, levels, strict=True))


def of_all(splits: Sequence[Split], feature: str) -> Figures | None:
    """The figures of all records of some splits; None if a split with records lacks them."""
    stated: list[Any] = [split.statistics.get(feature) for split in splits if split.records]
    if not stated or not all(map(_are_figures, stated)):
        return None
    counts, others, lows, highs, means, stds = (
        np.array([float(figures.get(name, 0)) for figures in stated])
        for name in ("count", "nan", *_LEVELS)
    )
    total, every = counts.sum(), int(counts.sum() + others.sum())
    missing, some = float(1 - total / every), counts > 0
    if not some.any():
        return Figures(every, missing)
    low, high = float(lows[some].min()), float(highs[some].max())
    # Squares of the largest floats would be infinite.
    scale = max(abs(low), abs(high)) or 1.0
    shares, means = counts[some] / total, means[some] / scale
    mean = float(shares @ means)
    variance = float(shares @ ((stds[some] / scale) ** 2 + (means - mean) ** 2))
    bounds = any(split.gone or split.rows for split in splits)
    return Figures(every, missing, low, high, mean * scale, math.sqrt(variance) * scale, bounds)


def _are_figures(stated: Any) -> bool:
    """Whether the statistics in the manifest of a feature in a split are valid figures."""
    if not isinstance(stated, Mapping):
        return False
    counts = stated.get("count", 0), stated.get("nan", 0)
    if not any(counts) or not all(type(c) is int and 0 <= c < _MOST for c in counts):
        return False
    levels = [stated.get(name, None if counts[0] else 0) for name in _LEVELS]
    return all(type(level) in (int, float) and abs(level) <= _LARGEST for level in levels)
