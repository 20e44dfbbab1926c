"""The interface of files, which are on a disk, in a store, or wherever fsspec or Beam reach."""

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
    """A store did not deliver; the message holds the store's answer and what to do about it."""


class RefusedError(PermissionError):
    """A store refuses for a reason that its user can correct, such as wrong credentials or no such bucket."""


class ExistsError(OSError):
    """A file has the name of one that may replace no other."""


class ChangedError(OSError):
    """A file does not have the version that a request demanded."""


class FileInfo(NamedTuple):
    """A file in a listing: its size in bytes, and its last change in nanoseconds since the epoch (0: unknown)."""

    path: str
    size: int
    modified: int


class Stat(NamedTuple):
    """A file's bytes, version (with one `repr` in all processes), stored CRC32C, last change in ns (0: unknown)."""

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
    """Files of one kind, each named by its whole path or URL.

    All methods raise FileNotFoundError for a missing file, PermissionError for one that may not be read,
    RefusedError for what the user can correct, and StoreError if a store keeps failing.
    """

    @abc.abstractmethod
    def stat(self, path: str) -> Stat:
        """The size and the version of a file."""

    @abc.abstractmethod
    def open(self, path: str) -> io.BufferedReader:
        """Opens a file for reading from front to back, as it is stored: compressed if it is."""

    @abc.abstractmethod
    def read(self, path: str, start: int = 0, size: int | None = None) -> bytes:
        """Reads `size` bytes of a file from `start` on, or to its end; fewer only if it ends before."""

    @abc.abstractmethod
    def is_folder(self, path: str) -> bool:
        """Whether a path is that of a folder."""

    @abc.abstractmethod
    def glob(self, pattern: str) -> list[str]:
        """The paths of the files that a pattern matches, as in a shell; `**` matches any folders."""

    def read_ranges(self, ranges: Sequence[Range]) -> list[bytes]:
        """Reads ranges, many at a time; a result is shorter only if its file ends within the range."""
        return [self.read(path, start, stop - start) for path, start, stop in ranges]

    def open_seekable(self, path: str) -> BinaryIO:
        """Opens a file in which seeking is cheap, though it may be read whole for that."""
        return io.BytesIO(self.read(path))

    def exists(self, path: str) -> bool:
        """Whether there is a file that may be read."""
        try:
            self.stat(path)
        except RefusedError:
            raise
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return False  # Stores also forbid what is not there, if their user may not list.
        return True

    def size_and_crc(self, path: str) -> tuple[int, int]:
        """The length and the CRC32C of a file; where a store keeps the checksum, nothing is read."""
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
    """A file that is being written, and appears whole when it is published, or never."""

    def write(self, data: bytes) -> object:
        """Appends bytes."""

    def publish(self, synced: bool = False) -> None:
        """Makes the file appear, `synced` so that no loss of power leaves its name alone, or raises ExistsError."""

    def give_up(self) -> None:
        """Removes what was written, after an error."""


class WritableFiles(Files):
    """Files that jobs can write, too. All methods also raise OSError where the filesystem refuses."""

    @abc.abstractmethod
    def begin(self, path: str) -> Draft:
        """Begins a file under a name that nobody else uses; half of it may be seen."""

    @abc.abstractmethod
    def create(self, path: str, staging: str, replace: bool = False) -> Draft:
        """Begins a file, which may `replace` one of its name; half of it waits in `staging` if it could be seen."""

    @abc.abstractmethod
    def listed(self, folder: str) -> Iterable[FileInfo]:
        """All files in a folder and the folders in it; none of one that is missing."""

    @abc.abstractmethod
    def delete(self, paths: Sequence[str]) -> None:
        """Deletes files, and the folders that become empty; missing files are ignored."""

    def is_folder(self, path: str) -> bool:
        return any(True for _ in self.listed(path.rstrip("/")))

    def glob(self, pattern: str) -> list[str]:
        fixed, wanted = _FIXED.findall(pattern)[0], re.compile(glob_translate(pattern))
        found = self.listed(fixed.rpartition("/")[0])
        return sorted(file.path for file in found if wanted.match(file.path))

    def drop_uploads(self, prefix: str) -> None:
        """Drops what a killed process sent of files with a prefix; stores that do so in a week do nothing."""


class StagedFiles(WritableFiles):
    """Files of a filesystem in which a file is seen before it is whole, and renamed in a moment."""

    @abc.abstractmethod
    def rename(self, path: str, name: str, replace: bool) -> None:
        """Gives a whole file another name, in a folder that is made if it is missing; raises ExistsError if it is taken."""

    def create(self, path: str, staging: str, replace: bool = False) -> Draft:
        return _StagedFile(self, path, staging, replace)


class _StagedFile:
    """A file that gets its name when it is whole."""

    def __init__(self, files: StagedFiles, path: str, staging: str, replace: bool) -> None:
        self._files, self._path, self._replace = files, path, replace
        # Each attempt has its own name, so two attempts never write to the same file.
        self._staged = f"{staging}/{path.rsplit('/', 1)[1]}.{uuid.uuid4().hex}"
        self._draft = files.begin(self._staged)
        self.write, self.give_up = self._draft.write, self._draft.give_up

    def publish(self, synced: bool = False) -> None:
        # Nobody writes a file again that replaces no other, so its bytes must be there when its name is.
        self._draft.publish(synced or not self._replace)
        self._files.rename(self._staged, self._path, self._replace)
