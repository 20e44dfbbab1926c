"""Numbers of any range as levels between 0 and 1, to be drawn, and the colours of levels and classes."""

from __future__ import annotations

import numpy as np

# Paul Tol's bright colours, which people who see no red or no green tell apart, too.
BRIGHT = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377")

# Every seventeenth colour of matplotlib's `viridis`, by Nathaniel Smith and Stéfan van der Walt (CC0): equal steps
# look equal, in gray and to people who see no red or no green, too.
_VIRIDIS = (
    "440154 481a6c 472f7d 414487 39568c 31688e 2a788e 23888e "
    "1f988b 22a884 35b779 54c568 7ad151 a5db36 d2e21b fde725"
)


def finite_range(values: np.ndarray) -> tuple[float, float]:
    """The smallest and the largest finite number of an array of floats; 0 and 0 if no number is finite."""
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)


def levels(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Numbers, float64, such that `low` is 0 and `high` is 1; all are 0 if both are the same."""
    # Halves, because the difference of two large numbers may be infinite.
    span = high / 2 - low / 2
    if not span:
        return np.where(np.isfinite(values), 0.0, values)
    return np.asarray((values / 2 - low / 2) / span, np.float64)


def bright(number: int) -> str:
    """The colour of a class or a channel; the seventh is that of the first."""
    return BRIGHT[number % len(BRIGHT)]


def rgb(color: str) -> tuple[int, int, int]:
    """The red, green and blue of a colour such as `#4477aa`."""
    red, green, blue = bytes.fromhex(color.removeprefix("#"))
    return red, green, blue


def viridis(count: int) -> np.ndarray:
    """Colours from the lowest level, dark blue, to the highest, yellow, uint8 [count, 3]."""
    known = np.array([rgb(color) for color in _VIRIDIS.split()], np.float64)
    places = np.linspace(0, len(known) - 1, count)
    channels = [np.interp(places, np.arange(len(known)), known[:, channel]) for channel in range(3)]
    return np.rint(np.stack(channels, axis=1)).astype(np.uint8)
