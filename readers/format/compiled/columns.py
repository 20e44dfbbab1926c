"""Decoding of many framed records of numbers, texts and images by the compiled kernel, where they are in memory.

It walks, verifies and copies records without the interpreter's lock. `intact` and `ColumnDecoder`, which
are NumPy alone, define the result: this one gives the same columns, or none.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from readers.files.processors import processors
from readers.format.compiled import library
from readers.format.compiled.fields import Fields, FieldTable, stored_features
from readers.format.decode.column import (
    Allocator,
    FeatureColumn,
    RowFormat,
    Spans,
)
from readers.format.decode.records import parse_example
from readers.format.decode.scanner import MARGIN
from readers.format.schema import Feature, Schema
from readers.format.tfrecord import FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES

# Bytes for each thread: to start one takes 20 us, in which 200 KB are copied.
_THREAD_BYTES = 1 << 20

# Batches that would be larger together are padded one by one, when they are asked for: a long record among
# short ones makes padding many times as large as the records.
_MOST_PADDED_BYTES = 64 << 20

# The columns of a batch by name.
Columns = dict[str, FeatureColumn]


class CompiledDecoder:
    """Decodes batches of framed records into columns. It is safe to share between threads.

    Args:
        schema: The features to decode.
        empty: Allocates large arrays.
        checks: Whether to compare checksums.

    Attributes:
        is_able: Whether there is a kernel, and it can decode all of the features.
    """

    def __init__(self, schema: Schema, empty: Allocator = np.empty, checks: bool = True) -> None:
        self._schema, self._empty = schema, empty
        self._work = library.FILL | (library.CHECK if checks else 0)
        self._stored = stored_features(schema) or {}
        self.is_able = bool(self._stored) and library.is_compiled()
        self._is_fixed = all(stored.is_fixed for stored in self._stored.values())
        # The fields of the records decoded last, and how features became rows.
        self._last: tuple[FieldTable, Mapping[str, RowFormat]] | None = None

    def batches(
        self,
        records: np.ndarray,
        sizes: np.ndarray,
        bounds: Sequence[int],
        rows: Mapping[str, RowFormat],
    ) -> list[Columns] | None:
        """The columns of several batches; None if a record is damaged, or has another form than the first.

        Args:
            records: int64 [B], the addresses of the framed records.
            sizes: int64 [B], their sizes with the framing, all of whose bytes can be read.
            bounds: The row at which each batch begins, and the one at which the last ends.
            rows: How features become rows; the values of others follow one another.
        """
        if not len(records):
            return None
        order: tuple[str, ...] = ()
        found = None
        if self._last is not None and self._last[1] == rows:
            order = self._last[0].order
            found = self._decoded(self._last[0], records, sizes, bounds)
        if found is None:
            learned = self._order_of(int(records[0]), int(sizes[0]))
            if learned and learned != order:
                try:
                    table = FieldTable(learned, self._stored, rows)
                except ValueError:
                    return None
                found = self._decoded(table, records, sizes, bounds)
                self._last = table, rows
        return found

    def _order_of(self, record: int, size: int) -> tuple[str, ...] | None:
        """The features of a record, if those to decode are among them."""
        if size < FRAME_BYTES:
            return None
        data = ctypes.string_at(record + HEADER_BYTES, size - HEADER_BYTES - FOOTER_BYTES)
        try:
            order = tuple(parse_example(data))
        except ValueError:
            return None
        return order if self._stored.keys() <= set(order) else None

    def _decoded(
        self, table: FieldTable, records: np.ndarray, sizes: np.ndarray, bounds: Sequence[int]
    ) -> list[Columns] | None:
        fields = table.of(len(records), len(bounds) - 1)
        threads = min(processors(), int(sizes.sum()) // _THREAD_BYTES)
        work = self._work
        if self._is_fixed:
            work |= library.WALK
        elif not library.read_rows(records, sizes, fields.memory, library.WALK, threads):
            return None
        library.lay_out(fields.memory, np.array(bounds, np.int64), _MOST_PADDED_BYTES)
        texts, spans = dict[str, list[np.ndarray]](), dict[str, list[Spans]]()
        memory = dict[str, np.ndarray]()
        for name, stored in self._stored.items():
            if stored.shape is not None:
                nbytes = fields.pieces_of(name)[-1][1]
                memory[name] = self._empty((nbytes,), np.dtype(np.uint8))
                fields.copy_to(name, memory[name])
            elif self._schema[name].codec.is_text:
                texts[name] = self._texts(name, fields, bounds)
            else:
                spans[name] = self._spans(name, fields, bounds)
        if not library.read_rows(records, sizes, fields.memory, work, threads):
            return None
        columns = dict[str, list[FeatureColumn]]()
        for name, feature in self._schema.items():
            if name in texts:
                columns[name] = [FeatureColumn(objects) for objects in texts[name]]
            elif name in spans:
                column = feature.codec.column
                found = [column(feature, each, None, self._empty) for each in spans[name]]
                columns[name] = [each for each in found if each is not None]
            else:
                columns[name] = self._columns_of(name, feature, fields, memory[name], bounds)
        batches = zip(*columns.values(), strict=True)
        return [dict(zip(self._schema, batch, strict=True)) for batch in batches]

    def _texts(self, name: str, fields: Fields, bounds: Sequence[int]) -> list[np.ndarray]:
        """The bytes objects of each batch, object [B], to which the kernel is to copy the texts."""
        sizes = fields.counts(name)
        found = [library.new_texts(sizes[start:stop]) for start, stop in pairwise(bounds)]
        fields.copy_to_addresses(name, np.concatenate([at for _, at in found]))
        return [objects for objects, _ in found]

    def _spans(self, name: str, fields: Fields, bounds: Sequence[int]) -> list[Spans]:
        """The spans of each batch to which the kernel is to copy values of bytes."""
        sizes = fields.counts(name)
        stops = np.cumsum(sizes)
        starts, memory = stops - sizes, self._empty((int(stops[-1]) + MARGIN,), np.dtype(np.uint8))
        fields.copy_to_addresses(name, library.address(memory) + starts)
        return [Spans(memory, starts[i:j], stops[i:j]) for i, j in pairwise(bounds)]

    def _columns_of(
        self,
        name: str,
        feature: Feature,
        fields: Fields,
        memory: np.ndarray,
        bounds: Sequence[int],
    ) -> list[FeatureColumn]:
        """The column of each batch."""
        dtype, shapes, pads = self._stored[name].dtype, fields.shapes(name), fields.pads(name)
        columns = []
        for (begin, end, length), (start, stop) in zip(
            fields.pieces_of(name), pairwise(bounds), strict=True
        ):
            flat = memory[begin:end].view(dtype)
            if shapes is None:
                columns.append(FeatureColumn(flat.reshape(stop - start, *feature.known_sizes)))
            elif pads:
                padded = flat.reshape(stop - start, length, *feature.known_sizes)
                columns.append(FeatureColumn(None, shapes[start:stop], padded=padded))
            else:
                columns.append(FeatureColumn(flat, shapes[start:stop]))
        return columns
