"""Reads encoded records back from the spool: in place on a disk, with many requests at once elsewhere."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import BinaryIO

import google_crc32c

from beam_jobs.errors import DataError
from beam_jobs.records.blocks import Block
from beam_jobs.records.spool import BLOCK_HEAD, Locator, Spool
from beam_jobs.storage.files import files_of, open_file

# A request of 8 MiB to a store takes some 100 ms, most of it waiting.
_REQUESTS_AT_ONCE = 32
_BYTES_AHEAD = 64 << 20


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
        """Yields (number of the file in `files`, offset of the payloads in it, block).

        Args:
            packed: Each holds any number of packed locators.

        Raises:
            DataError: A block is missing or damaged, or the temporary file cannot be written.
        """
        locators = (locator for some in packed for locator in Locator.unpack_all(some))
        return self._in_place(locators) if self._spool.on_disk else self._fetched(locators)

    def whole_blocks(self, packed: Iterable[bytes]) -> Iterator[Block]:
        """Yields the blocks alone, with their payloads in memory; arguments and errors as for `blocks`."""
        locators = (locator for some in packed for locator in Locator.unpack_all(some))
        for locator, data in _ahead(self._spool, locators):
            with self._spool.unreadable():
                blocks = _unpack(data, locator)
            yield from (block for _, block in blocks)

    def _in_place(self, locators: Iterable[Locator]) -> Iterator[tuple[int, int, Block]]:
        for locator in locators:
            with self._spool.unreadable():
                number = self._opened(locator.name)
                data = os.pread(self.files[number].fileno(), locator.size, locator.start)
                blocks = _unpack(data, locator)
            for end, block in blocks:
                yield number, locator.start + end - len(block.payloads.data), block

    def _opened(self, name: bytes) -> int:
        """The number of a file, which is opened once."""
        if name not in self._numbers:
            self.files.append(self.enter_context(open_file(self._spool.path(name))))
            self._numbers[name] = len(self.files) - 1
        return self._numbers[name]

    def _fetched(self, locators: Iterable[Locator]) -> Iterator[tuple[int, int, Block]]:
        kept, at = self.enter_context(_temporary_file()), 0
        self.files.append(kept)
        for locator, data in _ahead(self._spool, locators):
            with self._spool.unreadable():
                blocks = _unpack(data, locator)
            for _, block in blocks:
                with _no_room_for_shard():
                    kept.write(block.payloads.data)
                yield 0, at, block
                at += len(block.payloads.data)
        with _no_room_for_shard():
            kept.flush()


def _ahead(spool: Spool, locators: Iterable[Locator]) -> Iterator[tuple[Locator, bytes]]:
    """Yields (locator, its bytes) in order; some are fetched ahead."""

    def fetch(locator: Locator) -> bytes:
        with spool.unreadable():
            path = spool.path(locator.name)
            return files_of(path).read(path, locator.start, locator.size)

    waiting: deque[tuple[Locator, Future[bytes]]] = deque()
    under_way = 0
    threads = ThreadPoolExecutor(_REQUESTS_AT_ONCE)
    try:
        for locator in locators:
            waiting.append((locator, threads.submit(fetch, locator)))
            under_way += locator.size
            while len(waiting) > _REQUESTS_AT_ONCE or under_way > _BYTES_AHEAD:
                first, data = waiting.popleft()
                under_way -= first.size
                yield first, data.result()
        while waiting:
            first, data = waiting.popleft()
            yield first, data.result()
    finally:
        threads.shutdown(cancel_futures=True)


def _unpack(data: bytes, locator: Locator) -> list[tuple[int, Block]]:
    """(offset of its end, block) for each block in the bytes of a locator.

    Raises:
        OSError: The bytes are not those that were written.
    """
    found, at = [], 0
    while at < locator.size:
        size, crc = (
            BLOCK_HEAD.unpack_from(data, at) if at + BLOCK_HEAD.size <= len(data) else (-1, 0)
        )
        at += BLOCK_HEAD.size
        packed = data[at : at + size]
        if len(packed) != size or google_crc32c.value(packed) != crc:
            raise OSError(f"file {locator.name.hex()} is shorter than it was, or damaged")
        at += size
        found.append((at, Block.unpack(packed)))
    return found


def _temporary_file() -> BinaryIO:
    with _no_room_for_shard():
        return tempfile.TemporaryFile()


@contextlib.contextmanager
def _no_room_for_shard() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(
            f"the records of a shard cannot be kept in {tempfile.gettempdir()} ({error}); make room, or "
            "set TMPDIR to another place"
        ) from error
