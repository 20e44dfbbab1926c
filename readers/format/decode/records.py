"""Decodes single records: a serialized `tf.train.Example` or `SequenceExample` to arrays.

It accepts every valid serialized form, and its result defines the result of the faster paths.

Source: tensorflow/core/example/{example,feature}.proto.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from readers.format.dtypes import numpy_dtype
from readers.format.protobuf.fast_path import fast_lists
from readers.format.protobuf.wire import (
    BYTES_LIST,
    FLOAT_LIST,
    INT64_LIST,
    fields,
    unpacked_varints,
    varint,
)
from readers.format.schema import Feature, Schema

# The kind of a feature's list (1 bytes, 2 float, 3 int64; 0 for none), and its chunks. A chunk is
# one bytes value or a run of packed numbers.
RawList = tuple[int, list[memoryview]]

# The fields of a SequenceExample. An Example has only the first.
_FEATURES, _FEATURE_LISTS = 1, 2

# The wire type of a single value that is not packed, for each kind of list.
_UNPACKED = {BYTES_LIST: 2, FLOAT_LIST: 5, INT64_LIST: 0}


def parse_example(
    data: bytes | memoryview, wanted: Container[str] | None = None
) -> dict[str, RawList]:
    """Parses the raw lists of a serialized Example, by feature name; ValueError if the bytes are not an Example.

    For a SequenceExample, these are the features of its context. Features not in `wanted` are (0, []); None wants all.
    """
    features: dict[str, RawList] = {}
    for message in _messages(data, _FEATURES):
        for name, values in _entries(message):
            if name in features:
                _check_replaced(*features[name])
            is_wanted = wanted is None or name in wanted
            features[name] = _parse_feature(*values) if is_wanted else (0, [])
    return features


def parse_feature_lists(
    data: bytes | memoryview, wanted: Container[str] | None = None
) -> dict[str, list[RawList]]:
    """Parses the raw list of each step of each feature list of a serialized SequenceExample; ValueError if it is not one.

    Feature lists that are not in `wanted` are left out; None wants all.
    """
    lists: dict[str, list[RawList]] = {}
    for message in _messages(data, _FEATURE_LISTS):
        for name, values in _entries(message):
            if wanted is not None and name not in wanted:
                continue
            for replaced in lists.get(name, ()):
                _check_replaced(*replaced)
            lists[name] = []
            for number, kind, step in itertools.chain.from_iterable(map(fields, values)):
                if number != 1 or kind != 2:
                    raise ValueError(f"field {number} is not one of tf.train.FeatureList")
                lists[name].append(_parse_feature(step))
    return lists


def _messages(data: bytes | memoryview, wanted: int) -> Iterator[memoryview]:
    """The messages in one field of an Example or SequenceExample."""
    for number, kind, message in fields(memoryview(data)):
        if number not in (_FEATURES, _FEATURE_LISTS) or kind != 2:
            raise ValueError(f"field {number} is not one of tf.train.Example")
        if number == wanted:
            yield message


def _entries(message: memoryview) -> Iterator[tuple[str, list[memoryview]]]:
    """The (name, messages) of each entry in a map of features or of feature lists.

    An entry has one message, but protobuf merges several.
    """
    for number, kind, entry in fields(message):
        if number != 1 or kind != 2:
            raise ValueError(f"field {number} is not one of tf.train.Features")
        name = ""
        values: list[memoryview] = []
        for part, part_kind, content in fields(entry):
            if part_kind != 2 or part not in (1, 2):
                raise ValueError("an entry of tf.train.Features is neither key nor value")
            if part == 1:
                name = str(content, "utf-8")
            else:
                values.append(content)
        yield name, values


def _parse_feature(*messages: memoryview) -> RawList:
    kind = 0
    chunks: list[memoryview] = []
    for number, wire, content in itertools.chain.from_iterable(map(fields, messages)):
        if wire != 2 or number not in (BYTES_LIST, FLOAT_LIST, INT64_LIST):
            raise ValueError(f"field {number} is not one of tf.train.Feature")
        if number != kind:  # A oneof: a list of the same kind continues, another kind replaces it.
            _check_replaced(kind, chunks)
            kind, chunks = number, []
        for item, item_wire, value in fields(content):
            if item != 1 or item_wire not in (2, _UNPACKED[kind]):
                raise ValueError(f"field {item} is not one of a tf.train list")
            # Proto2-style writers do not pack numbers: each value is a separate field.
            chunks.append(memoryview(varint(value)) if item_wire == 0 else value)
    if len(chunks) > 1:  # Joined, incomplete chunks could look whole.
        _check_whole(kind, chunks)
    return kind, chunks


def _check_replaced(kind: int, chunks: Sequence[memoryview]) -> None:
    """Checks a list that another one replaces, because protobuf parses it, too; ValueError if a number is wrong."""
    _check_whole(kind, chunks)
    if kind == INT64_LIST:
        unpacked_varints(b"".join(chunks))


def _check_whole(kind: int, chunks: Sequence[memoryview]) -> None:
    """Checks each chunk of a list separately, as protobuf does; ValueError if a number is cut off."""
    for chunk in chunks:
        if kind == FLOAT_LIST and len(chunk) % 4:
            raise ValueError("the floats are cut off")
        if kind == INT64_LIST and len(chunk) and chunk[-1] > 127:
            raise ValueError("a varint is cut off")


class Decoder:
    """Decodes serialized Examples or SequenceExamples into dicts of arrays.

    Args:
        schema: The features to return. Other features of the Example are ignored.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._steps = {name: feature.step for name, feature in schema.items() if feature.step}
        companions = [f"{name}/shape" for name, f in schema.items() if f.needs_companion]
        names = [name for name in schema if name not in self._steps]
        self._wanted = {name.encode(): name for name in [*names, *companions]}

    def decode(self, data: bytes | memoryview) -> dict[str, Any]:
        """Decodes one serialized Example.

        Returns:
            For each feature its array (strings are bytes in an object array, 0-d for a single one);
            for an image its encoded bytes, or those of each step in a list; for a sequence a list
            of arrays.

        Raises:
            ValueError: The bytes are not an Example, a feature does not fit the schema, or one is
                missing (only lists of variable length may be); the message names the feature, what
                was expected and what was found.
        """
        found = fast_lists(memoryview(data), self._wanted)
        if found is None:
            found = parse_example(data, set(self._wanted.values()))
        lists = parse_feature_lists(data, self._steps) if self._steps else {}
        record = {}
        for name, feature in self._schema.items():
            if name in self._steps:
                record[name] = _decode_steps(name, feature, self._steps[name], lists.get(name, []))
                continue
            kind, chunks = found.get(name, (0, []))
            # As in TensorFlow: many writers leave out features without values.
            if not kind and (feature.is_fixed or not feature.codec.may_be_missing):
                raise ValueError(f"feature {name!r} is missing: the Example has {', '.join(found)}")
            try:
                shape = _companion(found, name) if feature.needs_companion else []
                record[name] = feature.codec.value(feature, kind, chunks, shape)
            except ValueError as error:
                raise ValueError(f"feature {name!r} ({feature}): {error}") from None
        return record


