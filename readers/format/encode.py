"""A dict of arrays -> a serialized `tf.train.Example`, the same bytes in every process.

Source: tensorflow/core/example/{example,feature}.proto. The map of features is written in the
order of `SerializeToString(deterministic=True)` in protobuf's default Python implementation, upb.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from readers.format.schema import (
    FLOATS_IN_A_LIST,
    PICTURES,
    Feature,
    Schema,
    dtype_name,
    fits,
    format_shape,
    numpy_dtype,
)
from readers.format.tensor import little_endian, string_values, tensor_parts
from readers.format.wire import FLOAT_LIST, INT64_LIST, packed_varints, varint

Parts = list[bytes | memoryview]

# Beginnings of entries kept: recordings of a few thousand lengths; each is some 50 bytes.
_MAX_LAYOUTS = 4096

_INTEGER = Feature("int64", (), "list")


def map_order(name: str) -> bytes:
    """The sort key of a feature name in a deterministically serialized map.

    upb orders bytewise, but puts a name before its own prefixes ("a/shape" before "a"), unlike
    C++ and Python protobuf; it has done so from protobuf 4.25 to 7.34. No UTF-8 text holds 0xff.
    """
    return name.encode() + b"\xff"


class Encoder:
    """Turns the records of one schema into serialized Examples.

    Args:
        schema: The features every record must have, no more and no fewer.
        names: What features are called in the Example, where it is not their name in the schema.

    Raises:
        ValueError: A feature is one of a SequenceExample, which nothing here writes.
    """

    def __init__(self, schema: Schema, names: Mapping[str, str] | None = None) -> None:
        for name, feature in schema.items():
            if feature.step:
                raise ValueError(
                    f"feature {name!r} ({feature}): feature lists are read, not written; use the "
                    "encoding tensor, or sequence for arrays of several shapes"
                )
        self.schema = schema
        self._features = dict(schema)  # a plain dict is compared and read ten times as fast
        self._integers = {name for name, feature in schema.items() if is_integer(feature)}
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
            record: A value for every feature of the schema: an array of exactly its dtype and
                shape, or a Python number, text or list of them that it can hold; encoded bytes
                for `jpeg`, `png` and `source`; a list of arrays for `sequence`.

        Raises:
            ValueError: A feature is missing, unknown, or its value does not fit; the message
                names the feature, what it should be, and what it is.
        """
        return self.pack(self.check(record))

    def check(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """The record's values as `pack` takes them.

        An array for every feature, but bytes for one text and for a picture, an integer for one
        int64 in a list, and a list of arrays for a sequence.

        Raises:
            ValueError: As `encode`.
        """
        if record.keys() != self._features.keys():
            raise ValueError(self._wrong_names(record))
        values: dict[str, Any] = {}
        for name, feature in self._features.items():
            value = record[name]
            # What nearly every record has of each, without the ten calls of the general case.
            if type(value) is int and name in self._integers and -(2**63) <= value < 2**63:
                values[name] = value
            elif type(value) is str and feature.encoding == "text" and value.isascii():
                values[name] = value.encode()
            else:
                values[name] = checked(name, feature, value)
        return values

    def pack(self, arrays: Mapping[str, Any]) -> bytes:
        """The serialized Example of values that `check` gave."""
        message: Parts = []
        for entry in self._entries:
            message += entry.parts(arrays[entry.name])
        return b"".join((_message_head(_size(message)), *message))

    def pack_all(self, columns: Mapping[str, Sequence[Any]]) -> list[bytes]:
        """The serialized Examples of many records, column by column.

        Args:
            columns: By feature, the values of all records as `check` gives them.
        """
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
            found.append(f"has {', '.join(extra)}, which the schema does not know")
        return f"the record {' and '.join(found)}; the schema has {', '.join(self.schema)}"


class _Entry:
    """One entry of the map of features: a feature, or the companion that holds its shape.

    Most of an entry follows from the shape of the value alone, so it is built once for each shape;
    of one record there is only the content at its end. That takes a third of the time.

    Args:
        key: Of the map.
        name: Of the feature.
        companion: Whether it is the companion.
    """

    def __init__(self, key: str, name: str, feature: Feature, companion: bool = False) -> None:
        self.key, self.name = key, name
        self._feature = feature
        self._companion = companion
        self._key_field = b"\x0a" + varint(len(key.encode())) + key.encode()
        self._beginnings: dict[Any, bytes] = {}

    def parts(self, value: Any) -> Parts:
        """The pieces of the serialized entry of a checked value."""
        try:
            layout, content = self._split(value)
            if layout is None:
                return self._whole(value)
            return [self._beginnings.get(layout) or self._beginning(value), content]
        except ValueError as error:  # An element of a string array that is no text.
            raise ValueError(f"feature {self.name!r} ({self._feature}): {error}") from None

    def column(self, values: Sequence[Any]) -> list[bytes]:
        """The serialized entry of each of many checked values."""
        known, make = self._beginnings, self._beginning
        if self._feature.encoding == "text":
            return [(known.get(len(value)) or make(value)) + value for value in values]
        if is_integer(self._feature):
            return [known.get(value) or make(value) for value in values]
        return [b"".join(self.parts(value)) for value in values]

    def _beginning(self, value: Any) -> bytes:
        """What stands before the content of a value, kept for others of its layout."""
        layout, content = self._split(value)
        if len(self._beginnings) >= _MAX_LAYOUTS:
            self._beginnings.clear()
        whole = b"".join(self._whole(value))
        self._beginnings[layout] = whole[: len(whole) - len(content)]
        return self._beginnings[layout]

    def _split(self, value: Any) -> tuple[Any, bytes | memoryview]:
        """What the beginning depends on (None for everything), and the content that ends it."""
        feature = self._feature
        if feature.encoding in PICTURES:
            return len(value), value
        if feature.encoding == "sequence":
            return None, b""
        if self._companion:
            return value.shape, b""
        if feature.dtype == "string":
            if feature.encoding != "text":
                return None, b""
            return len(value), value
        if feature.encoding == "list":
            return (value if isinstance(value, int) else None), b""
        return (value.shape, _octets(value)) if value.size else (None, b"")

    def _whole(self, value: Any) -> Parts:
        if self._companion:
            packed = packed_varints(companion(self._feature, value))
            message = _list_parts(INT64_LIST, [packed])
        else:
            message = feature_parts(self._feature, value)
        body = [self._key_field, b"\x12" + varint(_size(message)), *message]
        return [b"\x0a" + varint(_size(body)), *body]


def is_integer(feature: Feature) -> bool:
    """Whether a feature is one int64 in a list, as labels are."""
    return feature == _INTEGER


def checked(name: str, feature: Feature, value: Any) -> Any:
    """The value as `Encoder.check` gives it.

    Raises:
        ValueError: It does not fit; the message names the feature, its spec and the value's.
    """
    if feature.encoding in PICTURES:
        if not isinstance(value, (bytes, bytearray, memoryview)) or not value:
            raise ValueError(
                f"feature {name!r}: expected the bytes of a {feature.encoding} picture, "
                f"got {type(value).__name__}"
            )
        return bytes(value)
    if feature.encoding == "sequence":
        part = Feature(feature.dtype, feature.shape[1:], "tensor")
        try:
            items = list(value)
        except TypeError:
            raise ValueError(
                f"feature {name!r}: expected a list of arrays, got {type(value).__name__}"
            ) from None
        parts = [_checked_array(f"{name}[{i}]", part, item) for i, item in enumerate(items)]
        if feature.shape[0] not in (None, len(parts)):
            raise ValueError(
                f"feature {name!r}: expected {feature.shape[0]} arrays, got {len(parts)}"
            )
        return parts
    array = _checked_array(name, feature, value)
    if is_integer(feature):
        return array.item()
    if feature.encoding != "text":
        return array
    try:
        (text,) = string_values(array)
        text.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"feature {name!r}: expected UTF-8 ({error})") from None
    except ValueError as error:
        raise ValueError(f"feature {name!r} ({feature}): {error}") from None
    return text


