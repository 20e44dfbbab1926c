"""A batch of serialized Examples or SequenceExamples -> columns of tensors, decoded together.

The usual TFRecord pipeline is slow because `tf.io.parse_tensor` takes one tensor at a time. The
values of a TensorProto are its suffix, so this module reads all headers of a batch at once, and all
values with a single `tf.io.decode_raw`. If a header has an unusual form, TensorFlow first rewrites
the TensorProtos of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from readers.format.dtypes import FLOATS_IN_A_LIST, TENSORFLOW_DTYPES
from readers.format.schema import IMAGE_ENCODINGS, Feature, Schema, format_shape
from readers.format.tensor import tensor_header
from readers.tfdata.tensor_headers import read_headers

# decode_raw does not support uint32 and uint64; signed integers have the same bits.
_SIGNED = {"uint32": tf.int32, "uint64": tf.int64}

_DTYPE_OF_OCTET = ["an unknown dtype"] * 256

for _name, _number in TENSORFLOW_DTYPES.items():
    _DTYPE_OF_OCTET[_number] = _name


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


def decode_batch(serialized: tf.Tensor, schema: Schema) -> dict[str, TensorColumn]:
    """The columns of a schema's features, by name.

    Args:
        serialized: string [B], serialized Examples; or SequenceExamples if the schema has features
            of steps.
        schema: The features to decode; others in the Examples are ignored.

    Raises:
        tf.errors.InvalidArgumentError: When run, if a record does not fit the schema; the message
            names the feature, what was expected and what was found.
    """
    spec: dict[str, Any] = {}
    steps: dict[str, Any] = {}
    for name, feature in schema.items():
        if feature.step:
            steps[name] = tf.io.RaggedFeature(_list_dtype(feature.step), row_splits_dtype=tf.int64)
        else:
            spec.update(_parse_spec(name, feature))
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
    return _tensors(name, feature, value)


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
    return _checked(narrow, tf.cast(narrow, tf.int64) == values, name, feature, "found", values)


def _raw(name: str, feature: Feature, value: tf.Tensor, shapes: tf.Tensor | None) -> TensorColumn:
    itemsize = tf.as_dtype(feature.dtype).size
    lengths = tf.strings.length(value)
    if feature.is_fixed:
        nbytes = math.prod(feature.known_sizes) * itemsize
        value = _checked(value, lengths == nbytes, name, feature, f"{nbytes} bytes, found", lengths)
        return _fixed_column(feature, value)
    value = _checked(
        value,
        lengths % itemsize == 0,
        name,
        feature,
        "a whole number of values, found bytes:",
        lengths,
    )
    counts = tf.cast(lengths // itemsize, tf.int64)
    return _varying_column(feature, value, _shapes_of_counts(name, feature, counts, shapes))


def _shapes_of_counts(
    name: str, feature: Feature, counts: tf.Tensor, shapes: tf.Tensor | None
) -> tf.Tensor:
    """The shape of each record, int64 [B, rank], from its number of values and its stored shape."""
    if shapes is None:
        known = math.prod(feature.known_sizes)
        counts = _checked(
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
    fits = _fits(feature, shapes) & (tf.reduce_prod(shapes, axis=1) == counts)
    return _checked(
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
        return _checked(pixels, _fits(feature, shape), name, feature, "found", shape)

    return _one_by_one(feature, value, image)


def pixels_of(data: tf.Tensor, channels: int | None) -> tf.Tensor:
    """The pixels, uint8 [height, width, channels], of an encoded image, string []."""
    return tf.cond(
        tf.strings.substr(data, 0, 2) == b"\xff\xd8",
        # Gives the same pixels as Pillow; the default method differs by up to 18 levels.
        lambda: tf.io.decode_jpeg(data, channels=channels, dct_method="INTEGER_ACCURATE"),
        lambda: tf.io.decode_image(data, channels=channels, expand_animations=False),
    )


def _one_by_one(
    feature: Feature, value: tf.Tensor, decode: Callable[[tf.Tensor], tf.Tensor]
) -> TensorColumn:
    """The column of values that can only be decoded one at a time."""
    dtype = tf.as_dtype(feature.dtype)
    if feature.is_fixed:
        values = tf.map_fn(decode, value, fn_output_signature=tf.TensorSpec(feature.shape, dtype))
        return TensorColumn(values)

    def flat(data: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        array = decode(data)
        shape = tf.ensure_shape(tf.shape(array, tf.int64), [len(feature.shape)])
        return tf.reshape(array, [-1]), shape

    values, shapes = tf.map_fn(
        flat,
        value,
        fn_output_signature=(
            tf.RaggedTensorSpec([None], dtype, ragged_rank=0, row_splits_dtype=tf.int64),
            tf.TensorSpec([len(feature.shape)], tf.int64),
        ),
    )
    return TensorColumn(values.flat_values, shapes)


def _sequence(name: str, feature: Feature, value: Any) -> TensorColumn:
    counts = value.row_lengths()
    elements = value.values
    if feature.shape[0] is not None:
        elements = _checked(
            elements, counts == feature.shape[0], name, feature, "found arrays:", counts
        )
    part = Feature(feature.dtype, feature.shape[1:], "tensor")
    return replace(_tensors(name, part, elements), row_lengths=counts, raw=None)


def _steps(name: str, feature: Feature, step: Feature, value: tf.RaggedTensor) -> TensorColumn:
    """The column of a feature list, whose values are ragged: [B, (steps), (values)]."""
    steps, counts, values = value.row_lengths(), value.values.row_lengths(), value.flat_values
    if feature.shape[0] is not None:
        values = _checked(values, steps == feature.shape[0], name, feature, "found steps:", steps)
    if step.encoding == "list":
        column = _list_steps(name, step, values, counts)
    else:
        values = _checked(values, counts == 1, name, feature, "one value per step, found", counts)
        column = _decode(name, step, values, None)
    return replace(column, row_lengths=steps, raw=None)


def _list_steps(name: str, step: Feature, values: tf.Tensor, counts: tf.Tensor) -> TensorColumn:
    """The column of lists: their values one after another, and the count of each, int64 [B]."""
    values = _narrowed(name, step, values)
    if not step.is_fixed:
        return TensorColumn(values, _shapes_of_counts(name, step, counts, None))
    size = math.prod(step.known_sizes)
    values = _checked(values, counts == size, name, step, f"{size} values per step, found", counts)
    return TensorColumn(tf.reshape(values, [-1, *step.known_sizes]))


def _tensors(name: str, feature: Feature, value: tf.Tensor) -> TensorColumn:
    """The column of a string [B] of TensorProtos."""
    if feature.dtype == "string":
        return _one_by_one(feature, value, _parse_one(name, feature))
    if feature.is_fixed:
        return _fixed_tensors(name, feature, value)
    rank = len(feature.shape)
    dtype = tf.as_dtype(feature.dtype)

    def read(elements: tf.Tensor) -> tuple[tf.Tensor, ...]:
        canonical, shapes, starts = read_headers(elements, feature.dtype, rank)
        return canonical & _fits(feature, shapes), shapes, starts

    def rewrite() -> tuple[tf.Tensor, ...]:
        elements = _rewritten(name, feature, value)
        _, shapes, starts = read(elements)
        return elements, shapes, starts

    canonical, shapes, starts = read(value)
    value, shapes, starts = tf.cond(
        tf.reduce_all(canonical), lambda: (value, shapes, starts), rewrite
    )
    count = tf.reduce_prod(shapes, axis=1)
    raw = tf.strings.substr(value, starts, tf.cast(count * dtype.size, tf.int32))
    return _varying_column(feature, raw, shapes)


def _fixed_tensors(name: str, feature: Feature, value: tf.Tensor) -> TensorColumn:
    shape = feature.known_sizes
    header = tensor_header(feature.dtype, shape)
    nbytes = math.prod(shape) * tf.as_dtype(feature.dtype).size
    canonical = tf.reduce_all(
        (tf.strings.substr(value, 0, len(header)) == header)
        & (tf.strings.length(value) == len(header) + nbytes)
    )
    value = tf.cond(canonical, lambda: value, lambda: _rewritten(name, feature, value))
    return _fixed_column(feature, tf.strings.substr(value, len(header), nbytes))


def _rewritten(name: str, feature: Feature, value: tf.Tensor) -> tf.Tensor:
    """The TensorProtos, in whatever form, rewritten in the form of `serialize_tensor`."""
    parse = _parse_one(name, feature)

    def rewrite(data: tf.Tensor) -> tf.Tensor:
        return tf.io.serialize_tensor(parse(data))

    return tf.map_fn(rewrite, value, fn_output_signature=tf.TensorSpec([], tf.string))


def _parse_one(name: str, feature: Feature) -> Callable[[tf.Tensor], tf.Tensor]:
    prefix = bytes([8, TENSORFLOW_DTYPES[feature.dtype]])

    def parse(data: tf.Tensor) -> tf.Tensor:
        # parse_tensor would reject another dtype too, but without naming the feature.
        same = tf.strings.substr(data, 0, 2) == prefix
        octets = tf.io.decode_raw(data, tf.uint8, fixed_length=2)
        other = tf.gather(_DTYPE_OF_OCTET, tf.cast(octets[1], tf.int32))
        data = _checked(data, same, name, feature, "found a tensor of", other)
        array = tf.io.parse_tensor(data, tf.as_dtype(feature.dtype))
        shape = tf.shape(array, tf.int64)[None]
        return _checked(array, _fits(feature, shape), name, feature, "found", shape)

    return parse


def _fits(feature: Feature, shapes: tf.Tensor) -> tf.Tensor:
    """bool [B]: whether shapes, int64 [B, rank], have the feature's rank and known dimensions."""
    expected = tf.constant([-1 if d is None else d for d in feature.shape], tf.int64)
    if shapes.shape[1] is None:
        same_rank = tf.shape(shapes)[1] == len(feature.shape)
        return tf.cond(same_rank, lambda: _fits_rank(expected, shapes), lambda: tf.zeros([1], bool))
    return _fits_rank(expected, shapes)


