"""Encoded records on the disk of the output, on their way to the writers of their shards.

Where the processes that encode and the writers share a disk, bytes are written to it and what passes
the runner says where they lie. Beam's runner in one process keeps all that it shuffles in memory and
copies it five times, which took half of the time of a text job. Flink's and Spark's take what a task
hands over only when it has done its whole part of the input: up to then it waits in queues that hold
about a gigabyte, and with more both sides wait for each other for ever.
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

# The file's name, and where in it a packed block begins and how long it is, in bytes.
_REFERENCE = struct.Struct("<16sQQ")

# References that wait for others of their shard, so that one element carries many: 20 MB at most.
_REFERENCES_HELD = 1 << 18


@dataclass(frozen=True)
class Spool:
    """A directory of files of packed blocks, one file for every process that writes.

    Attributes:
        directory: On a disk that all who write and read share; who made it deletes what is in it.
        run: A name that sets the files of one run apart from those of others.
    """

    directory: str
    run: str = ""

    @property
    def prefix(self) -> str:
        """What the paths of its files begin with."""
        return f"{self.directory}/records.{self.run}"

    def append(self, packed: bytes) -> bytes:
        """Keeps a packed block; returns the reference to it.

        Raises:
            DataError: The disk refuses.
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
            raise DataError(
                f"--output {Path(self.directory).parent}: encoded records cannot be kept there "
                f"({error}); a job takes twice the room of its dataset while it runs, WriteShards "
                "three times: make room or choose another place, and run the same command again"
            ) from error
        return _REFERENCE.pack(name, start, len(packed))

    def hand_over(self) -> None:
        """Lets other machines see all that this process has appended.

        Of a network filesystem they do once a file is closed that they have not opened before.

        Raises:
            DataError: The disk refuses.
        """
        with _lock:
            _, file = _open_files.pop(self, (b"", None))
        if file is None:
            return
        try:
            file.close()
        except OSError as error:
            raise DataError(
                f"--output {Path(self.directory).parent}: encoded records cannot be kept there "
                f"({error}); no dataset was written, run the job again"
            ) from error

    def path(self, name: bytes) -> Path:
        """The file that a process writes."""
        return Path(self.prefix + name.hex())


# What this process writes, for its threads in common: workers of Beam's have several.
_open_files: dict[Spool, tuple[bytes, BinaryIO]] = {}

_lock = threading.Lock()


class HeldReferences:
    """References by shard, which are handed over many at once."""

    def __init__(self) -> None:
        self._by_shard: dict[int, list[bytes]] = {}
        self._held = 0

    def add(self, shards: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
        """Adds (split and shard, a reference); yields as `release` when there are very many."""
        for key, reference in shards:
            self._by_shard.setdefault(key, []).append(reference)
            self._held += 1
        if self._held >= _REFERENCES_HELD:
            yield from self.release()

    def release(self) -> Iterator[tuple[int, bytes]]:
        """Yields (split and shard, all references to it), and forgets them."""
        for key, references in self._by_shard.items():
            yield key, b"".join(references)
        self._by_shard, self._held = {}, 0


class SpoolReader(contextlib.ExitStack):
    """Reads blocks by their references; a context manager that closes the files.

    Attributes:
        files: That have been read from.
    """

    def __init__(self, spool: Spool) -> None:
        super().__init__()
        self._spool = spool
        self._numbers: dict[bytes, int] = {}
        self.files: list[BinaryIO] = []

    def blocks(self, references: bytes) -> Iterator[tuple[int, int, Block]]:
        """Yields (number of the file, where in it the payloads begin, the block).

        Args:
            references: One after another.

        Raises:
            DataError: A block cannot be read.
        """
        for name, start, size in _REFERENCE.iter_unpack(references):
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
