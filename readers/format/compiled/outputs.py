"""The memory to which the kernel copies the values of a feature: a piece for each batch."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from readers.format.compiled import library
from readers.format.compiled.fields import Fields, Stored
from readers.format.decode.column import Allocator, FeatureColumn, RowFormat

# In bytes: batches begin at multiples of it, so that TensorFlow takes them over without a copy.
_ALIGNMENT = 64

# Batches that would be larger together are padded one by one, when they are asked for: a long record among
# short ones makes padding many times as large as the records.
_MOST_PADDED_BYTES = 64 << 20


class Output:
    """Where the values of a feature of some batches are copied to.

    Args:
        name: The feature.
        stored: How it is stored.
        fields: The fields of the records, after a walk unless the shape is fixed.
        bounds: int64 [batches + 1], the row at which each batch begins, and the one at which the last ends. No batch
            is empty.
        inner: The sizes after the first.
        rows: How the values become rows; None for one after another.
        empty: Allocates large arrays.
    """

    def __init__(
        self,
        name: str,
        stored: Stored,
        fields: Fields,
        bounds: np.ndarray,
        inner: tuple[int, ...],
        rows: RowFormat | None,
        empty: Allocator,
    ) -> None:
        self._stored, self._bounds, self._inner = stored, bounds, inner
        self._longest: list[int] | None = None
        counts, itemsize = np.diff(bounds), stored.dtype.itemsize
        if stored.shape is not None:
            sizes = np.full(int(bounds[-1]), math.prod(stored.shape) * itemsize)
        else:
            each = math.prod(inner)
            values = fields.counts[name] // stored.width
            if rows is not None and rows.limit is not None:
                fields.cut(name, rows.limit * each * stored.width)
                values = np.minimum(values, rows.limit * each)
            sizes = values * itemsize
            if rows is not None and rows.padding:
                longest = rows.longest(np.maximum.reduceat(values // each, bounds[:-1]))
                padded = np.repeat(longest * (each * itemsize), counts)
                if padded.sum() <= _MOST_PADDED_BYTES and (padded >= sizes).all():
                    self._longest, sizes = longest.tolist(), padded
        stops = np.cumsum(sizes)
        before = np.append(0, stops)[bounds]
        nbytes = np.diff(before)
        begins = np.cumsum(-(-nbytes // _ALIGNMENT) * _ALIGNMENT)
        begins = np.append(0, begins[:-1])
        starts = stops - sizes + np.repeat(begins - before[:-1], counts)
        self._pieces = list(zip(begins.tolist(), (begins + nbytes).tolist(), strict=True))
        self._data = empty((self._pieces[-1][1],), np.dtype(np.uint8))
        fields.copy_to(name, self._data, starts)
        if self._longest is not None:
            assert rows is not None
            fields.pad(name, starts + sizes, rows.padding)

    def columns(self, shapes: np.ndarray | None) -> list[FeatureColumn]:
        """The column of each batch, given the shapes of all records, int64 [B, rank]; None for a fixed shape."""
        columns = []
        for batch, (start, stop) in enumerate(pairwise(self._bounds.tolist())):
            values = self.values(batch)
            if shapes is None:
                assert self._stored.shape is not None
                columns.append(FeatureColumn(values.reshape(stop - start, *self._stored.shape)))
            elif self._longest is None:
                columns.append(FeatureColumn(values, shapes[start:stop]))
            else:
                padded = values.reshape(stop - start, self._longest[batch], *self._inner)
                columns.append(FeatureColumn(None, shapes[start:stop], padded=padded))
        return columns

    def values(self, batch: int = 0) -> np.ndarray:
        """The values of a batch, flat."""
        begin, end = self._pieces[batch]
        return self._data[begin:end].view(self._stored.dtype)


class Texts:
    """The bytes objects of a feature of some batches, to which its values are copied.

    Args:
        name: The feature.
        fields: The fields of the records, after a walk.
        bounds: As of `Output`.
    """

    def __init__(self, name: str, fields: Fields, bounds: np.ndarray) -> None:
        sizes, places = fields.counts[name], list[np.ndarray]()
        self._batches = list[np.ndarray]()
        for start, stop in pairwise(bounds.tolist()):
            objects, at = library.new_texts(sizes[start:stop])
            self._batches.append(objects)
            places.append(at)
        fields.copy_to_addresses(name, np.concatenate(places))

    def columns(self, shapes: None) -> list[FeatureColumn]:
        """The column of each batch."""
        return [FeatureColumn(objects) for objects in self._batches]
