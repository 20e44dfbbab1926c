"""Records -> bytes: a memory map where the file is local, range reads through fsspec elsewhere."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

import fsspec
import numpy as np

from readers.format.manifest import INDEX_SUFFIX
from readers.format.tfrecord import (
    FOOTER_BYTES,
    HEADER_BYTES,
    MAX_RECORD_BYTES,
    CorruptRecordError,
    masked_crc32c,
    parse_index,
)

# A request to an object store costs about as long as a MiB takes to arrive: below this gap two
# records come cheaper in one request than in two.
_GAP_BYTES = 1 << 20


def local_path(path: str) -> str | None:
    """The path in the local filesystem, or None for one that only fsspec can open."""
    if path.startswith("file://"):
        return path[len("file://") :]
    return None if "://" in path or "::" in path else path


def file_size(path: str) -> int:
    """The size of a file, in bytes.

    Raises:
        FileNotFoundError: There is no such file.
    """
    local = local_path(path)
    if local is not None:
        return os.stat(local).st_size
    filesystem, name = fsspec.core.url_to_fs(path)
    return int(filesystem.size(name))


def read_sidecar(path: str) -> np.ndarray | None:
    """The (offset, length) in bytes of every record, int64 [records, 2]; None without an `.idx`.

    Args:
        path: Of the TFRecord file; the index stands beside it.

    Raises:
        ValueError: The index is none, or does not fit the size of the file.
    """
    sidecar = path + INDEX_SUFFIX
    try:
        with fsspec.open(sidecar, "rb") as file:
            index = parse_index(file.read(), sidecar)
    except FileNotFoundError:
        return None
    end, size = int(index[-1].sum()) if len(index) else 0, file_size(path)
    if end != size:
        raise ValueError(
            f"{sidecar}: the records end at byte {end}, but {path} has {size} bytes; "
            "delete or rewrite the index"
        )
    return index


def scan_index(path: str) -> np.ndarray:
    """The (offset, length) of every record, int64 [records, 2], found by walking the file.

    It reads 12 bytes a record, and checks the CRC32C of each length.

    Raises:
        CorruptRecordError: A record's header is wrong, or the file ends within a record.
    """
    rows = []
    with fsspec.open(path, "rb") as file:
        size = _stream_size(file)
        offset = 0
        while offset < size:
            file.seek(offset)
            header = file.read(HEADER_BYTES)
            length, crc = struct.unpack("<QI", header) if len(header) == HEADER_BYTES else (0, -1)
            if crc != masked_crc32c(header[:8]) or length > MAX_RECORD_BYTES:
                raise CorruptRecordError(f"{path}: no TFRecord starts at byte {offset}")
            framed = HEADER_BYTES + length + FOOTER_BYTES
            rows.append((offset, framed))
            offset += framed
        if offset != size:
            raise CorruptRecordError(f"{path}: the record at byte {rows[-1][0]} is cut off")
    return np.array(rows, np.int64).reshape(-1, 2)


def read_index(path: str) -> np.ndarray:
    """The (offset, length) of every record, int64 [records, 2], from the `.idx` or by a scan."""
    index = read_sidecar(path)
    return scan_index(path) if index is None else index


def _stream_size(file: BinaryIO) -> int:
    file.seek(0, os.SEEK_END)
    return file.tell()


class ShardBytes:
    """The bytes of one shard by position; safe to share between threads.

    Args:
        path: A local path or any URL that fsspec knows.

    Raises:
        FileNotFoundError: There is no such file.
    """

    def __init__(self, path: str) -> None:
        local = local_path(path)
        self._view: memoryview | None = None
        self._filesystem: Any = None
        if local is None:
            self._filesystem, self._name = fsspec.core.url_to_fs(path)
            return
        # It is closed when nothing refers to it any more.
        self._file = open(local, "rb", buffering=0)  # noqa: PTH123, SIM115
        # An empty file cannot be mapped. The map closes when its last view is gone.
        if os.fstat(self._file.fileno()).st_size:
            self._view = memoryview(mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ))
        else:
            self._view = memoryview(b"")

    def pieces(self, index: np.ndarray) -> list[memoryview]:
        """Bytes that are those at each (offset, length) of an int64 [n, 2], one after another.

        Views of the map where the file is local. Elsewhere neighbours are fetched together, and
        the requests of one call run at once where the filesystem can.
        """
        if self._view is not None:
            view = self._view
            return [view[start:stop] for start, stop in _runs(index)]
        rows = index.tolist()
        spans = spans_of(rows)
        blobs = self._filesystem.cat_ranges(
            [self._name] * len(spans),
            [first for first, _ in spans],
            [last for _, last in spans],
            on_error="raise",
        )
        starts = np.array([first for first, _ in spans])
        found = np.searchsorted(starts, index[:, 0], side="right") - 1
        return [
            memoryview(blobs[span])[offset - spans[span][0] :][:length]
            for span, (offset, length) in zip(found.tolist(), rows, strict=True)
        ]

    def read_run(self, index: np.ndarray, buffer: Callable[[int], bytearray]) -> bytearray | None:
        """The same bytes in a buffer, which may be longer, if one read of a local file gets them.

        A map costs a page fault for every 4 KiB, and so does memory that is new each time.

        Args:
            buffer: Gives one of at least so many bytes.
        """
        stops = index.sum(axis=1)
        if self._view is None or (index[1:, 0] != stops[:-1]).any():
            return None
        start, length = int(index[0, 0]), int(stops[-1] - index[0, 0])
        data = buffer(length)
        if os.preadv(self._file.fileno(), [memoryview(data)[:length]], start) < length:
            return None  # As the kernel does beyond 2 GiB.
        return data


def _runs(index: np.ndarray) -> Iterator[tuple[int, int]]:
    """The (start, stop) of records that follow each other in the file as they do in the index."""
    starts, stops = index[:, 0], index.sum(axis=1)
    breaks = np.flatnonzero(starts[1:] != stops[:-1]) + 1
    firsts, lasts = np.append(0, breaks), np.append(breaks, len(index)) - 1
    return zip(starts[firsts].tolist(), stops[lasts].tolist(), strict=True)


def spans_of(rows: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """The (start, stop) of the fewest requests that cover every (offset, length), ascending."""
    spans: list[tuple[int, int]] = []
    for offset, length in sorted((row[0], row[1]) for row in rows):
        if spans and offset <= spans[-1][1] + _GAP_BYTES:
            spans[-1] = (spans[-1][0], max(spans[-1][1], offset + length))
        else:
            spans.append((offset, offset + length))
    return spans