def _checked_array(name: str, feature: Feature, value: Any) -> np.ndarray:
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
    else:
        array = _from_python(name, feature, value)
    # The name of a dtype takes ten times as long as the comparison that nearly always decides.
    same = array.dtype == numpy_dtype(feature.dtype)
    found = feature.dtype if same else dtype_name(array.dtype)
    if found != feature.dtype or not fits(feature.shape, array.shape):
        raise ValueError(
            f"feature {name!r}: expected {feature.dtype} {format_shape(feature.shape)}, "
            f"got {found} {format_shape(array.shape)}"
        )
    return array


def _from_python(name: str, feature: Feature, value: Any) -> np.ndarray:
    """Python numbers, text and (nested) lists, if the dtype holds them; a float may be rounded."""
    target = numpy_dtype(feature.dtype)
    try:
        if target.kind == "O":
            return np.array(value, object)
        if type(value) is int and feature.dtype == "int64" and -(2**63) <= value < 2**63:
            return np.array(value)
        natural = np.asarray(value)
        if not natural.size:
            return np.asarray(value, target)
        if natural.dtype == target:
            return natural
        if natural.dtype.kind not in ("biufc" if target.kind == "c" else "biuf"):
            raise TypeError
        # NumPy makes floats of integers that stand on both sides of 2**63, or beside a float.
        inexact = natural.dtype.kind == "f" and target.kind in "iu"
        with np.errstate(all="ignore"):
            array = np.asarray(value, target) if inexact else natural.astype(target)
            if target.kind in "biu":
                held = np.array_equal(natural, array)
            else:
                held = np.array_equal(np.isfinite(natural), np.isfinite(array))
        if not held:
            raise OverflowError
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f"feature {name!r}: expected {feature.dtype} {format_shape(feature.shape)}, "
            f"got {str(value)[:80]!r}"
        ) from None
    return array


