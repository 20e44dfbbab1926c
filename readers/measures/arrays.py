"""Numbers that describe signals, and arrays of numbers in general."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

# Numbers of a larger array that are looked at. As float64, they take 8 MB.
_MOST = 1 << 20


def measure_array(values: np.ndarray) -> dict[str, float]:
    """Numbers that describe real numbers or bools of any shape: `size`, `missing`, which is the share of NaN and
    infinity, and of the finite ones `max`, `mean` and `std`, which are NaN if none is finite.

    Every n-th value of an array of more than 2**20 is looked at.
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
    """What `measure_array` returns for a single number, in a twentieth of the time."""
    level, spread = (value, 0.0) if math.isfinite(value) else (math.nan, math.nan)
    missing = float(math.isnan(level))
    return {"size": 1, "missing": missing, "max": level, "mean": level, "std": spread}


def measure_signal(signal: np.ndarray) -> dict[str, float]:
    """Numbers that describe a signal [steps] or [steps, channels], and those of `measure_array`.

    `steps` is its length. `constant` is the number of its channels that have one value, `dead` that of those
    whose value is 0. `clipped` is the largest share, over the channels, of steps at an extreme at which the channel
    is cut off; a channel of fewer than 16 values, such as a switch, has no such share. `rms` is
    the root of the mean square of the finite values. Of a signal of more than 2**20 values, every n-th step is
    looked at.
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
    """Yields whether each channel has one value, whether this is 0, and its `_clipped_share`, given float64 [steps, channels]."""
    for values in signal.T:
        finite = values[np.isfinite(values)]
        low, high = (finite.min(), finite.max()) if finite.size else (np.nan, np.nan)
        clipped = _clipped_share(finite, low, high) if low < high else 0.0
        yield bool(low == high), bool(low == high == 0), clipped


def _some(values: np.ndarray) -> np.ndarray:
    """All values, or every n-th of the first dimension if they are many."""
    return values[:: -(-values.size // _MOST)] if values.size > _MOST else values


# A signal of fewer values, such as a switch, is at its extremes often.
_FEWEST_VALUES = 16

# A wave is near its extremes often. It is clipped if more than three times as many values are at an extreme as in this
# part of the range next to it; a sine of 20 levels has 2.4 times as many there.
_NEAR, _TIMES = 1 / 64, 3


def _clipped_share(values: np.ndarray, low: float, high: float) -> float:
    """The share of finite values, float64 [n], that are at an extreme at which the signal is clipped, given both extremes."""
    levels = np.unique(values)
    if len(levels) < _FEWEST_VALUES:
        return 0.0
    band = (high / 2 - low / 2) * 2 * _NEAR
    # A coarse signal may have no level in that part.
    lowest, highest = max(low + band, levels[1]), min(high - band, levels[-2])
    share = 0.0
    for at_end, near in (
        (values == low, (values > low) & (values <= lowest)),
        (values == high, (values < high) & (values >= highest)),
    ):
        if at_end.sum() > max(1, _TIMES * near.sum()):
            share += float(at_end.mean())
    return share
