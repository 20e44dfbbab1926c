"""Encodes records into serialized `tf.train.Example`s, with the same bytes in every process.

Source: tensorflow/core/example/{example,feature}.proto. The map of features is written in the
order of `SerializeToString(deterministic=True)` in protobuf's default Python implementation, upb.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from readers.format.encodings.encoding import size_of
from readers.format.encodings.flat import list_parts
from readers.format.protobuf.wire import INT64_LIST, Parts, packed_varints, varint
from readers.format.schema import Feature, Schema

# The number of entry prefixes to keep, about 50 bytes each. Recordings have thousands of lengths.
_MAX_LAYOUTS = 4096


def map_order(name: str) -> bytes:
    """The sort key of a feature name in a deterministically serialized map.

    upb sorts by bytes, but puts a name before its own prefixes ("a/shape" before "a"), unlike the
    C++ and Python implementations of protobuf. It has done so from protobuf 4.25 to 7.34. UTF-8
    text never contains 0xff.
    """
    return name.encode() + b"\xff"


class Encoder:
    """Encodes records into serialized Examples.

    Args:
        schema: The features that every record must have, exactly.
        names: Name in the schema -> name in the Example, for features whose names differ.

    Raises:
        ValueError: A feature is a feature list of a SequenceExample, which can be read but not
            written.
    """

    def __init__(self, schema: Schema, names: Mapping[str, str] | None = None) -> None:
        for name, feature in schema.items():
            if feature.step:
                raise ValueError(
                    f"feature {name!r} ({feature}): feature lists can be read, but not written; use the "
                    "encoding tensor, or sequence for arrays of several shapes"
                )
        self.schema = schema
        self._features = dict(schema)  # Comparing and reading a plain dict is ten times as fast.
        self._integers = {name for name, feature in schema.items() if feature.is_integer}
        self._texts = {name for name, feature in schema.items() if feature.codec.is_text}
        entries = []
        for name, feature in schema.items():
            key = (names or {}).get(name, name)
            entries.append(_Entry(key, name, feature))
            if feature.has_companion:
                entries.append(_Entry(f"{key}/shape", name, feature, companion=True))
        self._entries = sorted(entries, key=lambda entry: map_order(entry.key))

    def encode(self, record: Mapping[str, Any]) -> bytes:
        """The serialized Example of one record.

        Args:
            record: A value for every feature of the schema: an array of exactly its dtype and a
                shape that fits; or a Python number, a text, or a (nested) list of them that the
                dtype can hold; encoded bytes for `jpeg`, `png` and `source`; a list of arrays for
                `sequence`.

        Raises:
            ValueError: A feature is missing or unknown, or its value does not fit the schema; the
                message names the feature, what was expected and what was found.
        """
        return self.pack(self.check(record))

    def check(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Checks the values of a record and converts them for `pack`; arguments and errors as for `encode`.

        The result is bytes for a text or an image; an int for a single int64 in a list if it was given as one; a list of
        arrays for a sequence; an array for any other feature.
        """
        if record.keys() != self._features.keys():
            raise ValueError(self._wrong_names(record))
        values: dict[str, Any] = {}
        for name, feature in self._features.items():
            value = record[name]
            # The fast path for almost every record, without the ten calls of the general case.
            if type(value) is int and name in self._integers and -(2**63) <= value < 2**63:
                values[name] = value
            elif type(value) is str and name in self._texts and value.isascii():
                values[name] = value.encode()
            else:
                values[name] = feature.codec.checked(name, feature, value)
        return values

    def check_all(self, records: Sequence[Mapping[str, Any]]) -> dict[str, Sequence[Any]]:
        """The values of each feature in n records, as `check` returns them; ValueError if one of them does not fit."""
        for record in records:
            if record.keys() != self._features.keys():
                raise ValueError(self._wrong_names(record))
        return {
            name: feature.codec.checked_all(name, feature, [record[name] for record in records])
            for name, feature in self._features.items()
        }

    def pack(self, arrays: Mapping[str, Any]) -> bytes:
        """Serializes an Example from the values that `check` returned."""
        return b"".join(self.parts(arrays))

    def parts(self, arrays: Mapping[str, Any]) -> Parts:
        """Serializes an Example from the values that `check` returned, in parts, so that large values are not copied."""
        message: Parts = []
        for entry in self._entries:
            message += entry.parts(arrays[entry.name])
        return [_message_head(size_of(message)), *message]

    def pack_all(self, columns: Mapping[str, Sequence[Any]]) -> list[bytes]:
        """Serializes many Examples, given the values of each feature as `check` returns them."""
        entries = [entry.column(columns[entry.name]) for entry in self._entries]
        messages = map(b"".join, zip(*entries, strict=True))
        return [_message_head(len(message)) + message for message in messages]

    def _wrong_names(self, record: Mapping[str, Any]) -> str:
        missing = [name for name in self.schema if name not in record]
        extra = sorted(str(name) for name in record if name not in self.schema)
        found = []
        if missing:
            found.append(f"lacks {', '.join(missing)}")
        if extra:
            found.append(f"has {', '.join(extra)}, not in the schema")
        return f"the record {' and '.join(found)}; the schema has {', '.join(self.schema)}"


