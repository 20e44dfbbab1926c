"""The interface of files on a disk, in an object store, or anywhere that fsspec or Beam can reach."""

from __future__ import annotations

import abc
import io
import re
import uuid
from collections.abc import Iterable, Sequence
from typing import BinaryIO, NamedTuple, Protocol

import google_crc32c
from fsspec.utils import glob_translate

# The part of a pattern before its first wildcard.
_FIXED = re.compile(r"[^*?\[]*")

_READ_BYTES = 4 << 20


class StoreError(OSError):
    """A store keeps failing; the message has its response and what to do about it."""


class RefusedError(PermissionError):
    """A store rejects a request for a reason that the user can fix, such as wrong credentials or a missing bucket."""


class ExistsError(OSError):
    """A file with this name exists, and may not be replaced."""


class ChangedError(OSError):
    """A file no longer has the version that was requested."""


class FileInfo(NamedTuple):
    """A file in a listing: its size in bytes, and its last change in nanoseconds since the epoch (0: unknown)."""

    path: str
    size: int
    modified: int


class Stat(NamedTuple):
    """A file's bytes, version (with the same `repr` in all processes), stored CRC32C, and last change in ns (0: unknown)."""

    size: int
    version: object
    crc32c: int | None = None
    modified: int = 0


class Range(NamedTuple):
    """Bytes of a file, from `start` to before `stop`."""

    path: str
    start: int
    stop: int


class Files(abc.ABC):
    """Files of one kind, each identified by its full path or URL.

    All methods raise FileNotFoundError for a missing file, PermissionError for a file that may not be read,
    RefusedError for problems that the user can fix, and StoreError if a store keeps failing.
    """

    @abc.abstractmethod
    def stat(self, path: str) -> Stat:
        """The size and the version of a file."""

    @abc.abstractmethod
    def open(self, path: str) -> io.BufferedReader:
        """Opens a file for reading from start to end, as stored: compressed files are not decompressed."""

    @abc.abstractmethod
    def read(self, path: str, start: int = 0, size: int | None = None) -> bytes:
        """Reads `size` bytes of a file from `start`, or to its end; fewer only if the file ends before."""

    @abc.abstractmethod
    def is_folder(self, path: str) -> bool:
        """Whether a path is a folder."""

    @abc.abstractmethod
    def glob(self, pattern: str) -> list[str]:
        """The paths of the files that match a pattern, as in a shell; `**` matches any folders."""

    def read_ranges(self, ranges: Sequence[Range]) -> list[bytes]:
        """Reads ranges, many at a time; a result is shorter only if its file ends within the range."""
        return [self.read(path, start, stop - start) for path, start, stop in ranges]

    def open_seekable(self, path: str) -> BinaryIO:
        """Opens a file for cheap seeking, which may read the whole file first."""
        return io.BytesIO(self.read(path))

    def exists(self, path: str) -> bool:
        """Whether a file exists and may be read."""
        try:
            self.stat(path)
        except RefusedError:
            raise
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return False  # Stores also answer 403 for a missing file if the user may not list.
        return True

    def size_and_crc(self, path: str) -> tuple[int, int]:
        """The length and the CRC32C of a file; nothing is read if the store keeps the checksum."""
        known = self.stat(path)
        if known.crc32c is not None:
            return known.size, known.crc32c
        size = crc = 0
        with self.open(path) as file:
            while data := file.read(_READ_BYTES):
                size += len(data)
                crc = google_crc32c.extend(crc, data)
        return size, crc


class Draft(Protocol):
    """A file that is being written, and appears complete when it is published, or never."""

    def write(self, data: bytes) -> object:
        """Appends bytes."""

    def publish(self, synced: bool = False) -> None:
        """Makes the file appear, or raises ExistsError; if `synced`, a power loss cannot leave a name without the bytes."""

    def give_up(self) -> None:
        """Removes the bytes written so far, after an error."""


class WritableFiles(Files):
    """Files that jobs can also write. All methods may raise any OSError of the filesystem."""

    @abc.abstractmethod
    def begin(self, path: str) -> Draft:
        """Begins a file under a name that nobody else uses; it may be seen incomplete."""

    @abc.abstractmethod
    def create(self, path: str, staging: str, replace: bool = False) -> Draft:
        """Begins a file, which may `replace` another; if it could be seen incomplete, it waits in `staging`."""

    @abc.abstractmethod
    def listed(self, folder: str) -> Iterable[FileInfo]:
        """All files in a folder and its subfolders; empty for a missing folder."""

    @abc.abstractmethod
    def delete(self, paths: Sequence[str]) -> None:
        """Deletes files, and folders that become empty; missing files are ignored."""

    def is_folder(self, path: str) -> bool:
        return any(True for _ in self.listed(path.rstrip("/")))

    def glob(self, pattern: str) -> list[str]:
        fixed, wanted = _FIXED.findall(pattern)[0], re.compile(glob_translate(pattern))
        found = self.listed(fixed.rpartition("/")[0])
        return sorted(file.path for file in found if wanted.match(file.path))

    def drop_uploads(self, prefix: str) -> None:
        """Drops unfinished uploads of a killed process with a prefix; does nothing in stores that drop them within a week."""


class StagedFiles(WritableFiles):
    """Files of a filesystem where incomplete files are visible and renaming is immediate."""

    @abc.abstractmethod
    def rename(self, path: str, name: str, replace: bool) -> None:
        """Renames a complete file, in a folder that is created if missing; raises ExistsError if the name is taken."""

    def create(self, path: str, staging: str, replace: bool = False) -> Draft:
        return _StagedFile(self, path, staging, replace)


class _StagedFile:
    """A file that gets its name when it is complete."""

    def __init__(self, files: StagedFiles, path: str, staging: str, replace: bool) -> None:
        self._files, self._path, self._replace = files, path, replace
        # Each attempt has a different name, so two attempts never write to the same file.
        self._staged = f"{staging}/{path.rsplit('/', 1)[1]}.{uuid.uuid4().hex}"
        self._draft = files.begin(self._staged)
        self.write, self.give_up = self._draft.write, self._draft.give_up

    def publish(self, synced: bool = False) -> None:
        # A file that may not replace another is never written again, so its bytes must be on disk before its name.
        self._draft.publish(synced or not self._replace)
        self._files.rename(self._staged, self._path, self._replace)
