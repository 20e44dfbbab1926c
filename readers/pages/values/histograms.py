"""Histograms of a feature: one of each split, and one of the size of a word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element

import numpy as np

from readers.pages import charts
from readers.pages.markup import element

_SPARK_WIDTH, _SPARK_HEIGHT, _SPARK_BINS = 96, 24, 24


def histogram(parts: Mapping[str, np.ndarray], title: str, noun: str) -> Element | None:
    """The histogram of the values of each split, as shares if there are several; None without finite values.

    Args:
        parts: Split -> numbers.
        title: What the numbers are.
        noun: What has a number each, in the plural.
    """
    bins = bins_of(list(parts.values()))
    if bins is None:
        return None
    counts = {name: bins.counts(values) for name, values in parts.items()}
    counts = {name: each for name, each in counts.items() if each.any()}
    if len(counts) == 1:
        return charts.histogram(counts, bins.edges, title, noun, bins.is_log)
    # Splits differ in size: in percent, their lines can be compared.
    shares = {name: 100.0 * each / each.sum() for name, each in counts.items()}
    return charts.histogram(shares, bins.edges, title, f"% of {noun}", bins.is_log)


def spark(parts: Sequence[np.ndarray]) -> Element | None:
    """A histogram without axes of all values together; None without finite values."""
    bins = bins_of(parts)
    if bins is None:
        return None
    counts = sum((bins.counts(part) for part in parts), np.zeros(len(bins.edges) - 1, np.int64))
    # At most 24 bars, of several neighbouring bins each.
    counts = np.add.reduceat(counts, np.arange(0, len(counts), -(-len(counts) // _SPARK_BINS)))
    most, width = counts.max(), _SPARK_WIDTH / len(counts)
    marks = list[str]()
    for place, count in enumerate(counts):
        if count:
            height = max(1.0, (_SPARK_HEIGHT - 1) * count / most)
            marks.append(
                f"M{place * width:.1f} {_SPARK_HEIGHT}v-{height:.1f}h{max(1, width - 0.5):.1f}v{height:.1f}z"
            )
    return element(
        "svg",
        element("path", d="".join(marks), class_="bar s0"),
        viewBox=f"0 0 {_SPARK_WIDTH} {_SPARK_HEIGHT}",
        width=str(_SPARK_WIDTH),
        height=str(_SPARK_HEIGHT),
        class_="spark",
        aria_hidden="true",
    )


# Bins of whole numbers at most, and bins of others.
MOST_BINS, _BINS = 60, 40

# Positive numbers have bins of equal ratios if the largest is more than this many times the 5 % quantile.
_WIDE = 1e4

# Floats have halves between whole numbers below this.
_WHOLE = 2.0**52

# Edges beyond the largest floats would be infinite.
_ENDS = np.finfo(np.float64).min, np.finfo(np.float64).max


class Bins(NamedTuple):
    """The edges of bins.

    Attributes:
        edges: float64 [bins + 1], ascending.
        is_log: Whether the ratios of neighbouring edges are equal, rather than their differences.
    """

    edges: np.ndarray
    is_log: bool

    def counts(self, values: np.ndarray) -> np.ndarray:
        """How many finite values are in each bin, int64 [bins]."""
        numbers = finite(values)
        places = np.searchsorted(self.edges, numbers, side="right") - 1
        last = len(self.edges) - 2
        return np.bincount(np.clip(places, 0, last), minlength=last + 1)


def finite(values: np.ndarray) -> np.ndarray:
    """The finite numbers, float64 [n]."""
    numbers = values.reshape(-1).astype(np.float64)
    return numbers[np.isfinite(numbers)]


def bins_of(parts: Sequence[np.ndarray]) -> Bins | None:
    """Bins for several lots of values together; None if no value is finite.

    Whole numbers have bins of whole numbers, of which each has as many.
    """
    numbers = np.concatenate([*(finite(part) for part in parts), np.empty(0)])
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
    # Between two floats that are neighbours there is no third.
    return Bins(np.unique(low * (1 - shares) + high * shares), False)
