"""The bytes of a shard on a local disk, which other programs may truncate or replace at any time."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from readers.files.mapped import MappedFile
from readers.files.mounts import is_on_local_disk
from readers.format.compiled.library import address
from readers.format.manifest import DatasetError
from readers.shards.plan import Part

# From this length on, a system call is cheaper than the page faults of a map.
LONG_RUN = 64 << 10

# A run of consecutive bytes: the number of a file, the first byte in it, the number of bytes, and their
# position in a buffer. Not a class: small records in random order need millions per second.
Run = tuple[int, int, int, int]


class LocalShard:
    """Random access to the bytes of an open file, which may be closed afterwards; safe to share between threads.

    A mapped page that no longer exists kills the process, so only files on local disks are mapped, and their size is checked
    before each read; others are read by system calls. Small records in random order are read twice as fast from a map.

    `path` is a name to open the file again with, None if it may lose its name. `descriptor` is whether to keep a file
    descriptor; one is always kept if the file cannot be read otherwise. `version` is that of `Part`.
    """

    def __init__(self, file: BinaryIO, path: str | None, descriptor: bool) -> None:
        stat = os.fstat(file.fileno())
        self.version = version_of(stat)
        self._path = path
        is_stable = is_on_local_disk(str(Path(file.name).parent))
        self._map = MappedFile(file) if is_stable else None
        self._present_size = PresentSize(file, path, descriptor or not (path or is_stable))
        self.descriptor = self._present_size.descriptor

    def read(self, runs: Sequence[Run], buffer: memoryview) -> None:
        """Reads runs of bytes into their positions in a buffer; bytes that do not exist are zeros.

        Raises DatasetError if the file has no descriptor and no map, and was replaced by another file.
        """
        if self._map is None:
            self._read_unmapped(runs, buffer)
            return
        view = self._map.view
        size = self._present_size()
        if size < len(view):
            view = view[:size]
        for _, start, length, at in runs:
            if start + length > len(view):
                fill(buffer[at : at + length], view[start:])
            elif length < LONG_RUN:
                buffer[at : at + length] = view[start : start + length]
            elif self.descriptor is not None:
                _read_at(self.descriptor, start, buffer[at : at + length])
            else:
                buffer[at : at + length] = view[start : start + length]
                # Otherwise the pages would count as memory of the process.
                self._map.release(start, length)

    def in_memory(self) -> tuple[int, np.ndarray] | None:
        """The address of the mapped file, and how to find its size, a `Question`; None without a map."""
        return (self._map.address, self._present_size.question) if self._map else None

    def _read_unmapped(self, runs: Sequence[Run], buffer: memoryview) -> None:
        descriptor = self.descriptor
        if descriptor is None:
            descriptor = os.open(self._path or "", os.O_RDONLY | os.O_CLOEXEC)
        try:
            if version_of(os.fstat(descriptor))[0] != self.version[0]:
                raise DatasetError(f"{self._path}: {CHANGED}")
            for _, start, length, at in runs:
                _read_at(descriptor, start, buffer[at : at + length])
        finally:
            if descriptor != self.descriptor:
                os.close(descriptor)


class PresentSize:
    """Finds the present size of a file: this many bytes can be read safely from a map.

    The file and its path are as for `LocalShard`; to `keep` a file descriptor is four times as fast. `question`, int64 [4],
    is the query for the kernel: a `Question` of `kernel.c`.
    """

    def __init__(self, file: BinaryIO, path: str | None, keep: bool) -> None:
        stat = os.fstat(file.fileno())
        self._path, self._size, self._inode = path, stat.st_size, stat.st_ino
        self.descriptor: int | None = None
        if keep:
            self.descriptor = os.dup(file.fileno())
            weakref.finalize(self, os.close, self.descriptor).atexit = False
        self._name = np.frombuffer(os.fsencode(path or "") + b"\0", np.uint8)
        descriptor = -1 if self.descriptor is None else self.descriptor
        name = address(self._name) if path else 0
        self.question = np.array([descriptor, name, self._inode, self._size], np.int64)

    def __call__(self) -> int:
        if self.descriptor is not None:
            return os.lseek(self.descriptor, 0, os.SEEK_END)
        try:
            stat = os.stat(self._path) if self._path else None
        except FileNotFoundError:
            stat = None
        # A file that lost its name keeps its bytes.
        return stat.st_size if stat and stat.st_ino == self._inode else self._size


CHANGED = (
    "the file was changed or replaced after the dataset was opened; wait until nothing writes to the "
    "dataset, and open it again"
)


def version_of(stat: os.stat_result) -> tuple[int, int]:
    """Values that change with the content of a file: its inode, and the time of its last change in ns."""
    return stat.st_ino, stat.st_mtime_ns


def is_changed(part: Part) -> bool:
    """Whether the file of a part is known to be another one than when the plan was made."""
    if part.version is None:
        return False
    try:
        return version_of(os.stat(part.path)) != part.version
    except OSError:
        return True


def fill(buffer: memoryview, data: memoryview) -> None:
    """Copies data to the beginning of a buffer, and fills the rest with zeros."""
    buffer[: len(data)] = data
    if len(data) < len(buffer):
        buffer[len(data) :] = bytes(len(buffer) - len(data))


def _read_at(descriptor: int, start: int, buffer: memoryview) -> None:
    """Fills a buffer with the bytes of a file starting at `start`, and with zeros after its end."""
    while buffer:
        found = os.preadv(descriptor, [buffer], start)
        if not found:
            fill(buffer, memoryview(b""))
            return
        buffer, start = buffer[found:], start + found


def runs_of(parts: np.ndarray, index: np.ndarray, at: np.ndarray) -> Iterator[Run]:
    """Yields runs of records that are adjacent both in their file and in a buffer.

    The files, ascending, and the positions in the buffer are int64 [B]; the (offset, length) in the file is int64 [B, 2].
    """
    if not len(parts):
        return iter(())
    lengths = index[:, 1]
    follows = parts[1:] == parts[:-1]
    for places in (index[:, 0], at):
        follows &= places[1:] == places[:-1] + lengths[:-1]
    firsts = np.flatnonzero(np.append(True, ~follows))
    columns = parts[firsts], index[firsts, 0], np.add.reduceat(lengths, firsts), at[firsts]
    return zip(*(column.tolist() for column in columns), strict=True)
