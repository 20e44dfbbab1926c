"""Columns -> the NumPy arrays of a batch: dense, padded (with masks) or ragged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from readers.batches.options import LENGTH, MASK, POSITIONS, SEGMENT_IDS, Form
from readers.format.decode.column import Column, Empty, Pieces, Scattered, column_of, objects
from readers.format.schema import Feature, numpy_dtype


def collate(
    columns: Mapping[str, Column],
    schema: Mapping[str, Feature],
    form: Form,
    empty: Empty = np.empty,
) -> dict[str, np.ndarray]:
    """The arrays by feature name, each with a leading batch dimension.

    Args:
        columns: Of some records, cut to their limits.
        schema: The features. Those of fixed shape are dense in each of the batchings.
        form: `padded` fills the others up to the longest of the batch; `ragged` gives an object
            array [B] of arrays; of object arrays of arrays for a sequence of arrays of unknown
            shape. `<name>_mask` is bool, true where there is a value, and has the dimensions up to
            the last unknown one; `<name>_length` is int64 [B], or [B, n] for n unknown dimensions.
        empty: Where large arrays come from.
    """
    batch = {}
    for name, feature in schema.items():
        column = columns[name]
        if feature.is_fixed:
            batch[name] = _dense(feature, column)
        elif form.batching == "ragged":
            batch[name] = objects([_ragged(feature, value) for value in column.arrays()])
        else:
            batch[name] = _padded(feature, column, form.filler(name, feature), empty)
            if form.mask:
                batch[name + MASK] = _mask(feature, column)
            if form.lengths:
                batch[name + LENGTH] = lengths_of(feature, column)
    return batch


def cut(
    columns: Mapping[str, Column], schema: Mapping[str, Feature], form: Form
) -> dict[str, Column]:
    """The columns with the first unknown dimension of each feature cut to its limit."""
    return {name: _cut(schema[name], column, form.limit(name)) for name, column in columns.items()}


def _cut(feature: Feature, column: Column, limit: int | None) -> Column:
    if limit is None or feature.is_fixed:
        return column
    axis = feature.first_unknown
    within = (slice(None),) * axis + (slice(limit),)
    if feature.is_sequence:
        if axis == 0:
            return Column(objects([value[:limit] for value in column.flat()]))
        arrays = [[array[within[1:]] for array in value] for value in column.flat()]
        return Column(objects(arrays))
    shapes = column.shapes
    if shapes is None or shapes[:, axis].max(initial=0) <= limit:
        return column
    if column.scattered and axis == 0 and feature.shape.count(None) == 1:
        shapes = np.minimum(shapes, [limit, *shapes[0, 1:]])
        pieces, dtype = column.scattered.pieces, column.scattered.dtype
        stops = pieces.starts + np.prod(shapes, axis=1) * dtype.itemsize
        return Column(None, shapes, Scattered(Pieces(pieces.data, pieces.starts, stops), dtype))
    return column_of(feature, [array[within] for array in column.arrays()])


def lengths_of(feature: Feature, column: Column) -> np.ndarray:
    """The sizes of unknown dimensions, int64 [B]; [B, n] where there are n > 1."""
    if feature.is_sequence:
        return np.array([len(value) for value in column.flat()], np.int64)
    assert column.shapes is not None
    unknown = [axis for axis, size in enumerate(feature.shape) if size is None]
    found = column.shapes[:, unknown]
    return found[:, 0] if len(unknown) == 1 else found


def flat_arrays(feature: Feature, column: Column, empty: Empty = np.empty) -> list[np.ndarray]:
    """A column of unknown shape in three arrays, from which ragged tensors are made.

    Returns:
        The values, flat; int64 [arrays, rank], the shape of each array, of which a sequence has
        any number; and int64 [B], how many each record has.
    """
    if not feature.is_sequence:
        assert column.shapes is not None
        return [column.flat(empty), column.shapes, np.ones(len(column.shapes), np.int64)]
    arrays = [array for value in column.flat() for array in value]
    flat = [np.empty(0, numpy_dtype(feature.dtype)), *(array.reshape(-1) for array in arrays)]
    shapes = np.array([array.shape for array in arrays], np.int64)
    counts = np.array([len(value) for value in column.flat()], np.int64)
    return [np.concatenate(flat), shapes.reshape(-1, len(feature.shape) - 1), counts]


def _dense(feature: Feature, column: Column) -> np.ndarray:
    values = column.flat()
    if not feature.is_sequence:
        return values
    shape = (len(values), *(d for d in feature.shape if d is not None))
    return np.array(values.tolist(), numpy_dtype(feature.dtype)).reshape(shape)


def _padded(feature: Feature, column: Column, fill: Any, empty: Empty) -> np.ndarray:
    """The array [B, *longest], filled up in every unknown dimension."""
    extents = _extents(feature, column)
    out = empty(_room(feature, extents), numpy_dtype(feature.dtype))
    is_sequence = feature.is_sequence
    if not is_sequence and feature.varying_rank == 1 and not out.dtype.hasobject:
        _fill_rows(out, column.pieces(), fill)
        return out
    out[...] = fill
    if is_sequence:
        for row, arrays in zip(out, column.flat(), strict=True):
            for i, array in enumerate(arrays):
                # Nothing may be wider than the room: [0, 5] takes none in its second dimension.
                if array.size:
                    place = (i, *map(slice, array.shape))
                    row[place] = array
    else:
        for row, array in zip(out, column.arrays(), strict=True):
            if array.size:
                row[tuple(map(slice, array.shape))] = array
    return out


def _fill_rows(out: np.ndarray, pieces: Pieces, fill: Any) -> None:
    """Puts the bytes of each record at the beginning of a row, and what it is filled up with after.

    Row by row as arrays it takes three times as long, and putting values together first, twice.
    """
    if not out.size:
        return
    width = out.nbytes // len(out)
    filler = np.full(out.shape[1:], fill, out.dtype).reshape(-1).view(np.uint8).data
    source, target = pieces.data.data, out.reshape(-1).view(np.uint8).data
    at = 0
    for start, stop in zip(pieces.starts.tolist(), pieces.stops.tolist(), strict=True):
        end = at + stop - start
        target[at:end] = source[start:stop]
        target[end : at + width] = filler[stop - start :]
        at += width


def _mask(feature: Feature, column: Column) -> np.ndarray:
    """bool [B, *longest], up to the last unknown dimension: where `_padded` has values."""
    depth = feature.varying_rank
    extents = _extents(feature, column)
    room = _room(feature, extents)[1 : depth + 1]
    if not feature.is_sequence:
        return _within(extents[:, :depth], room)
    out = np.zeros((len(extents), *room), bool)
    for row, arrays in zip(out, column.flat(), strict=True):
        for i, array in enumerate(arrays):
            place = (i, *map(slice, array.shape[: depth - 1]))
            row[place] = True
    return out


def _within(extents: np.ndarray, room: Sequence[int]) -> np.ndarray:
    """bool [B, *room]: whether every coordinate is below the extents, int64 [B, rank]."""
    out = np.ones((len(extents), *([1] * len(room))), bool)
    for axis, size in enumerate(room):
        shape = [1] * len(room)
        shape[axis] = size
        below = np.arange(size) < extents[:, axis, None]
        out = out & below.reshape(len(extents), *shape)
    return out


def _room(feature: Feature, extents: np.ndarray) -> tuple[int, ...]:
    longest = extents.max(axis=0, initial=0).tolist()
    sizes = zip(feature.shape, longest, strict=True)
    return (len(extents), *(size if d is None else d for d, size in sizes))


def _extents(feature: Feature, column: Column) -> np.ndarray:
    """The room that each value takes in each dimension, int64 [B, rank].

    An empty dimension leaves none in the next.
    """
    if feature.is_sequence:
        rows = [_extent(feature, value) for value in column.flat()]
        return np.array(rows, np.int64).reshape(-1, len(feature.shape))
    assert column.shapes is not None
    return column.shapes * np.cumprod(column.shapes > 0, axis=1)


def _extent(feature: Feature, arrays: Sequence[np.ndarray]) -> list[int]:
    shapes = np.array([array.shape for array in arrays], np.int64)
    inner = len(feature.shape) - 1
    if not len(shapes):
        return [0] * (inner + 1)
    taken = shapes * np.cumprod(shapes > 0, axis=1)
    return [len(arrays), *taken.max(axis=0).tolist()]


def _stacked(feature: Feature, value: Any) -> np.ndarray:
    """The value as one array; that of a sequence whose arrays have one fixed shape."""
    if not feature.is_sequence:
        return np.asarray(value)
    inner = [d for d in feature.shape[1:] if d is not None]
    return np.array(value, numpy_dtype(feature.dtype)).reshape(len(value), *inner)


def _ragged(feature: Feature, value: Any) -> np.ndarray:
    if feature.is_sequence and None in feature.shape[1:]:
        return objects(value)
    return _stacked(feature, value)


def pack(
    columns: Mapping[str, Column],
    schema: Mapping[str, Feature],
    form: Form,
    rows: np.ndarray,
    empty: Empty = np.empty,
) -> dict[str, np.ndarray]:
    """The arrays [B, max_length, ...] by feature name, and beside each two of int32 [B, max_length].

    `<name>_segment_ids` counts the records of a row from 1 and is 0 where there is none;
    `<name>_positions` counts the values of a record from 0. The form is that of packed sequences in
    T5 and Grain.

    Args:
        columns: Of at least one record, cut to their limits.
        schema: Features of one unknown dimension, the first.
        form: Has their limits.
        rows: int64 [records], the row of each.
    """
    count = int(rows.max()) + 1
    batch = {}
    for name, feature in schema.items():
        length = form.limit(name) or 0
        inner = [size for size in feature.shape[1:] if size is not None]
        out = empty((count, length, *inner), numpy_dtype(feature.dtype))
        out[...] = form.filler(name, feature)
        segments = np.zeros((count, length), np.int32)
        positions = np.zeros((count, length), np.int32)
        numbers = np.arange(length, dtype=np.int32)
        ends, seen = [0] * count, [0] * count
        for row, array in zip(rows.tolist(), columns[name].arrays(), strict=True):
            start, ends[row] = ends[row], ends[row] + len(array)
            seen[row] += 1
            out[row, start : ends[row]] = array
            segments[row, start : ends[row]] = seen[row]
            positions[row, start : ends[row]] = numbers[: len(array)]
        batch[name] = out
        batch[name + SEGMENT_IDS] = segments
        batch[name + POSITIONS] = positions
    return batch
