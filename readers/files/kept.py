"""Files that are made once on a machine, and kept in a folder of the user's own until nobody uses them.

The folder is the user's cache folder, or one in the directory for temporary files if that is on no disk of
this machine. Without room in either, a file is made in memory for this process alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from readers.files.mounts import is_on_local_disk

_SUFFIX = ".kept"

# Of all files together. The index of a billion records takes 8 to 20 GB.
_MOST_BYTES = 32 << 30

_UNUSED_SECONDS = 7 * 24 * 3600


def kept(key: Any, make: Callable[[], bytes]) -> BinaryIO:
    """Opens the file of a key, whose bytes are made if no process of this user has made them.

    Args:
        key: A value from whose `repr` the bytes follow.
        make: Makes the bytes. Processes that do so at the same time write the same ones.
    """
    name = _name(key)
    for folder in _folders():
        with contextlib.suppress(OSError):
            return _found(folder, name)
    data = make()
    for folder in _folders():
        with contextlib.suppress(OSError):
            _write(folder, name, data)
            return _found(folder, name)
    return _in_memory(data)


def drop(key: Any) -> bool:
    """Deletes the file of a key; returns whether there was one."""
    found = False
    for folder in _folders():
        with contextlib.suppress(OSError):
            os.unlink(_name(key), dir_fd=folder)
            found = True
    return found


def _name(key: Any) -> str:
    return hashlib.sha256(repr(key).encode()).hexdigest()[:40] + _SUFFIX


def _folders() -> Iterator[int]:
    """Yields descriptors of the folders in which files may be kept, the better one first."""
    for path in _paths():
        try:
            folder = _opened(path)
        except OSError:
            continue
        try:
            if _is_usable(folder) and is_on_local_disk(str(path)):
                yield folder
        finally:
            os.close(folder)


def _paths() -> Iterator[Path]:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if os.path.isabs(base):
        yield Path(base, "beam-shards", "indexes")
    yield Path(tempfile.gettempdir(), f"beam-shards-{os.geteuid()}")


def _opened(path: Path) -> int:
    """A descriptor of a folder, which is made if it is missing."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(0o700, parents=True)
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _is_usable(folder: int) -> bool:
    """Whether a folder is the user's own, and nobody else may use it.

    The folder itself is asked, not its name: in a common directory others may have made it.
    """
    found = os.fstat(folder)
    return found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077


def _found(folder: int, name: str) -> BinaryIO:
    """Opens a file, which counts as used now."""
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    with contextlib.suppress(OSError):
        os.utime(file)
    return os.fdopen(file, "rb")


def _write(folder: int, name: str, data: bytes) -> None:
    """Writes a file that appears whole; raises OSError if there is too little room."""
    _make_room(folder, len(data))
    partial = f"{name}.{os.getpid()}.{time.monotonic_ns()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(partial, flags, 0o600, dir_fd=folder)
    try:
        with os.fdopen(file, "wb") as output:
            output.write(data)
            output.flush()
            # Or the name may survive a crash of the machine, but not the bytes.
            os.fsync(file)
        os.rename(partial, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial, dir_fd=folder)
        raise


def _make_room(folder: int, size: int) -> None:
    """Deletes files that were long unused, and the longest unused to make room for a new one.

    A process that has one of them mapped keeps it.

    Raises:
        OSError: The disk has too little room: half of what is free is for other programs.
    """
    if size > _MOST_BYTES:
        raise OSError(f"no room for {size} bytes")
    files = list[tuple[os.stat_result, str]]()
    with os.scandir(folder) as entries:
        for entry in entries:
            # Another process may have renamed or deleted it.
            with contextlib.suppress(FileNotFoundError):
                files.append((entry.stat(follow_symlinks=False), entry.name))
    total, oldest = size, time.time() - _UNUSED_SECONDS
    for found, name in sorted(files, key=lambda each: -each[0].st_mtime):
        total += found.st_size
        if _SUFFIX in name and (total > _MOST_BYTES or found.st_mtime < oldest):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
    disk = os.fstatvfs(folder)
    if size > disk.f_bavail * disk.f_frsize // 2:
        raise OSError(f"no room for {size} bytes")


def _in_memory(data: bytes) -> BinaryIO:
    """A file that this process alone has."""
    if hasattr(os, "memfd_create"):
        file: BinaryIO = os.fdopen(os.memfd_create("beam-shards"), "w+b")
    else:
        file = tempfile.TemporaryFile()  # noqa: SIM115
    file.write(data)
    file.seek(0)
    return file
