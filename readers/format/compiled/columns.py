"""Decoding of many framed records of numbers by the compiled kernel, where they are in memory.

It walks, verifies and copies records without the interpreter's lock. `intact` and `ColumnDecoder`, which
are NumPy alone, define the result: this one gives the same columns, or none.
"""

from __future__ import annotations

import ctypes
import math

import numpy as np

from readers.files.processors import processors
from readers.format.compiled import library
from readers.format.compiled.fields import Fields, Stored, companion_of, stored_features
from readers.format.decode.column import Allocator, FeatureColumn
from readers.format.decode.records import parse_example
from readers.format.schema import MAX_EMPTY_SIZE, Feature, Schema
from readers.format.tfrecord import FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES

# Bytes for each thread: to start one takes 20 us, in which 200 KB are copied.
_THREAD_BYTES = 1 << 20

# After this many batches in a row that the kernel could not decode, it is no longer called.
_MOST_MISSES = 8


class CompiledDecoder:
    """Decodes batches of framed records into columns. It is safe to share between threads.

    Args:
        schema: The features to decode.
        empty: Allocates large arrays.

    Attributes:
        is_able: Whether there is a kernel, and it can decode all of the features.
    """

    def __init__(self, schema: Schema, empty: Allocator = np.empty) -> None:
        self._schema, self._empty = schema, empty
        self._stored = stored_features(schema) or {}
        self.is_able = bool(self._stored) and library.is_compiled()
        self._is_fixed = all(feature.is_fixed for feature in schema.values())
        self._misses = 0
        # The names of all features of a record, in the order in which the last records had them.
        self._order: tuple[str, ...] = ()

    def columns(self, records: np.ndarray, sizes: np.ndarray) -> dict[str, FeatureColumn] | None:
        """The columns of records; None if one is damaged, or has another form than the first.

        Args:
            records: int64 [B], the addresses of the framed records.
            sizes: int64 [B], their sizes with the framing, all of whose bytes can be read.
        """
        if not len(records) or self._misses >= _MOST_MISSES:
            return None
        order = self._order
        found = self._decoded(order, records, sizes) if order else None
        if found is None:
            learned = self._order_of(int(records[0]), int(sizes[0]))
            if learned and learned != order:
                found = self._decoded(learned, records, sizes)
                self._order = learned
        self._misses = 0 if found is not None else self._misses + 1
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
        self, order: tuple[str, ...], records: np.ndarray, sizes: np.ndarray
    ) -> dict[str, FeatureColumn] | None:
        fields = Fields(order, self._stored, len(records))
        if not self._is_fixed and not library.walk(records, sizes, fields.array):
            return None
        values = {}
        for name, stored in self._stored.items():
            if stored.shape is None and np.any(fields.counts[name] % stored.width):
                return None
            values[name] = self._values(name, stored, fields, len(records))
        threads = min(processors(), int(sizes.sum()) // _THREAD_BYTES)
        if not library.fill(records, sizes, fields.array, self._is_fixed, threads):
            return None
        columns = {}
        for name, feature in self._schema.items():
            shapes = None
            if not feature.is_fixed:
                shapes = self._shapes(name, feature, fields, values)
                if shapes is None:
                    return None
            columns[name] = FeatureColumn(values[name], shapes)
        return columns

    def _values(self, name: str, stored: Stored, fields: Fields, rows: int) -> np.ndarray:
        """The array to which the kernel is to copy the values of a feature."""
        if stored.shape is not None:
            out = self._empty((rows, *stored.shape), stored.dtype)
            fields.copy_to(name, out)
            return out
        itemsize = stored.dtype.itemsize
        lengths = fields.counts[name] // stored.width * itemsize
        stops = np.cumsum(lengths)
        out = self._empty((int(stops[-1]) // itemsize,), stored.dtype)
        fields.copy_to(name, out, stops - lengths)
        return out

    def _shapes(
        self, name: str, feature: Feature, fields: Fields, values: dict[str, np.ndarray]
    ) -> np.ndarray | None:
        """The shapes of the records' arrays, int64 [B, rank]; None if they do not fit the feature."""
        counts = fields.counts[name] // self._stored[name].width
        if feature.needs_companion:
            shapes = values[companion_of(name)]
        elif name in fields.sizes:
            shapes = fields.sizes[name]
        else:
            known = math.prod(feature.known_sizes)
            if feature.shape.count(None) > 1 or not known:
                return None
            sizes = [
                counts // known if d is None else np.full_like(counts, d) for d in feature.shape
            ]
            shapes = np.stack(sizes, axis=1)
        for axis, size in enumerate(feature.shape):
            found = shapes[:, axis]
            if not (found >= 0 if size is None else found == size).all():
                return None
        if not ((shapes.max(axis=1, initial=0) <= MAX_EMPTY_SIZE) | (counts > 0)).all():
            return None
        # Unlike a product of integers, one of floats does not wrap around.
        product = np.prod(shapes.astype(np.float64), axis=1)
        return shapes if (product == counts).all() else None
