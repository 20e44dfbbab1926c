"""Empty records after those of a batch, up to its full size."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from readers.format.schema import Feature, Schema
from readers.tfdata.tensor_columns import TensorColumn


def padded_columns(
    columns: Mapping[str, TensorColumn], schema: Schema, size: int, count: tf.Tensor
) -> dict[str, TensorColumn]:
    """The columns of `count` records, with empty ones after them up to `size` records.

    An empty record has zeros and empty strings, and 0 wherever a size is unknown.
    """
    return {
        name: _padded(schema[name], column, size, size - count) for name, column in columns.items()
    }


def _padded(feature: Feature, column: TensorColumn, size: int, more: tf.Tensor) -> TensorColumn:
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
