"""Temporary files that many processes share: each is written once, and read by ranges.

Nobody refers to a file before it is closed, so neither a name that exists nor a rename is needed: an
attempt that dies leaves a file that nothing reads.
"""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path
from typing import Any, Protocol

from beam_jobs.storage.files import open_file
from beam_jobs.storage.objects import NewObject, is_store, store_of
from beam_jobs.storage.options import set_beam_options
from beam_jobs.storage.paths import is_local

# A system call for each block of a few kilobytes would take longer than copying it.
_BUFFER_BYTES = 1 << 20


class ScratchFile(Protocol):
    """A file that is being written."""

    def write(self, data: bytes) -> Any:
        """Appends bytes."""

    def publish(self) -> None:
        """Completes the file; readers on any machine see all of it."""

    def give_up(self) -> None:
        """Removes what was written, as far as possible."""


class _StreamedFile:
    """A file on a disk, or on one of Beam's filesystems."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: Any
        if is_local(path):
            self._file = io.BufferedWriter(io.FileIO(path, "xb"), _BUFFER_BYTES)
        else:
            from apache_beam.io.filesystem import CompressionTypes
            from apache_beam.io.filesystems import FileSystems

            set_beam_options()
            self._file = FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED)
        self.write = self._file.write
        self.publish = self._file.close

    def give_up(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
        if is_local(self._path):
            with contextlib.suppress(OSError):
                Path(self._path).unlink()


def create_scratch(path: str) -> ScratchFile:
    """Begins a file, whose name nobody else uses.

    Raises:
        OSError: It cannot be created.
    """
    return NewObject(path) if is_store(path) else _StreamedFile(path)


def read_range(path: str, start: int, size: int) -> bytes:
    """Reads `size` bytes of a file from `start` on, with one request to a store.

    Raises:
        OSError: The file is missing, or ends before.
    """
    if is_store(path):
        data = store_of(path).read(path, start, size).data
    elif is_local(path):
        with open_file(path) as file:
            data = os.pread(file.fileno(), size, start)
    else:
        with open_file(path) as file:
            file.seek(start)
            data = file.read(size)
    if len(data) < size:
        raise OSError(f"{path} is shorter than it was")
    return data
