"""A dict of arrays <-> a serialized `tf.train.Example`, the same bytes in every process.

Source: tensorflow/core/example/{example,feature}.proto. The map of features is written in the
order of `SerializeToString(deterministic=True)` in protobuf's default Python implementation, upb.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from readers.format.schema import (
    FLOATS_IN_A_LIST,
    PICTURES,
    Feature,
    Schema,
    dtype_name,
    format_shape,
    numpy_dtype,
)
from readers.format.tensor import little_endian, parse_tensor, string_values, tensor_parts
from readers.format.wire import fields, packed_varints, unpacked_varints, varint

Parts = list[bytes | memoryview]

_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 1, 2, 3

# Beginnings of entries kept: recordings of a few thousand lengths; each is some 50 bytes.
_MAX_LAYOUTS = 4096

_INTEGER = Feature("int64", (), "list")

# The wire type of one value that is not packed.
_UNPACKED = {_BYTES_LIST: 2, _FLOAT_LIST: 5, _INT64_LIST: 0}


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
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._features = dict(schema)  # a plain dict is compared and read ten times as fast
        self._integers = {name for name, feature in schema.items() if is_integer(feature)}
        entries = [_Entry(name, name, feature) for name, feature in schema.items()]
        entries += [_Entry(f"{n}/shape", n, f) for n, f in schema.items() if f.has_companion]
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
    """

    def __init__(self, key: str, name: str, feature: Feature) -> None:
        self.key, self.name = key, name
        self._feature = feature
        self._companion = key != name
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
            message = _list_parts(_INT64_LIST, [packed])
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


def fits(expected: tuple[int | None, ...], found: tuple[int, ...]) -> bool:
    """Whether a shape has the expected rank and every known dimension."""
    return expected == found or (
        len(expected) == len(found)
        and all(e is None or e == f for e, f in zip(expected, found, strict=True))
    )


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
        return _list_parts(_FLOAT_LIST, [value.astype("<f4").tobytes()])
    return _list_parts(_INT64_LIST, [packed_varints(np.asarray(value, np.int64).reshape(-1))])


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


def parse_example(data: bytes | memoryview) -> dict[str, tuple[int, list[memoryview]]]:
    """The raw lists of a serialized Example: name -> (1 bytes, 2 float, 3 int64; their chunks).

    A chunk is one bytes value, or a run of packed numbers.

    Raises:
        ValueError: The bytes are not an Example.
    """
    features: dict[str, tuple[int, list[memoryview]]] = {}
    for number, kind, message in fields(memoryview(data)):
        if number != 1 or kind != 2:
            raise ValueError(f"field {number} is not one of tf.train.Example")
        for entry_number, entry_kind, entry in fields(message):
            if entry_number != 1 or entry_kind != 2:
                raise ValueError(f"field {entry_number} is not one of tf.train.Features")
            name, value = "", memoryview(b"")
            for part, part_kind, content in fields(entry):
                if part_kind != 2 or part not in (1, 2):
                    raise ValueError("an entry of tf.train.Features is neither key nor value")
                if part == 1:
                    name = str(content, "utf-8")
                else:
                    value = content
            features[name] = _parse_feature(value)
    return features


def _parse_feature(message: memoryview) -> tuple[int, list[memoryview]]:
    kind = 0
    chunks: list[memoryview] = []
    for number, wire, content in fields(message):
        if wire != 2 or number not in (_BYTES_LIST, _FLOAT_LIST, _INT64_LIST):
            raise ValueError(f"field {number} is not one of tf.train.Feature")
        if number != kind:  # A oneof: the same list again continues it, another replaces it.
            kind, chunks = number, []
        for item, item_wire, value in fields(content):
            if item != 1 or item_wire not in (2, _UNPACKED[kind]):
                raise ValueError(f"field {item} is not one of a tf.train list")
            # Proto2-style writers do not pack: one value a field.
            chunks.append(memoryview(varint(value)) if item_wire == 0 else value)
    return kind, chunks