def _decode_steps(name: str, feature: Feature, step: Feature, lists: Sequence[RawList]) -> Any:
    """The value of a feature list: one array if all steps have the same shape, otherwise a list."""
    if feature.shape[0] not in (None, len(lists)):
        raise ValueError(
            f"feature {name!r} ({feature}): expected {feature.shape[0]} steps, found {len(lists)}"
        )
    values = []
    for number, (kind, chunks) in enumerate(lists):
        try:
            values.append(step.codec.value(step, kind, chunks, []))
        except ValueError as error:
            raise ValueError(f"feature {name!r} ({feature}): step {number}: {error}") from None
    return values if feature.is_image else stacked_steps(feature, values)


def stacked_steps(feature: Feature, steps: list[np.ndarray]) -> np.ndarray | list[np.ndarray]:
    """Stacks the arrays of a feature list, [steps, ...], if its schema fixes their shape."""
    if feature.is_sequence:
        return steps
    if steps:
        return np.stack(steps)
    assert feature.step is not None
    return np.empty((0, *feature.step.known_sizes), numpy_dtype(feature.dtype))


def _companion(found: dict[str, RawList], name: str) -> list[memoryview]:
    """The chunks of the list `<name>/shape`; empty if the Example lacks it."""
    kind, shape = found.get(f"{name}/shape", (0, []))
    if kind not in (0, INT64_LIST):
        raise ValueError(f"{name}/shape is not a list of integers")
    return shape


def owned(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record whose values are copies, in the forms that `owned_value` returns."""
    return {name: owned_value(value) for name, value in record.items()}


def owned_value(value: Any) -> Any:
    """A value of a record as users get it, sharing no memory with others.

    A number of shape [] is a NumPy scalar; a string of shape [] and an encoded image are `bytes`; other
    strings, several images, and the arrays of a sequence are in a list. Any other value is a writable array.
    """
    if isinstance(value, list):
        return [owned_value(each) for each in value]
    if isinstance(value, (bytes, np.generic)):
        return value
    if isinstance(value, memoryview):
        return bytes(value)
    if value.dtype.hasobject:
        return value.tolist()
    if not value.ndim:
        return value[()]
    return value if value.flags.writeable and _keeps_little(value) else np.array(value)


def _keeps_little(array: np.ndarray) -> bool:
    """Whether an array keeps at most a few times its own memory alive, and nothing else writes to it."""
    base = array.base
    if not isinstance(base, np.ndarray):
        return base is None
    return base.base is None and base.nbytes <= 4 * array.nbytes
