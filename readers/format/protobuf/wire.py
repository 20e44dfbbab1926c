"""The parts of the protocol-buffer wire format that Example and TensorProto use.

Source: https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

# The kinds of list in a `tf.train.Feature`: the field number of the list in that message.
BYTES_LIST, FLOAT_LIST, INT64_LIST = 1, 2, 3

# Lengths and sizes are below 2**63, so the common form has no longer varints.
LONGEST_LENGTH = 9

# The parts of a message, which are joined only once: bytes and uint8 [n] arrays, which mypy does not accept
# as buffers before Python 3.12.
Parts: TypeAlias = list[Any]

_LARGEST_FIELD = (1 << 29) - 1

# Wire types.
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

_ONE_BYTE = [bytes([n]) for n in range(128)]

# Up to this many values, a Python loop is faster than the ten NumPy calls of the vectorised form: for small
# numbers, which are looked up in a table, and for any others.
_MAX_LOOKED_UP, _MAX_LOOPED = 256, 12

# The size of that table. It covers the token ids of a common vocabulary and takes 10 ms to build.
_TABLE_SIZE = 1 << 15


def varint(value: int) -> bytes:
    """The base-128 varint of an integer from 0 to 2**64 - 1."""
    if value < 128:
        return _ONE_BYTE[value]
    out = bytearray()
    while value >= 128:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


@functools.cache
def _table() -> list[bytes]:
    return [varint(value) for value in range(_TABLE_SIZE)]


def packed_varints(values: np.ndarray) -> bytes:
    """The packed varints of an int64 array [n]. A negative number takes ten bytes, as in protobuf."""
    if len(values) <= _MAX_LOOKED_UP:
        items = values.tolist()
        if items and min(items) >= 0 and max(items) < _TABLE_SIZE:
            table = _table()
            return b"".join([table[item] for item in items])
        if len(items) <= _MAX_LOOPED:
            return b"".join(varint(item & 0xFFFFFFFFFFFFFFFF) for item in items)
    unsigned = values.astype(np.uint64)
    largest = int(unsigned.max())
    if largest < 128:
        return unsigned.astype(np.uint8).tobytes()
    width = (largest.bit_length() + 6) // 7
    groups = unsigned[:, None] >> np.arange(0, 7 * width, 7, dtype=np.uint64)
    used = groups != 0
    used[:, 0] = True
    octets = (groups & np.uint64(0x7F)).astype(np.uint8)
    octets[:, :-1] |= used[:, 1:].view(np.uint8) << 7
    return octets[used].tobytes()


def unpacked_varints(data: memoryview | bytes) -> np.ndarray:
    """Decodes packed varints, int64 [n]; ValueError if the last is cut off, or one is longer than ten bytes."""
    if len(data) <= _MAX_LOOPED and bytes(data).isascii():  # Every varint is one byte.
        return np.array([*data], np.int64)
    octets = np.frombuffer(data, np.uint8)
    last = octets < 128
    if last.all():
        return octets.astype(np.int64)
    ends = np.flatnonzero(last)
    if not last[-1]:
        raise ValueError("a varint is cut off")
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - starts + 1
    if lengths.max() > 10:
        raise ValueError("a varint is longer than ten bytes")
    place = np.arange(octets.size) - np.repeat(starts, lengths)
    shifted = (octets & 0x7F).astype(np.uint64) << (7 * place).astype(np.uint64)
    return np.add.reduceat(shifted, starts).view(np.int64)


def read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """Decodes the varint at a position, and the position after it; ValueError if it is cut off or longer than ten bytes."""
    value = shift = 0
    for position in range(at, min(at + 10, len(data))):
        octet = data[position]
        value |= (octet & 0x7F) << shift
        if octet < 128:
            return value, position + 1
        shift += 7
    raise ValueError("a varint is cut off or longer than ten bytes")


def fields(data: memoryview) -> Iterator[tuple[int, int, Any]]:
    """Yields (field number, wire type, value) for each field of a message; ValueError if the bytes are not a message.

    The value of a varint is an int; any other value is a memoryview of its bytes.
    """
    at, end = 0, len(data)
    while at < end:
        tag, at = read_varint(data, at)
        number, kind = tag >> 3, tag & 7
        if not 0 < number <= _LARGEST_FIELD:
            raise ValueError(f"{number} is not the number of a field")
        if kind == _BYTES:
            size, at = read_varint(data, at)
        elif kind == _VARINT:
            value, at = read_varint(data, at)
            yield number, kind, value
            continue
        elif kind in (_FIXED32, _FIXED64):
            size = 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"wire type {kind} is not used by Example or TensorProto")
        if at + size > end:
            raise ValueError(f"field {number} runs past the end of its message")
        yield number, kind, data[at : at + size]
        at += size
