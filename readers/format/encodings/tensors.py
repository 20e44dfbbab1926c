"""The encodings of serialized TensorProtos, which include their shape: `tensor` and `sequence`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from readers.format.compiled.library import HEADED, TENSOR
from readers.format.dtypes import TENSORFLOW_DTYPES, numpy_dtype
from readers.format.encodings.encoding import Encoding, Stored, bytes_list, bytes_values, one_value
from readers.format.encodings.spec import Spec
from readers.format.encodings.values import checked_array, fitting
from readers.format.protobuf.tensor import octets, parse_tensor, tensor_header, tensor_parts
from readers.format.protobuf.wire import BYTES_LIST, Parts


@dataclass(frozen=True)
class TensorEncoding(Encoding):
    """One TensorProto, as `tf.io.serialize_tensor` writes it."""

    is_one_value: bool = True

    def stores_shape(self, spec: Spec) -> bool:
        return not spec.is_fixed

    def parts(self, spec: Spec, value: Any) -> Parts:
        return bytes_list([tensor_parts(value)])

    def layout(self, spec: Spec, value: Any) -> tuple[Any, bytes | np.ndarray]:
        if spec.dtype == "string" or not value.size:
            return None, b""
        return value.shape, octets(value)

    def value(
        self, spec: Spec, kind: int, chunks: list[memoryview], shape: list[memoryview]
    ) -> Any:
        return fitting(spec, parse_tensor(one_value(kind, chunks), spec.dtype))

    def stored(self, spec: Spec) -> Stored | None:
        if spec.dtype == "string":
            return None
        dtype = numpy_dtype(spec.dtype)
        if spec.is_fixed:
            header = tensor_header(spec.dtype, spec.known_sizes)
            return Stored(HEADED, BYTES_LIST, dtype, spec.shape, header)
        before_shape = bytes([8, TENSORFLOW_DTYPES[spec.dtype], 18])
        return Stored(TENSOR, BYTES_LIST, dtype, spec.shape, before_shape)


@dataclass(frozen=True)
class SequenceEncoding(Encoding):
    """A list of TensorProtos, whose shapes may differ."""

    may_be_missing: bool = True

    def problem(self, spec: Spec) -> str | None:
        if spec.dtype != "string" and spec.shape:
            return None
        return "a sequence must be numeric, with a first dimension that counts its arrays"

    def is_sequence(self, spec: Spec) -> bool:
        return True

    def stores_shape(self, spec: Spec) -> bool:
        return True

    def checked(self, name: str, spec: Spec, value: Any) -> Any:
        try:
            items = list(value)
        except TypeError:
            raise ValueError(
                f"feature {name!r}: expected a list of arrays, got {type(value).__name__}"
            ) from None
        part = Spec(spec.dtype, spec.shape[1:])
        parts = [checked_array(f"{name}[{i}]", part, item) for i, item in enumerate(items)]
        if spec.shape[0] not in (None, len(parts)):
            raise ValueError(f"feature {name!r}: expected {spec.shape[0]} arrays, got {len(parts)}")
        return parts

    def shape_of(self, value: Any) -> np.ndarray:
        """One row per array, concatenated: the array's size in bytes, then its shape."""
        rows = [(array.nbytes, *array.shape) for array in value]
        return np.array(rows, np.int64).reshape(-1)

    def parts(self, spec: Spec, value: Any) -> Parts:
        return bytes_list([tensor_parts(array) for array in value])

    def value(
        self, spec: Spec, kind: int, chunks: list[memoryview], shape: list[memoryview]
    ) -> Any:
        found = bytes_values(kind, chunks)
        if spec.shape[0] not in (None, len(found)):
            raise ValueError(f"expected {spec.shape[0]} arrays, found {len(found)}")
        part = Spec(spec.dtype, spec.shape[1:])
        return [fitting(part, parse_tensor(chunk, spec.dtype)) for chunk in found]
