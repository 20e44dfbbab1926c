"""Decodes framed records; errors name the file of a record and its position."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from readers.decoders.decoder import Batch
from readers.format.compiled.columns import Columns
from readers.format.decode.batches import ColumnDecoder
from readers.format.decode.column import Allocator, Rows
from readers.format.decode.image_columns import image_column
from readers.format.decode.images import with_pixels
from readers.format.decode.records import Decoder
from readers.format.tfrecord import FOOTER_BYTES, HEADER_BYTES
from readers.shards.framed import FramedRecords, Place
from readers.shards.plan import Plan


class RecordError(ValueError):
    """A record does not fit the schema, or `decoders` or `map` failed on it; the message names its file and position."""


class RecordDecoder:
    """Decodes a plan's records. It is safe to share between threads.

    `place` returns where the record with a number is stored, for error messages. `rows` allocates the pixels of
    each record separately; None if they may be in one array. `works` is whether `worked` changes the columns.
    """

    def __init__(
        self,
        plan: Plan,
        place: Callable[[int], Place],
        empty: Allocator = np.empty,
        rows: Rows | None = None,
    ) -> None:
        self._rows = rows
        self._schema, self._work, self._place, self._empty = plan.stored, plan.work, place, empty
        self._records = Decoder(plan.stored)
        self._columns = ColumnDecoder(plan.stored, empty)
        made = plan.work.made if plan.work else {}
        self._images = {n: f for n, f in plan.stored.items() if f.is_image and n not in made}
        self.works = bool(self._images or plan.work)

    def one(self, data: memoryview) -> dict[str, Any]:
        """Decodes a serialized Example, before any work; ValueError, without its place, if it is wrong."""
        return with_pixels(self._records.decode(data), self._schema)

    def record(self, framed: FramedRecords, row: int) -> dict[str, Any]:
        """Decodes one of the records, before any work; RecordError if it does not fit the schema."""
        with self._located(int(framed.numbers[row])):
            return self.one(framed.record(row)[HEADER_BYTES:-FOOTER_BYTES])

    def stored(self, framed: FramedRecords) -> Columns:
        """The column of each feature as stored, images as bytes; RecordError if a record does not fit."""
        columns, errors, _ = self._columns.decode(framed.data, framed.starts, framed.stops)
        if errors:
            first = min(errors)
            with self._located(int(framed.numbers[first])):
                raise ValueError(errors[first])
        return columns

    def worked(self, columns: Columns, numbers: np.ndarray, keys: np.ndarray | None) -> Columns:
        """The columns after the work on records, with the pixels of images; RecordError if a record fails.

        The numbers of the records are int64 [B]; so are their keys, which are needed only for work on records.
        """

        def located(row: int) -> contextlib.AbstractContextManager[None]:
            return self._located(int(numbers[row]))

        for name, feature in self._images.items():
            encoded = columns[name].flat().tolist()
            columns[name] = image_column(name, feature, encoded, located, self._empty, self._rows)
        if self._work is None:
            return columns
        assert keys is not None
        return self._work.columns(Batch(columns, keys, located, self._empty, self._rows))

    @contextlib.contextmanager
    def _located(self, number: int) -> Iterator[None]:
        """Adds the record's file, number and position to an error message."""
        try:
            yield
        except ValueError as error:
            part, row, offset = self._place(number)
            raise RecordError(
                f"{part.path}: record {row} at byte {offset}: {error}"
            ) from error.__cause__
