"""TFRecord files of anybody: their records, and the places where they are broken."""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from beam_jobs.errors import RejectError
from readers.format.decode.batches import MARGIN
from readers.format.tfrecord import (
    FRAME_BYTES,
    HEADER_BYTES,
    MAX_RECORD_BYTES,
    intact,
    masked_crc32c,
)

# Read at once: a few thousand records, so that what is done with NumPy is done for many.
_BLOCK_BYTES = 4 << 20

_LENGTH = struct.Struct("<Q")

_CRC = struct.Struct("<I")

_GZIP = b"\x1f\x8b"

_ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")

# Frames of one length in a row, after which it is worth while to look for more of them at once.
_ALIKE = 4


class Broken(NamedTuple):
    """A place where a file holds no record.

    Attributes:
        number: Of the record that would be there, from 1.
        error: Why, with the byte at which it begins.
    """

    number: int
    error: str


class Stretch(NamedTuple):
    """Records that stand one after another in a file.

    Attributes:
        data: uint8 [n], their frames, and behind them `MARGIN` bytes or more that mean nothing.
            The next stretch takes its place.
        lengths: int64 [B], of each frame.
        good: bool [B], whether its checksums fit.
        first: Number of the first one in the file, from 1.
        offset: Of the first one in the file, in bytes.
        broken: What is wrong where checksums do not fit, or where the records end.
    """

    data: np.ndarray
    lengths: np.ndarray
    good: np.ndarray
    first: int
    offset: int
    broken: list[Broken]

    @property
    def stops(self) -> np.ndarray:
        """Where each frame ends, int64 [B]."""
        return np.cumsum(self.lengths)


# A file open for reading from its front.
Stream = io.BufferedReader | gzip.GzipFile


def unpacked(file: io.BufferedReader) -> Stream:
    """The file itself, or what it is unpacked to where it is GZIP.

    Its name does not count. A first record of 35,615 bytes begins with the same two bytes as GZIP;
    but its length has a checksum.

    Args:
        file: At its beginning.

    Raises:
        OSError: It cannot be read.
        RejectError: It is packed in another way.
    """
    head = file.peek(HEADER_BYTES)[:HEADER_BYTES]
    if len(head) == HEADER_BYTES and masked_crc32c(head[:8]) == _CRC.unpack_from(head, 8)[0]:
        return file
    if head[:2] in _ZLIB:
        raise RejectError(
            "compressed with ZLIB, expected GZIP or no compression; write it again with "
            "tf.io.TFRecordOptions(compression_type='GZIP')"
        )
    return gzip.GzipFile(fileobj=file) if head[:2] == _GZIP else file


def stretches(file: Stream) -> Iterator[Stretch]:
    """Yields the records of a file, a few megabytes at a time, in memory that is used again.

    A record whose data is damaged costs that record. Behind a length that is damaged nobody knows
    where the next record begins: the rest of the file is one broken place. So is what cannot be
    read or unpacked.

    Args:
        file: At its beginning.
    """
    buffer = np.empty(_BLOCK_BYTES + MARGIN, np.uint8)
    held, offset, number = 0, 0, 1
    ended = False
    while not ended:
        room = len(buffer) - MARGIN
        read, error = _read_into(file, buffer.data[held:room])
        held += read
        ended = held < room
        sizes, needed, wrong = _frames(buffer[:held])
        used = int(sizes.sum())
        if wrong or (ended and held > used):
            error = wrong or error or f"cut off after {held - used:,} bytes"
            ended = True
        good = intact(buffer[: used + MARGIN], sizes) if len(sizes) else np.zeros(0, bool)
        starts = offset + np.cumsum(sizes) - sizes
        broken = [
            Broken(number + row, f"byte {int(starts[row]):,}: its checksum does not fit its data")
            for row in np.flatnonzero(~good).tolist()
        ]
        if error:
            broken.append(Broken(number + len(sizes), f"byte {offset + used:,}: {error}"))
        if len(sizes) or broken:
            yield Stretch(buffer, sizes, good, number, offset, broken)
        held -= used
        buffer = _moved(buffer, used, held, needed)
        offset, number = offset + used, number + len(sizes)


def _read_into(file: Stream, room: memoryview) -> tuple[int, str]:
    """Reads as much as there is room for: how many bytes, and why there are no more, but the end."""
    count = 0
    try:
        # One read of the file at a time: of a longer one that fails at last all would be lost.
        while count < len(room) and (read := file.readinto1(room[count:])):
            count += read
    except (OSError, EOFError, zlib.error, RejectError) as error:
        return count, f"cannot be read on: {error}"
    return count, ""


def _moved(buffer: np.ndarray, used: int, held: int, needed: int) -> np.ndarray:
    """A buffer that begins with the bytes held behind those used, and has room for more.

    Args:
        needed: By the record that begins there. It gets twice the room that it fills: a length says
            nothing of how much there is.
    """
    rest = buffer[used : used + held].copy()
    wanted = max(_BLOCK_BYTES, min(needed, 2 * held)) + MARGIN
    if wanted > len(buffer):
        buffer = np.empty(wanted, np.uint8)
    buffer[:held] = rest
    return buffer


def _frames(data: np.ndarray) -> tuple[np.ndarray, int, str]:
    """The whole frames at the beginning of some bytes, uint8 [n].

    A length is trusted once its own checksum fits.

    Returns:
        Their lengths, int64 [B]; how long the frame behind them is, 0 if nobody knows; and what is
        wrong with it.
    """
    lengths: list[int] = []
    known: dict[bytes, int] = {}
    last, alike, at, size = b"", 0, 0, len(data)
    needed, wrong = 0, ""
    while at + HEADER_BYTES <= size:
        header = data[at : at + HEADER_BYTES].tobytes()
        if header not in known:
            wrong = _wrong_with(header)
            if wrong:
                break
            known[header] = FRAME_BYTES + _LENGTH.unpack_from(header)[0]
        frame = known[header]
        if at + frame > size:
            needed = frame
            break
        alike = alike + 1 if header == last else 1
        count = 1 if alike < _ALIKE else _run(data, at, frame, alike)
        lengths += [frame] * count
        last, alike, at = header, alike + count - 1, at + frame * count
    return np.array(lengths, np.int64), needed, wrong


def _wrong_with(header: bytes) -> str:
    """Why no record has this header; empty if one may."""
    if masked_crc32c(header[:8]) != _CRC.unpack_from(header, 8)[0]:
        return (
            "the checksum of its length does not fit: nobody knows where the next record begins, so "
            "the rest of the file is lost"
        )
    (length,) = _LENGTH.unpack_from(header)
    return f"a record of {length:,} bytes, more than 2 GiB" if length > MAX_RECORD_BYTES else ""


def _run(data: np.ndarray, at: int, frame: int, most: int) -> int:
    """How many frames with the header of the one that begins at `at` follow it, itself included."""
    rows = min((len(data) - at) // frame, most)
    headers = np.ndarray((rows, HEADER_BYTES), np.uint8, data, at, (frame, 1))
    other = np.flatnonzero((headers != headers[0]).any(axis=1))
    return int(other[0]) if len(other) else rows
