"""Files of the local filesystem."""

from __future__ import annotations

import contextlib
import errno
import glob
import io
import math
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from readers.files.files import Draft, ExistsError, FileInfo, StagedFiles, Stat

# fsspec's URLs may be chained: `zip://a.npy::https://host/b.zip`.
_SCHEME = re.compile(r"(?:[a-zA-Z0-9+.-]+::)*[a-zA-Z][a-zA-Z0-9+.-]*://")

# Aliases of schemes.
_SAME = {"file": "", "gcs": "gs://", "s3a": "s3://"}

# A system call for each block of a few kilobytes would take longer than copying it.
_BUFFER_BYTES = 1 << 20

# The errors of filesystems without hard links, such as exFAT and many network mounts.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def is_local(path: str) -> bool:
    """Whether a path has no `scheme://`."""
    return not _SCHEME.match(path)


def path_text(path: str | os.PathLike[str]) -> str:
    """Converts a path or URL from a caller to text, with `~` expanded and one scheme for each store."""
    text = os.path.expanduser(os.fspath(path))
    scheme, separator, rest = text.partition("://")
    return _SAME[scheme] + rest if separator and scheme in _SAME else text


def open_local(path: str, buffering: int = -1) -> Any:
    """Opens a local file, but not a pipe, which would wait for a writer, and not a device."""
    return open(path, "rb", buffering, opener=_open_regular)


def _open_regular(path: str, _: int = 0) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise OSError(errno.EINVAL, "expected a regular file, found a pipe or a device", path)


class LocalFiles(StagedFiles):
    """Files of the local filesystem."""

    def stat(self, path: str) -> Stat:
        found = os.stat(path)
        version = found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
        return Stat(found.st_size, version, None, found.st_mtime_ns)

    def open(self, path: str) -> io.BufferedReader:
        return cast(io.BufferedReader, open_local(path))

    open_seekable = open

    def read(self, path: str, start: int = 0, size: int | None = None) -> bytes:
        # A third of the time of Path.read_bytes, which matters for files of a few kilobytes.
        descriptor = _open_regular(path)
        try:
            end = math.inf if size is None else start + size
            known, parts = os.fstat(descriptor).st_size, list[bytes]()
            while start < end:
                # Files in /proc have a size of 0.
                most = known - start if start < known else _BUFFER_BYTES
                parts.append(os.pread(descriptor, int(min(most, end - start)), start))
                start += len(parts[-1])
                if not parts[-1] or start == known:
                    break
            return b"".join(parts)
        finally:
            os.close(descriptor)

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    def exists(self, path: str) -> bool:
        return os.path.isfile(path)

    def glob(self, pattern: str) -> list[str]:
        pattern = os.path.abspath(pattern)
        if "**" in pattern:
            # Links to folders are not followed: one may form a loop.
            return super().glob(pattern)
        return sorted(path for path in glob.glob(pattern) if not os.path.isdir(path))

    def begin(self, path: str) -> Draft:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return _LocalDraft(path)

    def rename(self, path: str, name: str, replace: bool) -> None:
        for left in (1, 0):
            try:
                os.makedirs(os.path.dirname(name), exist_ok=True)
                (os.replace if replace else _link)(path, name)
                return
            except FileNotFoundError:  # The directory was empty, and was deleted.
                if not left:
                    raise

    def listed(self, folder: str) -> Iterator[FileInfo]:
        if not os.path.exists(folder):
            return

        def refuse(error: OSError) -> None:
            # A folder that this user may not list, such as `lost+found`, is not a folder of a job.
            passes = isinstance(error, FileNotFoundError | PermissionError)
            if not passes or error.filename == folder:
                raise error

        for parent, _, names in os.walk(folder, onerror=refuse):
            for name in names:
                path = f"{parent}/{name}"
                with contextlib.suppress(FileNotFoundError):  # It was deleted just now.
                    found = os.stat(path)
                    yield FileInfo(path, found.st_size, found.st_mtime_ns)

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            Path(path).unlink(missing_ok=True)
        for folder in sorted({os.path.dirname(path) for path in paths}, reverse=True):
            drop_empty_folder(folder)


class _LocalDraft:
    """A local file that is visible while it is written."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = io.BufferedWriter(io.FileIO(path, "xb"), _BUFFER_BYTES)
        self.write = self._file.write

    def publish(self, synced: bool = False) -> None:
        if synced:
            self._file.flush()
            os.fsync(self._file.fileno())
        self._file.close()

    def give_up(self) -> None:
        # Report the original error: on a full disk, closing fails again.
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            os.unlink(self._path)


def _link(path: str, name: str) -> None:
    """Gives a file another name; raises ExistsError if that name is taken."""
    taken = ExistsError(f"{name}: a file with this name exists")
    try:
        os.link(path, name)
    except FileExistsError:
        raise taken from None
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # Another process could take the name in between, but its bytes would be the same.
        if os.path.lexists(name):
            raise taken from None
        os.rename(path, name)
    else:
        os.unlink(path)


def drop_empty_folder(path: str) -> None:
    """Removes a local folder if it is empty."""
    with contextlib.suppress(OSError):
        os.rmdir(path)
