"""Texts and tokens, with whatever they hide made visible."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from xml.etree.ElementTree import Element

import numpy as np

from readers.format.display import shortened
from readers.format.manifest import UNKNOWN_ID
from readers.pages.markup import element

# Characters of a text, tokens, and characters of a token.
TEXT, TOKENS, _TOKEN = 400, 100, 100

# Of control characters, and of those that change how the characters around them are shown.
_HIDDEN = ("Cc", "Cf", "Cs")

_WRAPPED = "white-space:pre-wrap;overflow-wrap:anywhere;margin:0"
_ODD = "background:#8883"
_UNKNOWN = "border:1px dashed;border-radius:3px;text-decoration:underline wavy"


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


def passage(data: bytes) -> Element:
    """A paragraph with the beginning of a text in UTF-8."""
    text = decoded(data, TEXT)
    return element("p", spelled(text) if text else "(empty)", dir="auto", style=_WRAPPED)


def tokenized(ids: np.ndarray, words: Mapping[int, str]) -> Element:
    """A paragraph of the first tokens of a text, of which every second has a background.

    Args:
        ids: The ids, integers [n].
        words: Id -> its word, in which that of unknown words has a dashed frame; empty to show the ids.
    """
    children: list[Element | str] = []
    for number, id_ in enumerate(ids[:TOKENS].tolist()):
        text = spelled(shortened(words.get(id_, str(id_)), _TOKEN))
        children.append(" " if number else "")
        if words and id_ == UNKNOWN_ID:
            children.append(element("span", text, style=_UNKNOWN, title="unknown"))
        else:
            children.append(element("span", text, style=_ODD) if number % 2 else text)
    if len(ids) > TOKENS:
        children.append(f" ... and {len(ids) - TOKENS:,} more")
    return element("p", *children, dir="auto", style=_WRAPPED)
