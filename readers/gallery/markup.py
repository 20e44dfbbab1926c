"""HTML as a tree, so that nothing that comes from data can become markup."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np

from readers.format.display import visible

_CELL = "text-align: left; padding: 0 1em 0 0"


def element(tag: str, *children: Element | str, **attributes: str) -> Element:
    """An element with its children.

    Args:
        tag: Its name. `script` and `style`, whose text HTML does not escape, are refused.
        children: Elements, and texts that are shown as they are.
        attributes: Its attributes; an underscore stands for a hyphen, and a final one is dropped.
    """
    if tag in ("script", "style"):
        raise ValueError(f"{tag}: its text would not be escaped")
    made = Element(tag, {key.rstrip("_").replace("_", "-"): attributes[key] for key in attributes})
    for child in children:
        if isinstance(child, Element):
            made.append(child)
        elif len(made):
            made[-1].tail = (made[-1].tail or "") + visible(child)
        else:
            made.text = (made.text or "") + visible(child)
    return made


def svg(
    title: str, marks: Iterable[Element], width: int, height: int, **attributes: str
) -> Element:
    """An `svg` with a title for those who cannot see it, in units of pixels."""
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
    """The URI of bytes of a media type, such as `image/png`, that are part of the page."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def to_html(tree: Element) -> str:
    """A tree as HTML."""
    return ElementTree.tostring(tree, encoding="unicode", method="html")


def line_path(across: np.ndarray, down: np.ndarray) -> str:
    """The commands of an SVG path through points, with gaps where `down` is not finite."""
    commands, is_drawn = [], False
    for x, y in zip(across, down, strict=True):
        if np.isfinite(y):
            commands.append(f"{'L' if is_drawn else 'M'}{x:.1f} {y:.1f}")
        is_drawn = bool(np.isfinite(y))
    return "".join(commands)


def table(rows: list[tuple[str, ...]]) -> Element:
    """A table whose first row is its header."""
    header, *others = rows
    titles = [element("th", cell, style=_CELL) for cell in header]
    body = [element("tr", *(element("td", cell, style=_CELL) for cell in row)) for row in others]
    head = element("thead", element("tr", *titles))
    return element("table", head, element("tbody", *body), style="margin: 0.5em 0")
