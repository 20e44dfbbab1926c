"""One feature of a batch as tensors, and the checks that name the feature if a value does not fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from readers.format.schema import MAX_EMPTY_SIZE, Feature, Schema, format_shape

# decode_raw does not support uint32 and uint64; signed integers have the same bits.
_SIGNED = {"uint32": tf.int32, "uint64": tf.int64}


@dataclass(frozen=True)
class TensorColumn:
    """One feature of B records, or the arrays of B sequences or feature lists.

    Attributes:
        values: [B, *shape] if the shape is fixed; else flat [N], record after record.
        shapes: int64 [B, rank], the shape of each record; None if it is fixed.
        row_lengths: int64 [B], the number of arrays in each sequence; `values` and `shapes` then
            have a row for each array. None for all other encodings.
        raw: string [B], the values of each record as bytes, if decoding had them at hand: padding
            these is cheaper than padding the values.
    """

    values: tf.Tensor
    shapes: tf.Tensor | None = None
    row_lengths: tf.Tensor | None = None
    raw: tf.Tensor | None = None


def one_by_one(
    feature: Feature, value: tf.Tensor, decode: Callable[[tf.Tensor], tf.Tensor]
) -> TensorColumn:
    """The column of values that can only be decoded one at a time."""
    dtype = tf.as_dtype(feature.dtype)
    if feature.is_fixed:
        values = tf.map_fn(decode, value, fn_output_signature=tf.TensorSpec(feature.shape, dtype))
        return TensorColumn(values)

    count, rank = tf.size(value), len(feature.shape)

    def step(row: tf.Tensor, flat: tf.TensorArray, shapes: tf.TensorArray) -> tuple[Any, ...]:
        array = decode(value[row])
        shape = tf.ensure_shape(tf.shape(array, tf.int64), [rank])
        return row + 1, flat.write(row, tf.reshape(array, [-1])), shapes.write(row, shape)

    # Not tf.map_fn: joining the ragged values that it makes takes twice as long as decoding images.
    flat = tf.TensorArray(dtype, count, infer_shape=False, element_shape=[None])
    shapes = tf.TensorArray(tf.int64, count, element_shape=[rank])
    begin = (tf.constant(0), flat, shapes)
    _, flat, shapes = tf.while_loop(lambda row, *_: row < count, step, begin)
    return TensorColumn(flat.concat(), shapes.stack())


def fits_feature(feature: Feature, shapes: tf.Tensor) -> tf.Tensor:
    """bool [B]: whether shapes, int64 [B, rank], have the feature's rank and known dimensions."""
    expected = tf.constant([-1 if d is None else d for d in feature.shape], tf.int64)
    if shapes.shape[1] is None:
        same_rank = tf.shape(shapes)[1] == len(feature.shape)
        return tf.cond(same_rank, lambda: _fits_rank(expected, shapes), lambda: tf.zeros([1], bool))
    return _fits_rank(expected, shapes)


def _fits_rank(expected: tf.Tensor, shapes: tf.Tensor) -> tf.Tensor:
    is_alike = tf.reduce_all((shapes >= 0) & ((expected < 0) | (shapes == expected)), axis=1)
    has_values = tf.reduce_all(shapes > 0, axis=1)
    return is_alike & (has_values | tf.reduce_all(shapes <= MAX_EMPTY_SIZE, axis=1))


def checked(
    tensor: tf.Tensor, fits: tf.Tensor, name: str, feature: Feature, *found: str | tf.Tensor
) -> tf.Tensor:
    """The tensor itself; when run, fails with the feature's name unless all of `fits` is true."""
    spec = f"{feature.dtype} {format_shape(feature.shape)} ({feature.encoding})"
    # Without quotes: TensorFlow escapes them.
    message = f"feature {name}: expected {spec}:"
    assertion = tf.debugging.Assert(tf.reduce_all(fits), [message, *found], summarize=8)
    with tf.control_dependencies([assertion]):
        return tf.identity(tensor)


def fixed_column(feature: Feature, raw: tf.Tensor) -> TensorColumn:
    """The column of a fixed shape, from the bytes of its values, string [B]."""
    values = _from_raw(raw, feature.dtype)
    shape = tf.concat([tf.shape(raw), tf.constant(feature.shape, tf.int32)], axis=0)
    values = tf.ensure_shape(tf.reshape(values, shape), [raw.shape[0], *feature.shape])
    return TensorColumn(values)


def varying_column(feature: Feature, raw: tf.Tensor, shapes: tf.Tensor) -> TensorColumn:
    """The column of unknown shape, from the bytes of its values, string [B], and their shapes."""
    values = _from_raw(tf.strings.reduce_join(raw), feature.dtype)
    return TensorColumn(values, shapes, raw=raw)


def first_rows(feature: Feature, column: TensorColumn, limit: int) -> TensorColumn:
    """A column with `raw` values, truncated in its first dimension, the only unknown one."""
    assert column.shapes is not None
    nbytes = limit * math.prod(feature.known_sizes) * tf.as_dtype(feature.dtype).size
    # As int32, it would be taken modulo 4 GiB.
    start, end = tf.constant(0, tf.int64), tf.constant(min(nbytes, tf.int64.max), tf.int64)
    sizes = tf.minimum(column.shapes[:, :1], tf.constant(limit, tf.int64))
    shapes = tf.concat([sizes, column.shapes[:, 1:]], axis=1)
    return varying_column(feature, tf.strings.substr(column.raw, start, end), shapes)


def _from_raw(raw: tf.Tensor, dtype: str) -> tf.Tensor:
    if dtype in _SIGNED:
        return tf.bitcast(tf.io.decode_raw(raw, _SIGNED[dtype]), dtype)
    return tf.io.decode_raw(raw, tf.as_dtype(dtype))


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
