"""Records that are shown together, and how they become cards that do not make the page too large."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple
from xml.etree.ElementTree import Element

from readers.files.processors import processors
from readers.format.display import shortened
from readers.gallery.look import Look
from readers.gallery.markup import element, to_html
from readers.gallery.records import Card, card_of
from readers.gallery.texts import spelled
from readers.page.study import Study

# Bytes of all cards: the page stays below 5 MB.
_DRAWN = 2_500_000

# Bytes of a picture: at most, and at least. More of them are smaller, so that all have room.
_LARGEST, _SMALLEST = 16_000, 3_000

# Bytes of a card beside its picture, of most.
_WORDS = 1_500

# Characters of the reason why a record cannot be read.
_REASON = 400


class Shown(NamedTuple):
    """Records that are shown together.

    Attributes:
        title: What they have in common.
        words: A line about them; may be empty.
        records: (split, number) of each, and why it is shown.
        of_one_split: Whether all are of one split, which need not be named on each.
        anchor: The id of their place in the page; empty without one.
        link: The id of the place that they belong to; empty without one.
    """

    title: str
    words: str
    records: Sequence[tuple[tuple[str, int], str]]
    of_one_split: bool = False
    anchor: str = ""
    link: str = ""


def picture_bytes(galleries: Iterable[Shown]) -> int:
    """How many bytes the picture of a card may have, so that all cards have room."""
    cards = sum(len(gallery.records) for gallery in galleries)
    # Words and what is marked take some, and base64 a third more.
    share = (_DRAWN / max(1, cards) - _WORDS) * 2 / 3
    return int(min(_LARGEST, max(_SMALLEST, share)))


def figures(study: Study, look: Look, galleries: Sequence[Shown]) -> list[list[Element]]:
    """The cards of some galleries, as figures.

    A record that cannot be read is a card that says why. The last of many large cards are not drawn.
    """
    places = dict.fromkeys(place for gallery in galleries for place, _ in gallery.records)
    with ThreadPoolExecutor(processors()) as threads:
        made = threads.map(lambda place: _card(study, look, *place), places)
        cards = dict(zip(places, made, strict=True))
    left = _DRAWN
    found: list[list[Element]] = []
    for gallery in galleries:
        found.append([])
        for place, why in gallery.records:
            card, size = cards[place]
            is_drawn = size <= left
            left -= size if is_drawn else 0
            split = "" if gallery.of_one_split else place[0]
            found[-1].append(card.figure(why, split, is_drawn))
    return found


def _card(study: Study, look: Look, split: str, number: int) -> tuple[Card, int]:
    """A card, and the bytes of its figure."""
    try:
        card = card_of(study.stored(split, number), look)
    except (ValueError, OSError, ImportError) as error:
        reason = element("div", spelled(shortened(f"cannot be read: {error}", _REASON)))
        card = Card(study.samples[split].named(number), lines=(reason,))
    return card, len(to_html(card.figure()).encode())
