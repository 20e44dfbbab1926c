"""Columns -> the tensors of a batch: dense, padded (with masks) or ragged, with static shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping

import tensorflow as tf

from readers.decode import Column
from readers.format.schema import Feature, Schema
from readers.options import MASK_SUFFIX


def batch_of(
    columns: Mapping[str, Column], schema: Schema, batching: str, mask: bool = False
) -> dict[str, tf.Tensor | tf.RaggedTensor]:
    """The tensors by name, each with a leading batch dimension.

    Args:
        columns: What `decode_batch` gave for the schema.
        schema: The features.
        batching: `dense`, `padded` or `ragged`: what becomes of features of unknown shape. Those
            of fixed shape are dense in each.
        mask: Adds for each padded feature a bool `<name>_mask`, true where there is a value; it
            has the dimensions up to the last unknown one.
    """
    batch = {}
    for name, feature in schema.items():
        column = columns[name]
        if feature.is_fixed:
            batch[name] = dense(feature, column)
        elif batching == "ragged":
            batch[name] = ragged(feature, column)
        else:
            batch[name] = padded(feature, column)
            if mask:
                batch[name + MASK_SUFFIX] = mask_of(feature, column)
    return batch


def dense(feature: Feature, column: Column) -> tf.Tensor:
    """The tensor [B, *shape] of a feature of fixed shape."""
    if column.row_lengths is None:
        return column.values
    shape = tf.concat([tf.shape(column.row_lengths), tf.constant(feature.shape, tf.int32)], axis=0)
    values = tf.reshape(column.values, shape)
    return tf.ensure_shape(values, [column.row_lengths.shape[0], *feature.shape])


def padded(feature: Feature, column: Column) -> tf.Tensor:
    """The tensor [B, *longest], filled up with 0 or b"" in every unknown dimension."""
    # An unknown dimension counts as 0, and so does one that leaves no values to decode.
    row = math.prod([d or 0 for d in feature.shape[1:]])
    if column.packed is not None and row:
        return _padded_rows(feature, column.packed, column.shapes)
    return _to_tensor(ragged(feature, column), feature.shape)


def mask_of(feature: Feature, column: Column) -> tf.Tensor:
    """bool [B, *longest], up to the last unknown dimension: where `padded` has values."""
    values = ragged(feature, column)
    rows = values.with_flat_values(tf.ones(tf.shape(values.flat_values)[:1], tf.bool))
    return _to_tensor(rows, feature.shape[: feature.varying_rank])


def _to_tensor(values: tf.RaggedTensor, shape: tuple[int | None, ...]) -> tf.Tensor:
    tensor = values.to_tensor(shape=[None, *shape])
    return tf.ensure_shape(tensor, [values.shape[0], *shape])


def _padded_rows(feature: Feature, packed: tf.Tensor, shapes: tf.Tensor) -> tf.Tensor:
    """`padded` where the first dimension alone is unknown: decode_raw fills up while it decodes."""
    dtype = tf.as_dtype(feature.dtype)
    inner = [d for d in feature.shape[1:] if d is not None]
    longest = tf.cast(tf.reduce_max(tf.pad(shapes[:, 0], [[0, 1]])), tf.int32)
    # decode_raw takes no length of 0.
    rows = tf.maximum(longest, 1)
    octets = tf.io.decode_raw(packed, tf.uint8, fixed_length=rows * (math.prod(inner) * dtype.size))
    if dtype.size > 1:
        octets = tf.reshape(octets, tf.stack([tf.shape(packed)[0], rows, *inner, dtype.size]))
        values = tf.bitcast(octets, dtype)
    else:
        octets = tf.reshape(octets, tf.stack([tf.shape(packed)[0], rows, *inner]))
        values = tf.cast(octets, dtype) if dtype.is_bool else tf.bitcast(octets, dtype)
    return tf.ensure_shape(values[:, :longest], [packed.shape[0], *feature.shape])


def ragged(feature: Feature, column: Column) -> tf.RaggedTensor:
    """The RaggedTensor [B, *shape]; dimensions after the last unknown one are uniform.

    Known dimensions between unknown ones are kept as uniform partitions, so they stay static.
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
    """Flat values as one array of shapes[i] after the other: a RaggedTensor [len(shapes), *shape]."""
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
