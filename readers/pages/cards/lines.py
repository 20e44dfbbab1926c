"""Line charts of recordings, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree.ElementTree import Element

import numpy as np

from readers.format.display import counted, shortened
from readers.pages.markup import bright, element, finite_range, keys, scaled, svg
from readers.pages.numbers import short

_WIDTH, _HEIGHT = 240, 80

# Columns of a chart, two pixels wide: each shows its smallest and its largest value.
_COLUMNS = 120
_CHANNELS = 6

# The most characters of a channel's name.
_NAME = 40


def lines(signal: np.ndarray) -> Element:
    """An `svg` of a signal [steps] or [steps, channels], not empty: a line for each of up to six channels, with gaps for values that are not finite."""
    channels = signal.reshape(len(signal), -1)
    envelopes = [_envelope(channel) for channel in channels.T[:_CHANNELS]]
    low, high = finite_range(np.concatenate(envelopes))
    title = f"{len(signal):,} steps of {counted(channels.shape[1], 'channel')}, {short(low)} to {short(high)}"
    drawn = (
        element("path", d=_path(found, low, high), fill="none", stroke=bright(channel))
        for channel, found in enumerate(envelopes)
    )
    return svg(title, drawn, _WIDTH, _HEIGHT, style="max-width:100%;height:auto")


def channel_keys(signal: np.ndarray, names: Sequence[str]) -> list[Element]:
    """The legend of `lines`, given the names of the channels if they are known; empty for one channel without a name."""
    channels = signal.reshape(len(signal), -1).shape[1]
    names = names or [f"channel {n}" for n in range(channels) if channels > 1]
    shown = [(number, shortened(name, _NAME)) for number, name in enumerate(names[:_CHANNELS])]
    return [keys(shown)] if shown else []


def _envelope(values: np.ndarray) -> np.ndarray:
    """A channel as at most 240 values, float64: the extremes of each of 120 parts if it is longer."""
    if len(values) <= 2 * _COLUMNS:
        return values.astype(np.float64)
    starts = np.linspace(0, len(values), _COLUMNS, endpoint=False).astype(np.int64)
    extremes = [np.fmin.reduceat(values, starts), np.fmax.reduceat(values, starts)]
    return np.stack(extremes, axis=1).reshape(-1).astype(np.float64)


def _path(values: np.ndarray, low: float, high: float) -> str:
    """The commands of an SVG path through values, with gaps for values that are not finite."""
    heights = (_HEIGHT - 2) * (1 - scaled(values, low, high)) + 1
    commands, is_drawn = [], False
    for x, y in zip(np.linspace(0, _WIDTH, len(values)), heights, strict=True):
        if np.isfinite(y):
            commands.append(f"{'L' if is_drawn else 'M'}{x:.1f} {y:.1f}")
        is_drawn = bool(np.isfinite(y))
    return "".join(commands)
