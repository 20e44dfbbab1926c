"""Reads and decodes the records in one set of files; errors name the file of a record and its position."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from readers.format.compiled.columns import Columns, CompiledDecoder
from readers.format.compiled.library import RefusedRecords
from readers.format.decode.batches import ColumnDecoder
from readers.format.decode.column import RowFormat
from readers.format.decode.image_columns import image_column
from readers.format.decode.images import with_pixels
from readers.format.decode.records import Decoder
from readers.format.tfrecord import FOOTER_BYTES, HEADER_BYTES, intact
from readers.shards.cache import Cache
from readers.shards.framed import FramedReader, FramedRecords
from readers.shards.memory import RecyclingAllocator
from readers.shards.opened.open_shards import OpenShards
from readers.shards.plan import Plan


class RecordError(ValueError):
    """A record does not fit the schema, or `decoders` or `map` failed on it; the message names its file and position."""


class RecordFiles:
    """The records of one of `Plan.files`, with its features, before the work on them. It is safe to share between threads.

    Arguments are those of `Records`, its `memory`, and the paths of all files to cache. `shards` are the open shards and
    their indexes, `reader` finds framed records, `images` are the features whose pixels `add_pixels` decodes.
    """

    def __init__(
        self,
        plan: Plan,
        verify_crc: bool,
        cache: Cache | None,
        own: bool,
        memory: RecyclingAllocator,
        cacheable: frozenset[str],
    ) -> None:
        self.plan, self._verify_crc = plan, verify_crc
        self._empty, self._rows = memory.empty, memory.rows if own else None
        self.shards = OpenShards(plan, cache, cacheable)
        self.reader = FramedReader(self.shards, memory.empty)
        self._kernel = CompiledDecoder(plan.stored, memory.empty, verify_crc)
        self._columns = ColumnDecoder(plan.stored, memory.empty)
        self._records = Decoder(plan.stored)
        made = plan.work.made if plan.work else {}
        self.images = {n: f for n, f in plan.stored.items() if f.is_image and n not in made}

    def one(self, data: memoryview) -> dict[str, Any]:
        """Decodes a serialized Example, before any work; ValueError, without its place, if it is wrong."""
        return with_pixels(self._records.decode(data), self.plan.stored)

    def record(self, framed: FramedRecords, row: int) -> dict[str, Any]:
        """Decodes one of the records, before any work; RecordError if it does not fit the schema."""
        with self.located(framed.numbers, row):
            return self.one(framed.record(row)[HEADER_BYTES:-FOOTER_BYTES])

    def by_kernel(
        self,
        numbers: np.ndarray,
        bounds: Sequence[int],
        fetched: Sequence[FramedRecords],
        rows: Mapping[str, RowFormat],
    ) -> tuple[FramedRecords | None, list[Columns] | None]:
        """The records if they had to be read, and the columns of batches if the kernel can decode them."""
        if not self._kernel.is_able or not len(numbers):
            return None, None
        framed, found = None, None if fetched else self.reader.mapped(numbers)
        if found is None:
            framed = self.reader.read(numbers, fetched)
            found = framed.addresses()
        data = framed.data if framed else None
        try:
            batches = self._kernel.batches(found.addresses, found.sizes, bounds, rows, data)
        except RefusedRecords:
            return framed, None
        return framed, batches if all(name in batches[0] for name in self.plan.stored) else None

    def checked(self, framed: FramedRecords) -> tuple[FramedRecords, np.ndarray]:
        """Reads records again if they may be damaged only in the cache; also bool [B], whether each is intact in its file."""
        if not self._verify_crc:
            return framed, np.ones(len(framed.starts), bool)
        good = intact(framed.data, framed.stops - framed.starts)
        if not good.all():
            parts, _ = self.shards.locate(framed.numbers[~good])
            if self.shards.drop_copies(np.unique(parts).tolist()):
                self.reader.forget()
                framed = self.reader.read(framed.numbers)
                good = intact(framed.data, framed.stops - framed.starts)
        return framed, good

    def batches(self, framed: FramedRecords, bounds: Sequence[int]) -> list[Columns]:
        """The columns of batches of intact records, images as bytes; RecordError if a record does not fit the schema."""
        columns, errors, _ = self._columns.decode(framed.data, framed.starts, framed.stops)
        if errors:
            first = min(errors)
            with self.located(framed.numbers, first):
                raise ValueError(errors[first])
        parts = [column.split(bounds) for column in columns.values()]
        return [dict(zip(columns, batch, strict=True)) for batch in zip(*parts, strict=True)]

    def add_pixels(self, columns: Columns, numbers: np.ndarray) -> None:
        """Decodes the images in columns, given the numbers of their records, int64 [B]; RecordError if one is wrong."""
        how = partial(self.located, numbers), self._empty, self._rows
        for name, feature in self.images.items():
            encoded = columns[name].flat().tolist()
            columns[name] = image_column(name, feature, encoded, *how)

    @contextlib.contextmanager
    def located(self, numbers: np.ndarray, row: int) -> Iterator[None]:
        """Adds the file, the number and the position of one of some records to an error message."""
        try:
            yield
        except ValueError as error:
            part, number, offset = self.reader.place(int(numbers[row]))
            raise RecordError(
                f"{part.path}: record {number} at byte {offset}: {error}"
            ) from error.__cause__
