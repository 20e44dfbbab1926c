"""A batch of serialized Examples or SequenceExamples -> columns of tensors, decoded together.

`tf.io.parse_tensor` takes one tensor at a time and is why the usual TFRecord pipeline is slow.
The values of a TensorProto are its suffix, so here all its headers are read at once, and all values
with one `tf.io.decode_raw`. A header in any other form is first rewritten by TensorFlow itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from readers.format.schema import (
    FLOATS_IN_A_LIST,
    PICTURES,
    TENSORFLOW_DTYPES,
    Feature,
    Schema,
    format_shape,
)
from readers.format.tensor import tensor_header
from readers.tfdata.tensor_headers import read_headers

# decode_raw knows no uint32 and uint64; the bits are those of the signed ones.
_SIGNED = {"uint32": tf.int32, "uint64": tf.int64}

_DTYPE_OF_OCTET = ["no known dtype"] * 256

for _name, _number in TENSORFLOW_DTYPES.items():
    _DTYPE_OF_OCTET[_number] = _name


@dataclass(frozen=True)
class Column:
    """One feature of B records, or the arrays of B sequences or feature lists.

    Attributes:
        values: [B, *shape] where the shape is fixed; else flat [N], record after record.
        shapes: int64 [B, rank], the shape of each record; None where it is fixed.
        row_lengths: int64 [B], arrays of each sequence; `values` and `shapes` then hold a row for
            each array. None for all other encodings.
        packed: string [B], the bytes of each record's values, where decoding had them at hand:
            padding them is cheaper than padding the values.
    """

    values: tf.Tensor
    shapes: tf.Tensor | None = None
    row_lengths: tf.Tensor | None = None
    packed: tf.Tensor | None = None


def decode_batch(serialized: tf.Tensor, schema: Schema) -> dict[str, Column]:
    """The columns of the features of a schema.

    Args:
        serialized: string [B], serialized Examples; or SequenceExamples, where the schema has
            features of steps.
        schema: The features to decode; others in the Examples are passed over.

    Raises:
        tf.errors.InvalidArgumentError: When run, on a record that does not fit; the message names
            the feature, what it should be, and what it is.
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
    # With one unknown dimension the number of values tells it, for files of other writers too.
    if feature.encoding in ("list", "raw") and feature.shape.count(None) > 1:
        spec[f"{name}/shape"] = tf.io.FixedLenFeature([len(feature.shape)], tf.int64)
    return spec


def _list_dtype(feature: Feature) -> tf.DType:
    """What an Example holds a feature in: bytes, floats or integers."""
    if feature.dtype == "string" or feature.encoding != "list":
        return tf.string
    return tf.float32 if feature.dtype in FLOATS_IN_A_LIST else tf.int64


def _decode(name: str, feature: Feature, value: Any, shapes: tf.Tensor | None) -> Column:
    if feature.encoding == "text":
        return Column(value)
    if feature.encoding == "list":
        return _list(name, feature, value, shapes)
    if feature.encoding == "raw":
        return _raw(name, feature, value, shapes)
    if feature.encoding in PICTURES:
        return _pictures(name, feature, value)
    if feature.encoding == "sequence":
        return _sequence(name, feature, value)
    return _tensors(name, feature, value)


def _list(name: str, feature: Feature, value: Any, shapes: tf.Tensor | None) -> Column:
    if feature.is_fixed:
        return Column(_narrowed(name, feature, value))
    shapes = _shapes_of_counts(name, feature, value.row_lengths(), shapes)
    return Column(_narrowed(name, feature, value.values), shapes)


def _narrowed(name: str, feature: Feature, values: tf.Tensor) -> tf.Tensor:
    """The values of a list in the feature's dtype, which has to hold every integer."""
    dtype = tf.as_dtype(feature.dtype)
    narrow = tf.cast(values, dtype)
    if values.dtype != tf.int64 or dtype == tf.int64:
        return narrow
    return _checked(narrow, tf.cast(narrow, tf.int64) == values, name, feature, "found", values)


