"""The spool: files in the output's staging folder with encoded records, until their shards are written.

Only locators of 32 bytes pass through the runner. Beam's runner in one process keeps everything that it
shuffles in memory and copies it five times, which took half of the time of a text job. Those of Flink
and Spark accept the output of a task only after the task has read all of its input; until then, output
waits in queues of about a gigabyte, and with more than that, both sides wait for each other and hang.
"""

from __future__ import annotations

import contextlib
import os
import struct
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO

import google_crc32c
import numpy as np

from beam_jobs.columns import Ragged
from beam_jobs.errors import DataError, JobError
from beam_jobs.records.blocks import Block
from beam_jobs.storage.files import files_of, open_file
from readers.files.local import is_local
from readers.files.stores.ahead import Part, Read, Window

# A locator of consecutive blocks: the name of their file, and their offset in it and their size in bytes.
LOCATOR = np.dtype([("name", "V16"), ("start", "<u8"), ("size", "<u8")])

# Bytes of blocks that one locator may have, unless it has only one block.
LOCATED_BYTES = 8 << 20

# Locators to collect before they are joined by shard, so that no element has more than a megabyte of them.
_WAITING_BYTES = LOCATOR.itemsize << 15

# The number of records of the block that follows, the size of their payloads in bytes, and the CRC32C of the
# block: hashes, lengths and splits of the records, then their payloads.
_BLOCK_HEAD = struct.Struct("<III")
_COLUMNS_BYTES = 8 + 4 + 1

# A locator with Python's types.
_Place = tuple[bytes, int, int]


@contextlib.contextmanager
def _reported(what: str, cure: str) -> Iterator[None]:
    """Turns an OSError into a DataError that states the failure, the reason, and the cure."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{what} ({error}); {cure}") from error


@dataclass(frozen=True)
class Spool:
    """Files of packed blocks in the staging folder of a run, on any filesystem, which all writers and readers share."""

    directory: str

    @property
    def on_disk(self) -> bool:
        """Whether its files are in a folder of this machine's file system."""
        return is_local(self.directory)

    def path(self, name: bytes) -> str:
        """The path of the file with a name."""
        return f"{self.directory}/records.{name.hex()}"

    def writing(self) -> AbstractContextManager[None]:
        """Turns the OSError of a failed write into DataError."""
        return _reported(
            f"{self.directory.rsplit('/', 2)[0]}: encoded records cannot be kept there",
            "a running job takes twice the room of its dataset: make room or choose another place, and "
            "run the same command again",
        )

    def reading(self) -> AbstractContextManager[None]:
        """Turns the OSError of records that can no longer be read into DataError."""
        return _reported(
            f"encoded records are missing or damaged in {self.directory}",
            "no dataset was written, run the same command again",
        )


class SpoolFile:
    """A new file of blocks, its name of 16 bytes, and its size so far; DataError if it cannot be written."""

    def __init__(self, spool: Spool) -> None:
        self.name, self.size = uuid.uuid4().bytes, 0
        self._spool = spool
        with self._spool.writing():
            path = spool.path(self.name)
            self._file = files_of(path).begin(path)

    def append(self, block: Block) -> None:
        """Writes a block."""
        parts = block.hashes.astype("<u8"), block.payloads.lengths.astype("<u4"), block.splits
        columns, data = b"".join([part.tobytes() for part in parts]), block.payloads.data
        crc = google_crc32c.extend(google_crc32c.value(columns), data)
        head = _BLOCK_HEAD.pack(len(block.hashes), len(data), crc)
        with self._spool.writing():
            self._file.write(head + columns)
            self._file.write(data)
        self.size += len(head) + len(columns) + len(data)

    def publish(self) -> None:
        """Completes the file, so that its blocks can be read on any machine."""
        with self._spool.writing():
            self._file.publish()

    def give_up(self) -> None:
        """Removes the file, as far as possible."""
        with contextlib.suppress(OSError, JobError):
            self._file.give_up()


