"""Reads the records of any TFRecord file, and finds the places where it is damaged."""

from __future__ import annotations

import functools
import gzip
import io
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.storage.limits import exceeds
from readers.format.compiled.library import find_frames
from readers.format.tfrecord import (
    FOOTER_BYTES,
    FRAME_BYTES,
    HEADER_BYTES,
    compression_of,
    intact,
    masked_crc32c,
)

# Bytes read at once: a few thousand records, so that each NumPy call works on many.
_BLOCK_BYTES = 4 << 20

_LENGTH = struct.Struct("<Q")

_CRC = struct.Struct("<I")

_WRONG_CHECKSUM = "its checksum does not match its data"


class FrameBatch(NamedTuple):
    """Consecutive records of a file.

    Attributes:
        data: uint8 [n], their frames, and bytes without meaning after them.
        lengths: int64 [B], the bytes of each frame.
        good: bool [B], whether its checksums match.
        first: The number of the first record in the file, from 1.
        offset: The position of the first record in the file, in bytes.
        broken: (number from 1, reason with the byte) of records whose checksum differs, and of the end of
            the file if that is damaged; (0, reason) of a file that cannot be read.
    """

    data: np.ndarray
    lengths: np.ndarray
    good: np.ndarray
    first: int
    offset: int
    broken: list[tuple[int, str]]

    @property
    def stops(self) -> np.ndarray:
        """The end of each frame in `data`, int64 [B]."""
        return np.cumsum(self.lengths)

    @property
    def spans(self) -> tuple[np.ndarray, np.ndarray]:
        """Where each record begins and ends in `data`, int64 [B]."""
        stops = self.stops
        return stops - self.lengths + HEADER_BYTES, stops - FOOTER_BYTES

    def place_of(self, start: int) -> str:
        """The byte of the file at which the frame of a record begins, for errors.

        Args:
            start: Where the record begins in `data`.
        """
        return f"byte {self.offset + int(start) - HEADER_BYTES:,}"


def no_frames(error: str) -> FrameBatch:
    """The records of a file that cannot be read."""
    nothing = np.zeros(0, np.int64)
    return FrameBatch(np.zeros(0, np.uint8), nothing, nothing > 0, 1, 0, [(0, error)])


# A file that is read from its beginning.
Stream = io.BufferedReader | gzip.GzipFile


def decompressed(file: io.BufferedReader) -> Stream:
    """The file itself, or its decompressed content if it is GZIP.

    Args:
        file: A file positioned at its beginning.

    Raises:
        OSError: The file cannot be read.
        RejectError: The file is compressed with ZLIB.
    """
    compression = compression_of(file.peek(HEADER_BYTES)[:HEADER_BYTES])
    if compression == "ZLIB":
        raise RejectError(
            "compressed with ZLIB, expected GZIP or no compression; write it again with "
            "tf.io.TFRecordOptions(compression_type='GZIP')"
        )
    return gzip.GzipFile(fileobj=file) if compression else file


def frame_batches(
    file: Stream, limit: int, start: int = 0, end: int = 0, first: int = 1
) -> Iterator[FrameBatch]:
    """Yields the records of a file, a few megabytes at a time.

    Damaged data costs only its record. After a damaged length the next record cannot be found, so the
    rest of the file counts as one broken record, as does a rest that cannot be read or decompressed.

    Args:
        file: A file positioned at `start`.
        limit: The most bytes of a record.
        start, end: The bytes between which the records are; `end` is 0 for the end of the file.
        first: The number of the first record.
    """
    rest, room = np.empty(0, np.uint8), _BLOCK_BYTES
    offset, number, ended = start, first, False
    while not ended:
        size = max(min(room, end - offset) if end else room, len(rest))
        buffer = np.empty(size, np.uint8)
        buffer[: len(rest)] = rest
        count, error = _read_into(file, buffer.data[len(rest) :])
        data = buffer[: len(rest) + count]
        ended = len(data) < size or offset + len(data) == end
        sizes, needed, wrong = frames_of(data, limit)
        used = int(sizes.sum())
        if wrong or (ended and len(data) > used):
            error = wrong or error or f"cut off after {len(data) - used:,} bytes"
            ended = True
        good = intact(buffer, sizes) if len(sizes) else np.zeros(0, bool)
        starts = offset + np.cumsum(sizes) - sizes
        broken = [
            (number + row, f"byte {int(starts[row]):,}: {_WRONG_CHECKSUM}")
            for row in np.flatnonzero(~good).tolist()
        ]
        if error:
            broken.append((number + len(sizes), f"byte {offset + used:,}: {error}"))
        if len(sizes) or broken:
            yield FrameBatch(buffer, sizes, good, number, offset, broken)
        rest = data[used:].copy()
        # At most twice the data so far, because a length does not prove that so much data follows.
        room = max(_BLOCK_BYTES, min(needed, 2 * len(rest)))
        offset, number = offset + used, number + len(sizes)


def _read_into(file: Stream, room: memoryview) -> tuple[int, str]:
    """Fills a buffer; returns the number of bytes read, and the error that stopped it early, if any."""
    count = 0
    try:
        # Small reads: if a long one failed near its end, all of it would be lost.
        while count < len(room) and (read := file.readinto1(room[count:])):
            count += read
    except (OSError, EOFError, zlib.error, RejectError) as error:
        return count, f"the rest cannot be read: {error}"
    return count, ""


def frames_of(data: np.ndarray, limit: int) -> tuple[np.ndarray, int, str]:
    """The complete frames that some bytes, uint8 [n], begin with.

    A length is trusted if its own checksum matches.

    Returns:
        Their lengths, int64 [B]; the length of the frame after them, 0 if unknown; and the error in
        that frame's header, if any.
    """
    room = np.empty(len(data) // FRAME_BYTES, np.int64)
    lengths = room[: find_frames(data, limit, room)].copy()
    header = data[int(lengths.sum()) :][:HEADER_BYTES].tobytes()
    if len(header) < HEADER_BYTES:
        return lengths, 0, ""
    if wrong := header_error(header, limit):
        return lengths, 0, wrong
    return lengths, FRAME_BYTES + int(_LENGTH.unpack_from(header)[0]), ""


@functools.lru_cache(4096)
def header_error(header: bytes, limit: int) -> str:
    """The error in the header of a record, whose limit is in bytes; "" if the header is intact."""
    if masked_crc32c(header[:8]) != _CRC.unpack_from(header, 8)[0]:
        return (
            "the checksum of its length does not match: the next record cannot be found, so the "
            "rest of the file is lost"
        )
    (length,) = _LENGTH.unpack_from(header)
    return exceeds(length, limit, "a record of") if length > limit else ""
