"""TFRecord framing: records with their lengths and masked CRC32C checksums.

Source: tensorflow/core/lib/io/record_writer.h. A framed record is its length (8 bytes), the masked
CRC32C of the length (4), the data, and the masked CRC32C of the data (4), all little-endian.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import google_crc32c
import numpy as np

from readers.format.crc import combined_crc, combined_crc_of_rows, shifted, shifted_each
from readers.format.protobuf.wire import Parts

HEADER_BYTES = 12

FOOTER_BYTES = 4

FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES

# Protobuf's own limit. A larger length is taken for corruption before anything is allocated.
MAX_RECORD_BYTES = (1 << 31) - 1

MAX_FRAMED_BYTES = MAX_RECORD_BYTES + FRAME_BYTES

_CRC = struct.Struct("<I")

_MASK_DELTA = 0xA282EAD8

# The fewest records for which one checksum over all of them, some hundred NumPy calls, is faster
# than checking each: for records of one length, and for records of different lengths.
_MIN_ROWS, _MIN_MIXED = 512, 128

# Up to this size, copying a record's parts takes less time than a checksum of each.
_JOINED_BYTES = 64 << 10


class CorruptRecordError(ValueError):
    """The framing or a checksum of a record is wrong; the message names the file and the offset.

    Attributes:
        file: The path or URL of the file; None if several files are damaged.
        record: The number of the record in the file, from 0; None if only its position is known.
        offset: Where the record begins in the file, in bytes, in a GZIP file after decompression; None
            if it is unknown.
    """

    def __init__(
        self,
        message: str,
        file: str | None = None,
        record: int | None = None,
        offset: int | None = None,
    ) -> None:
        # The message alone must do: PyTorch makes the errors of its workers again from their text.
        super().__init__(message)
        self.file, self.record, self.offset = file, record, offset

    @classmethod
    def at(
        cls, file: str, offset: int, fault: str, record: int | None = None
    ) -> CorruptRecordError:
        """The error for a record at a position; `fault` completes a sentence about it."""
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
    """One record in the form of a TFRecord file: the data with its 16 bytes of framing.

    Raises:
        ValueError: The record is larger than `MAX_RECORD_BYTES`, which `read_records` would refuse.
    """
    _check(len(data))
    return b"".join((_header(len(data)), data, _CRC.pack(masked_crc32c(data))))


def frame_parts(parts: Parts) -> bytes:
    """One framed record whose data is the concatenation of some parts, copied once.

    Args:
        parts: Bytes, or uint8 [n] arrays.

    Raises:
        ValueError: The record is larger than `MAX_RECORD_BYTES`.
    """
    size = sum(map(len, parts))
    _check(size)
    if size <= _JOINED_BYTES:
        return frame(b"".join(parts))
    crc = functools.reduce(google_crc32c.extend, parts, 0)
    return b"".join((_header(size), *parts, _CRC.pack(_mask(crc))))


def frame_all(records: Sequence[bytes]) -> list[bytes]:
    """Frames many records, in a quarter of the time that `frame` takes."""
    crcs = np.fromiter(map(google_crc32c.value, records), np.uint32, len(records))
    footers = _masked(crcs).astype("<u4").tobytes()
    framed = []
    for number, data in enumerate(records):
        _check(len(data))
        at = FOOTER_BYTES * number
        framed.append(_header(len(data)) + data + footers[at : at + FOOTER_BYTES])
    return framed


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
    """The data of one framed record, with its checksums verified.

    Args:
        framed: The record with its framing, as `frame` returns it.
        file: The file's name, for error messages.
        offset: The record's position in the file, in bytes, for error messages.
        record: The record's number in the file, for error messages, if it is known.

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
    """Which framed records have correct lengths and checksums, in a tenth of `unframe`'s time.

    Args:
        data: Bytes, or uint8 [m], that begin with the framed records, one after another.
        lengths: int64 [n], the length of each record with its framing: at least `FRAME_BYTES`.

    Returns:
        bool [n], whether `unframe` would accept the record.
    """
    octets = np.frombuffer(data, np.uint8)
    stops = np.cumsum(lengths)
    if _are_rows_intact(octets, lengths) or _are_all_intact(octets, lengths, stops):
        return np.ones(len(lengths), bool)
    starts = stops - lengths
    sizes = (lengths - FRAME_BYTES).tolist()
    headers = np.frombuffer(b"".join(map(_header, sizes)), np.uint8).reshape(-1, HEADER_BYTES)
    found = octets[starts[:, None] + np.arange(HEADER_BYTES)]
    places = zip((starts + HEADER_BYTES).tolist(), sizes, strict=True)
    # google_crc32c takes arrays without a copy; memoryviews would have to be copied.
    contents = [octets[start : start + size] for start, size in places]
    crcs = np.fromiter(map(google_crc32c.value, contents), np.uint32, len(lengths))
    footers = octets[(stops - FOOTER_BYTES)[:, None] + np.arange(FOOTER_BYTES)]
    return (found == headers).all(axis=1) & (_masked(crcs) == footers.view("<u4")[:, 0])


