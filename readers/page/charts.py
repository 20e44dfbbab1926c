"""Charts as inline SVG, whose colours are those of the page, light or dark.

Every chart is a `figure` with a caption, and its `svg` has a title for those who cannot see it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.etree.ElementTree import Element

import numpy as np

from readers.gallery.markup import element, line_path, svg
from readers.page.numbers import compact, decades, part, short, ticks

# Units of the viewBox, which are pixels unless the screen is narrower.
WIDTH, HEIGHT = 340, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 8, 6, 20

# The part of a bin that is left free where bars stand apart.
_GAP = 0.15

# Series with a colour of their own; `style.css` has one class for each.
SERIES = 6


def histogram(
    series: Mapping[str, np.ndarray],
    edges: np.ndarray,
    caption: str,
    log: bool = False,
    is_log_across: bool = False,
    are_apart: bool = False,
) -> Element:
    """Bars of how many values are between neighbouring edges.

    Args:
        series: Name -> counts [bins]; several are drawn over each other as lines of steps.
        edges: The edges of the bins, float64 [bins + 1], ascending.
        caption: What is counted.
        log: Whether the height of a bar is the logarithm of one more than its count.
        is_log_across: Whether the edges, which are positive then, are on a logarithmic scale.
        are_apart: Whether bars stand apart, with whole numbers below them, as those of shards do.
    """
    ends = f"{short(float(edges[0]))} to {short(float(edges[-1]))}"
    if is_log_across:
        edges = np.log10(edges)
    shown = {name: np.log10(1.0 + counts) if log else counts for name, counts in series.items()}
    top = max([float(counts.max(initial=0)) for counts in shown.values()], default=0.0) or 1.0
    x, y = _Scale(edges[0], edges[-1], True), _Scale(0, top, False)
    marks = []
    for number, counts in enumerate(shown.values()):
        color = f"s{number % SERIES}"
        if len(shown) > 1:
            marks.append(element("path", d=_steps(counts, edges, x, y), class_=f"line {color}"))
            continue
        for count, left, right in zip(counts, edges[:-1], edges[1:], strict=True):
            if count:
                gap = _GAP * (right - left) if are_apart else 0.0
                marks.append(_rectangle(x(left), y(count), x(right - gap), y(0), f"bar {color}"))
    heights = ticks(0, top, 4)
    labels = [compact(height) for height in heights]
    if log:
        counts_shown = decades(10**top - 1)
        heights = [float(np.log10(1 + count)) for count in counts_shown]
        labels = [compact(count) for count in counts_shown]
    places = ticks(edges[0], edges[-1])
    if are_apart:
        places = [place for place in places if place.is_integer()]
    axes = [*_across(x, places, is_log_across), *_up(y, heights, labels)]
    return _figure(f"{caption}: {ends}", [*axes, *marks], caption, list(series))


def lines(
    series: Mapping[str, tuple[np.ndarray, np.ndarray]], caption: str, log: bool = False
) -> Element:
    """A line for each series.

    Args:
        series: Name -> its x and y, float64 [points] each. A line has a gap where y is not finite.
        caption: What is shown.
        log: Whether y, which is positive then, is on a logarithmic scale.
    """
    points = {
        name: (across, np.log10(np.maximum(up, 1e-300)) if log else up)
        for name, (across, up) in series.items()
    }
    x = _Scale(*_ends([across for across, _ in points.values()]), True)
    y = _Scale(*_ends([up for _, up in points.values()]), False)
    marks = [
        element("path", d=_path(across, up, x, y), class_=f"line s{number % SERIES}")
        for number, (across, up) in enumerate(points.values())
    ]
    heights = ticks(y.low, y.high, 4)
    labels = [compact(float(f"{10**h:.2g}") if log else h) for h in heights]
    axes = [*_across(x, ticks(x.low, x.high)), *_up(y, heights, labels)]
    return _figure(caption, [*axes, *marks], caption, list(series))


def heat_map(values: np.ndarray, caption: str, aspect: float = 1.0) -> Element:
    """A grid whose cells are the darker the larger their values.

    Args:
        values: float64 [rows, columns], not negative; the first row is on top.
        caption: What is shown.
        aspect: The width of the grid divided by its height.
    """
    rows, columns = values.shape
    height = float(HEIGHT)
    width = min(float(WIDTH), height * aspect)
    most = float(values.max(initial=0)) or 1.0
    cells = [
        element(
            "rect",
            x=f"{column * width / columns:.1f}",
            y=f"{row * height / rows:.1f}",
            width=f"{width / columns + 0.1:.1f}",
            height=f"{height / rows + 0.1:.1f}",
            class_="bar s0",
            opacity=f"{values[row, column] / most:.3f}",
        )
        for row, column in zip(*np.nonzero(values), strict=True)
    ]
    frame = element(
        "rect",
        x="0.5",
        y="0.5",
        width=f"{width - 1:.1f}",
        height=f"{height - 1:.1f}",
        class_="frame",
    )
    return _figure(caption, [*cells, frame], caption, [])


def strip(parts: Mapping[str, int], caption: str) -> Element:
    """A whole as one bar of parts, each with its number and its share in the list below."""
    whole = sum(parts.values()) or 1
    cells, entries = [], []
    for number, (name, count) in enumerate(parts.items()):
        color = f"s{number % SERIES}"
        if count:
            cells.append(element("span", class_=f"part {color}", style=f"flex-grow: {count}"))
        words = f"{name} {part(count, whole)}" if count else f"{name} 0"
        entries.append(element("li", element("span", class_=f"key {color}"), words))
    bar = element("div", *cells, class_="strip", aria_hidden="true")
    return element(
        "figure",
        element("figcaption", caption),
        bar,
        element("ul", *entries, class_="keys"),
        class_="chart wide",
    )


def bar_cell(value: float, most: float, text: str, series: int = 0) -> Element:
    """A cell of a table with a number and a bar behind it.

    Args:
        value: What the bar is as long as, not negative.
        most: The value of a bar as long as the cell.
        text: What is written.
        series: The number of its colour.
    """
    share = 100 * value / most if most else 0.0
    bar = element("span", class_=f"s{series % SERIES}", style=f"width: {share:.1f}%")
    return element(
        "td", element("span", bar, class_="track", aria_hidden="true"), text, class_="measured"
    )


def bars(counts: Sequence[tuple[str, int]], total: int) -> list[tuple[str, Element]]:
    """Names, the most frequent first, each with a cell of its number and of its share of all."""
    return [(name, bar_cell(count, counts[0][1], part(count, total))) for name, count in counts]


class _Scale:
    """Numbers of a range as places along an axis."""

    def __init__(self, low: float, high: float, is_across: bool) -> None:
        self.low, self.high = float(low), float(high) if high > low else float(low) + 1
        first, last = (_LEFT, WIDTH - _RIGHT) if is_across else (HEIGHT - _BOTTOM, _TOP)
        self._first, self._last = first, last

    def __call__(self, value: float) -> float:
        share = (value / 2 - self.low / 2) / (self.high / 2 - self.low / 2)
        return self._first + (self._last - self._first) * float(share)


def _ends(arrays: Sequence[np.ndarray]) -> tuple[float, float]:
    values = np.concatenate([*(array[np.isfinite(array)] for array in arrays), np.empty(0)])
    return (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)


def _rectangle(left: float, top: float, right: float, bottom: float, name: str) -> Element:
    width = max(0.5, right - left - 0.5)
    return element(
        "rect",
        x=f"{left:.1f}",
        y=f"{top:.1f}",
        width=f"{width:.1f}",
        height=f"{max(0.5, bottom - top):.1f}",
        class_=name,
    )


def _steps(counts: np.ndarray, edges: np.ndarray, x: _Scale, y: _Scale) -> str:
    commands = [f"M{x(edges[0]):.1f} {y(0):.1f}"]
    for count, right in zip(counts, edges[1:], strict=True):
        commands.append(f"V{y(count):.1f}H{x(right):.1f}")
    return "".join([*commands, f"V{y(0):.1f}"])


def _path(across: np.ndarray, up: np.ndarray, x: _Scale, y: _Scale) -> str:
    return line_path(np.array([x(value) for value in across]), np.array([y(value) for value in up]))


def _across(x: _Scale, places: Sequence[float], is_log: bool = False) -> list[Element]:
    made = [
        element("path", d=f"M{_LEFT} {HEIGHT - _BOTTOM}H{WIDTH - _RIGHT}", class_="axis"),
    ]
    for tick in places:
        at = x(tick)
        anchor = "end" if at > WIDTH - 24 else "middle"
        made.append(
            element(
                "text",
                compact(float(f"{10**tick:.2g}") if is_log else tick),
                x=f"{at:.1f}",
                y=str(HEIGHT - 6),
                text_anchor=anchor,
                class_="tick",
            )
        )
    return made


def _up(y: _Scale, places: Sequence[float], labels: Sequence[str]) -> list[Element]:
    made = []
    for tick, label in zip(places, labels, strict=True):
        at = y(tick)
        made += [
            element("path", d=f"M{_LEFT} {at:.1f}H{WIDTH - _RIGHT}", class_="grid"),
            element(
                "text", label, x=str(_LEFT - 4), y=f"{at + 3:.1f}", text_anchor="end", class_="tick"
            ),
        ]
    return made


def _figure(title: str, marks: Sequence[Element], caption: str, names: Sequence[str]) -> Element:
    keys = [
        element("li", element("span", class_=f"key s{number % SERIES}"), name)
        for number, name in enumerate(names)
    ]
    legend = [element("ul", *keys, class_="keys")] if len(names) > 1 else []
    drawing = svg(title, marks, WIDTH, HEIGHT)
    return element("figure", element("figcaption", caption), drawing, *legend, class_="chart")
