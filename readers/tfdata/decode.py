"""A batch of serialized Examples or SequenceExamples -> columns of tensors, decoded together."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import tensorflow as tf

from readers.format.dtypes import FLOATS_IN_A_LIST
from readers.format.schema import IMAGE_ENCODINGS, Feature, Schema
from readers.tfdata.columns.column import (
    TensorColumn,
    checked,
    fits_feature,
    fixed_column,
    one_by_one,
    varying_column,
)
from readers.tfdata.columns.protos import tensor_column


def decode_batch(
    serialized: tf.Tensor, schema: Schema, is_foreign: bool = False
) -> dict[str, TensorColumn]:
    """The columns of a schema's features, by name.

    Args:
        serialized: string [B], serialized Examples; or SequenceExamples if the schema has features
            of steps.
        schema: The features to decode; others in the Examples are ignored.
        is_foreign: Whether anyone may have written them, so that they are checked first.

    Raises:
        tf.errors.InvalidArgumentError: When run, if a record does not fit the schema; the message
            names the feature, what was expected and what was found.
        tf.errors.DataLossError: When run, if a foreign record is no serialized Example.
    """
    spec: dict[str, Any] = {}
    steps: dict[str, Any] = {}
    for name, feature in schema.items():
        if feature.step:
            steps[name] = tf.io.RaggedFeature(_list_dtype(feature.step), row_splits_dtype=tf.int64)
        else:
            spec.update(_parse_spec(name, feature))
    if is_foreign:
        serialized = _checked(serialized, f"tensorflow.{'Sequence' if steps else ''}Example")
    if steps:
        parsed, lists, _ = tf.io.parse_sequence_example(serialized, spec or None, steps)
    else:
        parsed, lists = tf.io.parse_example(serialized, spec), {}
    return {
        name: _steps(name, feature, feature.step, lists[name])
        if feature.step
        else _decode(name, feature, parsed[name], parsed.get(f"{name}/shape"))
        for name, feature in schema.items()
    }


def _checked(serialized: tf.Tensor, message: str) -> tf.Tensor:
    """The records, string [B]; when run, fails if protobuf's own parser refuses one.

    TensorFlow's faster parsers believe the length of a string, and crash the process if it is 2^31 or
    more. With the check, batches in the order `interleave` take 1.3 to 1.7 times as long.
    """
    sizes, _ = tf.raw_ops.DecodeProtoV2(
        bytes=serialized,
        message_type=message,
        field_names=[],
        output_types=[],
        descriptor_source="local://",
        message_format="binary",
        sanitize=True,
    )
    # TensorFlow drops an op whose result is not used, but no Assert.
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_sum(sizes) == 0, [sizes])]):
        return tf.identity(serialized)


def _parse_spec(name: str, feature: Feature) -> dict[str, Any]:
    spec: dict[str, Any]
    if feature.encoding == "sequence":
        return {name: tf.io.RaggedFeature(tf.string, row_splits_dtype=tf.int64)}
    if feature.encoding != "list":
        spec = {name: tf.io.FixedLenFeature([], tf.string)}
    elif feature.is_fixed:
        spec = {name: tf.io.FixedLenFeature(feature.shape, _list_dtype(feature))}
    else:
        spec = {name: tf.io.RaggedFeature(_list_dtype(feature), row_splits_dtype=tf.int64)}
    # A single unknown dimension follows from the number of values, in files of other writers too.
    if feature.encoding in ("list", "raw") and feature.shape.count(None) > 1:
        spec[f"{name}/shape"] = tf.io.FixedLenFeature([len(feature.shape)], tf.int64)
    return spec


def _list_dtype(feature: Feature) -> tf.DType:
    """The dtype of the list in which an Example holds a feature: bytes, floats or integers."""
    if feature.dtype == "string" or feature.encoding != "list":
        return tf.string
    return tf.float32 if feature.dtype in FLOATS_IN_A_LIST else tf.int64


def _decode(name: str, feature: Feature, value: Any, shapes: tf.Tensor | None) -> TensorColumn:
    if feature.encoding == "text":
        return TensorColumn(value)
    if feature.encoding == "list":
        return _list(name, feature, value, shapes)
    if feature.encoding == "raw":
        return _raw(name, feature, value, shapes)
    if feature.encoding in IMAGE_ENCODINGS:
        return _images(name, feature, value)
    if feature.encoding == "sequence":
        return _sequence(name, feature, value)
    return tensor_column(name, feature, value)


def _list(name: str, feature: Feature, value: Any, shapes: tf.Tensor | None) -> TensorColumn:
    if feature.is_fixed:
        return TensorColumn(_narrowed(name, feature, value))
    shapes = _shapes_of_counts(name, feature, value.row_lengths(), shapes)
    return TensorColumn(_narrowed(name, feature, value.values), shapes)


def _narrowed(name: str, feature: Feature, values: tf.Tensor) -> tf.Tensor:
    """The values of a list in the feature's dtype, which must be able to hold every integer."""
    dtype = tf.as_dtype(feature.dtype)
    narrow = tf.cast(values, dtype)
    if values.dtype != tf.int64 or dtype == tf.int64:
        return narrow
    return checked(narrow, tf.cast(narrow, tf.int64) == values, name, feature, "found", values)


