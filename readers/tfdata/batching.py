"""Columns -> the tensors of a batch: dense, padded (with masks) or ragged, with static shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from readers.batches.options import LENGTH, MASK, Form
from readers.format.schema import Feature, Schema
from readers.tfdata.decode import Column, first_rows


def batch_of(
    columns: Mapping[str, Column], schema: Schema, form: Form
) -> dict[str, tf.Tensor | tf.RaggedTensor]:
    """The tensors by name, each with a leading batch dimension.

    Args:
        columns: What `decode_batch` gave for the schema.
        schema: The features.
        form: What becomes of features of unknown shape. Those of fixed shape are dense in each.
            `<name>_mask` is bool, true where there is a value, and has the dimensions up to the
            last unknown one; `<name>_length` is int64 [B], or [B, n] for n unknown dimensions.
    """
    batch = {}
    for name, feature in schema.items():
        column = columns[name]
        if feature.is_fixed:
            batch[name] = dense(feature, column)
            continue
        column = cut(feature, column, form.limit(name))
        if form.batching == "ragged":
            batch[name] = ragged(feature, column)
            continue
        batch[name] = padded(feature, column, form.filler(name, feature))
        if form.mask:
            batch[name + MASK] = mask_of(feature, column)
        if form.lengths:
            batch[name + LENGTH] = lengths_of(feature, column)
    return batch


def cut(feature: Feature, column: Column, limit: int | None) -> Column:
    """The column with the first unknown dimension cut to a limit."""
    if limit is None:
        return column
    axis = feature.first_unknown
    if column.row_lengths is None:
        if column.packed is not None and feature.shape.count(None) == 1 and axis == 0:
            return first_rows(feature, column, limit)
        return _cut_axis(column, axis, limit)
    if axis:
        return _cut_axis(column, axis - 1, limit)
    counts = tf.minimum(column.row_lengths, tf.constant(limit, tf.int64))
    ends = tf.cumsum(column.row_lengths)
    rows = _ranges(ends - column.row_lengths, counts)
    if column.shapes is None:
        return Column(tf.gather(column.values, rows), None, counts)
    sizes = tf.reduce_prod(column.shapes, axis=1)
    starts = tf.gather(tf.cumsum(sizes) - sizes, rows)
    places = _ranges(starts, tf.gather(sizes, rows))
    return Column(tf.gather(column.values, places), tf.gather(column.shapes, rows), counts)


def _cut_axis(column: Column, axis: int, limit: int) -> Column:
    """Arrays with one dimension cut; those before it have one size for all."""
    shapes = column.shapes
    assert shapes is not None
    kept = tf.minimum(shapes[:, axis], tf.constant(limit, tf.int64))
    inner = tf.reduce_prod(shapes[:, axis + 1 :], axis=1)
    times = tf.reduce_prod(shapes[:, :axis], axis=1)
    before = tf.repeat(shapes[:, axis] * inner, times)
    places = _ranges(tf.cumsum(before) - before, tf.repeat(kept * inner, times))
    shapes = tf.concat([shapes[:, :axis], kept[:, None], shapes[:, axis + 1 :]], axis=1)
    return Column(tf.gather(column.values, places), shapes, column.row_lengths)


def _ranges(starts: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    """The numbers from each start on, so many of each, int64 [sum of counts]."""
    return tf.ragged.range(starts, starts + counts).flat_values


def lengths_of(feature: Feature, column: Column) -> tf.Tensor:
    """The sizes of unknown dimensions, int64 [B]; [B, n] where there are n > 1."""
    if column.row_lengths is not None:
        return column.row_lengths
    unknown = [axis for axis, size in enumerate(feature.shape) if size is None]
    found = tf.gather(column.shapes, unknown, axis=1)
    return found[:, 0] if len(unknown) == 1 else found


def dense(feature: Feature, column: Column) -> tf.Tensor:
    """The tensor [B, *shape] of a feature of fixed shape."""
    if column.row_lengths is None:
        return column.values
    shape = tf.concat([tf.shape(column.row_lengths), tf.constant(feature.shape, tf.int32)], axis=0)
    values = tf.reshape(column.values, shape)
    return tf.ensure_shape(values, [column.row_lengths.shape[0], *feature.shape])


def padded(feature: Feature, column: Column, fill: Any = None) -> tf.Tensor:
    """The tensor [B, *longest], filled up in every unknown dimension; None means 0 and b""."""
    # An unknown dimension counts as 0, and so does one that leaves no values to decode.
    row = math.prod([d or 0 for d in feature.shape[1:]])
    if column.packed is not None and row and not fill:
        return _padded_rows(feature, column.packed, column.shapes)
    values = ragged(feature, column)
    filler = None if fill is None else tf.constant(fill, values.dtype)
    tensor = values.to_tensor(filler, shape=[None, *feature.shape])
    return tf.ensure_shape(tensor, [values.shape[0], *feature.shape])


def mask_of(feature: Feature, column: Column) -> tf.Tensor:
    """bool [B, *longest], up to the last unknown dimension: where `padded` has values."""
    values = ragged(feature, column)
    rows = values.with_flat_values(tf.ones(tf.shape(values.flat_values)[:1], tf.bool))
    shape = feature.shape[: feature.varying_rank]
    return tf.ensure_shape(rows.to_tensor(shape=[None, *shape]), [values.shape[0], *shape])


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
