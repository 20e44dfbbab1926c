"""Decodes many framed records with the compiled kernel, when they are in memory.

The kernel walks, verifies and copies records without the interpreter's lock. `Decoder` defines the result: the kernel
gives the same columns, or rejects records.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from readers.files.processors import on_all_processors, processors
from readers.format.compiled import library
from readers.format.compiled.fields import Fields, FieldTable, stored_features
from readers.format.decode.column import (
    Allocator,
    FeatureColumn,
    RowFormat,
    column_of,
    object_array,
)
from readers.format.decode.records import parse_example
from readers.format.dtypes import numpy_dtype
from readers.format.encodings.compressed import ZlibEncoding
from readers.format.encodings.values import narrowed
from readers.format.schema import Feature, Schema
from readers.format.tfrecord import FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES

# Bytes for each thread: starting one takes 20 us, enough to copy 200 KB.
_THREAD_BYTES = 1 << 20

# Batches that together would be larger are padded one by one, on demand: one long record among short ones
# can make the padding many times larger than the records.
_MOST_PADDED_BYTES = 64 << 20

# The columns of a batch, by feature name.
Columns = dict[str, FeatureColumn]


class CompiledDecoder:
    """Decodes batches of framed records into columns. It is safe to share between threads.

    `checks` is whether to compare checksums, `is_able` whether the kernel can decode all of the features.
    """

    def __init__(self, schema: Schema, empty: Allocator = np.empty, checks: bool = True) -> None:
        self._schema, self._empty = schema, empty
        self._work = library.FILL | (library.CHECK if checks else 0)
        self._packed = {name: f for name, f in schema.items() if f.codec.is_packed}
        shapes = {
            f"{name}/shape": Feature("int64", (len(feature.shape) or 1,), "list")
            for name, feature in self._packed.items()
            if feature.needs_companion
        }
        self._features = {**schema, **shapes}
        self._stored = stored_features(schema) | stored_features(shapes)
        self.is_able = bool(schema) and self._stored.keys() >= schema.keys()
        # The fields of the records decoded last, and how features became rows.
        self._last: tuple[FieldTable, Mapping[str, RowFormat]] | None = None

    def batches(
        self,
        records: np.ndarray,
        sizes: np.ndarray,
        bounds: Sequence[int],
        rows: Mapping[str, RowFormat],
        data: np.ndarray | None = None,
    ) -> list[Columns]:
        """Decodes several batches into columns.

        A feature is left out if the kernel cannot read it, if the records lack it, or if its shape is unknown.

        Args:
            records: int64 [B], the addresses of the framed records; at least one.
            sizes: int64 [B], their sizes with the framing; all of these bytes must be readable.
            bounds: The row at which each batch begins, and the row at which the last one ends.
            rows: How features become rows; the values of other features are concatenated.
            data: uint8 [n], the memory of all records, if nobody changes it; images are then views of it.

        Raises:
            RefusedRecords: Some records are damaged, or have a different form than most, or than the first.
        """
        refused, last = None, self._last
        if last is not None and last[1] == rows:
            try:
                return self._decoded(last[0], records, sizes, bounds, data)
            except library.RefusedRecords as error:
                refused = error
                if 2 * np.count_nonzero(error.good) > len(records):
                    raise
        order = self._order_of(int(records[0]), int(sizes[0]))
        if order is None:
            raise library.RefusedRecords(np.arange(len(records)) > 0)
        if refused and last and order == last[0].order:
            raise refused
        # Values that need conversion are padded after it, and compressed ones after they are unpacked.
        formats = dict[str, RowFormat]()
        for name, stored in self._stored.items():
            how = rows.get(name, RowFormat())
            is_converted = stored.dtype != numpy_dtype(self._features[name].dtype)
            how = how if stored.shape is not None else RowFormat()
            formats[name] = RowFormat(how.limit) if is_converted else how
        table = FieldTable(order, self._stored, formats)
        self._last = table, rows
        return self._decoded(table, records, sizes, bounds, data)

    def _order_of(self, record: int, size: int) -> tuple[str, ...] | None:
        """The features of a record, in order; None if it is not an Example."""
        if size < FRAME_BYTES:
            return None
        data = ctypes.string_at(record + HEADER_BYTES, size - HEADER_BYTES - FOOTER_BYTES)
        try:
            return tuple(parse_example(data))
        except ValueError:
            return None

    def _decoded(
        self,
        table: FieldTable,
        records: np.ndarray,
        sizes: np.ndarray,
        bounds: Sequence[int],
        data: np.ndarray | None,
    ) -> list[Columns]:
        fields = table.of(len(records), len(bounds) - 1)
        threads = min(processors(), int(sizes.sum()) // _THREAD_BYTES)
        work = self._work
        if table.is_fixed:
            work |= library.WALK
        else:
            library.read_rows(records, sizes, fields.memory, library.WALK, threads)
        library.lay_out(fields.memory, np.array(bounds, np.int64), _MOST_PADDED_BYTES)
        found = dict[str, list[np.ndarray]]()
        memory = dict[str, np.ndarray]()
        for name in table.places:
            if self._stored[name].shape is not None:
                nbytes = int(fields.pieces[name][-1, 1])
                memory[name] = self._empty((nbytes,), np.dtype(np.uint8))
                fields.copy_to(name, memory[name])
            elif self._features[name].codec.is_text:
                found[name] = self._texts(name, fields, bounds)
            elif data is None:
                found[name] = self._copied_views(name, fields, bounds)
            else:
                starts = records - library.address(data) + fields.leave(name)
                found[name] = _views(data, starts, fields.numbers[name][2], bounds)
        library.read_rows(records, sizes, fields.memory, work, threads)
        columns = {
            name: self._columns_of(name, fields, memory[name], bounds)
            if name in memory
            else [FeatureColumn(objects) for objects in found[name]]
            for name in self._features
            if name in table.places
        }
        for name in self._packed.keys() & columns.keys():
            self._unpack(name, columns, bounds)
        return [
            {name: batches[number] for name, batches in columns.items()}
            for number in range(len(bounds) - 1)
        ]

    def _unpack(
        self, name: str, columns: dict[str, list[FeatureColumn]], bounds: Sequence[int]
    ) -> None:
        """Replaces the columns of compressed values, and of their shapes, by the values."""
        feature, count, shapes = self._packed[name], bounds[-1], f"{name}/shape"
        assert isinstance(feature.codec, ZlibEncoding)
        unpacked, arrays, good = feature.codec.unpacked, [np.empty(0)] * count, np.ones(count, bool)
        values = np.concatenate([column.flat() for column in columns[name]])
        sizes: list[Any] = [feature.known_sizes] * count
        if feature.needs_companion and shapes in columns:
            sizes = np.concatenate([column.flat() for column in columns.pop(shapes)]).tolist()

        def unpack(row: int) -> None:
            try:
                arrays[row] = unpacked(feature, values[row], sizes[row])
            except ValueError:  # `Decoder` says why.
                good[row] = False

        # With smaller streams, threads spend more time on the interpreter's lock than they gain.
        if sum(map(len, values)) < count << 10:
            list(map(unpack, range(count)))
        else:
            on_all_processors(unpack, count)
        if not good.all():
            raise library.RefusedRecords(good)
        columns[name] = [column_of(feature, arrays[a:b]) for a, b in pairwise(bounds)]

    def _texts(self, name: str, fields: Fields, bounds: Sequence[int]) -> list[np.ndarray]:
        """The bytes objects of each batch, object [B], that the kernel is to copy the texts to."""
        sizes = fields.numbers[name][2]
        found = [library.new_texts(sizes[start:stop]) for start, stop in pairwise(bounds)]
        fields.copy_to_addresses(name, np.concatenate([at for _, at in found]))
        return [objects for objects, _ in found]

    def _copied_views(self, name: str, fields: Fields, bounds: Sequence[int]) -> list[np.ndarray]:
        """Views of the memory that the kernel is to copy bytes values to, object [B] of each batch."""
        sizes = fields.numbers[name][2]
        stops = np.cumsum(sizes)
        memory = self._empty((int(stops[-1]),), np.dtype(np.uint8))
        fields.copy_to_addresses(name, library.address(memory) + stops - sizes)
        return _views(memory, stops - sizes, sizes, bounds)

    def _columns_of(
        self, name: str, fields: Fields, memory: np.ndarray, bounds: Sequence[int]
    ) -> list[FeatureColumn]:
        """The column of each batch."""
        feature, shapes, pads = self._features[name], fields.shapes.get(name), fields.pads(name)
        stored, dtype = self._stored[name].dtype, numpy_dtype(feature.dtype)
        columns = []
        for (begin, end, length), (start, stop) in zip(
            fields.pieces[name].tolist(), pairwise(bounds), strict=True
        ):
            try:
                flat = narrowed(memory[begin:end].view(stored), dtype)
            except ValueError:  # `Decoder` finds the record.
                raise library.RefusedRecords(np.zeros(bounds[-1], bool)) from None
            if shapes is None:
                columns.append(FeatureColumn(flat.reshape(stop - start, *feature.known_sizes)))
            elif pads:
                padded = flat.reshape(stop - start, length, *feature.known_sizes)
                columns.append(FeatureColumn(None, shapes[start:stop], padded=padded))
            else:
                columns.append(FeatureColumn(flat, shapes[start:stop]))
        return columns


def _views(
    data: np.ndarray, starts: np.ndarray, sizes: np.ndarray, bounds: Sequence[int]
) -> list[np.ndarray]:
    """Views of parts of a buffer, object [B] of each batch."""
    spans = zip(starts.tolist(), (starts + sizes).tolist(), strict=True)
    views = object_array([data.data[start:stop] for start, stop in spans])
    return [views[start:stop] for start, stop in pairwise(bounds)]
