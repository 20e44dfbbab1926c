"""Files that several processes share: locks, and partial files that only one of them fills."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast


@contextlib.contextmanager
def locked(file: BinaryIO) -> Iterator[None]:
    """Holds an exclusive lock on an open file.

    It is released explicitly: after a fork, closing the file would not release it.
    """
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


@contextlib.contextmanager
def open_partial(path: Path) -> Iterator[BinaryIO | None]:
    """Opens an empty partial file that no other process fills at the same time.

    Only this user may read it. It is deleted afterwards unless it was renamed. A link in its place is an
    OSError: what it leads to would be overwritten.

    Yields:
        The open file; None if another process has just finished or removed it.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    with os.fdopen(descriptor, "r+b", buffering=0) as file, locked(cast(BinaryIO, file)):
        if not _is_file_at(path, descriptor):
            yield None
            return
        try:
            # A process that died may have left something in it.
            file.truncate(0)
            yield cast(BinaryIO, file)
        finally:
            # A file that is complete has been renamed.
            if _is_file_at(path, descriptor):
                path.unlink()


def remove_abandoned(path: Path) -> bool:
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
    """Whether the path still leads to the file of a descriptor."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
