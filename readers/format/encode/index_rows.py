"""Rows of an index: the numbers of a record in the index of its shard, which are passed along with the record."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from readers.format.index import numbers_of
from readers.format.schema import Feature

# The dtype codes of NumPy and of `struct`.
_CODES = {"b1": "?", "i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "i8": "q"}
_CODES |= {"u8": "Q", "f2": "e", "f4": "f", "f8": "d"}


class IndexRows:
    """Packs the numbers of a record that go into an index into a row of `size` bytes."""

    def __init__(self, schema: Mapping[str, Feature]) -> None:
        sections = numbers_of(schema)
        self._dtype = np.dtype(list(sections.items()))
        self.size = self._dtype.itemsize
        self._struct = struct.Struct("<" + "".join(_CODES[d.str[1:]] for d in sections.values()))
        names = [section.split("/", 1)[1] for section in sections]
        self._features = [(name, _number_of(schema[name])) for name in names]

    def pack(self, record: Mapping[str, Any]) -> bytes:
        """The row of a record, given the values that `Encoder.check` returns."""
        return self._struct.pack(*(number(record[name]) for name, number in self._features))

    def pack_all(self, columns: Mapping[str, Sequence[Any]], count: int) -> list[bytes]:
        """The rows of several records, given n values of each feature."""
        if not self._features:
            return [b""] * count
        columns_of = [map(number, columns[name]) for name, number in self._features]
        return list(map(self._struct.pack, *columns_of))

    def unpack(self, rows: bytes, names: Mapping[str, str]) -> dict[str, np.ndarray]:
        """Converts concatenated rows to sections; `names` is feature -> its other name in the dataset."""
        sections: dict[str, np.ndarray] = {}
        if not self.size:
            return sections
        found = np.frombuffer(rows, self._dtype)
        for section in self._dtype.names or ():
            kind, name = section.split("/", 1)
            sections[f"{kind}/{names.get(name, name)}"] = found[section]
        return sections


def _number_of(feature: Feature) -> Any:
    """A function from a feature's value to its number in the index."""
    if not feature.shape:
        return lambda value: value
    if feature.is_sequence:
        return len
    axis = feature.first_unknown
    return lambda value: value.shape[axis]