def _are_rows_intact(octets: np.ndarray, lengths: np.ndarray) -> bool:
    """Whether many records of one length are all intact.

    One CRC32C over all bytes must equal the one that follows from the stored checksums.
    """
    if len(lengths) < _MIN_ROWS or (lengths != lengths[0]).any():
        return False
    length = int(lengths[0])
    rows = octets[: length * len(lengths)].reshape(-1, length)
    footers = np.ascontiguousarray(rows[:, -FOOTER_BYTES:]).view("<u4")[:, 0]
    header = np.array([_header_crc(length - FRAME_BYTES)], np.uint32)
    framed = _framed_crcs(shifted(header, length - FRAME_BYTES), footers)
    return google_crc32c.value(rows.reshape(-1)) == combined_crc_of_rows(framed, length)


def _are_all_intact(octets: np.ndarray, lengths: np.ndarray, stops: np.ndarray) -> bool:
    """Whether many records of different lengths are all intact, by one CRC32C over all bytes.

    A call for each record would release the interpreter's lock, and other threads contend for it.
    """
    if len(lengths) < _MIN_MIXED:
        return False
    places = (stops - FOOTER_BYTES)[:, None] + np.arange(FOOTER_BYTES)
    footers = octets[places].view("<u4")[:, 0]
    sizes = lengths - FRAME_BYTES
    headers = np.fromiter(map(_header_crc, sizes.tolist()), np.uint32, len(sizes))
    framed = _framed_crcs(shifted_each(headers, sizes), footers)
    return google_crc32c.value(octets[: int(stops[-1])]) == combined_crc(framed, lengths)


def _framed_crcs(headers: np.ndarray, footers: np.ndarray) -> np.ndarray:
    """The CRC32C that whole framed records have if their stored checksums are right, uint32 [n].

    Args:
        headers: uint32 [n] or [1], the CRC32C of each header, shifted by the length of the data.
        footers: uint32 [n], the masked CRC32C of the data, as stored.
    """
    masked = footers - np.uint32(_MASK_DELTA)
    with_data = headers ^ (masked << 15 | masked >> 17)
    # The CRC32C of the footer's four bytes is its value, shifted by four bytes, XOR that of zeros.
    return shifted(with_data ^ footers, FOOTER_BYTES) ^ np.uint32(google_crc32c.value(bytes(4)))


@functools.lru_cache(maxsize=65_536)
def _header_crc(size: int) -> int:
    return int(google_crc32c.value(_header(size)))


def _masked(crcs: np.ndarray) -> np.ndarray:
    """CRC32C values, uint32 [n], masked as TFRecord stores them."""
    return (crcs >> 15 | crcs << 17) + np.uint32(_MASK_DELTA)


def read_records(stream: BinaryIO, file: str) -> Iterator[tuple[int, bytes]]:
    """Yields (offset in bytes, data) of every record; verifies lengths and data, unlike `read_framed`."""
    for offset, framed in read_framed(stream, file):
        yield offset, bytes(unframe(framed, file, offset))


def read_framed(stream: BinaryIO, file: str) -> Iterator[tuple[int, bytes]]:
    """Yields (offset in bytes, framed bytes) of every record; verifies lengths, but not the data.

    Args:
        stream: The open file.
        file: The file's name, for error messages.

    Raises:
        CorruptRecordError: No record starts where one should, or one is cut off.
    """
    offset = 0
    while header := stream.read(HEADER_BYTES):
        length = record_length(header, file, offset)
        body = stream.read(length + FOOTER_BYTES)
        if len(body) < length + FOOTER_BYTES:
            raise CorruptRecordError.at(file, offset, "is cut off")
        yield offset, header + body
        offset += FRAME_BYTES + length


def record_length(header: bytes, file: str, offset: int) -> int:
    """The length of a record's data in bytes, from its header.

    Args:
        header: The first 12 bytes of the framed record.
        file: The file's name, for error messages.
        offset: The record's position in the file, in bytes, for error messages.

    Raises:
        CorruptRecordError: The header is cut off, its checksum is wrong, or the length is more than
            `MAX_RECORD_BYTES`.
    """
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
