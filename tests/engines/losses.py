"""What a runner that loses an element does; workers of engines load it from here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam


class Lose(beam.DoFn):
    """Passes on all elements of a bundle but its first."""

    def start_bundle(self) -> None:
        self._first = True

    def process(self, element: Any) -> Iterator[Any]:
        if not self._first:
            yield element
        self._first = False
