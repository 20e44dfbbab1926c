"""Encoded records on the disk of this machine, on their way to the writers of their shards.

Beam's runner in one process keeps all that it shuffles in memory and copies it five times, which
took half of the time of a text job. Where the processes that encode and the writers share a disk,
the bytes are written to it once, and what passes the runner says where they lie.
"""

from __future__ import annotations

import contextlib
import functools
import os
import struct
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from beam_jobs.blocks import Block
from beam_jobs.errors import DataError

# The file's name, and where in it a packed block begins and how long it is, in bytes.
_REFERENCE = struct.Struct("<16sQQ")


@dataclass(frozen=True)
class Spool:
    """A directory of files of packed blocks, one file for every process that writes.

    Attributes:
        directory: On a local disk; who made it deletes what is in it.
    """

    directory: str

    def append(self, packed: bytes) -> bytes:
        """Keeps a packed block; returns the reference to it.

        Raises:
            DataError: The disk refuses.
        """
        try:
            name, file = _own_file(self)
            start = file.tell()
            file.write(packed)
            file.flush()
        except OSError as error:
            raise DataError(
                f"--output {Path(self.directory).parent}: encoded records cannot be kept there "
                f"({error}); the job takes twice the room of its dataset while it runs: make "
                "room or choose another place, and run the same command again"
            ) from error
        return _REFERENCE.pack(name, start, len(packed))

    def path(self, name: bytes) -> Path:
        """The file that a process writes."""
        return Path(self.directory, f"records.{name.hex()}")


@functools.lru_cache(maxsize=1)
def _own_file(spool: Spool) -> tuple[bytes, BinaryIO]:
    name = uuid.uuid4().bytes
    return name, spool.path(name).open("xb")


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
        """
        for name, start, size in _REFERENCE.iter_unpack(references):
            if name not in self._numbers:
                self._numbers[name] = len(self.files)
                self.files.append(self.enter_context(self._spool.path(name).open("rb")))
            number = self._numbers[name]
            packed = os.pread(self.files[number].fileno(), size, start)
            block = Block.unpack(packed)
            yield number, start + size - len(block.payloads.data), block
