"""Records as HTML cards: drawings, and a line for each other feature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from readers.describe import named
from readers.format.display import shortened, visible_line
from readers.head import summary
from readers.pages.cards.drawings import decoded, drawings_of
from readers.pages.cards.look import Look
from readers.pages.markup import element

# The most characters of a value, a feature's name, the end of a key, and a key in a tooltip.
_VALUE, _NAME, _KEY, _WHOLE_KEY = 120, 60, 40, 500

# The most features of a record.
_FEATURES = 12

_NOT_DRAWN = "not drawn, to keep the page small"


@dataclass(frozen=True)
class Card:
    """A record as shown: its key and class name, if any; drawings; and a line for each other feature."""

    key: str = ""
    label: str = ""
    drawings: Sequence[Element] = ()
    lines: Sequence[Element] = ()

    def figure(self, why: str = "", split: str = "", is_drawn: bool = True) -> Element:
        """The card as a `figure`, with the reason it is shown and its split if given; without drawings if it is too large."""
        parts = [element("div", why, class_="why")] if why else []
        if self.key:
            cut = self.key if len(self.key) <= _KEY else f"...{self.key[-_KEY:]}"
            title = {"title": self.key[:_WHOLE_KEY]} if cut != self.key else {}
            parts.append(element("div", element("bdi", cut, **title), class_="name"))
        tags = list[Element | str]()
        for tag, name in ((self.label, "label"), (split, "split")):
            tags += [element("bdi", tag, class_=name), " "] if tag else []
        if tags:
            parts.append(element("div", *tags))
        parts += self.lines if is_drawn else [element("div", _NOT_DRAWN)]
        return element(
            "figure",
            *(element("div", each, class_="drawing") for each in self.drawings if is_drawn),
            element("figcaption", *parts),
            class_="record",
            style="margin:0;min-width:0;overflow-wrap:anywhere",
        )


def card_of(record: Mapping[str, Any], look: Look) -> Card:
    """The card of a record, whose encoded images may be bytes. A feature that cannot be decoded becomes a line with the reason."""
    features, classes = look.features, look.features.classes
    names = features.named("key"), features.named("label")
    key, label = map(record.get, names)
    drawn = drawings_of(record, look)
    shown = {*drawn.features, *names}
    words = drawn.words | {
        name: _words(value, classes.get(name, ()))
        for name, value in record.items()
        if name not in shown
    }
    lines = [
        element("div", element("b", shortened(name, _NAME)), " ", element("bdi", text))
        for name, text in words.items()
    ]
    if len(lines) > _FEATURES:
        rest = f"and {len(lines) - _FEATURES:,} more features"
        lines = [*lines[:_FEATURES], element("div", rest)]
    return Card(
        visible_line(key.decode("utf-8", "backslashreplace")) if isinstance(key, bytes) else "",
        "" if label is None else _words(label, classes.get(names[1], ())),
        drawn.pictures,
        lines,
    )


def _words(value: Any, names: Sequence[str]) -> str:
    if isinstance(value, bytes):
        return decoded(value, _VALUE)
    if isinstance(value, np.integer) and names:
        return shortened(named(int(value), names), _VALUE)
    if isinstance(value, np.generic):
        return str(value)
    if isinstance(value, list) and not all(isinstance(item, np.ndarray) for item in value):
        value = np.array(value, object)
    return shortened(summary(value, names), _VALUE)
