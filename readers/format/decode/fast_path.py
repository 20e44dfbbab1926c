"""Examples and tensors in the form that nearly all writers give them, taken apart in few steps.

Each message has every field once, in order. It takes a fifth of the time of `parse_example` and
`parse_tensor`, which take every form, and whose results are the definition.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from readers.format.schema import TENSORFLOW_DTYPES, numpy_dtype
from readers.format.wire import BYTES_LIST, FLOAT_LIST, INT64_LIST

# Arrays of a higher rank need NumPy 2, and are in no dataset.
_MAX_RANK = 32

# Numbers of at most so many bytes are lengths; a longer one is not in the usual form.
_LONGEST_VARINT = 9

_KINDS = {kind << 3 | 2: kind for kind in (BYTES_LIST, FLOAT_LIST, INT64_LIST)}

# Of fields, with their wire type.
_FIRST, _SECOND, _FIRST_NUMBER, _FOURTH = 0x0A, 0x12, 0x08, 0x22


class _Unusual(Exception):
    """A field is not the one that comes next in the usual form."""


def usual_lists(
    data: memoryview, wanted: Mapping[bytes, str]
) -> dict[str, tuple[int, list[memoryview]]] | None:
    """What `parse_example` finds of some features, where each is one value or run of numbers.

    Args:
        data: A serialized Example.
        wanted: Their names, by these in UTF-8.

    Returns:
        None where a feature is missing, or anything has another form.
    """
    found = {}
    try:
        size, at = _number(data, 0, _FIRST)
        end = at + size
        while at < end:
            size, at = _number(data, at, _FIRST)
            stop = at + size
            size, at = _number(data, at, _FIRST)
            name = bytes(data[at : at + size])
            size, at = _number(data, at + size, _SECOND)
            if at + size != stop:
                return None
            if name in wanted:
                kind = data[at]
                size, at = _number(data, at, kind)
                end_of_list = at + size
                size, at = _number(data, at, _FIRST)
                if not at + size == end_of_list == stop:
                    return None
                found[wanted[name]] = _KINDS[kind], [data[at:stop]]
            elif not name.isascii():
                name.decode()  # raises where it is no text
            at = stop
    except (_Unusual, IndexError, KeyError, UnicodeDecodeError):
        return None
    return found if at == end == len(data) and len(found) == len(wanted) else None


def usual_tensor(data: memoryview, dtype: str) -> np.ndarray | None:
    """The array that `parse_tensor` finds, where it is one of numbers and not empty; or None."""
    target = numpy_dtype(dtype)
    shape: list[int] = []
    try:
        number, at = _number(data, 0, _FIRST_NUMBER)
        size, at = _number(data, at, _SECOND)
        end = at + size
        while at < end:
            size, at = _number(data, at, _SECOND)
            stop = at + size
            size, at = _number(data, at, _FIRST_NUMBER)
            if at != stop or len(shape) == _MAX_RANK:
                return None
            shape.append(size)
        size, content = _number(data, at, _FOURTH)
    except (_Unusual, IndexError):
        return None
    if (
        at != end
        or number != TENSORFLOW_DTYPES[dtype]
        or content + size != len(data)
        or math.prod(shape) * target.itemsize != size
        or target.hasobject
    ):
        return None
    return np.frombuffer(data, target, offset=content).reshape(shape)


def _number(data: memoryview, at: int, tag: int) -> tuple[int, int]:
    """The number behind a tag, and the position after it."""
    if data[at] != tag:
        raise _Unusual
    value = data[at + 1]
    if value < 128:
        return value, at + 2
    value &= 127
    for place in range(1, _LONGEST_VARINT):
        octet = data[at + 1 + place]
        value |= (octet & 127) << 7 * place
        if octet < 128:
            return value, at + 2 + place
    raise _Unusual
