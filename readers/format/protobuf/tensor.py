"""NumPy arrays to TensorProtos and back, with the same bytes as `tf.io.serialize_tensor`.

Source: tensorflow/core/framework/{tensor,tensor_shape,types}.proto. A TensorProto holds `dtype`
(field 1), `tensor_shape` (2) and, for numbers, `tensor_content` (4), so the values are always its
suffix. Each string is a separate `string_val` (8).
"""

from __future__ import annotations

import functools
import math

import numpy as np

from readers.format.dtypes import TENSORFLOW_DTYPES, dtype_name, numpy_dtype
from readers.format.encodings.spec import format_shape
from readers.format.protobuf.fast_path import fast_tensor
from readers.format.protobuf.wire import Parts, fields, varint

_DTYPE_NAMES = {number: name for name, number in TENSORFLOW_DTYPES.items()}

# TensorFlow's own limit, TensorShape::MaxDimensions. It also bounds the product of malicious sizes.
_MAX_RANK = 254


def octets(array: np.ndarray) -> np.ndarray:
    """The little-endian bytes of an array of numbers, uint8 [n]; a view if the array has that byte order."""
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def string_values(array: np.ndarray) -> list[bytes]:
    """The elements of an array in row-major order, text as UTF-8; ValueError if one is neither text nor bytes."""
    values = []
    for value in array.ravel().tolist():
        if isinstance(value, str):
            value = value.encode()
        elif not isinstance(value, bytes):
            raise ValueError(f"expected text or bytes, got {type(value).__name__}")
        values.append(value)
    return values


@functools.lru_cache(maxsize=4096)
def tensor_header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """The bytes of a TensorProto before its values: dtype, shape, and the length of the values."""
    itemsize = numpy_dtype(dtype).itemsize
    dims = []
    for size in shape:
        dim = b"\x08" + varint(size) if size else b""
        dims.append(b"\x12" + varint(len(dim)) + dim)
    dims_bytes = b"".join(dims)
    number = varint(TENSORFLOW_DTYPES[dtype])
    header = b"\x08" + number + b"\x12" + varint(len(dims_bytes)) + dims_bytes
    nbytes = math.prod(shape) * itemsize
    if dtype == "string" or not nbytes:
        return header
    return header + b"\x22" + varint(nbytes)


def tensor_parts(array: np.ndarray) -> Parts:
    """`serialize_tensor(array)` in parts; numbers are not copied.

    Raises:
        ValueError: `tf.io.serialize_tensor` does not support the dtype.
    """
    name = dtype_name(array.dtype)
    header = tensor_header(name, array.shape)
    if name == "string":
        parts: Parts = [header]
        for value in string_values(array):
            parts += (b"\x42" + varint(len(value)), value)
        return parts
    if not array.size:
        return [header]
    return [header, octets(array)]


def parse_tensor(data: bytes | memoryview, dtype: str) -> np.ndarray:
    """Parses a TensorProto as of `tensor_parts`, which must have the given dtype.

    Numbers are a read-only view of `data`, strings an object array of bytes.

    Raises:
        ValueError: The bytes are not such a TensorProto, its dtype is another one, or its values do not fill its
            shape.
    """
    array = fast_tensor(memoryview(data), dtype)
    if array is not None:
        return array
    found, shape, content, strings = 0, [], memoryview(b""), []
    for number, kind, value in fields(memoryview(data)):
        if number == 1 and kind == 0:
            found = value
        elif number == 2 and kind == 2:
            shape += _dims(value)  # Protobuf concatenates repeated shapes.
        elif number == 4 and kind == 2:
            content = value
        elif number == 8 and kind == 2:
            strings.append(bytes(value))
        elif number != 3:  # 3 is version_number, always 0 and harmless.
            raise ValueError(
                f"field {number} of a TensorProto is not one that serialize_tensor writes"
            )
    if found != TENSORFLOW_DTYPES[dtype]:
        raise ValueError(f"expected a tensor of {dtype}, found {_DTYPE_NAMES.get(found, found)}")
    if len(shape) > _MAX_RANK:
        raise ValueError(f"the rank of a TensorProto is greater than {_MAX_RANK}")
    count = math.prod(shape)
    if dtype == "string":
        if len(strings) != count:
            raise ValueError(
                f"{len(strings)} strings do not fill shape {format_shape(tuple(shape))}"
            )
        array = np.empty(count, object)
        array[:] = strings
        return array.reshape(shape)
    target = numpy_dtype(dtype)
    if len(content) != count * target.itemsize:
        raise ValueError(
            f"{len(content)} bytes of content do not fill {dtype} {format_shape(tuple(shape))}"
        )
    return np.frombuffer(content, target).reshape(shape)


def _dims(message: memoryview) -> list[int]:
    """The sizes in a serialized TensorShapeProto."""
    shape: list[int] = []
    for number, kind, dim in fields(message):
        if number != 2 or kind != 2:
            raise ValueError("the shape of a TensorProto has an unknown rank or field")
        size = 0
        for dim_number, dim_kind, value in fields(dim):
            if dim_number == 1 and dim_kind == 0:
                size = value
        if size >= 1 << 63:
            raise ValueError("a dimension of a TensorProto is negative")
        if len(shape) == _MAX_RANK:
            raise ValueError(f"the rank of a TensorProto is greater than {_MAX_RANK}")
        shape.append(size)
    return shape
