"""Numbers that describe signals, and arrays of numbers in general."""

from __future__ import annotations

import numpy as np


def measure_array(values: np.ndarray) -> dict[str, float]:
    """Numbers that describe an array: `size`, `missing` (the share of NaN and infinity), and of the finite
    values `zero` (the share of zeros), `min`, `max`, `mean` and `std`, which are NaN if no value is finite.

    Args:
        values: Real numbers or bools of any shape.
    """
    numbers = values.astype(np.float64, copy=False).reshape(-1)
    finite = numbers[np.isfinite(numbers)]
    measures = {
        "size": numbers.size,
        "missing": 1 - finite.size / numbers.size if numbers.size else 0.0,
        "zero": float((finite == 0).mean()) if finite.size else np.nan,
    }
    for name in ("min", "max", "mean", "std"):
        measures[name] = float(getattr(finite, name)()) if finite.size else np.nan
    return measures


def measure_signal(signal: np.ndarray) -> dict[str, float]:
    """Numbers that describe a signal, and those of `measure_array`.

    `steps` is its length. `constant` is the number of its channels that have one value, `dead` that of those
    whose value is 0. `clipped` is the largest share, over the channels, of steps at an extreme at which the channel
    is cut off; a channel of fewer than 16 values, such as a switch, has no such share. `rms` is
    the root of the mean square of the finite values.

    Args:
        signal: Real numbers [steps] or [steps, channels].
    """
    channels = signal.astype(np.float64, copy=False).reshape(len(signal), -1)
    measures = measure_array(signal) | {
        "steps": len(signal),
        "constant": 0,
        "dead": 0,
        "clipped": 0.0,
    }
    for values in channels.T if len(signal) > 1 else ():
        finite = values[np.isfinite(values)]
        if not finite.size:
            continue
        low, high = finite.min(), finite.max()
        measures["constant"] += low == high
        measures["dead"] += low == high == 0
        measures["clipped"] = max(measures["clipped"], _clipped(finite, low, high))
    mean, std = measures["mean"], measures["std"]
    return measures | {"rms": float(np.hypot(mean, std))}


# A signal of fewer values, such as a switch, is at its extremes often.
_FEWEST_VALUES = 16

# A wave is near its extremes often, too, and a coarse one at them: of a clipped one, three times as many
# are at an extreme as in this part of the range next to it. Of a sine of 20 levels, it is 2.4 times.
_NEAR, _TIMES = 1 / 64, 3


def _clipped(values: np.ndarray, low: float, high: float) -> float:
    """The share of values that are at an extreme at which the signal is clipped."""
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
