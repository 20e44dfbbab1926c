"""The features of a schema as the kernel sees them: in which form each is stored, and its arrays."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from readers.format.compiled.library import (
    BYTES,
    HEADED,
    INTEGERS,
    SKIPPED,
    TENSOR,
    Field,
    address,
)
from readers.format.decode.from_spans import stored_kind
from readers.format.dtypes import TENSORFLOW_DTYPES, numpy_dtype
from readers.format.protobuf.tensor import tensor_header
from readers.format.protobuf.wire import BYTES_LIST, INT64_LIST, varint
from readers.format.schema import Feature, Schema


@dataclass(frozen=True)
class Stored:
    """How records store an array of numbers, or a text.

    Attributes:
        form: The form, as in `library`.
        kind: The kind of list that holds it.
        dtype: The dtype of the values.
        shape: The shape, if it is fixed.
        header: The bytes before the values, or before the shape.
        rank: The number of dimensions that a header states.
    """

    form: int
    kind: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...] | None = None
    header: bytes = b""
    rank: int = 0

    @property
    def width(self) -> int:
        """The bytes of one of the things that the kernel counts: of varints it counts the values."""
        return 1 if self.form == INTEGERS else self.dtype.itemsize


def stored_features(schema: Schema) -> dict[str, Stored] | None:
    """How each feature is stored, and the shape beside it, `<name>/shape`; None if the kernel cannot read one."""
    found = {}
    for name, feature in schema.items():
        stored = _stored(feature)
        if stored is None:
            return None
        found[name] = stored
        if feature.needs_companion:
            companion = Stored(INTEGERS, INT64_LIST, np.dtype(np.int64), (len(feature.shape),))
            found[companion_of(name)] = companion
    names = len(schema) + sum(feature.needs_companion for feature in schema.values())
    return found if len(found) == names else None


def companion_of(name: str) -> str:
    """The feature that holds the shape of another one."""
    return f"{name}/shape"


def _stored(feature: Feature) -> Stored | None:
    if feature.is_sequence or feature.is_image or feature.step:
        return None
    if feature.dtype == "string":
        is_text = stored_kind(feature) == BYTES_LIST
        return Stored(BYTES, BYTES_LIST, np.dtype(np.uint8)) if is_text else None
    dtype, kind = numpy_dtype(feature.dtype), stored_kind(feature)
    shape = feature.known_sizes if feature.is_fixed else None
    if feature.encoding == "tensor":
        if shape is not None:
            return Stored(HEADED, kind, dtype, shape, tensor_header(feature.dtype, shape))
        header = bytes([8, TENSORFLOW_DTYPES[feature.dtype], 18])
        return Stored(TENSOR, kind, dtype, None, header, len(feature.shape))
    if kind == INT64_LIST:
        return Stored(INTEGERS, kind, dtype, shape)
    # Other lists of floats are converted.
    return (
        Stored(BYTES, kind, dtype, shape) if feature.encoding == "raw" or dtype == "<f4" else None
    )


class Fields:
    """The fields of some records, and the arrays that the kernel fills.

    Args:
        order: The names of all features of each record, in their order.
        stored: How those to decode are stored.
        rows: The number of records.

    Attributes:
        array: The fields.
        counts: Name -> int64 [rows], the number of values, or of bytes that are no varints.
        sizes: Name -> int64 [rows, rank], the shapes in headers.
    """

    def __init__(self, order: Sequence[str], stored: Mapping[str, Stored], rows: int) -> None:
        self.array = (Field * len(order))()
        self.counts, self.sizes = dict[str, np.ndarray](), dict[str, np.ndarray]()
        self._fields = dict(zip(order, self.array, strict=True))
        self._places = list[np.ndarray]()
        self._found = np.empty((len(stored), 3, rows), np.int64)
        free = iter(self._found)
        for name, field in self._fields.items():
            key = name.encode()
            key = b"\x0a" + varint(len(key)) + key + b"\x12"
            field.key, field.key_bytes = key, len(key)
            feature = stored.get(name)
            if feature is None:
                field.form = SKIPPED
                continue
            field.form, field.tag, field.rank = feature.form, feature.kind << 3 | 2, feature.rank
            field.header, field.header_bytes = feature.header, len(feature.header)
            field.itemsize, field.is_signed = feature.dtype.itemsize, feature.dtype.kind == "i"
            field.is_bool, field.expected, field.limit = feature.dtype.kind == "b", -1, -1
            if feature.shape is not None:
                field.expected = math.prod(feature.shape) * feature.width
                field.stride = math.prod(feature.shape) * feature.dtype.itemsize
            at, nbytes, self.counts[name] = next(free)
            field.at, field.nbytes = address(at), address(nbytes)
            field.count = address(self.counts[name])
            if feature.form == TENSOR:
                self.sizes[name] = np.empty((rows, feature.rank), np.int64)
                field.sizes = address(self.sizes[name])

    def copy_to(self, name: str, out: np.ndarray, starts: np.ndarray | None = None) -> None:
        """Lets the kernel copy the values of a feature to memory.

        Args:
            name: The feature.
            out: uint8 [bytes], the memory.
            starts: int64 [rows], the byte at which those of each record begin; None if they follow one another,
                for a fixed shape.
        """
        field = self._fields[name]
        field.out = address(out)
        if starts is not None:
            self._places.append(starts)  # The kernel has its address alone.
            field.out_at = address(starts)

    def copy_to_addresses(self, name: str, addresses: np.ndarray) -> None:
        """Lets the kernel copy the values of a feature to an address for each record, int64 [rows]."""
        self._places.append(addresses)
        self._fields[name].out_at = address(addresses)

    def cut(self, name: str, limit: int) -> None:
        """Lets the kernel copy no more of a feature than so many of the things that it counts."""
        self._fields[name].limit = limit

    def pad(self, name: str, ends: np.ndarray, padding: bytes) -> None:
        """Lets the kernel write padding after the values of a feature.

        Args:
            name: The feature.
            ends: int64 [rows], the byte up to which each row is padded.
            padding: The bytes of one value of padding, 16 at most.
        """
        field = self._fields[name]
        self._places.append(ends)
        field.out_end = address(ends)
        field.padding = (ctypes.c_uint8 * 16)(*padding * (16 // len(padding)))
