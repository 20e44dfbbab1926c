"""The features of a schema as the kernel sees them: the form each is stored in, and its arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from readers.format.compiled.library import INTEGERS, SHAPE, SKIPPED, address
from readers.format.decode.column import RowFormat
from readers.format.encodings.encoding import Stored
from readers.format.protobuf.wire import INT64_LIST, varint
from readers.format.schema import Feature

_MOST_DIMS = 8

# More than any record holds; larger limits make no difference.
_MOST_LENGTH = 1 << 62

_NAMES = (
    *("key", "key_bytes", "header", "header_bytes", "form", "tag", "itemsize", "width"),
    *("is_signed", "is_bool", "is_text", "expected", "rank", "dims", "shape_field"),
    "inner",
    *("at", "nbytes", "count", "sizes", "limit", "pads", "lengths", "lengths_n"),
    *("out", "out_at", "out_end", "pieces", "padding"),
)

# `Field` of `kernel.c`, which documents its members.
FIELD = np.dtype(
    [
        (name, *{"dims": ("i8", _MOST_DIMS), "padding": ("u1", 16)}.get(name, ("i8",)))
        for name in _NAMES
    ]
)


def stored_features(schema: Mapping[str, Feature]) -> dict[str, Stored]:
    """How the features that the kernel can read are stored."""
    found = {}
    for name, feature in schema.items():
        stored = feature.codec.stored(feature)
        if stored and len(feature.shape) <= _MOST_DIMS and f"{name}/shape" not in schema:
            found[name] = stored
    return found


class FieldTable:
    """The fields of records whose features have the same order, for any number of records.

    Attributes:
        places: The name of each decoded feature -> its number in the table. Features that the records lack, and
            features whose shape the records do not determine, are left out.
        is_fixed: Whether all of them have a fixed size.
    """

    def __init__(
        self,
        order: Sequence[str],
        stored: Mapping[str, Stored],
        rows: Mapping[str, RowFormat],
    ) -> None:
        self.order = tuple(order)
        self.places = {
            name: place
            for place, name in enumerate(order)
            if name in stored and self._has_shape(name, stored[name])
        }
        self.is_fixed = all(stored[name].is_fixed for name in self.places)
        self._template = np.zeros(len(order), FIELD)
        self._held = list[np.ndarray]()  # The kernel has only their addresses.
        self._shapes = list[int]()
        self._template["form"] = SKIPPED
        for name, field in zip(order, self._template, strict=True):
            key = name.encode()
            self._set(field, "key", b"\x0a" + varint(len(key)) + key + b"\x12")
        for name, place in self.places.items():
            self._describe(self._template[place], stored[name], rows[name])
            if not stored[name].is_fixed and stored[name].shape is not None:
                self._describe_shape(self._template[place], f"{name}/shape", stored[name])

    def _has_shape(self, name: str, stored: Stored) -> bool:
        """Whether the records determine the shape of a feature."""
        shape = stored.shape or ()
        is_known = stored.is_fixed or (shape.count(None) < 2 and 0 not in shape)
        return is_known or not stored.may_store_shape or f"{name}/shape" in self.order

    def _set(self, field: Any, member: str, octets: bytes) -> None:
        self._held.append(np.frombuffer(octets + b"\0", np.uint8))
        field[member], field[f"{member}_bytes"] = address(self._held[-1]), len(octets)

    def _describe(self, field: Any, stored: Stored, rows: RowFormat) -> None:
        self._set(field, "header", stored.header)
        kind, itemsize, shape = stored.dtype.kind, stored.dtype.itemsize, stored.shape or ()
        width = 1 if stored.form == INTEGERS else itemsize
        inner = math.prod(size for size in shape[1:] if size is not None)
        for member, value in (
            ("form", stored.form),
            ("tag", stored.kind << 3 | 2),
            ("itemsize", itemsize),
            ("width", width),
            ("is_signed", kind == "i"),
            ("is_bool", kind == "b"),
            ("is_text", stored.shape is None),
            ("expected", math.prod(stored.shape) * width if stored.is_fixed else -1),  # type: ignore[arg-type]
            ("inner", inner),
            ("limit", -1 if rows.limit is None else min(rows.limit, _MOST_LENGTH)),
            ("pads", bool(rows.padding)),
        ):
            field[member] = value
        field["dims"][: len(shape)] = [-1 if size is None else size for size in shape]
        if rows.padding:
            self._held.append(np.array([min(size, _MOST_LENGTH) for size in rows.sizes], np.int64))
            field["lengths"], field["lengths_n"] = address(self._held[-1]), len(rows.sizes)
            octets = rows.padding * (16 // len(rows.padding))
            field["padding"] = np.frombuffer(octets, np.uint8)

    def _describe_shape(self, field: Any, companion: str, stored: Stored) -> None:
        """Sets where the shape of a feature is stored."""
        shape = stored.shape or ()
        field["rank"], field["shape_field"] = len(shape), -1
        if stored.may_store_shape and companion in self.order:
            place = self.order.index(companion)
            of_shape = self._template[place]
            of_shape["form"], of_shape["tag"] = SHAPE, INT64_LIST << 3 | 2
            of_shape["width"], of_shape["expected"] = 1, len(shape)
            field["shape_field"] = place
            self._shapes.append(place)

    def of(self, records: int, batches: int) -> Fields:
        """The fields of `records` records in `batches` batches, with arrays for the results of the kernel."""
        memory = self._template.view(np.uint8).reshape(-1, FIELD.itemsize).copy()
        table, chosen = memory.view(FIELD)[:, 0], [*self.places.values(), *self._shapes]
        decoded = len(chosen)
        numbers = np.empty((decoded, 5, records), np.int64)
        pieces = np.empty((decoded, batches, 3), np.int64)
        shapes = {
            name: np.empty((records, int(table["rank"][place])), np.int64)
            for name, place in self.places.items()
            if table["rank"][place]
        }
        begins = address(numbers) + 8 * records * np.arange(5 * decoded).reshape(decoded, 5)
        for column, member in enumerate(("at", "nbytes", "count", "out_at", "out_end")):
            table[member][chosen] = begins[:, column]
        table["pieces"][chosen] = address(pieces) + 24 * batches * np.arange(decoded)
        for name, array in shapes.items():
            table["sizes"][self.places[name]] = address(array)
        # Companions come after these.
        of_name = dict(zip(self.places, numbers, strict=False))
        pieces_of_name = dict(zip(self.places, pieces, strict=False))
        return Fields(memory, table, self.places, of_name, pieces_of_name, shapes)


@dataclass(frozen=True)
class Fields:
    """The fields of some records, and the results of the kernel.

    Attributes:
        memory: uint8 [features, bytes], the memory of the table.
        table: FIELD [features].
        numbers: Name -> int64 [5, B]: where values are, their bytes and number, and where they are copied to. The
            number of values that are not varints equals their bytes.
        pieces: Name -> int64 [batches, 3], the bytes at which the values of each batch begin and end, and the length
            of its rows.
        shapes: Name -> int64 [B, rank], the shape of each record, if the kernel finds it.
    """

    memory: np.ndarray
    table: np.ndarray
    places: Mapping[str, int]
    numbers: Mapping[str, np.ndarray]
    pieces: Mapping[str, np.ndarray]
    shapes: Mapping[str, np.ndarray]

    def pads(self, name: str) -> bool:
        """Whether the rows of each batch are padded."""
        return bool(self.table["pads"][self.places[name]])

    def copy_to(self, name: str, memory: np.ndarray) -> None:
        """Makes the kernel copy the values of a feature to memory, uint8 [bytes]."""
        self.table["out"][self.places[name]] = address(memory)

    def copy_to_addresses(self, name: str, addresses: np.ndarray) -> None:
        """Makes the kernel copy the values of a feature to an address for each record, int64 [B]."""
        self.numbers[name][3] = addresses

    def leave(self, name: str) -> np.ndarray:
        """Makes the kernel copy no values of a feature; returns where they begin in each record, int64 [B]."""
        self.table["limit"][self.places[name]] = 0
        self.numbers[name][3] = 0
        return self.numbers[name][0]
