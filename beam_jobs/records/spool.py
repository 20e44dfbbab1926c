"""The spool: where encoded records wait, in files beside the dataset, for the writers of their shards.

Only locators of 32 bytes pass through the runner. Beam's runner in one process keeps everything that it
shuffles in memory and copies it five times, which took half of the time of a text job. Flink's and
Spark's accept the output of a task only when the task has read all of its input; until then, the output
waits in queues of about a gigabyte, and with more than that, both sides wait for each other and hang.
"""

from __future__ import annotations

import contextlib
import struct
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import google_crc32c

from beam_jobs.errors import DataError, JobError
from beam_jobs.storage.files import files_of
from readers.files.local import is_local

# A locator: the name of a file, and the offset and the size of consecutive blocks in it, in bytes.
_LOCATOR = struct.Struct("<16sQQ")

# The size of the packed block that follows, in bytes, and its CRC32C.
BLOCK_HEAD = struct.Struct("<II")

# Blocks that one locator may have, in bytes, unless it has one alone.
LOCATED_BYTES = 8 << 20

# Locators that wait to be joined by shard: no element of the runner has more than a megabyte of them.
_LOCATORS_HELD = 1 << 15


class Locator(NamedTuple):
    """Consecutive blocks of a file.

    Attributes:
        name: The name of the file.
        start: The offset of the first block in bytes.
        size: The size of all blocks in bytes.
    """

    name: bytes
    start: int
    size: int

    def pack(self) -> bytes:
        """The locator as 32 bytes."""
        return _LOCATOR.pack(*self)

    @staticmethod
    def unpack_all(packed: bytes) -> Iterator[Locator]:
        """Yields locators that were packed and joined."""
        return map(Locator._make, _LOCATOR.iter_unpack(packed))


@dataclass(frozen=True)
class Spool:
    """Files of packed blocks in one directory, on any filesystem.

    Attributes:
        directory: The staging folder of a run, which all writers and readers share.
    """

    directory: str

    @property
    def on_disk(self) -> bool:
        """Whether its files are in a folder of this machine's file system."""
        return is_local(self.directory)

    def path(self, name: bytes) -> str:
        """The path of the file with a name."""
        return f"{self.directory}/records.{name.hex()}"

    @contextlib.contextmanager
    def unwritable(self) -> Iterator[None]:
        """Turns the OSError of a filesystem that refuses records into DataError."""
        try:
            yield
        except OSError as error:
            output = self.directory.rsplit("/", 2)[0]
            raise DataError(
                f"{output}: encoded records cannot be kept there ({error}); a job takes twice the room "
                "of its dataset while it runs: make room or choose another place, and run the same "
                "command again"
            ) from error

    @contextlib.contextmanager
    def unreadable(self) -> Iterator[None]:
        """Turns the OSError of records that were written and cannot be read into DataError."""
        try:
            yield
        except OSError as error:
            raise DataError(
                f"encoded records are gone from {self.directory} ({error}); no dataset was written, run "
                "the job again"
            ) from error


class SpoolFile:
    """A new file of blocks.

    Attributes:
        name: Its name, 16 bytes.
        size: Its size so far in bytes.

    Raises:
        DataError: The filesystem refuses.
    """

    def __init__(self, spool: Spool) -> None:
        self.name, self.size = uuid.uuid4().bytes, 0
        self._spool = spool
        with self._spool.unwritable():
            path = spool.path(self.name)
            self._file = files_of(path).begin(path)

    def append(self, packed: bytes) -> None:
        """Writes a packed block.

        Raises:
            DataError: The filesystem refuses.
        """
        with self._spool.unwritable():
            self._file.write(BLOCK_HEAD.pack(len(packed), google_crc32c.value(packed)))
            self._file.write(packed)
        self.size += BLOCK_HEAD.size + len(packed)

    def publish(self) -> None:
        """Completes the file: now its blocks can be read on any machine.

        Raises:
            DataError: The filesystem refuses.
        """
        with self._spool.unwritable():
            self._file.publish()

    def give_up(self) -> None:
        """Removes the file, as far as possible."""
        with contextlib.suppress(OSError, JobError):
            self._file.give_up()


class HeldLocators:
    """Locators by shard, which are released many at a time."""

    def __init__(self) -> None:
        self._by_shard: dict[int, list[bytes]] = {}
        self._held = 0

    def add(self, shards: Iterable[tuple[int, Locator]]) -> Iterator[tuple[int, bytes]]:
        """Adds pairs of (split and shard, locator); releases all when there are too many."""
        for key, locator in shards:
            self._by_shard.setdefault(key, []).append(locator.pack())
            self._held += 1
            if self._held >= _LOCATORS_HELD:
                yield from self.release()

    def release(self) -> Iterator[tuple[int, bytes]]:
        """Yields (split and shard, its locators joined), and forgets them."""
        held, self._by_shard, self._held = self._by_shard, {}, 0
        for key, locators in held.items():
            yield key, b"".join(locators)
