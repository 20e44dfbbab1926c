"""The encodings of flat values with a separate shape: `list` and `raw`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from readers.format.compiled.library import BYTES, INTEGERS
from readers.format.dtypes import FLOATS_IN_A_LIST, INTEGERS_IN_A_LIST, numpy_dtype
from readers.format.encodings.encoding import Encoding, Stored, bytes_list, one_value, size_of
from readers.format.encodings.spec import Spec
from readers.format.encodings.values import checked_array, inferred_shape, narrowed, shaped
from readers.format.protobuf.tensor import octets, string_values
from readers.format.protobuf.wire import (
    BYTES_LIST,
    FLOAT_LIST,
    INT64_LIST,
    Parts,
    packed_varints,
    unpacked_varints,
    varint,
)

_KINDS = {BYTES_LIST: "bytes", FLOAT_LIST: "floats", INT64_LIST: "integers"}


def list_kind(dtype: str) -> int:
    """The kind of list that holds values of a dtype in an Example."""
    if dtype == "string":
        return BYTES_LIST
    return FLOAT_LIST if dtype in FLOATS_IN_A_LIST else INT64_LIST


def list_parts(kind: int, packed: Parts) -> Parts:
    """A serialized list of packed numbers, in parts."""
    size = size_of(packed)
    body: Parts = [b"\x0a" + varint(size), *packed] if size else []
    return [bytes([kind << 3 | 2]) + varint(size_of(body)), *body]


@dataclass(frozen=True)
class _Flat(Encoding, ABC):
    """Flat values; `<name>/shape` stores the shape if it is unknown."""

    def stores_shape(self, spec: Spec) -> bool:
        return not spec.is_fixed

    reads_shape = stores_shape

    def value(
        self, spec: Spec, kind: int, chunks: list[memoryview], shape: list[memoryview]
    ) -> Any:
        values = self._values(spec, kind, chunks)
        if spec.is_fixed:
            return shaped(spec, values, list(spec.known_sizes))
        if not shape:
            return shaped(spec, values, inferred_shape(spec, values.size))
        sizes = unpacked_varints(b"".join(shape)).tolist()
        if len(sizes) != len(spec.shape):  # Multiplying very many sizes would take very long.
            raise ValueError(
                f"<name>/shape has {len(sizes)} dimensions, expected {len(spec.shape)}"
            )
        return shaped(spec, values, sizes)

    @abstractmethod
    def _values(self, spec: Spec, kind: int, chunks: list[memoryview]) -> np.ndarray:
        """The values in one record, flat."""


@dataclass(frozen=True)
class RawEncoding(_Flat):
    """The little-endian bytes of the values, as one bytes value."""

    is_one_value: bool = True

    def problem(self, spec: Spec) -> str | None:
        return "raw bytes need a numeric dtype" if spec.dtype == "string" else None

    def parts(self, spec: Spec, value: Any) -> Parts:
        return bytes_list([[octets(value)]])

    def layout(self, spec: Spec, value: Any) -> tuple[Any, bytes | np.ndarray]:
        return (value.shape, octets(value)) if value.size else (None, b"")

    def _values(self, spec: Spec, kind: int, chunks: list[memoryview]) -> np.ndarray:
        data, target = one_value(kind, chunks), numpy_dtype(spec.dtype)
        if len(data) % target.itemsize:
            raise ValueError(f"{len(data)} bytes are not a whole number of {spec.dtype} values")
        return np.frombuffer(data, target)

    def stored(self, spec: Spec) -> Stored | None:
        dtype = numpy_dtype(spec.dtype)
        return Stored(BYTES, BYTES_LIST, dtype, spec.shape, may_store_shape=not spec.is_fixed)


@dataclass(frozen=True)
class ListEncoding(_Flat):
    """A list in an Example: bytes values, or packed floats or integers."""

    may_be_missing: bool = True

    def problem(self, spec: Spec) -> str | None:
        if spec.dtype in (*INTEGERS_IN_A_LIST, *FLOATS_IN_A_LIST, "string"):
            return None
        return "an Example's lists hold int64, float32 and bytes: use the encoding tensor"

    def checked(self, name: str, spec: Spec, value: Any) -> Any:
        array = checked_array(name, spec, value)
        return array.item() if spec.dtype == "int64" and not spec.shape else array

    def checked_all(self, name: str, spec: Spec, values: Sequence[Any]) -> Sequence[Any]:
        integers = spec.dtype == "int64" and not spec.shape and {*map(type, values)} == {int}
        if integers and min(values) >= -(2**63) and max(values) < 2**63:
            return values
        return super().checked_all(name, spec, values)

    def parts(self, spec: Spec, value: Any) -> Parts:
        kind = list_kind(spec.dtype)
        if kind == BYTES_LIST:
            return bytes_list([[item] for item in string_values(value)])
        if kind == FLOAT_LIST:
            return list_parts(FLOAT_LIST, [value.astype("<f4").tobytes()])
        return list_parts(INT64_LIST, [packed_varints(np.asarray(value, np.int64).reshape(-1))])

    def layout(self, spec: Spec, value: Any) -> tuple[Any, bytes | np.ndarray]:
        return (value if isinstance(value, int) else None), b""

    def _values(self, spec: Spec, kind: int, chunks: list[memoryview]) -> np.ndarray:
        expected = list_kind(spec.dtype)
        if kind not in (0, expected):
            raise ValueError(
                f"the Example holds a list of {_KINDS[kind]}, not of {_KINDS[expected]}"
            )
        if expected == BYTES_LIST:
            values = np.empty(len(chunks), object)
            values[:] = [bytes(chunk) for chunk in chunks]
            return values
        packed = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        dtype = numpy_dtype(spec.dtype)
        if expected == INT64_LIST:
            return narrowed(unpacked_varints(packed), dtype)
        if len(packed) % 4:
            raise ValueError("the floats are cut off")
        return narrowed(np.frombuffer(packed, "<f4"), dtype)

    def stored(self, spec: Spec) -> Stored | None:
        if spec.dtype == "string":
            return None
        kind, varies = list_kind(spec.dtype), not spec.is_fixed
        form = INTEGERS if kind == INT64_LIST else BYTES
        dtype = numpy_dtype(spec.dtype if kind == INT64_LIST else "float32")
        return Stored(form, kind, dtype, spec.shape, may_store_shape=varies)