def _raw(name: str, feature: Feature, value: tf.Tensor, shapes: tf.Tensor | None) -> Column:
    itemsize = tf.as_dtype(feature.dtype).size
    lengths = tf.strings.length(value)
    if feature.is_fixed:
        nbytes = math.prod(_known(feature)) * itemsize
        value = _checked(value, lengths == nbytes, name, feature, f"{nbytes} bytes, found", lengths)
        return _fixed_column(feature, value)
    value = _checked(
        value, lengths % itemsize == 0, name, feature, "whole values, found bytes", lengths
    )
    counts = tf.cast(lengths // itemsize, tf.int64)
    return _varying_column(feature, value, _shapes_of_counts(name, feature, counts, shapes))


def _shapes_of_counts(
    name: str, feature: Feature, counts: tf.Tensor, shapes: tf.Tensor | None
) -> tf.Tensor:
    """The shape of each record, int64 [B, rank], from its number of values and its companion."""
    if shapes is None:
        known = math.prod(_known(feature))
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
        shapes, fits, name, feature, "shape", shapes, "cannot hold as many values as", counts
    )


def _pictures(name: str, feature: Feature, value: tf.Tensor) -> Column:
    def picture(data: tf.Tensor) -> tf.Tensor:
        pixels = pixels_of(data, feature.shape[2])
        shape = tf.shape(pixels, tf.int64)[None]
        return _checked(pixels, _fits(feature, shape), name, feature, "found", shape)

    return _one_by_one(feature, value, picture)


def pixels_of(data: tf.Tensor, channels: int | None) -> tf.Tensor:
    """The pixels, uint8 [height, width, channels], of an encoded picture, string []."""
    return tf.cond(
        tf.strings.substr(data, 0, 2) == b"\xff\xd8",
        # As Pillow decodes: the default method is off by up to 18 levels.
        lambda: tf.io.decode_jpeg(data, channels=channels, dct_method="INTEGER_ACCURATE"),
        lambda: tf.io.decode_image(data, channels=channels, expand_animations=False),
    )


def _one_by_one(
    feature: Feature, value: tf.Tensor, decode: Callable[[tf.Tensor], tf.Tensor]
) -> Column:
    """The column of values that only an op on scalars can decode."""
    dtype = tf.as_dtype(feature.dtype)
    if feature.is_fixed:
        values = tf.map_fn(decode, value, fn_output_signature=tf.TensorSpec(feature.shape, dtype))
        return Column(values)

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
    return Column(values.flat_values, shapes)


def _sequence(name: str, feature: Feature, value: Any) -> Column:
    counts = value.row_lengths()
    elements = value.values
    if feature.shape[0] is not None:
        elements = _checked(
            elements, counts == feature.shape[0], name, feature, "found arrays", counts
        )
    part = Feature(feature.dtype, feature.shape[1:], "tensor")
    return replace(_tensors(name, part, elements), row_lengths=counts, packed=None)


def _steps(name: str, feature: Feature, step: Feature, value: tf.RaggedTensor) -> Column:
    """The column of a feature list: values by record and step, [B, (steps), (values)]."""
    steps, counts, values = value.row_lengths(), value.values.row_lengths(), value.flat_values
    if feature.shape[0] is not None:
        values = _checked(
            values, steps == feature.shape[0], name, feature, "found so many steps", steps
        )
    if step.encoding == "list":
        column = _list_steps(name, step, values, counts)
    else:
        values = _checked(values, counts == 1, name, feature, "one value a step, found", counts)
        column = _decode(name, step, values, None)
    return replace(column, row_lengths=steps, packed=None)


def _list_steps(name: str, step: Feature, values: tf.Tensor, counts: tf.Tensor) -> Column:
    """The column of lists whose values stand one after another; of each so many, int64 [B]."""
    values = _narrowed(name, step, values)
    if not step.is_fixed:
        return Column(values, _shapes_of_counts(name, step, counts, None))
    size = math.prod(_known(step))
    values = _checked(values, counts == size, name, step, f"{size} values a step, found", counts)
    return Column(tf.reshape(values, [-1, *_known(step)]))


def _tensors(name: str, feature: Feature, value: tf.Tensor) -> Column:
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
    packed = tf.strings.substr(value, starts, tf.cast(count * dtype.size, tf.int32))
    return _varying_column(feature, packed, shapes)


