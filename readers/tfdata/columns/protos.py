"""A batch of serialized TensorProtos -> the column of their values.

`tf.io.parse_tensor` takes one tensor at a time, which is slow. The values of a TensorProto are its
suffix, so all headers of a batch are read at once, and all values with a single `tf.io.decode_raw`. If
a header has an unusual form, TensorFlow first rewrites the TensorProtos of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import tensorflow as tf

from readers.format.dtypes import TENSORFLOW_DTYPES
from readers.format.protobuf.tensor import tensor_header
from readers.format.schema import Feature
from readers.tfdata.columns.column import (
    TensorColumn,
    checked,
    fits_feature,
    fixed_column,
    one_by_one,
    varying_column,
)
from readers.tfdata.columns.headers import read_headers

_DTYPE_OF_OCTET = ["an unknown dtype"] * 256

for _name, _number in TENSORFLOW_DTYPES.items():
    _DTYPE_OF_OCTET[_number] = _name


def tensor_column(name: str, feature: Feature, value: tf.Tensor) -> TensorColumn:
    """The column of a string [B] of TensorProtos."""
    if feature.dtype == "string":
        return one_by_one(feature, value, _parse_one(name, feature))
    if feature.is_fixed:
        return _fixed_tensors(name, feature, value)
    rank = len(feature.shape)
    dtype = tf.as_dtype(feature.dtype)

    def read(elements: tf.Tensor) -> tuple[tf.Tensor, ...]:
        canonical, shapes, starts = read_headers(elements, feature.dtype, rank)
        return canonical & fits_feature(feature, shapes), shapes, starts

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
    return varying_column(feature, raw, shapes)


def _fixed_tensors(name: str, feature: Feature, value: tf.Tensor) -> TensorColumn:
    shape = feature.known_sizes
    header = tensor_header(feature.dtype, shape)
    nbytes = math.prod(shape) * tf.as_dtype(feature.dtype).size
    canonical = tf.reduce_all(
        (tf.strings.substr(value, 0, len(header)) == header)
        & (tf.strings.length(value) == len(header) + nbytes)
    )
    value = tf.cond(canonical, lambda: value, lambda: _rewritten(name, feature, value))
    return fixed_column(feature, tf.strings.substr(value, len(header), nbytes))


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
        data = checked(data, same, name, feature, "found a tensor of", other)
        array = tf.io.parse_tensor(data, tf.as_dtype(feature.dtype))
        shape = tf.shape(array, tf.int64)[None]
        return checked(array, fits_feature(feature, shape), name, feature, "found", shape)

    return parse
