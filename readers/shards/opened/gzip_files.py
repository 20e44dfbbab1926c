"""TFRecord files compressed with GZIP: detected by their first bytes, read from front to back.

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

from readers.files.of_path import files_of
from readers.format.tfrecord import (
    FRAME_BYTES,
    HEADER_BYTES,
    CorruptRecordError,
    masked_crc32c,
    read_framed,
    record_length,
)
from readers.shards.opened.local_shard import Run

# The first bytes of a compressed file.
_GZIP = b"\x1f\x8b"
_ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")


def is_gzipped(path: str) -> bool:
    """Whether a file is compressed with GZIP, whatever its name.

    A plain file may begin with the same two bytes, 1f 8b: its first record has 35,615 bytes, or one of
    many larger sizes. But there the length is followed by its checksum.

    Raises:
        ValueError: The file is compressed with ZLIB, which is not supported.
    """
    head = files_of(path).read(path, 0, HEADER_BYTES)
    if len(head) == HEADER_BYTES and masked_crc32c(head[:8]) == struct.unpack("<I", head[8:])[0]:
        return False
    if head[:2] in _ZLIB:
        raise ValueError(
            f"{path}: compressed with ZLIB, expected GZIP or no compression; write it again with "
            "tf.io.TFRecordOptions(compression_type='GZIP')"
        )
    return head[:2] == _GZIP


def decompressed_extent(path: str) -> tuple[int, int]:
    """The number of records in a GZIP file, and their size in bytes with framing.

    The file is decompressed once, in little memory.

    Raises:
        CorruptRecordError: The file is damaged or cut off, or does not hold TFRecords.
    """
    count = offset = 0
    with _decompressed(path) as file:
        while header := file.read(HEADER_BYTES):
            end = offset + FRAME_BYTES + record_length(header, path, offset)
            if file.seek(end) < end:
                raise CorruptRecordError.at(path, offset, "is cut off")
            count, offset = count + 1, end
    return count, offset


@contextlib.contextmanager
def _decompressed(path: str) -> Iterator[BinaryIO]:
    """Opens a GZIP file. Errors of decompression name it."""
    try:
        with files_of(path).open(path) as compressed, gzip.GzipFile(fileobj=compressed) as file:
            yield cast(BinaryIO, file)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise CorruptRecordError(f"{path}: damaged or cut off ({error})", path) from None


def _records_of(path: str) -> Iterator[tuple[int, bytes]]:
    """Yields (offset, framed bytes) of each record in a GZIP file."""
    with _decompressed(path) as file:
        yield from read_framed(file, path)


@dataclass(frozen=True)
class DecompressedRecords:
    """Some records of a GZIP file, with the interface of a shard.

    Attributes:
        index: int64 [n, 2], the (offset, length) of each record in the decompressed bytes.
        records: Offset -> the framed bytes of the record.
    """

    index: np.ndarray
    records: Mapping[int, bytes]

    def read(self, runs: Sequence[Run], buffer: memoryview) -> None:
        """Copies runs of records into their positions in a buffer."""
        for _, start, length, at in runs:
            end = at + length
            while at < end:
                record = self.records[start]
                buffer[at : at + len(record)] = record
                at, start = at + len(record), start + len(record)


class GzippedShard:
    """The records of a GZIP file by number. It is safe to share between threads.

    Ascending numbers are read in one pass; for a smaller number than the last, the file is read from
    its beginning again.

    Args:
        path: A path, or a URL of a store or of another protocol of fsspec.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._records = _records_of(self._path)
        self._row = 0

    def __getitem__(self, rows: np.ndarray) -> DecompressedRecords:
        """Some records by their numbers, int64 [n].

        Raises:
            CorruptRecordError: The file is damaged, or ends before one of the records.
        """
        found = {}
        with self._lock:
            for row in sorted(set(rows.tolist())):
                found[row] = self._record(row)
        places = [(found[row][0], len(found[row][1])) for row in rows.tolist()]
        return DecompressedRecords(np.array(places, np.int64).reshape(-1, 2), dict(found.values()))

    def _record(self, row: int) -> tuple[int, bytes]:
        """The (offset, framed bytes) of a record."""
        if row < self._row:
            self._records, self._row = _records_of(self._path), 0
        try:
            for record in self._records:
                self._row += 1
                if self._row > row:
                    return record
        except CorruptRecordError:
            # After an error a generator just ends. The next caller must get the same error.
            self._records, self._row = _records_of(self._path), 0
            raise
        message = f"{self._path}: the file ends before record {row}"
        raise CorruptRecordError(message, self._path, row)
