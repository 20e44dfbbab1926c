"""Texts and tokens, with whatever they hide made visible."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from xml.etree.ElementTree import Element

from readers.format.display import shortened
from readers.gallery.markup import element
from readers.gallery.tokens import Token

# Characters of a text, and tokens.
TEXT, TOKENS = 400, 100

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


def tokenized(tokens: Sequence[Token], count: int) -> Element:
    """A paragraph of tokens, of which every second has a background, and unknown ones a dashed frame.

    Args:
        tokens: The first tokens of a text.
        count: How many the text has.
    """
    children: list[Element | str] = []
    for number, token in enumerate(tokens):
        text = spelled(shortened(token.text, TEXT // 4))
        text = text if number else text.removeprefix(" ")
        if token.is_unknown:
            word = text.lstrip(" ")
            children += [text[: len(text) - len(word)]] if word != text else []
            children.append(element("span", word, style=_UNKNOWN, title="unknown"))
        elif number % 2:
            children.append(element("span", text, style=_ODD))
        else:
            children.append(text)
    if count > len(tokens):
        children.append(f" ... and {count - len(tokens):,} more")
    return element("p", *children, dir="auto", style=_WRAPPED)
