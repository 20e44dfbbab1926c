"""A serialized `tf.train.Example` or `SequenceExample` -> a dict of arrays, whatever its form.

Source: tensorflow/core/example/{example,feature}.proto.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Sequence
from typing import Any

import numpy as np

from readers.format.decode.fast_path import usual_lists
from readers.format.schema import (
    FLOATS_IN_A_LIST,
    PICTURES,
    Feature,
    Schema,
    fits,
    format_shape,
    numpy_dtype,
)
from readers.format.tensor import parse_tensor
from readers.format.wire import BYTES_LIST, FLOAT_LIST, INT64_LIST, fields, unpacked_varints, varint

# The kind of a feature's list, and its chunks.
RawList = tuple[int, list[memoryview]]

# The fields of a SequenceExample; an Example has the first alone.
_FEATURES, _FEATURE_LISTS = 1, 2

# The wire type of one value that is not packed.
_UNPACKED = {BYTES_LIST: 2, FLOAT_LIST: 5, INT64_LIST: 0}


def parse_example(
    data: bytes | memoryview, wanted: Container[str] | None = None
) -> dict[str, RawList]:
    """The raw lists of a serialized Example: name -> (1 bytes, 2 float, 3 int64; their chunks).

    A chunk is one bytes value, or a run of packed numbers. The context of a SequenceExample stands
    where an Example has its features.

    Args:
        wanted: The features to look into; None means all. Others are (0, []).

    Raises:
        ValueError: The bytes are not an Example.
    """
    features: dict[str, RawList] = {}
    for message in _messages(data, _FEATURES):
        for name, value in _entries(message):
            looked_into = wanted is None or name in wanted
            features[name] = _parse_feature(value) if looked_into else (0, [])
    return features


def parse_feature_lists(
    data: bytes | memoryview, wanted: Container[str]
) -> dict[str, list[RawList]]:
    """The feature lists of a serialized SequenceExample: name -> the raw list of each step.

    Args:
        wanted: Those to look into; others are left out.

    Raises:
        ValueError: The bytes are not a SequenceExample.
    """
    lists: dict[str, list[RawList]] = {}
    for message in _messages(data, _FEATURE_LISTS):
        for name, value in _entries(message):
            if name not in wanted:
                continue
            lists[name] = []
            for number, kind, step in fields(value):
                if number != 1 or kind != 2:
                    raise ValueError(f"field {number} is not one of tf.train.FeatureList")
                lists[name].append(_parse_feature(step))
    return lists


def _messages(data: bytes | memoryview, wanted: int) -> Iterator[memoryview]:
    """The messages in one of the two fields of a SequenceExample, of which an Example has one."""
    for number, kind, message in fields(memoryview(data)):
        if number not in (_FEATURES, _FEATURE_LISTS) or kind != 2:
            raise ValueError(f"field {number} is not one of tf.train.Example")
        if number == wanted:
            yield message


def _entries(message: memoryview) -> Iterator[tuple[str, memoryview]]:
    """The names and messages of a map of features, or of feature lists."""
    for number, kind, entry in fields(message):
        if number != 1 or kind != 2:
            raise ValueError(f"field {number} is not one of tf.train.Features")
        name, value = "", memoryview(b"")
        for part, part_kind, content in fields(entry):
            if part_kind != 2 or part not in (1, 2):
                raise ValueError("an entry of tf.train.Features is neither key nor value")
            if part == 1:
                name = str(content, "utf-8")
            else:
                value = content
        yield name, value


def _parse_feature(message: memoryview) -> RawList:
    kind = 0
    chunks: list[memoryview] = []
    for number, wire, content in fields(message):
        if wire != 2 or number not in (BYTES_LIST, FLOAT_LIST, INT64_LIST):
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
    """Turns serialized Examples or SequenceExamples into dicts of arrays, by a schema.

    Args:
        schema: The features to return; others in the Example are passed over.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._steps = {name: feature.step for name, feature in schema.items() if feature.step}
        companions = [f"{name}/shape" for name, f in schema.items() if f.needs_companion]
        names = [name for name in schema if name not in self._steps]
        self._wanted = {name.encode(): name for name in [*names, *companions]}

    def decode(self, data: bytes | memoryview) -> dict[str, Any]:
        """The record of one serialized Example.

        Returns:
            An array for every feature (strings as an object array of bytes, 0-d for one value),
            the encoded bytes of a picture, or of the picture of each step in a list, or the list
            of arrays of a sequence.

        Raises:
            ValueError: Not an Example, a feature is missing that is no list of any length, or one
                does not fit the schema; the message names the feature, what it should be, and what
                it is.
        """
        found = usual_lists(memoryview(data), self._wanted)
        if found is None:
            found = parse_example(data, set(self._wanted.values()))
        lists = parse_feature_lists(data, self._steps) if self._steps else {}
        record = {}
        for name, feature in self._schema.items():
            if name in self._steps:
                record[name] = _named_steps(name, feature, self._steps[name], lists.get(name, []))
                continue
            kind, chunks = found.get(name, (0, []))
            # As TensorFlow has it: many writers leave out what has no values.
            if not kind and not _may_be_missing(feature):
                raise ValueError(f"feature {name!r} is missing: the Example has {', '.join(found)}")
            try:
                shape = _companion(found, name) if feature.needs_companion else []
                record[name] = _decode(feature, kind, chunks, shape)
            except ValueError as error:
                raise ValueError(f"feature {name!r} ({feature}): {error}") from None
        return record


