"""One feature of many records in one array, or two."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from readers.format.schema import Feature, numpy_dtype


@dataclass(frozen=True)
class Scattered:
    """Values that stand where they were read, not one record after another.

    Attributes:
        pieces: The bytes of each record.
        dtype: Of the values.
    """

    pieces: Pieces
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class Column:
    """One feature of B records.

    Attributes:
        values: [B, *shape] where the shape is fixed; else flat [N], record after record. Strings
            are bytes in an object array. Of a sequence, and of pictures still encoded, an object
            array [B] of lists of arrays, or of bytes. None where they are scattered.
        shapes: int64 [B, rank], the shape of each record; None where the values are no flat ones.
        scattered: Values of unknown shape that are yet to be put together: who pads them need not.
    """

    values: np.ndarray | None
    shapes: np.ndarray | None = None
    scattered: Scattered | None = None

    def flat(self, empty: Empty = np.empty) -> np.ndarray:
        """The values, put together if they are scattered; such memory comes from `empty`."""
        if self.scattered:
            return self.scattered.pieces.joined(empty).view(self.scattered.dtype)
        assert self.values is not None
        return self.values

    def pieces(self) -> Pieces:
        """Where the bytes of flat values of each record stand."""
        if self.scattered:
            return self.scattered.pieces
        values = self.flat()
        assert self.shapes is not None
        lengths = np.prod(self.shapes, axis=1) * values.itemsize
        stops = np.cumsum(lengths)
        return Pieces(values.view(np.uint8), stops - lengths, stops)

    def parts(self, bounds: Sequence[int]) -> list[Column]:
        """The columns of the records from each bound to the next; their values are views."""
        between = list(itertools.pairwise(bounds))
        if self.scattered:
            pieces, dtype, shapes = self.scattered.pieces, self.scattered.dtype, self.shapes
            assert shapes is not None
            return [
                Column(None, shapes[start:stop], Scattered(pieces.part(start, stop), dtype))
                for start, stop in between
            ]
        values = self.flat()
        if self.shapes is None:
            return [Column(values[start:stop]) for start, stop in between]
        ends = np.append(0, np.cumsum(np.prod(self.shapes, axis=1))).tolist()
        return [
            Column(values[ends[start] : ends[stop]], self.shapes[start:stop])
            for start, stop in between
        ]

    def arrays(self) -> list[Any]:
        """The value of each record; arrays are views of what `flat` gives."""
        values = self.flat()
        if self.shapes is None:
            return list(values)
        counts = np.prod(self.shapes, axis=1)
        ends = np.cumsum(counts)
        places = zip((ends - counts).tolist(), ends.tolist(), self.shapes.tolist(), strict=True)
        return [values[start:end].reshape(shape) for start, end, shape in places]


def objects(items: Sequence[Any]) -> np.ndarray:
    """An object array [n] of the items themselves."""
    out = np.empty(len(items), object)
    # Assigned one by one: NumPy would merge arrays and lists that happen to have one shape.
    for row, item in enumerate(items):
        out[row] = item
    return out


def column_of(feature: Feature, values: Sequence[Any]) -> Column:
    """The column of the values of records, as `Decoder` gives them (pictures: or their pixels).

    It shares no memory with them.
    """
    if feature.is_sequence:
        return Column(objects([[array.copy() for array in value] for value in values]))
    if values and isinstance(values[0], bytes):
        return Column(objects(values))
    dtype = numpy_dtype(feature.dtype)
    if feature.is_fixed:
        empty = np.empty((0, *(d for d in feature.shape if d is not None)), dtype)
        return Column(np.stack(values) if values else empty)
    shapes = np.array([value.shape for value in values], np.int64)
    flat = [np.empty(0, dtype), *(value.reshape(-1) for value in values)]
    return Column(np.concatenate(flat), shapes.reshape(-1, len(feature.shape)))


def merged(feature: Feature, parts: Sequence[tuple[np.ndarray, Column]]) -> Column:
    """One column of several, each with the rows, int64 [n], that it has in it."""
    total = sum(len(rows) for rows, _ in parts)
    if parts[0][1].shapes is None:
        values = parts[0][1].flat()
        out = np.empty((total, *values.shape[1:]), values.dtype)
        for rows, column in parts:
            out[rows] = column.flat()
        return Column(out)
    arrays: list[Any] = [None] * total
    for rows, column in parts:
        for row, array in zip(rows.tolist(), column.arrays(), strict=True):
            arrays[row] = array
    return column_of(feature, arrays)


# A source of memory: an array of undefined values of a shape and dtype.
Empty = Callable[[tuple[int, ...], np.dtype[Any]], np.ndarray]


@dataclass(frozen=True)
class Pieces:
    """Where one feature stands in each of B records.

    Attributes:
        data: uint8 [n], the records and some bytes more.
        starts, stops: int64 [B]; of the one bytes value, or of the packed numbers.
    """

    data: np.ndarray
    starts: np.ndarray
    stops: np.ndarray

    def after(self, starts: np.ndarray) -> Pieces:
        """What is left of them from later positions on."""
        return Pieces(self.data, starts, self.stops)

    @property
    def lengths(self) -> np.ndarray:
        """Bytes of each, int64 [B]."""
        return self.stops - self.starts

    def part(self, start: int, stop: int) -> Pieces:
        """Those of the records from start to stop."""
        return Pieces(self.data, self.starts[start:stop], self.stops[start:stop])

    def each(self) -> list[bytes]:
        """The bytes of each."""
        view = self.data.data
        rows = zip(self.starts.tolist(), self.stops.tolist(), strict=True)
        return [bytes(view[start:stop]) for start, stop in rows]

    def joined(self, empty: Empty) -> np.ndarray:
        """The bytes of all, uint8 [n]."""
        lengths = self.lengths
        if len(lengths) and (lengths == lengths[0]).all():
            return self.stacked(int(lengths[0]), empty).reshape(-1)
        out = empty((int(lengths.sum()),), np.dtype(np.uint8))
        rows = zip(self.starts.tolist(), self.stops.tolist(), strict=True)
        if len(lengths):
            np.concatenate([self.data[start:stop] for start, stop in rows], out=out)
        return out

    def stacked(self, length: int, empty: Empty = np.empty) -> np.ndarray:
        """So many bytes of each, from its start on: uint8 [B, length]."""
        starts = self.starts
        stride = int(starts[1] - starts[0]) if len(starts) > 1 else length
        if (np.diff(starts) != stride).any() or stride < 0:
            windows = (len(self.data) - length + 1, length)
            return np.ndarray(windows, np.uint8, self.data, strides=(1, 1))[starts]
        out = empty((len(starts), length), np.dtype(np.uint8))
        first = int(starts[0]) if len(starts) else 0
        out[:] = np.ndarray(out.shape, np.uint8, self.data, first, (stride, 1))
        return out
