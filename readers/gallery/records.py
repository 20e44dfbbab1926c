"""Records as cards of HTML: their pictures, recordings and texts, and a line for each other feature."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from readers.describe import named
from readers.format.display import shortened
from readers.gallery.drawings import drawings_of
from readers.gallery.look import Look
from readers.gallery.markup import element
from readers.gallery.texts import decoded, spelled
from readers.head import summary

# Characters of a value, of the name of a feature, and of a key, of which the end tells more.
_VALUE, _NAME, _KEY = 120, 60, 40

# Features and labels of a record.
_FEATURES, _LABELS = 12, 5

# Characters of a key that are shown when someone points at it.
_WHOLE_KEY = 500

_NOT_DRAWN = "not drawn: the page would become too large"

_GRID = "display:grid;grid-template-columns:repeat(auto-fill,minmax(240px,1fr));gap:1em"


@dataclass(frozen=True)
class Card:
    """What is shown of a record.

    Attributes:
        key: Its key; empty without one.
        label: The name of its class, or its number; empty without one.
        drawings: Its pictures, lines, spectrograms and texts.
        lines: A line for each other feature.
    """

    key: str = ""
    label: str = ""
    drawings: Sequence[Element] = ()
    lines: Sequence[Element] = ()

    def figure(self, why: str = "", split: str = "", is_drawn: bool = True) -> Element:
        """The card as a `figure`.

        Args:
            why: Why it is shown; may be empty.
            split: The split of the record, where records of several are shown; may be empty.
            is_drawn: Whether to show its drawings and its lines.
        """
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
        if not is_drawn:
            parts.append(element("div", _NOT_DRAWN))
        caption = element("figcaption", *parts, *(self.lines if is_drawn else ()))
        return element(
            "figure",
            *(element("div", each, class_="drawing") for each in self.drawings if is_drawn),
            caption,
            class_="record",
            style="margin:0;min-width:0;overflow-wrap:anywhere",
        )


def gallery(records: Iterable[Mapping[str, Any]], look: Look) -> Element:
    """Records beside each other."""
    cards = (card_of(record, look).figure() for record in records)
    return element("div", *cards, style=_GRID)


def card_of(record: Mapping[str, Any], look: Look) -> Card:
    """What is shown of a record. A feature that cannot be decoded is a line that says why.

    Args:
        record: The values by feature name, whose encoded images may be bytes.
        look: What the features are.
    """
    key, label = look.value_of("key", record), look.value_of("label", record)
    drawn = drawings_of(record, look)
    shown = (look.feature_of("key"), look.feature_of("label") if label is not None else "")
    others = [name for name in record if name not in drawn.features and name not in shown]
    lines = [
        *(_line(name, drawn.words[name]) for name in drawn.words),
        *(_line(name, _words(record[name], look.names.get(name, ()))) for name in others),
    ]
    if len(lines) > _FEATURES:
        rest = f"and {len(lines) - _FEATURES:,} more features"
        lines = [*lines[:_FEATURES], element("div", rest)]
    return Card(
        spelled(key.decode("utf-8", "backslashreplace")) if isinstance(key, bytes) else "",
        _label(label, look.names.get(look.feature_of("label"), ())),
        drawn.pictures,
        lines,
    )


def _line(name: str, words: str) -> Element:
    return element("div", element("b", shortened(name, _NAME)), " ", element("bdi", words))


def _label(label: Any, names: Sequence[str]) -> str:
    """The name of a class, and those of the first of several."""
    values = np.asarray(label).reshape(-1) if label is not None else np.empty(0)
    if values.dtype.kind not in "iu":
        words = ", ".join(_words(value, ()) for value in values[:_LABELS])
    else:
        found = (int(value) for value in values[:_LABELS])
        words = ", ".join(
            shortened(names[value], _NAME) if 0 <= value < len(names) else str(value)
            for value in found
        )
    return words + (f" and {len(values) - _LABELS:,} more" if len(values) > _LABELS else "")


def _words(value: Any, names: Sequence[str]) -> str:
    if isinstance(value, bytes):
        return spelled(decoded(value, _VALUE))
    if isinstance(value, np.integer) and names:
        return shortened(named(int(value), names), _VALUE)
    if isinstance(value, np.generic):
        return str(value)
    return shortened(summary(_array(value), names), _VALUE)


def _array(value: Any) -> Any:
    """A value of a record as `summary` takes it: an array, or a list of arrays."""
    if isinstance(value, list) and not all(isinstance(item, np.ndarray) for item in value):
        return np.array(value, object)
    return value