def _fits_rank(expected: tf.Tensor, shapes: tf.Tensor) -> tf.Tensor:
    return tf.reduce_all((shapes >= 0) & ((expected < 0) | (shapes == expected)), axis=1)


def _checked(
    tensor: tf.Tensor, fits: tf.Tensor, name: str, feature: Feature, *found: str | tf.Tensor
) -> tf.Tensor:
    """The tensor itself; when run, fails with the feature's name unless all of `fits` is true."""
    spec = f"{feature.dtype} {format_shape(feature.shape)} ({feature.encoding})"
    # Without quotes: TensorFlow escapes them.
    message = f"feature {name}: expected {spec}:"
    assertion = tf.debugging.Assert(tf.reduce_all(fits), [message, *found], summarize=8)
    with tf.control_dependencies([assertion]):
        return tf.identity(tensor)


def _fixed_column(feature: Feature, raw: tf.Tensor) -> TensorColumn:
    values = _from_raw(raw, feature.dtype)
    shape = tf.concat([tf.shape(raw), tf.constant(feature.shape, tf.int32)], axis=0)
    values = tf.ensure_shape(tf.reshape(values, shape), [raw.shape[0], *feature.shape])
    return TensorColumn(values)


def _varying_column(feature: Feature, raw: tf.Tensor, shapes: tf.Tensor) -> TensorColumn:
    values = _from_raw(tf.strings.reduce_join(raw), feature.dtype)
    return TensorColumn(values, shapes, raw=raw)


def first_rows(feature: Feature, column: TensorColumn, limit: int) -> TensorColumn:
    """A column with `raw` values, truncated in its first dimension, the only unknown one."""
    assert column.shapes is not None
    nbytes = limit * math.prod(feature.known_sizes) * tf.as_dtype(feature.dtype).size
    sizes = tf.minimum(column.shapes[:, :1], tf.constant(limit, tf.int64))
    shapes = tf.concat([sizes, column.shapes[:, 1:]], axis=1)
    return _varying_column(feature, tf.strings.substr(column.raw, 0, nbytes), shapes)


def _from_raw(raw: tf.Tensor, dtype: str) -> tf.Tensor:
    if dtype in _SIGNED:
        return tf.bitcast(tf.io.decode_raw(raw, _SIGNED[dtype]), dtype)
    return tf.io.decode_raw(raw, tf.as_dtype(dtype))
