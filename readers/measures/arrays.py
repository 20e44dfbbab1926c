"""Measures of signals, and of arrays of numbers in general."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

# The most values of an array that are measured. As float64, they take 8 MB.
_MOST = 1 << 20


def measure_array(values: np.ndarray) -> dict[str, float]:
    """Measures real numbers or bools of any shape: `size`; `missing`, the share of NaN and infinity; and the `max`, `mean`
    and `std` of the finite values, NaN if none is finite.

    In an array of more than 2**20 values, every n-th is measured.
    """
    numbers = _some(values.reshape(-1)).astype(np.float64, copy=False)
    finite = numbers[np.isfinite(numbers)]
    measures: dict[str, float] = {
        "size": values.size,
        "missing": 1 - finite.size / numbers.size if numbers.size else 0.0,
    }
    for name in ("max", "mean", "std"):
        measures[name] = float(getattr(finite, name)()) if finite.size else np.nan
    return measures


def measure_number(value: float) -> dict[str, float]:
    """Returns the same as `measure_array` for a single number, in a twentieth of the time."""
    level, spread = (value, 0.0) if math.isfinite(value) else (math.nan, math.nan)
    missing = float(math.isnan(level))
    return {"size": 1, "missing": missing, "max": level, "mean": level, "std": spread}


def measure_signal(signal: np.ndarray) -> dict[str, float]:
    """Measures a signal [steps] or [steps, channels]; includes the result of `measure_array`.

    `steps` is its length. `constant` is the number of channels with a single value, and `dead` the number of channels with
    only zeros. `clipped` is the largest share, over the channels, of steps at an extreme where the channel is cut off; it
    is 0 for a channel of fewer than 16 different values, such as a switch. `rms` is the root mean square of the finite
    values. In a signal of more than 2**20 values, every n-th step is measured.
    """
    channels = _some(signal.reshape(len(signal), -1)).astype(np.float64, copy=False)
    faults = list(_faults(channels)) if len(signal) > 1 else []
    constant, dead, clipped = zip(*faults, strict=True) if faults else ((), (), ())
    measures = measure_array(signal)
    return measures | {
        "steps": len(signal),
        "constant": sum(constant),
        "dead": sum(dead),
        "clipped": max(clipped, default=0.0),
        "rms": float(np.hypot(measures["mean"], measures["std"])),
    }


def _faults(signal: np.ndarray) -> Iterator[tuple[bool, bool, float]]:
    """Yields whether each channel has a single value, whether this is 0, and its `_clipped_share`, given float64 [steps, channels]."""
    for values in signal.T:
        finite = values[np.isfinite(values)]
        low, high = (finite.min(), finite.max()) if finite.size else (np.nan, np.nan)
        clipped = _clipped_share(finite, low, high) if low < high else 0.0
        yield bool(low == high), bool(low == high == 0), clipped


def _some(values: np.ndarray) -> np.ndarray:
    """All values, or every n-th of the first dimension if there are many."""
    return values[:: -(-values.size // _MOST)] if values.size > _MOST else values


# A signal with fewer different values, such as a switch, is often at its extremes.
_FEWEST_VALUES = 16

# A wave is often near its extremes. It is clipped if more than three times as many values are at an extreme as in this
# part of the range next to it; for a sine of 20 levels, 2.4 times as many are.
_NEAR, _TIMES = 1 / 64, 3


def _clipped_share(values: np.ndarray, low: float, high: float) -> float:
    """The share of finite values, float64 [n], at an extreme where the signal is clipped, given both extremes."""
    levels = np.unique(values)
    if len(levels) < _FEWEST_VALUES:
        return 0.0
    band = (high / 2 - low / 2) * 2 * _NEAR
    # A coarse signal may have no level in this part of the range.
    lowest, highest = max(low + band, levels[1]), min(high - band, levels[-2])
    share = 0.0
    for at_end, near in (
        (values == low, (values > low) & (values <= lowest)),
        (values == high, (values < high) & (values >= highest)),
    ):
        if at_end.sum() > max(1, _TIMES * near.sum()):
            share += float(at_end.mean())
    return share
