"""The beginnings of texts. Elements replace their control characters."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from readers.format.display import shortened
from readers.pages.markup import element

# Characters of a text.
TEXT = 400


def decoded(data: bytes, most: int) -> str:
    """The first characters of a text in UTF-8; bytes that are no text are written as `\\xff`."""
    return shortened(data[: 4 * most + 4].decode("utf-8", "backslashreplace"), most)


def passage(text: str) -> Element:
    """A paragraph with a text."""
    style = "white-space:pre-wrap;overflow-wrap:anywhere;margin:0"
    return element("p", text or "(empty)", dir="auto", style=style)
