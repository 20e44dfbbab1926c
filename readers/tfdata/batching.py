"""One feature of a batch as tensors, and the batches made of them: dense, padded or ragged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from readers.batches.batch_format import LENGTH, MASK, BatchFormat
from readers.format.schema import Feature, Schema


@dataclass(frozen=True)
class TensorColumn:
    """One feature of B records, or the arrays of B sequences or feature lists.

    Attributes:
        values: [B, *shape] if the shape is fixed; else flat [N], record after record.
        shapes: int64 [B, rank], the shape of each record; None if it is fixed.
        row_lengths: int64 [B], the number of arrays in each sequence; `values` and `shapes` then
            have a row for each array. None for all other encodings.
    """

    values: tf.Tensor
    shapes: tf.Tensor | None = None
    row_lengths: tf.Tensor | None = None


def batch_of(
    columns: Mapping[str, TensorColumn], schema: Schema, batch_format: BatchFormat
) -> dict[str, tf.Tensor | tf.RaggedTensor]:
    """The tensors of a batch by name, each with a leading batch dimension.

    Args:
        columns: The features of the records.
        schema: The features to batch. Those of fixed shape are dense in every format.
        batch_format: How to batch the others. `<name>_mask` is bool, true where there is a value,
            and has the dimensions up to the last unknown one; `<name>_length` is int64 [B], or
            [B, n] for n unknown dimensions.
    """
    batch = {}
    for name, feature in schema.items():
        column = columns[name]
        if feature.is_fixed:
            batch[name] = _dense(feature, column)
            continue
        column = _truncate(feature, column, batch_format.limit(name))
        if batch_format.batching == "ragged":
            batch[name] = ragged(feature, column)
            continue
        shape = batch_format.padded_shape(name, feature)
        padding = batch_format.padding_value(name, feature)
        batch[name] = _padded(feature, column, shape, padding)
        if batch_format.mask:
            batch[name + MASK] = _mask(feature, column, shape)
        if batch_format.lengths:
            batch[name + LENGTH] = _lengths(feature, column)
    return batch


def _truncate(feature: Feature, column: TensorColumn, limit: int | None) -> TensorColumn:
    """The column with its first unknown dimension truncated to a limit."""
    if limit is None:
        return column
    axis = feature.first_unknown
    if column.row_lengths is None:
        return _truncate_axis(column, axis, limit)
    if axis:
        return _truncate_axis(column, axis - 1, limit)
    counts = tf.minimum(column.row_lengths, tf.constant(limit, tf.int64))
    ends = tf.cumsum(column.row_lengths)
    rows = _ranges(ends - column.row_lengths, counts)
    if column.shapes is None:
        return TensorColumn(tf.gather(column.values, rows), None, counts)
    sizes = tf.reduce_prod(column.shapes, axis=1)
    starts = tf.gather(tf.cumsum(sizes) - sizes, rows)
    places = _ranges(starts, tf.gather(sizes, rows))
    return TensorColumn(tf.gather(column.values, places), tf.gather(column.shapes, rows), counts)


def _truncate_axis(column: TensorColumn, axis: int, limit: int) -> TensorColumn:
    """Arrays truncated in one dimension; all earlier dimensions have known sizes."""
    shapes = column.shapes
    assert shapes is not None
    kept = tf.minimum(shapes[:, axis], tf.constant(limit, tf.int64))
    inner = tf.reduce_prod(shapes[:, axis + 1 :], axis=1)
    times = tf.reduce_prod(shapes[:, :axis], axis=1)
    before = tf.repeat(shapes[:, axis] * inner, times)
    places = _ranges(tf.cumsum(before) - before, tf.repeat(kept * inner, times))
    shapes = tf.concat([shapes[:, :axis], kept[:, None], shapes[:, axis + 1 :]], axis=1)
    return TensorColumn(tf.gather(column.values, places), shapes, column.row_lengths)


def _ranges(starts: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    """Runs of `counts` consecutive numbers from each start, int64 [sum of counts]."""
    return tf.ragged.range(starts, starts + counts).flat_values


def _lengths(feature: Feature, column: TensorColumn) -> tf.Tensor:
    """The sizes of the unknown dimensions, int64 [B], or [B, n] for n > 1 of them."""
    if column.row_lengths is not None:
        return column.row_lengths
    unknown = [axis for axis, size in enumerate(feature.shape) if size is None]
    found = tf.gather(column.shapes, unknown, axis=1)
    return found[:, 0] if len(unknown) == 1 else found


def _dense(feature: Feature, column: TensorColumn) -> tf.Tensor:
    """The tensor [B, *shape] of a feature of fixed shape."""
    if column.row_lengths is None:
        return column.values
    shape = tf.concat([tf.shape(column.row_lengths), tf.constant(feature.shape, tf.int32)], axis=0)
    values = tf.reshape(column.values, shape)
    return tf.ensure_shape(values, [column.row_lengths.shape[0], *feature.shape])


def _padded(
    feature: Feature, column: TensorColumn, shape: tuple[int | None, ...], padding: Any
) -> tf.Tensor:
    """The tensor [B, *shape], padded in every unknown dimension; None pads to the longest."""
    values = ragged(feature, column)
    tensor = values.to_tensor(tf.constant(padding, values.dtype), shape=[None, *shape])
    return tf.ensure_shape(tensor, [values.shape[0], *shape])


def _mask(feature: Feature, column: TensorColumn, shape: tuple[int | None, ...]) -> tf.Tensor:
    """bool [B, *shape], up to the last unknown dimension: true where `_padded` has a value."""
    values = ragged(feature, column)
    rows = values.with_flat_values(tf.ones(tf.shape(values.flat_values)[:1], tf.bool))
    shape = shape[: feature.varying_rank]
    return tf.ensure_shape(rows.to_tensor(shape=[None, *shape]), [values.shape[0], *shape])


def ragged(feature: Feature, column: TensorColumn) -> tf.RaggedTensor:
    """The RaggedTensor [B, *shape]; dimensions after the last unknown one are dense.

    Known dimensions between unknown ones are uniform partitions, so they stay static.
    """
    if column.row_lengths is None:
        return _partitioned(column.values, column.shapes, feature.shape)
    shape = feature.shape[1:]
    arrays = (
        column.values
        if column.shapes is None
        else _partitioned(column.values, column.shapes, shape)
    )
    return _partition(arrays, feature.shape[0], column.row_lengths)


def _partitioned(
    values: tf.Tensor, shapes: tf.Tensor, shape: tuple[int | None, ...]
) -> tf.RaggedTensor:
    """The RaggedTensor [len(shapes), *shape] of flat values, one array after another."""
    depth = max(i + 1 for i, d in enumerate(shape) if d is None)
    inner = [d for d in shape[depth:] if d is not None]
    rows = tf.reduce_sum(tf.reduce_prod(shapes[:, :depth], axis=1))
    nested: tf.Tensor | tf.RaggedTensor = tf.ensure_shape(
        tf.reshape(values, tf.concat([[rows], tf.constant(inner, tf.int64)], axis=0)),
        [None, *inner],
    )
    for level in reversed(range(depth)):
        lengths = shapes[:, level]
        if level:
            lengths = tf.repeat(lengths, tf.reduce_prod(shapes[:, :level], axis=1))
        nested = _partition(nested, shape[level], lengths)
    return nested


def _partition(
    values: tf.Tensor | tf.RaggedTensor, size: int | None, lengths: tf.Tensor
) -> tf.RaggedTensor:
    if size is None:
        return tf.RaggedTensor.from_row_lengths(values, lengths, validate=False)
    return tf.RaggedTensor.from_uniform_row_length(
        values, size, nrows=tf.size(lengths, tf.int64), validate=False
    )


def padded_columns(
    columns: Mapping[str, TensorColumn], schema: Schema, size: int, count: tf.Tensor
) -> dict[str, TensorColumn]:
    """The columns of `count` records, with empty ones after them up to `size` records.

    An empty record has zeros and empty strings, and 0 wherever a size is unknown.
    """
    return {
        name: _padded_column(schema[name], column, size, size - count)
        for name, column in columns.items()
    }


def _padded_column(
    feature: Feature, column: TensorColumn, size: int, more: tf.Tensor
) -> TensorColumn:
    arrays, shape, row_lengths = more, feature.shape, None
    if column.row_lengths is not None:
        each, shape = feature.shape[0] or 0, feature.shape[1:]
        arrays = more * each
        added = tf.fill([more], tf.constant(each, tf.int64))
        row_lengths = tf.ensure_shape(tf.concat([column.row_lengths, added], axis=0), [size])
    rows = size if row_lengths is None else None
    sizes = [d or 0 for d in shape]
    if column.shapes is None:
        more_values = tf.zeros(tf.stack([arrays, *sizes]), column.values.dtype)
        values = tf.concat([column.values, more_values], axis=0)
        return TensorColumn(tf.ensure_shape(values, [rows, *shape]), None, row_lengths)
    # At least one size is 0, so there are no values to add.
    more_shapes = tf.tile(tf.constant([sizes], tf.int64), tf.stack([arrays, 1]))
    shapes = tf.ensure_shape(tf.concat([column.shapes, more_shapes], axis=0), [rows, len(shape)])
    return TensorColumn(column.values, shapes, row_lengths)