class Decoder:
    """Turns serialized Examples into dicts of arrays, by a schema.

    Args:
        schema: The features to return; others in the Example are passed over.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def decode(self, data: bytes | memoryview) -> dict[str, Any]:
        """The record of one serialized Example.

        Returns:
            An array for every feature (strings as an object array of bytes, 0-d for one value),
            the encoded bytes of a picture, or the list of arrays of a sequence.

        Raises:
            ValueError: Not an Example, a feature is missing, or one does not fit the schema; the
                message names the feature, what it should be, and what it is.
        """
        found = parse_example(data)
        record = {}
        for name, feature in self._schema.items():
            if name not in found or not found[name][0]:
                raise ValueError(f"feature {name!r} is missing: the Example has {', '.join(found)}")
            kind, shape = found.get(f"{name}/shape", (0, []))
            try:
                if kind not in (0, _INT64_LIST):
                    raise ValueError(f"{name}/shape is not a list of integers")
                record[name] = _decode(feature, *found[name], shape)
            except ValueError as error:
                raise ValueError(f"feature {name!r} ({feature}): {error}") from None
        return record


def _decode(feature: Feature, kind: int, chunks: list[memoryview], shape: list[memoryview]) -> Any:
    if feature.encoding == "list":
        return _reshape(feature, _list_values(feature, kind, chunks), shape)
    if kind != _BYTES_LIST:
        raise ValueError("the Example holds numbers where bytes are expected")
    if feature.encoding == "sequence":
        if feature.shape[0] not in (None, len(chunks)):
            raise ValueError(f"expected {feature.shape[0]} arrays, found {len(chunks)}")
        part = Feature(feature.dtype, feature.shape[1:], "tensor")
        return [_fitting(part, parse_tensor(chunk, feature.dtype)) for chunk in chunks]
    if len(chunks) != 1:
        raise ValueError(f"expected one bytes value, found {len(chunks)}")
    if feature.encoding in PICTURES:
        return bytes(chunks[0])
    if feature.encoding == "text":
        return np.array(bytes(chunks[0]), object)
    if feature.encoding == "tensor":
        return _fitting(feature, parse_tensor(chunks[0], feature.dtype))
    target = numpy_dtype(feature.dtype)
    if len(chunks[0]) % target.itemsize:
        raise ValueError(f"{len(chunks[0])} bytes are not a whole number of {feature.dtype} values")
    return _reshape(feature, np.frombuffer(chunks[0], target), shape)


def _list_values(feature: Feature, kind: int, chunks: list[memoryview]) -> np.ndarray:
    expected = (
        _BYTES_LIST
        if feature.dtype == "string"
        else _FLOAT_LIST
        if feature.dtype in FLOATS_IN_A_LIST
        else _INT64_LIST
    )
    if kind != expected:
        names = {_BYTES_LIST: "bytes", _FLOAT_LIST: "floats", _INT64_LIST: "integers"}
        raise ValueError(f"the Example holds a list of {names[kind]}, not of {names[expected]}")
    if kind == _BYTES_LIST:
        values = np.empty(len(chunks), object)
        values[:] = [bytes(chunk) for chunk in chunks]
        return values
    packed = chunks[0] if len(chunks) == 1 else b"".join(chunks)
    if kind == _INT64_LIST:
        numbers = unpacked_varints(packed)
        values = numbers.astype(numpy_dtype(feature.dtype), copy=False)
        if values is not numbers and not np.array_equal(values, numbers):
            wrong = numbers[values != numbers][0]
            raise ValueError(f"the Example holds {wrong}, which is no {feature.dtype}")
        return values
    if len(packed) % 4:
        raise ValueError("the floats are cut off")
    return np.frombuffer(packed, "<f4").astype(numpy_dtype(feature.dtype), copy=False)


def _reshape(
    feature: Feature, values: np.ndarray, companion_chunks: list[memoryview]
) -> np.ndarray:
    """Gives flat values their shape: the schema's, the companion's, or the only one possible."""
    if feature.is_fixed:
        shape = [d for d in feature.shape if d is not None]
    elif companion_chunks:
        shape = unpacked_varints(b"".join(companion_chunks)).tolist()
    else:
        shape = inferred_shape(feature, values.size)
    if math.prod(shape) != values.size or any(d < 0 for d in shape):
        raise ValueError(f"{values.size} values do not fill shape {format_shape(tuple(shape))}")
    return _fitting(feature, values.reshape(shape))


def inferred_shape(feature: Feature, size: int) -> list[int]:
    """The shape of `size` values whose feature has one unknown dimension and no companion.

    Raises:
        ValueError: More than one dimension is unknown, or the known ones do not divide the size.
    """
    known = math.prod(d for d in feature.shape if d is not None)
    if sum(d is None for d in feature.shape) > 1:
        raise ValueError("several unknown dimensions need the companion list <name>/shape")
    if known == 0 or size % known:
        raise ValueError(f"{size} values do not fill shape {format_shape(feature.shape)}")
    return [size // known if d is None else d for d in feature.shape]


def _fitting(feature: Feature, array: np.ndarray) -> np.ndarray:
    if not fits(feature.shape, array.shape):
        raise ValueError(
            f"expected {format_shape(feature.shape)}, found {format_shape(array.shape)}"
        )
    return array
