"""Structs of Thrift's compact protocol, which Parquet files describe themselves with.

https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

# Types of values. 0 ends a struct. Parquet uses no maps.
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET = range(1, 11)
_STRUCT = 12
_VARINTS = (_I16, _I32, _I64)

_MOST_LEVELS = 32


class Structs:
    """Reads structs and values, one after another.

    All functions raise IndexError if the bytes end before a value does, and ValueError if they hold none.

    Args:
        data: The bytes.

    Attributes:
        at: Where the next value begins.
    """

    def __init__(self, data: bytes | memoryview) -> None:
        self._data, self.at = data, 0

    def struct(self, wanted: Mapping[int, Field], levels: int = _MOST_LEVELS) -> dict[int, Any]:
        """Some fields of a struct by number; those that are missing or of another type are left out."""
        # Most fields are skipped: numbers and texts here, without calls, in a third of the time.
        found, number = {}, 0
        data, at = self._data, self.at
        while head := data[at]:
            at += 1
            kind = head & 15
            if head >> 4:
                number += head >> 4
            else:
                self.at = at
                number = self.integer()
                at = self.at
            field = wanted.get(number)
            if field and field[0] == kind:
                self.at = at
                found[number] = field[1](self)
                at = self.at
            elif kind in _VARINTS:
                while data[at] > 127:
                    at += 1
                at += 1
            elif kind == _BINARY and data[at] < 128:
                at += 1 + data[at]
            else:
                self.at = at
                self._skip(kind, levels)
                at = self.at
        self.at = at + 1
        return found

    def integer(self) -> int:
        """A signed number of any size: 0, -1, 1, -2, ..."""
        value = self._varint()
        return value >> 1 ^ -(value & 1)

    def text(self) -> str:
        size = self._varint()
        self._pass(size)
        return str(self._data[self.at - size : self.at], "utf-8", "replace")

    def items(self, kind: int, read: Callable[[Structs], Any]) -> list[Any]:
        """The items of a list; of another type than `kind`, none."""
        found, (size, stated) = [], self._list_head()
        for _ in range(size):
            if stated == kind:
                found.append(read(self))
            else:
                self._skip_item(stated, _MOST_LEVELS)
        return found

    def _byte(self) -> int:
        found = self._data[self.at]
        self.at += 1
        return found

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("a number of more than 64 bits")

    def _pass(self, size: int) -> None:
        self.at += size
        if self.at > len(self._data):
            raise IndexError(self.at)

    def _list_head(self) -> tuple[int, int]:
        head = self._byte()
        return (head >> 4 if head >> 4 < 15 else self._varint()), head & 15

    def _skip(self, kind: int, levels: int) -> None:
        """Skips the value of a field."""
        if not levels:
            raise ValueError("too many levels")
        if kind in _VARINTS:
            self._varint()
        elif kind == _BYTE:
            self._pass(1)
        elif kind == _DOUBLE:
            self._pass(8)
        elif kind == _BINARY:
            self._pass(self._varint())
        elif kind == _STRUCT:
            self.struct({}, levels - 1)
        elif kind in (_LIST, _SET):
            size, stated = self._list_head()
            for _ in range(size):
                self._skip_item(stated, levels - 1)
        elif kind not in (_TRUE, _FALSE):
            raise ValueError(f"a value of type {kind}")

    def _skip_item(self, kind: int, levels: int) -> None:
        # A boolean has a byte of its own in a list; as a field, it is in the type.
        self._skip(_BYTE if kind in (_TRUE, _FALSE) else kind, levels)


# The type of a field, and what reads it.
Field = tuple[int, Callable[[Structs], Any]]

I32: Field = (_I32, Structs.integer)
I64: Field = (_I64, Structs.integer)

# Lists of texts, and of numbers of 32 bits.
TEXTS: Field = (_LIST, lambda structs: structs.items(_BINARY, Structs.text))
NUMBERS: Field = (_LIST, lambda structs: structs.items(_I32, Structs.integer))


def a_struct(wanted: Mapping[int, Field]) -> Field:
    """A field with a struct, of which some fields are read."""
    return _STRUCT, lambda structs: structs.struct(wanted)


def several(wanted: Mapping[int, Field]) -> Field:
    """A field with a list of structs."""
    return _LIST, lambda structs: structs.items(_STRUCT, lambda inner: inner.struct(wanted))
