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
from readers.format.encodings.spec import Spec, fits, format_found, format_shape
from readers.format.encodings.values import checked_array
from readers.format.protobuf.tensor import octets
from readers.format.protobuf.wire import BYTES_LIST, Parts, unpacked_varints

# Level 9 makes most values less than 1% smaller, and takes up to five times as long.
_LEVEL = 6

# Two bits of a stream stand for 258 bytes at most.
_MOST_BYTES_PER_BYTE = 1032

# As of a record: larger values could not be stored in another encoding either.
_MOST_BYTES = (1 << 31) - 1

_TEXT = TextEncoding("text")


@dataclass(frozen=True)
class ZlibEncoding(Encoding):
    """The bytes of `raw`, or a text, as one zlib stream; `<name>/shape` holds an unknown shape, or the bytes of the text.

    Attributes:
        is_shuffled: Whether the first bytes of all values come first, then the second bytes, and so on. Such
            streams of numbers of similar size are shorter.
    """

    is_one_value: bool = True
    is_text: bool = True
    is_packed: bool = True
    is_shuffled: bool = False

    def problem(self, spec: Spec) -> str | None:
        if self.is_shuffled:
            has_bytes = spec.dtype != "string" and numpy_dtype(spec.dtype).itemsize > 1
            return None if has_bytes else "expected numbers of several bytes each"
        is_one = spec.dtype != "string" or not spec.shape
        return None if is_one else "expected numbers, or a single string"

    def stores_shape(self, spec: Spec) -> bool:
        return spec.dtype == "string" or not spec.is_fixed

    reads_shape = stores_shape

    def checked(self, name: str, spec: Spec, value: Any) -> Any:
        if spec.dtype == "string":
            return _TEXT.checked(name, spec, value)
        return checked_array(name, spec, value)

    def shape_of(self, value: Any) -> np.ndarray:
        return np.array([len(value)] if isinstance(value, bytes) else value.shape, np.int64)

    def parts(self, spec: Spec, value: Any) -> Parts:
        data = value if isinstance(value, bytes) else octets(value)
        if len(data) > _MOST_BYTES:
            raise ValueError(f"a value of {len(data)} bytes: expected at most {_MOST_BYTES}")
        if self.is_shuffled:
            data = data.reshape(-1, value.itemsize).T.tobytes()
        return bytes_list([[zlib.compress(data, _LEVEL)]])

    def value(
        self, spec: Spec, kind: int, chunks: list[memoryview], shape: list[memoryview]
    ) -> Any:
        data = one_value(kind, chunks)
        sizes = unpacked_varints(b"".join(shape)).tolist() if shape else spec.known_sizes
        nbytes = self.unpacked_bytes(spec, sizes, len(data))
        if spec.dtype == "string":
            return np.array(unpacked(data, nbytes), object)
        flat = np.empty(nbytes, np.uint8)
        self.unpack_into(spec, data, flat)
        return flat.view(numpy_dtype(spec.dtype)).reshape(sizes)

    def unpacked_bytes(self, spec: Spec, sizes: Sequence[int], packed: int) -> int:
        """The bytes of a value; ValueError if its sizes do not fit, or are too large for a stream of `packed` bytes.

        The sizes are those in `<name>/shape`, or those of a fixed shape.
        """
        expected = (None,) if spec.dtype == "string" else spec.shape
        if len(sizes) != len(expected):
            raise ValueError(f"<name>/shape has {len(sizes)} numbers, expected {len(expected)}")
        if not fits(expected, tuple(sizes)) or min(sizes, default=0) < 0:
            shape = format_shape(expected)
            raise ValueError(f"<name>/shape: expected {shape}, found {format_found(tuple(sizes))}")
        itemsize = 1 if spec.dtype == "string" else numpy_dtype(spec.dtype).itemsize
        nbytes = math.prod(sizes) * itemsize
        if nbytes > min(packed * _MOST_BYTES_PER_BYTE, _MOST_BYTES):
            raise ValueError(f"a zlib stream of {packed} bytes cannot hold {nbytes} bytes")
        return nbytes

    def unpack_into(self, spec: Spec, data: bytes | memoryview, out: np.ndarray) -> None:
        """Unpacks numbers into memory, uint8 [bytes]; ValueError if the stream does not hold exactly as many."""
        found = np.frombuffer(unpacked(data, len(out)), np.uint8)
        itemsize = numpy_dtype(spec.dtype).itemsize
        if not self.is_shuffled:
            out[:] = found
            return
        # Assigning the transposed array takes five times as long.
        for place, plane in enumerate(found.reshape(itemsize, -1)):
            out[place::itemsize] = plane

    def stored(self, spec: Spec) -> Stored | None:
        return Stored(BYTES, BYTES_LIST, np.dtype(np.uint8), None)


def unpacked(data: bytes | memoryview, size: int) -> bytes:
    """The content of a zlib stream; ValueError unless it is whole, has `size` bytes, and nothing follows it."""
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(data, size + 1)
    except zlib.error as error:
        raise ValueError(f"the zlib stream is damaged ({error})") from None
    if len(found) > size:
        raise ValueError(f"the zlib stream holds more than the expected {size} bytes")
    if not stream.eof:
        raise ValueError(f"the zlib stream is cut off after {len(found)} of {size} bytes")
    if len(found) < size:
        raise ValueError(f"the zlib stream holds {len(found)} bytes, expected {size}")
    if stream.unused_data:
        raise ValueError(f"{len(stream.unused_data)} bytes follow the zlib stream")
    return found
