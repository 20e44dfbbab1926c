"""A folder of files on a local disk, of a limited total size, shared by any number of processes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

# The only files in the folder that are ever written or deleted, apart from the lock.
_OWN_FILES = re.compile(r"[0-9a-f]{40}\.(shard|index|partial)")

_LOCK = "cache.lock"

# A link, or a socket.
_NO_FILE = {errno.ELOOP, errno.ENXIO}


class KeptFiles:
    """The files of a folder, with at most `most` bytes in total.

    A file gets its name when it is complete; until then it is a partial file, locked by the process that fills it. The
    least recently opened files are deleted to make room for others; a process that has one of them open keeps it. Only
    the user may read them.
    """

    def __init__(self, folder: str, most: int) -> None:
        self._folder, self._most = folder, most

    def check(self) -> None:
        """Creates the folder if necessary, and raises OSError if it cannot be written."""
        Path(self._folder).mkdir(0o700, parents=True, exist_ok=True)
        with self._locked():
            pass

    def open(self, name: str, size: int | None = None) -> BinaryIO | None:
        """Opens a file; None without one. A file with another size, or that was not written here, is deleted."""
        path = Path(self._folder, name)
        try:
            file = open(path, "rb", opener=_open_no_link)  # noqa: SIM115 - the caller closes it
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno not in _NO_FILE:
                raise
        else:
            found = os.fstat(file.fileno())
            is_own = stat.S_ISREG(found.st_mode) and found.st_uid in _owners(self._folder)
            if is_own and size in (None, found.st_size):
                os.utime(file.fileno())
                return file
            file.close()
        path.unlink(missing_ok=True)
        return None

    def fill(self, name: str, size: int, write: Callable[[BinaryIO], bool]) -> BinaryIO | None:
        """Opens a file after `write`, or another process, has filled it; None if `write` gives up. OSError: no room."""
        path = Path(self._folder, name)
        while True:
            if (file := self.open(name, size)) is not None:
                return file
            partial = path.with_suffix(".partial")
            with _open_partial(partial) as output:
                if output is None or path.exists():
                    continue
                self._make_room(size, output, partial)
                if not write(output):
                    return None
                # Without this, a crash of the machine may keep the name, but not the bytes.
                os.fsync(output.fileno())
                file = partial.open("rb")
                partial.rename(path)
                return file

    def drop(self, name: str) -> bool:
        """Deletes a file; returns whether there was one."""
        try:
            Path(self._folder, name).unlink()
        except FileNotFoundError:
            return False
        return True

    def _make_room(self, size: int, output: BinaryIO, own: Path) -> None:
        """Reserves space for a partial file, so that a full disk is noticed before writing."""
        with self._locked():
            files = [(path, found) for path, found in self._files() if path != own]
            held = sum(found.st_size for _, found in files)
            for path, found in sorted(files, key=lambda each: each[1].st_mtime_ns):
                if held + size <= self._most or size > self._most:
                    break
                if path.suffix != ".partial":
                    path.unlink(missing_ok=True)
                elif not _drop_abandoned(path):
                    continue
                held -= found.st_size
            if held + size > self._most:
                raise OSError(errno.ENOSPC, "no room next to the files that are being written")
            reserve(output, size)

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        for path in Path(self._folder).iterdir():
            if _OWN_FILES.fullmatch(path.name):
                with contextlib.suppress(FileNotFoundError):
                    yield path, path.lstat()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Admits one process or thread at a time to the accounting of sizes."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(Path(self._folder, _LOCK), flags, 0o600)
        with os.fdopen(descriptor, "ab"), _lock_on(descriptor):
            yield


def _open_no_link(path: str, flags: int) -> int:
    """Opens a file without following a link, or waiting for the writer of a pipe."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _owners(folder: str) -> set[int]:
    """The users whose files are trusted: this one, and the folder's owner, which a file server may report for all files."""
    return {os.geteuid(), os.stat(folder).st_uid}


def write(output: BinaryIO, data: bytes) -> bool:
    """Appends all bytes to an unbuffered file; returns True."""
    view = memoryview(data)
    while view:
        view = view[output.write(view) :]
    return True


def reserve(file: BinaryIO, size: int) -> None:
    """Allocates disk space for a file."""
    allocate: Callable[[int, int, int], None] | None = getattr(os, "posix_fallocate", None)
    if allocate and size:
        allocate(file.fileno(), 0, size)
    else:
        file.truncate(size)


@contextlib.contextmanager
def _lock_on(descriptor: int) -> Iterator[None]:
    """Holds an exclusive lock, and releases it explicitly: after a fork, closing the file would not release it."""
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


@contextlib.contextmanager
def _open_partial(path: Path) -> Iterator[BinaryIO | None]:
    """Yields an empty partial file that no other process fills; None if another one has just finished or removed it.

    It is deleted afterwards unless it was renamed. A link in its place is an OSError, because writing would overwrite
    the link's target.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    with os.fdopen(descriptor, "r+b", buffering=0) as file, _lock_on(descriptor):
        if not _is_file_at(path, descriptor):
            yield None
            return
        try:
            file.truncate(0)  # A process that died may have left bytes in it.
            yield file
        finally:
            if _is_file_at(path, descriptor):
                path.unlink()


def _drop_abandoned(path: Path) -> bool:
    """Deletes a partial file; returns False if a process is filling it, or if it does not exist."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_file_at(path, file.fileno()):
                path.unlink()
            fcntl.flock(file, fcntl.LOCK_UN)
    except (BlockingIOError, FileNotFoundError):
        return False
    return True


def _is_file_at(path: Path, descriptor: int) -> bool:
    """Whether the path still names the file of a descriptor."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
