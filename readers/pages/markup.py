"""HTML as a tree, so that data can never become markup; colors and scales of drawings."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np

from readers.format.display import visible


def element(tag: str, *children: Element | str, **attributes: str) -> Element:
    """An element with children; control characters are replaced, and in attribute names `_` is a hyphen and a final `_` is dropped.

    `script` and `style` are not allowed, because HTML does not escape their text.
    """
    if tag in ("script", "style"):
        raise ValueError(f"{tag}: HTML does not escape its text")
    named = {key.rstrip("_").replace("_", "-"): visible(attributes[key]) for key in attributes}
    made = Element(tag, named)
    for child in children:
        if isinstance(child, Element):
            made.append(child)
        elif len(made):
            made[-1].tail = (made[-1].tail or "") + visible(child)
        else:
            made.text = (made.text or "") + visible(child)
    return made


def table(heads: Iterable[Element], rows: Iterable[Iterable[Element]]) -> Element:
    """A table, given the cells of its head and of each row."""
    body = element("tbody", *(element("tr", *cells) for cells in rows))
    return element("table", element("thead", element("tr", *heads)), body)


def svg(
    title: str, marks: Iterable[Element], width: int, height: int, **attributes: str
) -> Element:
    """An `svg` in units of pixels, with a title for screen readers."""
    return element(
        "svg",
        element("title", title),
        *marks,
        viewBox=f"0 0 {width} {height}",
        width=str(width),
        height=str(height),
        role="img",
        **attributes,
    )


def data_uri(kind: str, data: bytes) -> str:
    """The data URI of bytes with a media type, such as `image/png`."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def to_html(tree: Element) -> str:
    """Serializes a tree as HTML."""
    return ElementTree.tostring(tree, encoding="unicode", method="html")


# Paul Tol's bright colors, which people with color blindness can distinguish, too.
BRIGHT = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377")


def bright(number: int) -> str:
    """The color of a class or a channel; the seventh equals the first."""
    return BRIGHT[number % len(BRIGHT)]


def keys(parts: Sequence[tuple[int, str]], more: str = "") -> Element:
    """A legend: colors, by number, and the text of each."""
    children: list[Element | str] = []
    for number, words in parts:
        square = f"display:inline-block;width:.7em;height:.7em;background:{bright(number)}"
        children += [element("span", style=square), f" {words}  "]
    return element("div", *children, more)


def finite_range(values: np.ndarray) -> tuple[float, float]:
    """The smallest and the largest finite number of an array of floats; 0 and 0 if no number is finite."""
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)


def scaled(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Scales numbers to float64, with `low` at 0 and `high` at 1; all are 0 if both are equal."""
    # Halved, because the difference of two large numbers may be infinite.
    span = high / 2 - low / 2
    if not span:
        return np.where(np.isfinite(values), 0.0, values)
    return np.asarray((values / 2 - low / 2) / span, np.float64)
