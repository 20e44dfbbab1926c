"""TFRecord framing: records with their lengths and masked CRC32C checksums.

Source: tensorflow/core/lib/io/record_writer.h. A framed record is its length (8 bytes), the masked
CRC32C of the length (4), the data, and the masked CRC32C of the data (4), all little-endian.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence

import google_crc32c
import numpy as np

from readers.format.compiled import library
from readers.format.protobuf.wire import Parts

HEADER_BYTES = 12

FOOTER_BYTES = 4

FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES

# Protobuf's own limit. A larger length means corruption, and is rejected before memory is allocated.
MAX_RECORD_BYTES = (1 << 31) - 1

MAX_FRAMED_BYTES = MAX_RECORD_BYTES + FRAME_BYTES

_CRC = struct.Struct("<I")

_MASK_DELTA = 0xA282EAD8

# Up to this size, copying a record's parts takes less time than computing a checksum of each.
_JOINED_BYTES = 64 << 10


# The first bytes of a file compressed with ZLIB.
_ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")


class CorruptRecordError(ValueError):
    """The framing or a checksum of a record is wrong; the message names the file and the offset.

    Attributes:
        file: The path or URL of the file; None if several files are damaged.
        record: The number of the record in the file, from 0; None if only its position is known.
        offset: The byte at which the record begins in the file; None if it is unknown.
    """

    def __init__(
        self,
        message: str,
        file: str | None = None,
        record: int | None = None,
        offset: int | None = None,
    ) -> None:
        # The message must be enough: PyTorch recreates the errors of its workers from their text.
        super().__init__(message)
        self.file, self.record, self.offset = file, record, offset

    @classmethod
    def at(
        cls, file: str, offset: int, fault: str, record: int | None = None
    ) -> CorruptRecordError:
        """Makes the error for a record at a position; `fault` is the rest of a sentence about it."""
        which = "the record" if record is None else f"record {record}"
        return cls(f"{file}: {which} at byte {offset} {fault}", file, record, offset)


def crc32c_is_native() -> bool:
    """Whether google-crc32c uses native code; its Python fallback is a thousand times slower."""
    return google_crc32c.implementation == "c"


def masked_crc32c(data: bytes | memoryview) -> int:
    """The CRC32C of some bytes, rotated and offset ("masked") as TFRecord stores it."""
    return _mask(google_crc32c.value(bytes(data) if isinstance(data, memoryview) else data))


def _mask(crc: int) -> int:
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def frame(data: bytes) -> bytes:
    """Frames one record with 16 bytes; ValueError if it is larger than `MAX_RECORD_BYTES`."""
    _check(len(data))
    return b"".join((_header(len(data)), data, _CRC.pack(masked_crc32c(data))))


def frame_parts(parts: Parts) -> bytes:
    """Frames a record in parts, bytes or uint8 [n] arrays, which are copied only once."""
    size = sum(map(len, parts))
    _check(size)
    if size <= _JOINED_BYTES:
        return frame(b"".join(parts))
    crc = functools.reduce(google_crc32c.extend, parts, 0)
    return b"".join((_header(size), *parts, _CRC.pack(_mask(crc))))


def frame_all(records: Sequence[bytes]) -> list[bytes]:
    """Frames many records, in a quarter of the time of calling `frame` for each."""
    sizes = list(map(len, records))
    _check(max(sizes, default=0))
    crcs = np.fromiter(map(google_crc32c.value, records), np.uint32, len(records))
    masked = (crcs >> 15 | crcs << 17) + np.uint32(_MASK_DELTA)
    footers = masked.astype("<u4").view("V4").tolist()
    return list(map(b"".join, zip(map(_header, sizes), records, footers, strict=True)))


def _check(size: int) -> None:
    if size > MAX_RECORD_BYTES:
        raise ValueError(f"a record of {size} bytes: expected at most {MAX_RECORD_BYTES}")


@functools.lru_cache(maxsize=4096)
def _header(size: int) -> bytes:
    length = struct.pack("<Q", size)
    return length + _CRC.pack(masked_crc32c(length))


def unframe(
    framed: bytes | memoryview, file: str, offset: int, record: int | None = None
) -> memoryview:
    """Returns the data of one framed record, after verifying its checksums.

    Raises:
        CorruptRecordError: The length or a checksum is wrong.
    """
    view = memoryview(framed)
    if len(view) < FRAME_BYTES:
        raise CorruptRecordError.at(file, offset, "is cut off", record)
    (length,) = struct.unpack_from("<Q", view)
    if length != len(view) - FRAME_BYTES:
        fault = (
            f"holds {length} bytes according to its header, but {len(view) - FRAME_BYTES} according "
            "to the index"
        )
        raise CorruptRecordError.at(file, offset, fault, record)
    data = view[HEADER_BYTES:-FOOTER_BYTES]
    (length_crc,) = struct.unpack_from("<I", view, 8)
    (data_crc,) = struct.unpack_from("<I", view, len(view) - FOOTER_BYTES)
    if length_crc != masked_crc32c(view[:8]) or data_crc != masked_crc32c(data):
        raise CorruptRecordError.at(file, offset, "fails its CRC32C", record)
    return data


def intact(data: bytes | bytearray | np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Whether each framed record has correct lengths and checksums, so that `unframe` would accept it, bool [n].

    The data, bytes or uint8 [m], begins with the records, one after another; their lengths, int64 [n], include the
    framing and are at least `FRAME_BYTES`.
    """
    lengths = np.ascontiguousarray(lengths, np.int64)
    first = library.address(np.frombuffer(data, np.uint8))
    return library.intact(first + np.cumsum(lengths) - lengths, lengths)


def compression_of(head: bytes) -> str:
    """`GZIP` or `ZLIB` if a file that begins with these bytes is compressed, whatever its name; otherwise empty.

    The length of a first record may begin with the same bytes, but then its checksum follows.
    Source: RFC 1952 (GZIP) and RFC 1950 (ZLIB).
    """
    if masked_crc32c(head[:8]) == int.from_bytes(head[8:HEADER_BYTES], "little"):
        return ""
    return "GZIP" if head[:2] == b"\x1f\x8b" else "ZLIB" if head[:2] in _ZLIB else ""


def record_length(header: bytes, file: str, offset: int) -> int:
    """The length of a record's data in bytes, from its header; CorruptRecordError if the header is wrong or cut off."""
    if len(header) < HEADER_BYTES:
        raise CorruptRecordError.at(file, offset, "is cut off")
    length, crc = struct.unpack("<QI", header)
    if crc != masked_crc32c(header[:8]) or length > MAX_RECORD_BYTES:
        raise CorruptRecordError(
            f"{file}: no TFRecord starts at byte {offset} (the CRC32C of its length is wrong)",
            file,
            offset=offset,
        )
    return int(length)
