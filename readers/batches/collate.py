"""Makes the NumPy arrays of a batch from columns: dense, padded (with masks), ragged or packed."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from readers.batches.batch_format import LENGTH, MASK, POSITIONS, SEGMENT_IDS, BatchFormat
from readers.format.decode.column import Allocator, FeatureColumn, column_of, object_array
from readers.format.dtypes import numpy_dtype
from readers.format.encodings.spec import format_shape
from readers.format.manifest import DatasetError
from readers.format.schema import Feature


def collate(
    columns: Mapping[str, FeatureColumn],
    schema: Mapping[str, Feature],
    batch_format: BatchFormat,
    empty: Allocator = np.empty,
    bucket: int | None = None,
) -> dict[str, np.ndarray]:
    """The arrays [B, ...] of a batch by name, from columns that are truncated to their limits.

    Features of fixed shape are dense in every format. `ragged` gives an object array [B] of arrays, or of
    object arrays of arrays for a sequence of arrays of unknown shape. `<name>_mask` is bool, true where
    there is a value, and has the dimensions up to the last unknown one; `<name>_length` is int64 [B], or
    [B, n] for n unknown dimensions. A batch without records is padded to the size of its bucket, too.
    """
    batch = {}
    for name, feature in schema.items():
        column = columns[name]
        if feature.is_fixed:
            batch[name] = _dense(feature, column)
        elif batch_format.batching == "ragged":
            batch[name] = object_array([_ragged(feature, value) for value in column.arrays()])
        else:
            padding, extents = batch_format.padding_value(name, feature), _extents(feature, column)
            shape = _padded_shape(feature, extents, batch_format.pad_sizes(name), bucket or 0)
            batch[name] = _padded(feature, column, shape, padding, empty)
            if batch_format.mask:
                batch[name + MASK] = _mask(feature, column, extents, shape)
            if batch_format.lengths:
                batch[name + LENGTH] = lengths_of(feature, column)
    return batch


def pack(
    columns: Mapping[str, FeatureColumn],
    schema: Mapping[str, Feature],
    batch_format: BatchFormat,
    rows: np.ndarray,
    count: int,
    empty: Allocator = np.empty,
) -> dict[str, np.ndarray]:
    """The arrays [B, max_length, ...] of a packed batch by name, with two companions each.

    `<name>_segment_ids`, int32 [B, max_length], numbers the records in a row from 1, with 0 in the
    padding; `<name>_positions`, int32 [B, max_length], numbers the values of a record from 0. T5
    and Grain represent packed sequences in the same way. `rows`, int64 [records], is the row of each record, of `count`.
    """
    batch = {}
    for name, feature in schema.items():
        length = batch_format.limit(name) or 0
        out = empty((count, length, *feature.known_sizes), numpy_dtype(feature.dtype))
        out[...] = batch_format.padding_value(name, feature)
        segments = np.zeros((count, length), np.int32)
        positions = np.zeros((count, length), np.int32)
        numbers = np.arange(length, dtype=np.int32)
        ends, seen = [0] * count, [0] * count
        for row, array in zip(rows.tolist(), columns[name].arrays(), strict=True):
            start, ends[row] = ends[row], ends[row] + len(array)
            if ends[row] > length:
                raise DatasetError(
                    f"{name!r}: {ends[row]} values for a row of {length}, so the lengths in an index differ from those of the "
                    "records; delete the index if there is no manifest, or run the job again"
                )
            seen[row] += 1
            out[row, start : ends[row]] = array
            segments[row, start : ends[row]] = seen[row]
            positions[row, start : ends[row]] = numbers[: len(array)]
        batch[name] = out
        batch[name + SEGMENT_IDS] = segments
        batch[name + POSITIONS] = positions
    return batch


def truncate(
    columns: Mapping[str, FeatureColumn], schema: Mapping[str, Feature], batch_format: BatchFormat
) -> dict[str, FeatureColumn]:
    """Truncates the first unknown dimension of each feature to its limit."""
    return {
        name: _truncate(schema[name], column, batch_format.limit(name))
        for name, column in columns.items()
    }


def _truncate(feature: Feature, column: FeatureColumn, limit: int | None) -> FeatureColumn:
    if limit is None or feature.is_fixed:
        return column
    axis = feature.first_unknown
    within = (slice(None),) * axis + (slice(limit),)
    if feature.is_sequence:
        cut = [
            [array[within[1:]] for array in value] if axis else value[:limit]
            for value in column.flat()
        ]
        return FeatureColumn(object_array(cut))
    shapes = column.shapes
    if shapes is None or shapes[:, axis].max(initial=0) <= limit:
        return column
    return column_of(feature, [array[within] for array in column.arrays()])


def lengths_of(feature: Feature, column: FeatureColumn) -> np.ndarray:
    """The sizes of the unknown dimensions, int64 [B], or [B, n] for n > 1 of them."""
    if feature.is_sequence:
        return np.array([len(value) for value in column.flat()], np.int64)
    assert column.shapes is not None
    unknown = [axis for axis, size in enumerate(feature.shape) if size is None]
    found = column.shapes[:, unknown]
    return found[:, 0] if len(unknown) == 1 else found


def _dense(feature: Feature, column: FeatureColumn) -> np.ndarray:
    values = column.flat()
    if not feature.is_sequence:
        return values
    rows = np.array(values.tolist(), numpy_dtype(feature.dtype))
    return rows.reshape(len(values), *feature.known_sizes)


def _padded(
    feature: Feature, column: FeatureColumn, shape: tuple[int, ...], padding: Any, empty: Allocator
) -> np.ndarray:
    """The array [B, ...] of a shape, padded in every unknown dimension."""
    if column.padded is not None and column.padded.shape == shape:
        return column.padded
    try:
        out = empty(shape, numpy_dtype(feature.dtype))
    except (MemoryError, ValueError):  # NumPy's error for sizes that overflow.
        raise ValueError(
            f"a padded batch {format_shape(shape)} of {feature.dtype} does not fit into memory: use "
            "batching='ragged' or a smaller batch_size"
        ) from None
    out[...] = padding
    if feature.is_rows and out.size:
        assert column.shapes is not None
        holds_value = np.arange(shape[1]) < column.shapes[:, :1]
        out[holds_value] = column.flat().reshape(-1, *feature.known_sizes)
    elif feature.is_sequence:
        for row, arrays in zip(out, column.flat(), strict=True):
            for i, array in enumerate(arrays):
                # An empty array may exceed the padded shape: [0, 5] counts as [0, 0].
                if array.size:
                    place = (i, *map(slice, array.shape))
                    row[place] = array
    else:
        for row, array in zip(out, column.arrays(), strict=True):
            if array.size:
                row[tuple(map(slice, array.shape))] = array
    return out


def _mask(
    feature: Feature, column: FeatureColumn, extents: np.ndarray, shape: tuple[int, ...]
) -> np.ndarray:
    """The bool array, up to the last unknown dimension: true where `_padded` has a value."""
    depth = feature.varying_rank
    if not feature.is_sequence:
        ends = extents[:, :depth].T.reshape(depth, len(extents), *[1] * depth)
        return np.asarray((np.indices(shape[1 : depth + 1])[:, None] < ends).all(axis=0))
    out = np.zeros(shape[: depth + 1], bool)
    for row, arrays in zip(out, column.flat(), strict=True):
        for i, array in enumerate(arrays):
            place = (i, *map(slice, array.shape[: depth - 1]))
            row[place] = True
    return out


def _padded_shape(
    feature: Feature, extents: np.ndarray, pad_sizes: Sequence[int], bucket: int
) -> tuple[int, ...]:
    """The shape [B, ...] of a padded feature: the longest sizes, except for a limit of the first unknown dimension."""
    longest = extents.max(axis=0, initial=0).tolist()
    if pad_sizes:
        axis = feature.first_unknown
        number = max(bisect.bisect_left(pad_sizes, longest[axis]), min(bucket, len(pad_sizes) - 1))
        longest[axis] = pad_sizes[number]
    sizes = zip(feature.shape, longest, strict=True)
    return (len(extents), *(size if d is None else d for d, size in sizes))


def _extents(feature: Feature, column: FeatureColumn) -> np.ndarray:
    """The extent of each value in each dimension, int64 [B, rank]: 0 after an empty dimension."""
    if feature.is_sequence:
        rows = [_extent(feature, value) for value in column.flat()]
        return np.array(rows, np.int64).reshape(-1, len(feature.shape))
    assert column.shapes is not None
    return _until_empty(column.shapes)


def _extent(feature: Feature, arrays: Sequence[np.ndarray]) -> list[int]:
    shapes = np.array([array.shape for array in arrays], np.int64)
    inner = _until_empty(shapes.reshape(len(arrays), len(feature.shape) - 1))
    return [len(arrays), *inner.max(axis=0, initial=0).tolist()]


def _until_empty(shapes: np.ndarray) -> np.ndarray:
    return shapes * np.cumprod(shapes > 0, axis=1)


def _ragged(feature: Feature, value: Any) -> np.ndarray:
    """The value of one record; an object array for a sequence of arrays of unknown shape."""
    if not feature.is_sequence:
        return np.asarray(value)
    if None in feature.shape[1:]:
        return object_array(value)
    return np.array(value, numpy_dtype(feature.dtype)).reshape(len(value), *feature.known_sizes)
