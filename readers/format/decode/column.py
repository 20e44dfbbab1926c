"""One feature of many records: its values as arrays."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from readers.format.dtypes import numpy_dtype
from readers.format.encodings.spec import Spec

# A function like `np.empty`: a shape and a dtype -> an array of undefined values.
Allocator = Callable[[tuple[int, ...], np.dtype[Any]], np.ndarray]

# The shapes of several arrays and their dtype -> arrays of undefined values, each a separate allocation, object [n].
Rows = Callable[[Sequence[Sequence[int]], np.dtype[Any]], np.ndarray]


@dataclass(frozen=True)
class RowFormat:
    """How the values of a feature with only the first size unknown become the rows of a batch.

    Attributes:
        limit: The maximum first dimension; None for no limit.
        padding: The bytes of one padding value; empty if values are concatenated.
        sizes: Increasing sizes: rows are as long as the first that fits the longest record; if empty, as long
            as that record.
    """

    limit: int | None = None
    padding: bytes = b""
    sizes: Sequence[int] = ()


@dataclass(frozen=True)
class FeatureColumn:
    """One feature of B records.

    Attributes:
        values: [B, *shape] if the shape is fixed, otherwise flat [N], record after record. Strings are
            bytes in an object array. For a sequence, an object array [B] of lists of arrays; for
            encoded images, an object array [B] of bytes, views of bytes, or lists of bytes. None if
            the values are padded.
        shapes: int64 [B, rank], the shape of each record; None if the values are not flat.
        padded: [B, longest, ...], values that are already in padded rows.
    """

    values: np.ndarray | None
    shapes: np.ndarray | None = None
    padded: np.ndarray | None = None

    def flat(self) -> np.ndarray:
        """The values, without padding."""
        if self.padded is not None:
            assert self.shapes is not None
            lengths = self.shapes[:, :1]
            return self.padded[np.arange(self.padded.shape[1]) < lengths].reshape(-1)
        assert self.values is not None
        return self.values

    def split(self, bounds: Sequence[int]) -> list[FeatureColumn]:
        """Splits the column into those of the records from each bound to the next. Their values are views."""
        pairs, values = itertools.pairwise(bounds), self.flat()
        if self.shapes is None:
            return [FeatureColumn(values[start:stop]) for start, stop in pairs]
        ends = np.append(0, np.cumsum(np.prod(self.shapes, axis=1))).tolist()
        return [
            FeatureColumn(values[ends[start] : ends[stop]], self.shapes[start:stop])
            for start, stop in pairs
        ]

    def arrays(self) -> list[Any]:
        """The value of each record, as views of the result of `flat`."""
        values = self.flat()
        if self.shapes is None:
            return list(values)
        counts = np.prod(self.shapes, axis=1)
        ends = np.cumsum(counts)
        places = zip((ends - counts).tolist(), ends.tolist(), self.shapes.tolist(), strict=True)
        return [values[start:end].reshape(shape) for start, end, shape in places]


def object_array(items: Sequence[Any]) -> np.ndarray:
    """An object array [n] of the items themselves."""
    out = np.empty(len(items), object)
    # Assigned one by one, because NumPy would merge arrays or lists of the same shape.
    for row, item in enumerate(items):
        out[row] = item
    return out


def column_of(feature: Spec, values: Sequence[Any]) -> FeatureColumn:
    """Makes a column from the values that `Decoder` returns, or from the pixels of images.

    It shares no memory with the values.
    """
    if feature.is_sequence:
        return FeatureColumn(object_array([[array.copy() for array in value] for value in values]))
    if values and isinstance(values[0], bytes):
        return FeatureColumn(object_array(values))
    dtype = numpy_dtype(feature.dtype)
    if feature.is_fixed:
        empty = np.empty((0, *feature.known_sizes), dtype)
        return FeatureColumn(np.stack(values) if values else empty)
    shapes = np.array([value.shape for value in values], np.int64)
    flat = [np.empty(0, dtype), *(value.reshape(-1) for value in values)]
    return FeatureColumn(np.concatenate(flat), shapes.reshape(-1, len(feature.shape)))


def merged(feature: Spec, parts: Sequence[tuple[np.ndarray, FeatureColumn]]) -> FeatureColumn:
    """Merges several columns, each given with its rows in the result, int64 [n]."""
    total = sum(len(rows) for rows, _ in parts)
    if parts[0][1].shapes is None:
        values = parts[0][1].flat()
        out = np.empty((total, *values.shape[1:]), values.dtype)
        for rows, column in parts:
            out[rows] = column.flat()
        return FeatureColumn(out)
    arrays: list[Any] = [None] * total
    for rows, column in parts:
        for row, array in zip(rows.tolist(), column.arrays(), strict=True):
            arrays[row] = array
    return column_of(feature, arrays)
