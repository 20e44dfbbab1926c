"""The spool: encoded records on the output's disk, on their way to the writers of their shards.

If the processes that encode share a disk with the writers, the bytes are written to that disk, and only
locators of 32 bytes pass through the runner. Beam's runner in one process keeps everything that it
shuffles in memory and copies it five times, which took half of the time of a text job. Flink's and
Spark's accept the output of a task only when the task has read all of its input; until then, the output
waits in queues of about a gigabyte, and with more than that, both sides wait for each other and hang.
"""

from __future__ import annotations

import contextlib
import os
import struct
import threading
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from beam_jobs.errors import DataError
from beam_jobs.records.blocks import Block

# A locator: the name of a file, and the offset and the size of a packed block in it, in bytes.
_LOCATOR = struct.Struct("<16sQQ")

# Locators are collected by shard, so that one element carries many: up to 20 MB of them.
_LOCATORS_HELD = 1 << 18


@dataclass(frozen=True)
class Spool:
    """A directory of files of packed blocks, one file for each process that writes.

    Attributes:
        directory: A directory that all writers and readers share; its creator deletes the files.
        run: A name that distinguishes the files of one run.
    """

    directory: str
    run: str = ""

    @property
    def prefix(self) -> str:
        """The common beginning of the paths of its files."""
        return f"{self.directory}/records.{self.run}"

    def append(self, packed: bytes) -> bytes:
        """Writes a packed block; returns its locator.

        Raises:
            DataError: the disk refuses.
        """
        try:
            with _lock:
                if self not in _open_files:
                    name = uuid.uuid4().bytes
                    _open_files[self] = name, self.path(name).open("xb")
                name, file = _open_files[self]
                start = file.tell()
                file.write(packed)
                file.flush()
        except OSError as error:
            raise self._unwritable(
                error,
                "a job takes twice the room of its dataset while it runs, WriteShards three times: "
                "make room or choose another place, and run the same command again",
            ) from error
        return _LOCATOR.pack(name, start, len(packed))

    def hand_over(self) -> None:
        """Makes everything that this process has appended visible to other machines.

        On a network filesystem, another machine sees a file if it opens it after the writer closed it.

        Raises:
            DataError: the disk refuses.
        """
        with _lock:
            _, file = _open_files.pop(self, (b"", None))
        if file is None:
            return
        try:
            file.close()
        except OSError as error:
            raise self._unwritable(error, "no dataset was written, run the job again") from error

    def _unwritable(self, error: OSError, hint: str) -> DataError:
        output = Path(self.directory).parent
        return DataError(f"{output}: encoded records cannot be kept there ({error}); {hint}")

    def path(self, name: bytes) -> Path:
        """The path of the file with a name."""
        return Path(self.prefix + name.hex())


# The files that this process writes, shared by its threads: Beam's workers have several.
_open_files: dict[Spool, tuple[bytes, BinaryIO]] = {}

_lock = threading.Lock()


class HeldLocators:
    """Locators by shard, which are released many at a time."""

    def __init__(self) -> None:
        self._by_shard: dict[int, list[bytes]] = {}
        self._held = 0

    def add(self, shards: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
        """Adds pairs of (split and shard, locator); releases all when there are too many."""
        for key, locator in shards:
            self._by_shard.setdefault(key, []).append(locator)
            self._held += 1
        if self._held >= _LOCATORS_HELD:
            yield from self.release()

    def release(self) -> Iterator[tuple[int, bytes]]:
        """Yields (split and shard, its locators joined), and forgets them."""
        for key, locators in self._by_shard.items():
            yield key, b"".join(locators)
        self._by_shard, self._held = {}, 0


class SpoolReader(contextlib.ExitStack):
    """Reads blocks by their locators; a context manager that closes the files.

    Attributes:
        files: The files that have been read from.
    """

    def __init__(self, spool: Spool) -> None:
        super().__init__()
        self._spool = spool
        self._numbers: dict[bytes, int] = {}
        self.files: list[BinaryIO] = []

    def blocks(self, locators: bytes) -> Iterator[tuple[int, int, Block]]:
        """Yields (number of the file in `files`, offset of the payloads in it, block).

        Args:
            locators: Locators, joined.

        Raises:
            DataError: a block cannot be read.
        """
        for name, start, size in _LOCATOR.iter_unpack(locators):
            try:
                if name not in self._numbers:
                    self._numbers[name] = len(self.files)
                    self.files.append(self.enter_context(self._spool.path(name).open("rb")))
                number = self._numbers[name]
                packed = os.pread(self.files[number].fileno(), size, start)
                if len(packed) < size:
                    raise OSError("a file is shorter than it was")
            except OSError as error:
                raise DataError(
                    f"encoded records are gone from {self._spool.directory} ({error}); no dataset "
                    "was written, run the job again"
                ) from error
            block = Block.unpack(packed)
            yield number, start + size - len(block.payloads.data), block