class LocatorsByShard:
    """Collects locators by shard, and releases many at a time."""

    def __init__(self) -> None:
        self._by_shard: dict[int, list[bytes]] = {}
        self._bytes = 0

    def add(self, located: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
        """Adds pairs of (split and shard, locators); releases all when there are too many."""
        for key, locators in located:
            self._by_shard.setdefault(key, []).append(locators)
            self._bytes += len(locators)
            if self._bytes >= _WAITING_BYTES:
                yield from self.release()

    def release(self) -> Iterator[tuple[int, bytes]]:
        """Yields (split and shard, its locators joined), and forgets them."""
        by_shard, self._by_shard, self._bytes = self._by_shard, {}, 0
        for key, locators in by_shard.items():
            yield key, b"".join(locators)


class SpoolReader(contextlib.ExitStack):
    """Reads blocks by their locators; a context manager that closes its files.

    Blocks on a disk are read in place. From anywhere else they are fetched with many requests at once,
    and their payloads are kept in a temporary file.

    Attributes:
        files: Local files with the payloads of all blocks that were read.
    """

    def __init__(self, spool: Spool) -> None:
        super().__init__()
        self._spool = spool
        self._numbers: dict[bytes, int] = {}
        self.files: list[BinaryIO] = []

    def blocks(self, packed: Iterable[bytes]) -> Iterator[tuple[int, int, Block]]:
        """Yields (number of the file in `files`, offset of `payloads.data` in it, block) for locators, joined or not.

        Raises a DataError if a block is missing or damaged, or the temporary file cannot be written.
        """
        return self._in_place(packed) if self._spool.on_disk else self._fetched(packed)

    def _in_place(self, packed: Iterable[bytes]) -> Iterator[tuple[int, int, Block]]:
        for place in _places(packed):
            name, start, size = place
            with self._spool.reading():
                if name not in self._numbers:
                    self.files.append(self.enter_context(open_file(self._spool.path(name))))
                    self._numbers[name] = len(self.files) - 1
                number = self._numbers[name]
                block = _unpack(os.pread(self.files[number].fileno(), size, start), place)
            yield number, start, block

    def _fetched(self, packed: Iterable[bytes]) -> Iterator[tuple[int, int, Block]]:
        folder, cure = tempfile.gettempdir(), "make room, or set TMPDIR to another place"
        keeping = f"the records of a shard cannot be kept in {folder}", cure
        with _reported(*keeping):
            kept = self.enter_context(_temporary_file())
        self.files.append(kept)
        at = 0
        for block in read_blocks(self._spool, packed):
            with _reported(*keeping):
                kept.write(block.payloads.data)
            yield 0, at, block
            at += len(block.payloads.data)
        with _reported(*keeping):
            kept.flush()


def _temporary_file() -> BinaryIO:
    return tempfile.TemporaryFile()


def read_blocks(spool: Spool, packed: Iterable[bytes]) -> Iterator[Block]:
    """Yields blocks, with their payloads in memory, in the order of their locators, joined or not.

    Some are fetched ahead. Raises a DataError if one is missing or damaged.
    """

    places = list(_places(packed))
    reads = [Read(spool.path(name), start, size, size) for name, start, size in places]
    with Window(reads, _request) as window:
        for place, read in zip(places, reads, strict=True):
            with spool.reading():
                found = window.take(read.path, read.start, read.size)
                block = _unpack(found[1].data if found else b"", place)
            yield block


def _request(read: Read) -> Part:
    return Part(files_of(read.path).read(read.path, read.start, read.size), 0, None)


def _places(packed: Iterable[bytes]) -> Iterator[_Place]:
    """Yields the parts of joined locators."""
    for some in packed:
        yield from np.frombuffer(some, LOCATOR).tolist()


def _unpack(data: bytes, place: _Place) -> Block:
    """The records of all blocks in the bytes at a place, as one block; OSError if the bytes have changed."""
    name, _, total = place
    columns, at = list[tuple[np.ndarray, ...]](), 0
    while at < total:
        start = at + _BLOCK_HEAD.size
        records, size, crc = (
            _BLOCK_HEAD.unpack_from(data, at) if start <= len(data) else (0, total, 0)
        )
        payloads = start + _COLUMNS_BYTES * records
        at = payloads + size
        if at > len(data) or google_crc32c.value(data[start:at]) != crc:
            raise OSError(f"file {name.hex()} is shorter than it was, or damaged")
        hashes = np.frombuffer(data, "<u8", records, start)
        lengths = np.frombuffer(data, "<u4", records, start + 8 * records)
        splits = np.frombuffer(data, np.uint8, records, start + 12 * records)
        columns.append((hashes, splits, lengths, payloads + np.cumsum(lengths, dtype=np.int64)))
    hashes, splits, lengths, ends = map(np.concatenate, zip(*columns, strict=True))
    return Block(hashes, splits, Ragged(lengths, data, ends))
