"""Charts as inline SVG, in the colors of the page, light or dark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from xml.etree.ElementTree import Element

import numpy as np

from readers.pages.bins import bins_of
from readers.pages.markup import element, scaled, svg
from readers.pages.numbers import short, ticks

# Units of the viewBox: pixels, unless the screen is narrower.
_WIDTH, _HEIGHT = 340, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 50, 8, 6, 20

# Series with different colors; `style.css` has a class for each.
_SERIES = 6


def histogram(parts: Mapping[str, np.ndarray], title: str) -> Element | None:
    """Bars of the number of records by value, or lines for several splits; None without finite numbers."""
    bins = bins_of(parts.values())
    if bins is None:
        return None
    counts = {split: bins.counts(values) for split, values in parts.items()}
    counts = {split: heights for split, heights in counts.items() if heights.any()}
    axis, kind, several = "records", "bar", len(counts) > 1
    if several:  # Splits differ in size; percentages make their lines comparable.
        axis, kind = "% of records", "line"
        counts = {split: 100.0 * heights / heights.sum() for split, heights in counts.items()}
    ends = f"{short(float(bins.edges[0]))} to {short(float(bins.edges[-1]))}"
    edges = np.log10(bins.edges) if bins.is_log else bins.edges
    x = _Scale(edges[0], edges[-1], _LEFT, _WIDTH - _RIGHT)
    y = _Scale(0, max(heights.max() for heights in counts.values()), _HEIGHT - _BOTTOM, _TOP)
    marks = [
        element("path", d=_steps(heights, edges, x, y), class_=f"{kind} s{number % _SERIES}")
        for number, heights in enumerate(counts.values())
    ]
    figure = [
        element("figcaption", element("b", title), f" \N{MIDDLE DOT} {axis}"),
        svg(f"{title}, {axis}: {ends}", [*_axes(x, y, bins.is_log), *marks], _WIDTH, _HEIGHT),
    ]
    if several:
        squares = [element("span", class_=f"key s{n % _SERIES}") for n in range(len(counts))]
        names = [element("li", *pair) for pair in zip(squares, counts, strict=True)]
        figure.append(element("ul", *names, class_="keys"))
    return element("figure", *figure, class_="chart")


def bar_cell(value: float, most: float, text: str, series: int = 0) -> Element:
    """A table cell with a text and a bar, which fills the cell if the value is `most`."""
    share = 100 * value / most if most else 0.0
    bar = element("span", class_=f"s{series % _SERIES}", style=f"width: {share:.1f}%")
    track = element("span", bar, class_="track", aria_hidden="true")
    return element("td", track, text, class_="measured")


class _Scale(NamedTuple):
    """Maps numbers from `low` to `high` to places along an axis from `first` to `last`."""

    low: float
    high: float
    first: float
    last: float

    def __call__(self, value: float) -> float:
        share = float(scaled(np.float64(value), self.low, self.high))
        return self.first + (self.last - self.first) * share


def _steps(heights: np.ndarray, edges: np.ndarray, x: _Scale, y: _Scale) -> str:
    commands = [f"M{x(edges[0]):.1f} {y(0):.1f}"]
    for height, right in zip(heights, edges[1:], strict=True):
        commands.append(f"V{y(height):.1f}H{x(right):.1f}")
    return "".join([*commands, f"V{y(0):.1f}"])


def _axes(x: _Scale, y: _Scale, is_log: bool) -> list[Element]:
    marks = []
    for height in ticks(y.low, y.high, 4):
        at = y(height)
        marks += [
            element("path", d=f"M{x.first} {at:.1f}H{x.last}", class_="grid"),
            _tick(short(height), _LEFT - 4, at + 3, "end"),
        ]
    for place in ticks(x.low, x.high):
        at = x(place)
        words = short(float(f"{10**place:.2g}") if is_log else place)
        marks.append(_tick(words, at, _HEIGHT - 6, "end" if at > _WIDTH - 24 else "middle"))
    marks.append(element("path", d=f"M{x.first} {y.first}H{x.last}", class_="axis"))
    return marks


def _tick(words: str, x: float, y: float, anchor: str) -> Element:
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}"}
    return element("text", words, text_anchor=anchor, class_="tick", **place)
