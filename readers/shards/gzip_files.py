"""TFRecord files compressed with GZIP: told by their first bytes, read from the front to the back.

Source: RFC 1952 (GZIP) and RFC 1950 (ZLIB).
"""

from __future__ import annotations

import contextlib
import gzip
import struct
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, cast

import numpy as np

from readers.files.remote import open_file
from readers.format.tfrecord import (
    FRAME_BYTES,
    HEADER_BYTES,
    CorruptRecordError,
    masked_crc32c,
    read_framed,
    record_length,
)
from readers.shards.fetch import Run

_GZIP = b"\x1f\x8b"

_ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")


def is_gzipped(path: str) -> bool:
    """Whether a file is compressed with GZIP, whatever its name.

    The length of a first record of 35,615 bytes begins with the same two bytes, 1f 8b, as may that of
    larger ones; but it is followed by its checksum.

    Raises:
        ValueError: It is compressed with ZLIB, which nothing here reads.
    """
    with open_file(path, HEADER_BYTES) as file:
        head = file.read(HEADER_BYTES)
    if len(head) == HEADER_BYTES and masked_crc32c(head[:8]) == struct.unpack("<I", head[8:])[0]:
        return False
    if head[:2] in _ZLIB:
        raise ValueError(
            f"{path}: compressed with ZLIB, expected GZIP or no compression; write it again with "
            "tf.io.TFRecordOptions(compression_type='GZIP')"
        )
    return head[:2] == _GZIP


def unpacked_extent(path: str) -> tuple[int, int]:
    """The records of a GZIP file, and their bytes with framing: it is unpacked once, in little memory.

    Raises:
        CorruptRecordError: It is damaged or cut off, or holds something else.
    """
    count = offset = 0
    with _unpacked(path) as file:
        while header := file.read(HEADER_BYTES):
            end = offset + FRAME_BYTES + record_length(header, path, offset)
            if file.seek(end) < end:
                raise CorruptRecordError(f"{path}: the record at byte {offset} is cut off")
            count, offset = count + 1, end
    return count, offset


def first_record_bytes(path: str, gzipped: bool) -> int | None:
    """The size of the first record, with framing; None of an empty file.

    Raises:
        CorruptRecordError: There is something else.
    """
    with _unpacked(path) if gzipped else open_file(path, HEADER_BYTES) as file:
        header = file.read(HEADER_BYTES)
    return FRAME_BYTES + record_length(header, path, 0) if header else None


@contextlib.contextmanager
def _unpacked(path: str) -> Iterator[BinaryIO]:
    with _named(path), open_file(path) as packed, gzip.GzipFile(fileobj=packed) as file:
        yield cast(BinaryIO, file)


def _from_front(path: str) -> Iterator[tuple[int, bytes]]:
    """The (offset, framed bytes) of each record."""
    with _unpacked(path) as file:
        yield from read_framed(file, path)


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    """Gives the errors of GZIP the name of the file."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise CorruptRecordError(f"{path}: damaged or cut off ({error})") from None


@dataclass(frozen=True)
class Unpacked:
    """Records of a GZIP file, read as a shard is.

    Attributes:
        index: int64 [n, 2], the (offset, length) of each among the unpacked bytes.
        records: The framed bytes by offset.
    """

    index: np.ndarray
    records: Mapping[int, bytes]

    def read(self, runs: Sequence[Run], buffer: memoryview) -> None:
        """Copies runs of the records, each to its place in a buffer."""
        for _, start, length, at in runs:
            end = at + length
            while at < end:
                record = self.records[start]
                buffer[at : at + len(record)] = record
                at, start = at + len(record), start + len(record)


class GzippedShard:
    """The records of a GZIP file by number.

    Rising numbers are read in one go, a smaller one from the front again. Safe to share between
    threads.

    Args:
        path: A local path or any URL that fsspec knows.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._records = _from_front(self._path)
        self._row = 0

    def __getitem__(self, rows: np.ndarray) -> Unpacked:
        """Records by their numbers, int64 [n].

        Raises:
            CorruptRecordError: The file is damaged, or ends before one of them.
        """
        found = {}
        with self._lock:
            for row in sorted(set(rows.tolist())):
                found[row] = self._record(row)
        places = [(found[row][0], len(found[row][1])) for row in rows.tolist()]
        return Unpacked(np.array(places, np.int64).reshape(-1, 2), dict(found.values()))

    def _record(self, row: int) -> tuple[int, bytes]:
        if row < self._row:
            self._records, self._row = _from_front(self._path), 0
        try:
            for record in self._records:
                self._row += 1
                if self._row > row:
                    return record
        except CorruptRecordError:
            # A generator that has raised only ends; whoever asks again is to hear the same.
            self._records, self._row = _from_front(self._path), 0
            raise
        raise CorruptRecordError(f"{self._path}: it ends before record {row}")