def companion(feature: Feature, value: Any) -> np.ndarray:
    """The int64 [n] that `<name>/shape` holds.

    The array's shape; for a sequence a row for each array, flat: the bytes of its values, then
    its dimensions.
    """
    if feature.encoding == "sequence":
        rows = [(array.nbytes, *array.shape) for array in value]
        return np.array(rows, np.int64).reshape(-1)
    return np.array(value.shape, np.int64)


def feature_parts(feature: Feature, value: Any) -> Parts:
    """The pieces of a serialized `tf.train.Feature` that holds a checked value."""
    if feature.encoding in PICTURES:
        return _bytes_list([[value]])
    if feature.encoding == "text":
        return _bytes_list([[value]])
    if feature.encoding == "tensor":
        return _bytes_list([tensor_parts(value)])
    if feature.encoding == "sequence":
        return _bytes_list([tensor_parts(array) for array in value])
    if feature.encoding == "raw":
        return _bytes_list([[_octets(value)]])
    if feature.dtype == "string":
        return _bytes_list([[item] for item in string_values(value)])
    if feature.dtype in FLOATS_IN_A_LIST:
        return _list_parts(FLOAT_LIST, [value.astype("<f4").tobytes()])
    return _list_parts(INT64_LIST, [packed_varints(np.asarray(value, np.int64).reshape(-1))])


def _octets(array: np.ndarray) -> memoryview:
    return little_endian(array).reshape(-1).view(np.uint8).data


@functools.lru_cache(maxsize=_MAX_LAYOUTS)
def _message_head(size: int) -> bytes:
    return b"\x0a" + varint(size)


def _size(parts: Parts) -> int:
    return sum(map(len, parts))


def _bytes_list(values: list[Parts]) -> Parts:
    """Each value is given in pieces, so that no large one is copied before the final join."""
    body: Parts = []
    for parts in values:
        body += (b"\x0a" + varint(_size(parts)), *parts)
    return [b"\x0a" + varint(_size(body)), *body]


def _list_parts(kind: int, packed: Parts) -> Parts:
    size = _size(packed)
    body: Parts = [b"\x0a" + varint(size), *packed] if size else []
    return [bytes([kind << 3 | 2]) + varint(_size(body)), *body]
