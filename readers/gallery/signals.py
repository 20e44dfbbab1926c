"""Lines of arrays that hold signals, as SVG."""

from __future__ import annotations

from xml.etree.ElementTree import Element

import numpy as np

from readers.gallery.levels import bright, finite_range, levels
from readers.gallery.markup import element, line_path, svg

_WIDTH, _HEIGHT = 240, 80

# Columns of a line, two pixels wide: each has the smallest and the largest of its values.
_COLUMNS = 120
_CHANNELS = 6
_FEWEST_STEPS = 8


def is_signal(value: object) -> bool:
    """Whether a value is an array [steps] or [steps, channels] of levels, with at least eight steps.

    Numbers of 32 and 64 bits are levels only if they are floats: others are ids, of tokens for example.
    """
    return (
        isinstance(value, np.ndarray)
        and value.ndim in (1, 2)
        and len(value) >= _FEWEST_STEPS
        and value.size > 0
        and (value.dtype.kind == "f" or (value.dtype.kind in "ui" and value.dtype.itemsize < 4))
    )


def lines(signal: np.ndarray) -> Element:
    """An `svg` with a line for each of the first six channels, on one scale.

    Args:
        signal: Numbers [steps] or [steps, channels]. A line has gaps where they are not finite.
    """
    channels = signal.reshape(len(signal), -1)
    shown = min(channels.shape[1], _CHANNELS)
    envelopes = [_envelope(channels[:, channel]) for channel in range(shown)]
    low, high = finite_range(np.concatenate(envelopes))
    title = f"{len(signal):,} steps of {channels.shape[1]:,}, {low:.6g} to {high:.6g}"
    drawn = (
        element(
            "path", d=_path(found, low, high), fill="none", stroke=bright(channel), stroke_width="1"
        )
        for channel, found in enumerate(envelopes)
    )
    return svg(title, drawn, _WIDTH, _HEIGHT)


def _envelope(values: np.ndarray) -> np.ndarray:
    """A channel as at most 240 values, float64: the extremes of each of 120 parts if there are more."""
    if len(values) <= 2 * _COLUMNS:
        return values.astype(np.float64)
    starts = np.linspace(0, len(values), _COLUMNS, endpoint=False).astype(np.int64)
    extremes = [np.fmin.reduceat(values, starts), np.fmax.reduceat(values, starts)]
    return np.stack(extremes, axis=1).reshape(-1).astype(np.float64)


def _path(values: np.ndarray, low: float, high: float) -> str:
    """The points of a line as the commands of an SVG path."""
    x = np.linspace(0, _WIDTH, len(values))
    y = (_HEIGHT - 2) * (1 - levels(values, low, high)) + 1
    return line_path(x, y)
