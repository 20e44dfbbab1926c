"""The encodings of values that are bytes already: `text`, and the image encodings."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from readers.format.compiled.library import BYTES
from readers.format.encodings.encoding import Encoding, Stored, bytes_list, one_value
from readers.format.encodings.spec import Spec
from readers.format.encodings.values import checked_array
from readers.format.protobuf.tensor import string_values
from readers.format.protobuf.wire import BYTES_LIST, Parts


@dataclass(frozen=True)
class _Bytes(Encoding):
    is_bytes: bool = True
    is_one_value: bool = True

    def parts(self, spec: Spec, value: Any) -> Parts:
        return bytes_list([[value]])

    def layout(self, spec: Spec, value: Any) -> tuple[Any, bytes | np.ndarray]:
        return len(value), value

    def stored(self, spec: Spec) -> Stored | None:
        return Stored(BYTES, BYTES_LIST, np.dtype(np.uint8), None)


@dataclass(frozen=True)
class TextEncoding(_Bytes):
    """One text in UTF-8."""

    is_text: bool = True

    def problem(self, spec: Spec) -> str | None:
        if spec.dtype == "string" and not spec.shape:
            return None
        return "text is a single UTF-8 string: expected dtype string and shape []"

    def checked(self, name: str, spec: Spec, value: Any) -> Any:
        array = checked_array(name, spec, value)
        try:
            (text,) = string_values(array)
            text.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"feature {name!r}: expected UTF-8 ({error})") from None
        except ValueError as error:
            raise ValueError(f"feature {name!r} ({self.described(spec)}): {error}") from None
        return text

    def checked_all(self, name: str, spec: Spec, values: Sequence[Any]) -> Sequence[Any]:
        if {*map(type, values)} == {str}:
            with contextlib.suppress(UnicodeEncodeError):
                return list(map(str.encode, values))
        return super().checked_all(name, spec, values)

    def value(
        self, spec: Spec, kind: int, chunks: list[memoryview], shape: list[memoryview]
    ) -> Any:
        return np.array(bytes(one_value(kind, chunks)), object)


@dataclass(frozen=True)
class ImageEncoding(_Bytes):
    """One encoded image; its spec describes the pixels: [height, width, channels]."""

    is_image: bool = True
    dtypes: tuple[str, ...] = ("uint8",)
    channels: tuple[int, ...] = (1, 3, 4)

    def problem(self, spec: Spec) -> str | None:
        if spec.dtype in self.dtypes and len(spec.shape) == 3 and spec.shape[2] in self.channels:
            return None
        *first, last = map(str, self.channels)
        sizes = f"{', '.join(first)} or {last}"
        return f"an encoded image must be {' or '.join(self.dtypes)} [height, width, {sizes}]"

    def checked(self, name: str, spec: Spec, value: Any) -> Any:
        if not isinstance(value, (bytes, bytearray, memoryview)) or not value:
            raise ValueError(
                f"feature {name!r}: expected the bytes of an image ({self.name}), "
                f"got {type(value).__name__}"
            )
        return bytes(value)

    def value(
        self, spec: Spec, kind: int, chunks: list[memoryview], shape: list[memoryview]
    ) -> Any:
        return bytes(one_value(kind, chunks))
