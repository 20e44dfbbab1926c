"""Examples and SequenceExamples in protobuf's wire form, and their framing, without any library.

Source: tensorflow/core/example/example.proto and feature.proto; tensorflow/core/lib/io/record_writer.h.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from tests.support.datasets import crc32c

Values = Sequence[int] | Sequence[float] | Sequence[bytes]


def _varint(number: int) -> bytes:
    number &= 0xFFFFFFFFFFFFFFFF
    octets = []
    while number > 0x7F:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*octets, number])


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def feature(values: Values) -> bytes:
    """A Feature with a packed list of integers or floats, or a list of bytes."""
    if values and isinstance(values[0], bytes):
        return _field(1, b"".join(_field(1, value) for value in values))  # type: ignore[arg-type]
    if values and isinstance(values[0], float):
        return _field(2, _field(1, struct.pack(f"<{len(values)}f", *values)))
    return _field(3, _field(1, b"".join(map(_varint, values))))  # type: ignore[arg-type]


def features(values: Mapping[str, Values]) -> bytes:
    """A Features message, sorted by name."""
    return b"".join(
        _field(1, _field(1, name.encode()) + _field(2, feature(values[name])))
        for name in sorted(values)
    )


def example(values: Mapping[str, Values]) -> bytes:
    """An Example."""
    return _field(1, features(values))


def sequence_example(context: Mapping[str, Values], lists: Mapping[str, Sequence[Values]]) -> bytes:
    """A SequenceExample, whose lists hold the values of each step."""
    entries = (
        _field(1, name.encode())
        + _field(2, b"".join(_field(1, feature(step)) for step in lists[name]))
        for name in sorted(lists)
    )
    return _field(1, features(context)) + _field(2, b"".join(_field(1, e) for e in entries))


def framed(data: bytes) -> bytes:
    """A record with its length and checksums."""
    length = struct.pack("<Q", len(data))
    return length + _masked(length) + data + _masked(data)


def _masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
