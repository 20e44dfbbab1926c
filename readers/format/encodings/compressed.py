"""The encodings of values that zlib compresses: `zlib` and `zlib_shuffled`."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from readers.format.compiled.library import BYTES
from readers.format.dtypes import numpy_dtype
from readers.format.encodings.bytes_values import TextEncoding
from readers.format.encodings.encoding import Encoding, Stored, bytes_list, one_value
from readers.format.encodings.spec import Spec, fits
from readers.format.protobuf.tensor import octets
from readers.format.protobuf.wire import BYTES_LIST, Parts, unpacked_varints
from readers.format.tfrecord import MAX_RECORD_BYTES

# Level 9 makes most values less than 1% smaller, and takes up to five times as long.
_LEVEL = 6

# Two bits of a stream stand for 258 bytes at most.
_MOST_PER_BYTE = 1032


@dataclass(frozen=True)
class ZlibEncoding(Encoding):
    """The bytes of `raw`, or a text, as a zlib stream; `<name>/shape` has an unknown shape, or the length of the text.

    Attributes:
        is_shuffled: Whether the first bytes of all numbers come first, then all second bytes, and so on.
    """

    is_one_value: bool = True
    is_packed: bool = True
    is_shuffled: bool = False

    def problem(self, spec: Spec) -> str | None:
        is_text = spec.dtype == "string"
        if self.is_shuffled and (is_text or numpy_dtype(spec.dtype).itemsize == 1):
            return "expected numbers of several bytes each"
        return "expected numbers, or a single string" if is_text and spec.shape else None

    def stores_shape(self, spec: Spec) -> bool:
        return spec.dtype == "string" or not spec.is_fixed

    reads_shape = stores_shape

    def checked(self, name: str, spec: Spec, value: Any) -> Any:
        if spec.dtype == "string":
            return TextEncoding("text").checked(name, spec, value)
        return super().checked(name, spec, value)

    def shape_of(self, value: Any) -> np.ndarray:
        return np.array([len(value)] if isinstance(value, bytes) else value.shape, np.int64)

    def parts(self, spec: Spec, value: Any) -> Parts:
        data: Any = value if isinstance(value, bytes) else octets(value)
        if len(data) > MAX_RECORD_BYTES:
            raise ValueError(f"{len(data)} bytes: expected at most {MAX_RECORD_BYTES}")
        if self.is_shuffled:
            data = data.reshape(-1, value.itemsize).T.tobytes()
        return bytes_list([[zlib.compress(data, _LEVEL)]])

    def value(
        self, spec: Spec, kind: int, chunks: list[memoryview], shape: list[memoryview]
    ) -> Any:
        sizes = unpacked_varints(b"".join(shape)).tolist() if shape else spec.known_sizes
        return self.unpacked(spec, one_value(kind, chunks), sizes)

    def unpacked(self, spec: Spec, data: bytes | memoryview, sizes: Sequence[int]) -> np.ndarray:
        """The array in a stream; ValueError if the stream or its sizes, those in `<name>/shape`, do not fit."""
        is_text = spec.dtype == "string"
        expected = (None,) if is_text else spec.shape
        if not fits(expected, tuple(sizes)) or min(sizes, default=0) < 0:
            raise ValueError(f"<name>/shape does not fit {spec.shape}: found {list(sizes[:32])}")
        itemsize = 1 if is_text else numpy_dtype(spec.dtype).itemsize
        size = math.prod(sizes) * itemsize
        if size > min(len(data) * _MOST_PER_BYTE, MAX_RECORD_BYTES):
            raise ValueError(f"a zlib stream of {len(data)} bytes cannot hold {size} bytes")
        content: Any = _content(data, size)
        if is_text:
            return np.array(content, object)
        if self.is_shuffled:
            planes, content = content, np.empty(size, np.uint8)
            for place in range(itemsize):  # Transposing takes up to five times as long.
                content[place::itemsize] = np.frombuffer(planes, np.uint8).reshape(itemsize, -1)[
                    place
                ]
        return np.frombuffer(content, numpy_dtype(spec.dtype)).reshape(sizes)

    def stored(self, spec: Spec) -> Stored | None:
        return Stored(BYTES, BYTES_LIST, np.dtype(np.uint8), None)


def _content(data: bytes | memoryview, size: int) -> bytes:
    """The content of a zlib stream; ValueError unless it is whole, has `size` bytes, and nothing follows it."""
    stream = zlib.decompressobj()
    try:
        content = stream.decompress(data, size + 1)
    except zlib.error as error:
        raise ValueError(f"the zlib stream is damaged ({error})") from None
    if stream.eof and len(content) == size and not stream.unused_data:
        return content
    how = " and other data" if stream.unused_data else "" if stream.eof else " and no end"
    raise ValueError(f"expected a zlib stream of {size} bytes, found {len(content)}{how}")
