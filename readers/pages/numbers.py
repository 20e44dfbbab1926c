"""Formats numbers for people, and chooses the ticks of an axis."""

from __future__ import annotations

import math

import numpy as np

# Powers of ten far below are not floats.
_FINEST = 1e-300


def short(value: float) -> str:
    """A number with four significant digits: `0.5`, `1,234`, `1.2e-09`; `NaN` and `inf` unchanged."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if value == int(value) and abs(value) < 1e7:
        return f"{int(value):,}"
    if 1e-3 <= abs(value) < 1e7:
        digits = max(0, 3 - math.floor(math.log10(abs(value))))
        text = f"{value:,.{digits}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{value:.3g}"


def spread(values: np.ndarray) -> str:
    """The smallest and the largest number with the median, or one number if all are equal: `20 to 59, median 40`."""
    low, middle, high = np.quantile(values, (0, 0.5, 1), method="inverted_cdf")
    if low == high:
        return short(float(low))
    return f"{short(float(low))} to {short(float(high))}, median {short(float(middle))}"


def percent(share: float) -> str:
    """A share as text; only the whole is 100% and only zero is 0%: `12%`, `0.3%`, `<0.1%`; a dash for NaN, a share of nothing."""
    if math.isnan(share):
        return "-"
    if share in (0, 1):
        return f"{share:.0%}"
    if share < 0.001:
        return "<0.1%"
    if share > 0.999:
        return ">99.9%"
    return f"{share:.{0 if 0.1 <= share <= 0.9 else 1}%}"


def part(count: int, total: int) -> str:
    """A number and its share of a total: `12 (3.1%)`."""
    return f"{count:,} ({percent(count / total)})" if total else "0"


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers from `low` to `high`, equally spaced."""
    low, high = float(low), float(high)
    span = high - low
    if not _FINEST < span < math.inf:
        return [low]
    power = 10.0 ** math.floor(math.log10(span / (most - 1)))
    steps = [power * times for times in (1, 2, 2.5, 5, 10, 20)]
    fitting = [s for s in steps if math.floor(high / s) - math.ceil(low / s) + 1 <= most]
    step = fitting[0]
    numbers = np.arange(math.ceil(low / step), math.floor(high / step) + 1)
    return [float(number * step) for number in numbers]