def _fixed_tensors(name: str, feature: Feature, value: tf.Tensor) -> Column:
    shape = _known(feature)
    header = tensor_header(feature.dtype, tuple(shape))
    nbytes = math.prod(shape) * tf.as_dtype(feature.dtype).size
    canonical = tf.reduce_all(
        (tf.strings.substr(value, 0, len(header)) == header)
        & (tf.strings.length(value) == len(header) + nbytes)
    )
    value = tf.cond(canonical, lambda: value, lambda: _rewritten(name, feature, value))
    return _fixed_column(feature, tf.strings.substr(value, len(header), nbytes))


def _rewritten(name: str, feature: Feature, value: tf.Tensor) -> tf.Tensor:
    """The TensorProtos in the form of `serialize_tensor`, whatever form they have."""
    parse = _parse_one(name, feature)

    def rewrite(data: tf.Tensor) -> tf.Tensor:
        return tf.io.serialize_tensor(parse(data))

    return tf.map_fn(rewrite, value, fn_output_signature=tf.TensorSpec([], tf.string))


def _parse_one(name: str, feature: Feature) -> Callable[[tf.Tensor], tf.Tensor]:
    prefix = bytes([8, TENSORFLOW_DTYPES[feature.dtype]])

    def parse(data: tf.Tensor) -> tf.Tensor:
        # parse_tensor would notice another dtype too, but not say of which feature.
        same = tf.strings.substr(data, 0, 2) == prefix
        octets = tf.io.decode_raw(data, tf.uint8, fixed_length=2)
        other = tf.gather(_DTYPE_OF_OCTET, tf.cast(octets[1], tf.int32))
        data = _checked(data, same, name, feature, "found a tensor of", other)
        array = tf.io.parse_tensor(data, tf.as_dtype(feature.dtype))
        shape = tf.shape(array, tf.int64)[None]
        return _checked(array, _fits(feature, shape), name, feature, "found", shape)

    return parse


def _fits(feature: Feature, shapes: tf.Tensor) -> tf.Tensor:
    """Which shapes, int64 [B, rank], have the feature's rank and every known dimension."""
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
    """The tensor itself, once all of `fits` holds."""
    spec = f"{feature.dtype} {format_shape(feature.shape)} ({feature.encoding})"
    # Without quotes: TensorFlow escapes them.
    message = f"feature {name}: expected {spec}:"
    assertion = tf.debugging.Assert(tf.reduce_all(fits), [message, *found], summarize=8)
    with tf.control_dependencies([assertion]):
        return tf.identity(tensor)


def _known(feature: Feature) -> list[int]:
    return [d for d in feature.shape if d is not None]


def _fixed_column(feature: Feature, packed: tf.Tensor) -> Column:
    values = _from_raw(packed, feature.dtype)
    shape = tf.concat([tf.shape(packed), tf.constant(feature.shape, tf.int32)], axis=0)
    values = tf.ensure_shape(tf.reshape(values, shape), [packed.shape[0], *feature.shape])
    return Column(values)


def _varying_column(feature: Feature, packed: tf.Tensor, shapes: tf.Tensor) -> Column:
    values = _from_raw(tf.strings.reduce_join(packed), feature.dtype)
    return Column(values, shapes, packed=packed)


def first_rows(feature: Feature, column: Column, limit: int) -> Column:
    """A column with `packed` values, cut to a limit in its first dimension, the only unknown one."""
    assert column.shapes is not None
    nbytes = limit * math.prod(_known(feature)) * tf.as_dtype(feature.dtype).size
    sizes = tf.minimum(column.shapes[:, :1], tf.constant(limit, tf.int64))
    shapes = tf.concat([sizes, column.shapes[:, 1:]], axis=1)
    return _varying_column(feature, tf.strings.substr(column.packed, 0, nbytes), shapes)


def _from_raw(packed: tf.Tensor, dtype: str) -> tf.Tensor:
    if dtype in _SIGNED:
        return tf.bitcast(tf.io.decode_raw(packed, _SIGNED[dtype]), dtype)
    return tf.io.decode_raw(packed, tf.as_dtype(dtype))
