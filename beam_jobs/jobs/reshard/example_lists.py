"""The lists of all features of one Example or SequenceExample, whatever its form."""

from __future__ import annotations

from typing import NamedTuple

from readers.format.decode.records import RawList, parse_example, parse_feature_lists
from readers.format.protobuf.wire import BYTES_LIST, FLOAT_LIST, INT64_LIST, unpacked_varints


class ValueList(NamedTuple):
    """The values of a feature, or of a step of a feature list, in one record.

    Attributes:
        kind: BYTES_LIST, FLOAT_LIST or INT64_LIST; 0 for none of them.
        size: The number of values.
        values: The byte strings; empty for numbers.
        numbers: The integers; empty for others.
    """

    kind: int
    size: int
    values: list[memoryview]
    numbers: list[int]


class _AllNames:
    """Contains every name."""

    def __contains__(self, name: object) -> bool:
        return True


def lists_of(record: memoryview) -> tuple[dict[str, ValueList], dict[str, list[ValueList]]]:
    """The features of a serialized record, and the steps of its feature lists, both by name.

    Raises:
        ValueError: The bytes are neither an Example nor a SequenceExample.
    """
    features = {name: _values(raw) for name, raw in parse_example(record).items()}
    steps = parse_feature_lists(record, _AllNames()).items()
    return features, {name: list(map(_values, every)) for name, every in steps}


def _values(raw: RawList) -> ValueList:
    kind, chunks = raw
    if kind == BYTES_LIST:
        return ValueList(kind, len(chunks), chunks, [])
    packed = b"".join(chunks)
    if kind == INT64_LIST:
        numbers = unpacked_varints(packed).tolist()
        return ValueList(kind, len(numbers), [], numbers)
    if kind == FLOAT_LIST and len(packed) % 4:
        raise ValueError("the floats are cut off")
    return ValueList(kind, len(packed) // 4, [], [])
