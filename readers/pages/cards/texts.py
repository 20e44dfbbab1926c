"""Texts, with whatever they hide made visible."""

from __future__ import annotations

import unicodedata
from xml.etree.ElementTree import Element

from readers.format.display import shortened
from readers.pages.markup import element

# Characters of a text.
TEXT = 400

# Of control characters, and of those that change how the characters around them are shown.
_HIDDEN = ("Cc", "Cf", "Cs")


def decoded(data: bytes, most: int) -> str:
    """The first characters of a text in UTF-8; bytes that are no text are written as `\\xff`."""
    return shortened(data[: 4 * most + 4].decode("utf-8", "backslashreplace"), most)


def spelled(text: str) -> str:
    """A text whose control characters, and those that change directions, are written by their numbers: `⟨U+202E⟩`."""
    return "".join(
        f"\N{MATHEMATICAL LEFT ANGLE BRACKET}U+{ord(character):04X}\N{MATHEMATICAL RIGHT ANGLE BRACKET}"
        if unicodedata.category(character) in _HIDDEN and character not in "\t\n"
        else character
        for character in text
    )


def passage(text: str) -> Element:
    """A paragraph with the beginning of a text."""
    style = "white-space:pre-wrap;overflow-wrap:anywhere;margin:0"
    return element("p", spelled(shortened(text, TEXT)) or "(empty)", dir="auto", style=style)
