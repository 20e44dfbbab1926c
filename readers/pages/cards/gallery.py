"""Cards of several records, limited in number and size to keep the page small."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from xml.etree.ElementTree import Element

from readers.files.files import StoreError
from readers.files.processors import processors
from readers.format.display import shortened
from readers.format.features import undecoded
from readers.format.manifest import Manifest
from readers.measures.sample import SplitSample
from readers.pages.cards.card import Card, card_of
from readers.pages.cards.drawings import TEXT
from readers.pages.cards.look import Look
from readers.pages.markup import element, to_html
from readers.source import RecordSource

# Bytes of all cards: the page stays below 5 MB.
_DRAWN = 2_500_000

# (split, number in the split) of a record.
Place = tuple[str, int]


class Cards:
    """Makes the cards of a dataset's records; when all together take too many bytes, further ones are not drawn.

    The samples have the keys of records that cannot be read.
    """

    def __init__(
        self, directory: str, manifest: Manifest, samples: Mapping[str, SplitSample] | None = None
    ) -> None:
        self._directory, self._samples, self._left = directory, samples or {}, _DRAWN
        self._look, self._schema = Look.of(directory, manifest), undecoded(manifest.schema)
        self._sources: dict[str, RecordSource] = {}

    def source(self, split: str) -> RecordSource:
        """The records of a split as they are now, of which the manifest may be an older one; the errors are those of `RecordSource`."""
        if split not in self._sources:
            self._sources[split] = RecordSource(self._directory, split, schema=self._schema)
        return self._sources[split]

    def figures(
        self, places: Sequence[Place], why: Sequence[str] = (), names_splits: bool = True
    ) -> list[Element]:
        """The cards of some records, with the reason each is shown; a record that cannot be read becomes a card with the error."""
        for split, _ in places:
            self.source(split)
        if self._samples:
            with ThreadPoolExecutor(processors()) as threads:
                cards = list(threads.map(self._card, places))
        else:  # The records may have any size.
            cards = list(map(self._card, places))
        made = []
        for place, card, reason in zip(places, cards, why or [""] * len(places), strict=True):
            split = place[0] if names_splits else ""
            figure = card.figure(reason, split)
            size = len(to_html(figure).encode())
            if size > self._left:
                figure = card.figure(reason, split, False)
            else:
                self._left -= size
            made.append(figure)
        return made

    def _card(self, place: Place) -> Card:
        split, number = place
        try:
            return card_of(self._sources[split][number], self._look)
        except (ValueError, IndexError, OSError, ImportError) as error:
            if isinstance(error, StoreError) and not self._samples:
                raise  # Each of the others would wait as long.
            reason = element("div", shortened(f"cannot be read: {error}", TEXT))
            sample = self._samples.get(split)
            name = sample.named(number) if sample else f"record {number}"
            return Card(name, lines=(reason,))
