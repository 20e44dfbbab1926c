"""A step that loses elements; workers of engines import it from here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam


class Lose(beam.DoFn):
    """Drops the first element of every bundle."""

    def start_bundle(self) -> None:
        self._first = True

    def process(self, element: Any) -> Iterator[Any]:
        if not self._first:
            yield element
        self._first = False