def _raw(name: str, feature: Feature, value: tf.Tensor, shapes: tf.Tensor | None) -> TensorColumn:
    itemsize = tf.as_dtype(feature.dtype).size
    lengths = tf.strings.length(value)
    if feature.is_fixed:
        nbytes = math.prod(feature.known_sizes) * itemsize
        value = checked(value, lengths == nbytes, name, feature, f"{nbytes} bytes, found", lengths)
        return fixed_column(feature, value)
    value = checked(
        value,
        lengths % itemsize == 0,
        name,
        feature,
        "a whole number of values, found bytes:",
        lengths,
    )
    counts = tf.cast(lengths // itemsize, tf.int64)
    return varying_column(feature, value, _shapes_of_counts(name, feature, counts, shapes))


def _shapes_of_counts(
    name: str, feature: Feature, counts: tf.Tensor, shapes: tf.Tensor | None
) -> tf.Tensor:
    """The shape of each record, int64 [B, rank], from its number of values and its stored shape."""
    if shapes is None:
        known = math.prod(feature.known_sizes)
        counts = checked(
            counts,
            counts % known == 0 if known else tf.zeros_like(counts, tf.bool),
            name,
            feature,
            f"a multiple of {known} values, found",
            counts,
        )
        sizes = [
            counts // max(known, 1)
            if d is None
            else tf.fill(tf.shape(counts), tf.cast(d, tf.int64))
            for d in feature.shape
        ]
        return tf.stack(sizes, axis=1)
    fits = fits_feature(feature, shapes) & (tf.reduce_prod(shapes, axis=1) == counts)
    return checked(
        shapes, fits, name, feature, "shape", shapes, "does not hold the number of values", counts
    )


def _images(name: str, feature: Feature, value: tf.Tensor) -> TensorColumn:
    def image(data: tf.Tensor) -> tf.Tensor:
        pixels = (
            pixels_of(data, feature.shape[2])
            if feature.dtype == "uint8" and feature.shape[2] != 4
            # No other format has these pixels.
            else tf.io.decode_png(data, feature.shape[2], tf.as_dtype(feature.dtype))
        )
        shape = tf.shape(pixels, tf.int64)[None]
        return checked(pixels, fits_feature(feature, shape), name, feature, "found", shape)

    return one_by_one(feature, value, image)


def pixels_of(data: tf.Tensor, channels: int | None) -> tf.Tensor:
    """The pixels, uint8 [height, width, channels], of an encoded image, string []."""
    return tf.cond(
        tf.strings.substr(data, 0, 2) == b"\xff\xd8",
        # Gives the same pixels as Pillow; the default method differs by up to 18 levels.
        lambda: tf.io.decode_jpeg(data, channels=channels, dct_method="INTEGER_ACCURATE"),
        lambda: tf.io.decode_image(data, channels=channels, expand_animations=False),
    )


def _sequence(name: str, feature: Feature, value: Any) -> TensorColumn:
    counts = value.row_lengths()
    elements = value.values
    if feature.shape[0] is not None:
        elements = checked(
            elements, counts == feature.shape[0], name, feature, "found arrays:", counts
        )
    part = Feature(feature.dtype, feature.shape[1:], "tensor")
    return replace(tensor_column(name, part, elements), row_lengths=counts, raw=None)


def _steps(name: str, feature: Feature, step: Feature, value: tf.RaggedTensor) -> TensorColumn:
    """The column of a feature list, whose values are ragged: [B, (steps), (values)]."""
    steps, counts, values = value.row_lengths(), value.values.row_lengths(), value.flat_values
    if feature.shape[0] is not None:
        values = checked(values, steps == feature.shape[0], name, feature, "found steps:", steps)
    if step.encoding == "list":
        column = _list_steps(name, step, values, counts)
    else:
        values = checked(values, counts == 1, name, feature, "one value per step, found", counts)
        column = _decode(name, step, values, None)
    return replace(column, row_lengths=steps, raw=None)


def _list_steps(name: str, step: Feature, values: tf.Tensor, counts: tf.Tensor) -> TensorColumn:
    """The column of lists: their values one after another, and the count of each, int64 [B]."""
    values = _narrowed(name, step, values)
    if not step.is_fixed:
        return TensorColumn(values, _shapes_of_counts(name, step, counts, None))
    size = math.prod(step.known_sizes)
    values = checked(values, counts == size, name, step, f"{size} values per step, found", counts)
    return TensorColumn(tf.reshape(values, [-1, *step.known_sizes]))
