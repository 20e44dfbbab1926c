"""Records that are shown together, and how they become cards that do not make the page too large."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple
from xml.etree.ElementTree import Element

from readers.gallery.look import Look
from readers.gallery.markup import to_html
from readers.gallery.records import Card, card_of
from readers.page.study import Study

# Bytes of all cards without what can be played, and of what can be played: the page stays below 5 MB.
_DRAWN = 2_200_000
_PLAYED = 1_200_000

# Bytes of a picture: at most, and at least. More of them are smaller, so that all have room.
_LARGEST, _SMALLEST = 16_000, 3_000

_MISSING = "not all is shown: the page would become too large"


class Shown(NamedTuple):
    """Records that are shown together.

    Attributes:
        title: What they have in common.
        words: A line about them; may be empty.
        records: (split, number) of each, and why it is shown.
        anchor: The id of their place in the page; empty without one.
        link: The id of the place that they belong to, and what it is called; empty without one.
    """

    title: str
    words: str
    records: Sequence[tuple[tuple[str, int], str]]
    anchor: str = ""
    link: tuple[str, str] = ("", "")


def picture_bytes(galleries: Iterable[Shown]) -> int:
    """How many bytes the picture of a card may have, so that all cards have room."""
    cards = sum(len(gallery.records) for gallery in galleries)
    # A third more in base64, and as much for a mask, the words and the lines.
    share = _DRAWN / max(1, cards) / (4 / 3) * 0.6
    return int(min(_LARGEST, max(_SMALLEST, share)))


def figures(study: Study, look: Look, galleries: Sequence[Shown]) -> list[list[Element]]:
    """The cards of some galleries, as figures.

    A record that cannot be read is a card that says why. The first cards of each gallery have what can be played
    before others have.

    Args:
        study: The dataset.
        look: What its features are.
        galleries: The records.
    """
    places = dict.fromkeys(place for gallery in galleries for place, _ in gallery.records)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        made = threads.map(lambda place: _card(study, look, *place), places)
        cards = dict(zip(places, made, strict=True))
    played = _played(galleries, cards)
    left, found = _DRAWN, []
    for gallery in galleries:
        row = []
        for number, (place, why) in enumerate(gallery.records):
            card, is_played = cards[place], (gallery.title, gallery.anchor, number) in played
            notes = [why] if why else []
            size = card.size
            figure = card.card.figure(
                *notes,
                is_drawn=size <= left,
                is_played=is_played,
                missing=_MISSING,
                split=place[0] if len(study.samples) > 1 else "",
            )
            left -= size if size <= left else 0
            row.append(figure)
        found.append(row)
    return found


class _Sized(NamedTuple):
    """A card, and the bytes of its figure without what can be played, and of that."""

    card: Card
    size: int
    played: int


def _card(study: Study, look: Look, split: str, number: int) -> _Sized:
    try:
        card = card_of(study.stored(split, number), look)
    except (ValueError, OSError, ImportError) as error:
        sample = study.samples[split]
        card = Card(sample.named(number), problem=f"cannot be read: {error}")
    drawn = len(to_html(card.figure(is_played=False)).encode())
    return _Sized(card, drawn, sum(len(to_html(sound)) for sound in card.sounds))


def _played(
    galleries: Sequence[Shown], cards: dict[tuple[str, int], _Sized]
) -> set[tuple[str, str, int]]:
    """Which cards have what can be played, by the title, the anchor and the place in their gallery."""
    wanted = [
        (number, gallery.title, gallery.anchor, cards[place].played)
        for gallery in galleries
        for number, (place, _) in enumerate(gallery.records)
    ]
    left, found = _PLAYED, set()
    for number, title, anchor, size in sorted(wanted, key=lambda each: each[0]):
        if size <= left:
            left -= size
            found.add((title, anchor, number))
    return found
