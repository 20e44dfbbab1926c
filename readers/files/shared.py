"""Arrays of numbers that the processes of a user on one machine share, as maps of files."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import google_crc32c
import numpy as np

from readers.files.mapped import MappedFile
from readers.files.mounts import is_on_local_disk

_SUFFIX = ".offsets"

# Of all files together. A billion records of shards below 4 GiB take 4 GB.
_MOST_BYTES = 16 << 30

_UNUSED_SECONDS = 7 * 24 * 3600

# Set in every checksum, so that none is 0, which says that a piece was not written.
_WRITTEN = 1 << 32


class SharedNumbers:
    """Numbers in pieces, each of which is made by the first process that needs it.

    They are in a file of the directory for temporary files, in a folder of the user's own that nobody
    else may read or write. A piece is used only if it has its checksum, so a file that was damaged, or
    not written to its end, is made again. Processes that make a piece at the same time write the same
    bytes. Without such a folder, or without room, each process has numbers of its own.

    Args:
        key: A text from which all numbers follow; None to share nothing.
        ends: int64 [pieces], where each piece ends.
        dtype: The type of the numbers.

    Attributes:
        numbers: [ends[-1]], the numbers of the pieces that were loaded; others are undefined.
        is_shared: Whether other processes find what this one makes.
    """

    def __init__(self, key: str | None, ends: np.ndarray, dtype: type[np.generic]) -> None:
        self._ends = [0, *ends.tolist()]
        self._dtype = np.dtype(dtype)
        self._lock = threading.Lock()
        self._loaded: set[int] = set()
        self._descriptor = None if key is None else self._open(key)
        self.is_shared = self._descriptor is not None
        if self._descriptor is None:
            self.numbers = np.empty(self._ends[-1], dtype)
            return
        weakref.finalize(self, os.close, self._descriptor).atexit = False
        with os.fdopen(self._descriptor, "rb", closefd=False) as file:
            view = MappedFile(file).view
        self._checksums = np.frombuffer(view, np.int64, len(ends))
        self.numbers = np.frombuffer(view, dtype, offset=self._checksums.nbytes)

    def is_loaded(self, piece: int) -> bool:
        """Whether this process has made a piece or found it."""
        return piece in self._loaded

    def load(self, piece: int, make: Callable[[], np.ndarray]) -> None:
        """Makes a piece, unless this or another process has made it."""
        if piece in self._loaded:
            return
        is_written = self._is_written(piece)
        numbers = None if is_written else make()
        if numbers is not None and self.is_shared:
            self._write(piece, numbers.astype(self._dtype))
            is_written = self._is_written(piece)
        with self._lock:
            # Another thread may have ended the sharing.
            if not (is_written and self.is_shared):
                self._unshare()
                self.numbers[self._slice(piece)] = make() if numbers is None else numbers
            self._loaded.add(piece)

    def _slice(self, piece: int) -> slice:
        return slice(self._ends[piece], self._ends[piece + 1])

    def _is_written(self, piece: int) -> bool:
        if not self.is_shared or not self._checksums[piece]:
            return False
        return bool(self._checksums[piece] == _checksum(self.numbers[self._slice(piece)]))

    def _write(self, piece: int, numbers: np.ndarray) -> None:
        # System calls, since writing to a map kills the process when the disk is full.
        at = 8 * (len(self._ends) - 1) + self._ends[piece] * self._dtype.itemsize
        checksum = np.array([_checksum(numbers)], np.int64)
        with contextlib.suppress(OSError):
            _write_at(self._descriptor, numbers, at)
            _write_at(self._descriptor, checksum, 8 * piece)

    def _unshare(self) -> None:
        """Copies what was loaded into memory of this process, because a piece cannot be written."""
        if not self.is_shared:
            return
        numbers = np.empty_like(self.numbers)
        for piece in self._loaded:
            numbers[self._slice(piece)] = self.numbers[self._slice(piece)]
        self.numbers, self.is_shared = numbers, False

    def _open(self, key: str) -> int | None:
        """Opens the file of a key, of the right size; None if nothing can be shared."""
        size = 8 * (len(self._ends) - 1) + self._ends[-1] * self._dtype.itemsize
        name = hashlib.sha256(f"{key} {self._dtype} {self._ends}".encode()).hexdigest()[:40]
        try:
            with _own_folder() as folder:
                return None if folder is None else _open_file(folder, name + _SUFFIX, size)
        except OSError:
            return None


def _checksum(numbers: np.ndarray) -> int:
    return int(google_crc32c.value(numbers)) | _WRITTEN


def _write_at(descriptor: int | None, numbers: np.ndarray, at: int) -> None:
    assert descriptor is not None
    data = numbers.view(np.uint8).data
    while data:
        count = os.pwrite(descriptor, data, at)
        data, at = data[count:], at + count


@contextlib.contextmanager
def _own_folder() -> Iterator[int | None]:
    """A descriptor of the user's folder; None if others may write it, or it is on no local disk."""
    path = Path(tempfile.gettempdir(), f"beam-shards-{os.geteuid()}")
    with contextlib.suppress(FileExistsError):
        path.mkdir(0o700)
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # The folder itself is asked, not its name: in a common directory others may have made it.
        found = os.fstat(folder)
        is_own = found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077
        yield folder if is_own and is_on_local_disk(str(path)) else None
    finally:
        os.close(folder)


def _open_file(folder: int, name: str, size: int) -> int | None:
    """Opens or makes a file of a size in bytes; None if there is no room, or it has another size."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(name, flags, 0o600, dir_fd=folder)
    try:
        if os.fstat(file).st_size == 0 and _make_room(folder, name, size):
            os.ftruncate(file, size)
        if os.fstat(file).st_size == size:
            os.utime(file)
            return file
    except OSError:
        os.close(file)
        raise
    # It is not cut to its size, which would kill processes that have it mapped.
    os.close(file)
    os.unlink(name, dir_fd=folder)
    return None


def _make_room(folder: int, own: str, size: int) -> bool:
    """Deletes files that were long unused, and the longest unused to make room for a new one.

    A process that has one of them mapped keeps it. Returns False if the disk has too little room.
    """
    with os.scandir(folder) as entries:
        files = [(e.stat(follow_symlinks=False), e.name) for e in entries if e.name != own]
    held, oldest = size, time.time() - _UNUSED_SECONDS
    for found, name in sorted(files, key=lambda each: -each[0].st_mtime):
        held += found.st_blocks * 512
        if name.endswith(_SUFFIX) and (held > _MOST_BYTES or found.st_mtime < oldest):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
    disk = os.fstatvfs(folder)
    # Half of what is free: other programs need room, too.
    return size <= min(disk.f_bavail * disk.f_frsize // 2, _MOST_BYTES)