def _named_steps(name: str, feature: Feature, step: Feature, lists: Sequence[RawList]) -> Any:
    """The value of a feature list: of arrays of one shape one array, else a list of them."""
    if feature.shape[0] not in (None, len(lists)):
        raise ValueError(
            f"feature {name!r} ({feature}): expected {feature.shape[0]} steps, found {len(lists)}"
        )
    values = []
    for number, (kind, chunks) in enumerate(lists):
        try:
            values.append(_decode(step, kind, chunks, []))
        except ValueError as error:
            raise ValueError(f"feature {name!r} ({feature}): step {number}: {error}") from None
    return values if feature.is_picture else stacked(feature, values)


def stacked(feature: Feature, steps: list[np.ndarray]) -> np.ndarray | list[np.ndarray]:
    """The arrays of the steps of a feature list in one, [steps, ...], if all have the same shape."""
    if feature.is_sequence:
        return steps
    if steps:
        return np.stack(steps)
    return np.empty(
        (0, *(d for d in feature.shape[1:] if d is not None)), numpy_dtype(feature.dtype)
    )


def _may_be_missing(feature: Feature) -> bool:
    """Whether a missing feature is an empty one: a list of any number of values or arrays."""
    return feature.encoding in ("list", "sequence") and not feature.is_fixed


def _companion(found: dict[str, tuple[int, list[memoryview]]], name: str) -> list[memoryview]:
    kind, shape = found.get(f"{name}/shape", (0, []))
    if kind not in (0, INT64_LIST):
        raise ValueError(f"{name}/shape is not a list of integers")
    return shape


def _decode(feature: Feature, kind: int, chunks: list[memoryview], shape: list[memoryview]) -> Any:
    if feature.encoding == "list":
        return _reshape(feature, _list_values(feature, kind, chunks), shape)
    if kind not in (0, BYTES_LIST):
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
        BYTES_LIST
        if feature.dtype == "string"
        else FLOAT_LIST
        if feature.dtype in FLOATS_IN_A_LIST
        else INT64_LIST
    )
    if kind not in (0, expected):
        names = {BYTES_LIST: "bytes", FLOAT_LIST: "floats", INT64_LIST: "integers"}
        raise ValueError(f"the Example holds a list of {names[kind]}, not of {names[expected]}")
    if expected == BYTES_LIST:
        values = np.empty(len(chunks), object)
        values[:] = [bytes(chunk) for chunk in chunks]
        return values
    packed = chunks[0] if len(chunks) == 1 else b"".join(chunks)
    if expected == INT64_LIST:
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
        if len(shape) != len(feature.shape):  # The product of very many takes very long.
            raise ValueError(
                f"<name>/shape has {len(shape)} dimensions, expected {len(feature.shape)}"
            )
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