class _Entry:
    """An entry in an Example's map of features: a feature, or the companion that holds its shape.

    Most of an entry depends only on the shape of the value, so this prefix is built once per
    shape, and only the content differs between records. This takes a third of the time.
    """

    def __init__(self, key: str, name: str, feature: Feature, companion: bool = False) -> None:
        self.key, self.name = key, name
        self._feature = feature
        self._companion = companion
        self._key_field = b"\x0a" + varint(len(key.encode())) + key.encode()
        self._beginnings: dict[Any, bytes] = {}

    def parts(self, value: Any) -> Parts:
        """The serialized entry for a checked value, in parts."""
        try:
            layout, content = self._split(value)
            if layout is None:
                return self._whole(value)
            return [self._beginnings.get(layout) or self._beginning(value), content]
        except ValueError as error:  # A string array has an element that is not text.
            raise ValueError(f"feature {self.name!r} ({self._feature}): {error}") from None

    def column(self, values: Sequence[Any]) -> list[bytes]:
        """The serialized entry for each of many checked values."""
        known, make = self._beginnings, self._beginning
        if self._feature.codec.is_bytes and not self._companion:
            return [(known.get(len(value)) or make(value)) + value for value in values]
        if self._feature.is_integer:
            return [known.get(value) or make(value) for value in values]
        if self._companion and {*map(type, values)} == {np.ndarray}:
            return [known.get(value.shape) or make(value) for value in values]
        return [b"".join(self.parts(value)) for value in values]

    def _beginning(self, value: Any) -> bytes:
        """The bytes before a value's content, which are kept for other values of the same layout."""
        layout, content = self._split(value)
        if len(self._beginnings) >= _MAX_LAYOUTS:
            self._beginnings.clear()
        whole = b"".join(self._whole(value))
        self._beginnings[layout] = whole[: len(whole) - len(content)]
        return self._beginnings[layout]

    def _split(self, value: Any) -> tuple[Any, bytes | np.ndarray]:
        """The layout that determines the prefix, and the content; the layout is None if the prefix depends on the whole value."""
        if self._companion:
            return getattr(value, "shape", None), b""
        return self._feature.codec.layout(self._feature, value)

    def _whole(self, value: Any) -> Parts:
        """The serialized entry in parts, built without a kept prefix."""
        if self._companion:
            packed = packed_varints(self._feature.codec.shape_of(value))
            message = list_parts(INT64_LIST, [packed])
        else:
            message = self._feature.codec.parts(self._feature, value)
        body = [self._key_field, b"\x12" + varint(size_of(message)), *message]
        return [b"\x0a" + varint(size_of(body)), *body]


@functools.lru_cache(maxsize=_MAX_LAYOUTS)
def _message_head(size: int) -> bytes:
    """The first bytes of an Example whose map of features takes `size` bytes."""
    return b"\x0a" + varint(size)
