"""Decoding of many framed records of numbers and texts by the compiled kernel, where they are in memory.

It walks, verifies and copies records without the interpreter's lock. `intact` and `ColumnDecoder`, which
are NumPy alone, define the result: this one gives the same columns, or none.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from readers.files.processors import processors
from readers.format.compiled import library
from readers.format.compiled.fields import Fields, companion_of, stored_features
from readers.format.compiled.outputs import Output, Texts
from readers.format.decode.column import Allocator, FeatureColumn, RowFormat
from readers.format.decode.records import parse_example
from readers.format.schema import MAX_EMPTY_SIZE, Feature, Schema
from readers.format.tfrecord import FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES

# Bytes for each thread: to start one takes 20 us, in which 200 KB are copied.
_THREAD_BYTES = 1 << 20

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
        self._is_fixed = all(stored.shape is not None for stored in self._stored.values())
        # The names of all features of a record, in the order in which the last records had them.
        self._order: tuple[str, ...] = ()

    def columns(self, records: np.ndarray, sizes: np.ndarray) -> Columns | None:
        """The columns of records, as of one batch of `batches`."""
        found = self.batches(records, sizes, (0, len(records)), {})
        return None if found is None else found[0]

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
        if min(end - start for start, end in pairwise(bounds)) == 0:
            return None
        order = self._order
        found = self._decoded(order, records, sizes, bounds, rows) if order else None
        if found is None:
            learned = self._order_of(int(records[0]), int(sizes[0]))
            if learned and learned != order:
                found = self._decoded(learned, records, sizes, bounds, rows)
                self._order = learned
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
        self,
        order: tuple[str, ...],
        records: np.ndarray,
        sizes: np.ndarray,
        bounds: Sequence[int],
        rows: Mapping[str, RowFormat],
    ) -> list[Columns] | None:
        fields, threads = Fields(order, self._stored, len(records)), _threads(sizes)
        if self._is_fixed:
            work = self._work | library.WALK
        elif library.read_rows(records, sizes, fields.array, library.WALK, threads):
            work = self._work
        else:
            return None
        outputs = self._outputs(fields, bounds, rows)
        if outputs is None or not library.read_rows(records, sizes, fields.array, work, threads):
            return None
        columns = []
        for name, feature in self._schema.items():
            shapes = None
            if not feature.is_fixed:
                shapes = self._shapes(name, feature, fields, outputs, rows.get(name))
                if shapes is None:
                    return None
            columns.append(outputs[name].columns(shapes))
        return [dict(zip(self._schema, batch, strict=True)) for batch in zip(*columns, strict=True)]

    def _outputs(
        self, fields: Fields, bounds: Sequence[int], rows: Mapping[str, RowFormat]
    ) -> dict[str, Any] | None:
        """The memory of each feature, after a walk; None if values have parts of a number."""
        ends, outputs = np.array(bounds), dict[str, Any]()
        for name, stored in self._stored.items():
            if (
                stored.shape is None
                and stored.width > 1
                and np.any(fields.counts[name] % stored.width)
            ):
                return None
            feature, how = self._schema.get(name), rows.get(name)
            if feature is None:  # It is the shape beside another one.
                outputs[name] = Output(name, stored, fields, ends[[0, -1]], (), None, self._empty)
            elif feature.dtype == "string":
                outputs[name] = Texts(name, fields, ends)
            else:
                inner = feature.known_sizes if how else ()
                outputs[name] = Output(name, stored, fields, ends, inner, how, self._empty)
        return outputs

    def _shapes(
        self,
        name: str,
        feature: Feature,
        fields: Fields,
        outputs: Mapping[str, Any],
        rows: RowFormat | None,
    ) -> np.ndarray | None:
        """The shapes of the records' arrays, int64 [B, rank]; None if they do not fit the feature."""
        counts = fields.counts[name] // self._stored[name].width
        if feature.needs_companion:
            shapes = outputs[companion_of(name)].values().reshape(len(counts), -1)
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
        if not (np.prod(shapes.astype(np.float64), axis=1) == counts).all():
            return None
        if rows is not None and rows.limit is not None:
            shapes[:, 0] = np.minimum(shapes[:, 0], rows.limit)
        return shapes


def _threads(sizes: np.ndarray) -> int:
    """How many threads share records of these sizes, int64 [B]."""
    return min(processors(), int(sizes.sum()) // _THREAD_BYTES)
