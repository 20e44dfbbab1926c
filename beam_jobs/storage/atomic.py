"""Files of a dataset that is being written: each appears whole or not at all, on any filesystem.

An object of a store appears when it is complete, so it is written once, under its final name. On a disk, on
HDFS and wherever else half a file could be seen, a file stays in the staging folder of its run until it is
whole. Its name is then created: no file of a dataset ever replaces another, so an attempt that was believed
dead and goes on changes nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import google_crc32c

from beam_jobs.errors import AGAIN, JobError, TakenError
from beam_jobs.storage.files import files_of, size_and_crc
from readers.files.files import ExistsError, FileInfo
from readers.files.local import drop_empty_folder, is_local
from readers.format.crc import combined_crc
from readers.format.manifest import join

# Bytes of a piece to copy at a time.
_COPIED_BYTES = 1 << 20

# The errors of filesystems that cannot sync a folder.
_NO_SYNCS = (errno.EINVAL, errno.EBADF, errno.EACCES, errno.ENOTSUP, errno.EOPNOTSUPP)


class Piece(NamedTuple):
    """A local file with consecutive bytes of another file, their number and their checksum."""

    path: str
    size: int
    crc32c: int


class NewFile:
    """A file that is being written; leaving the context removes it unless it was published.

    Args:
        path: Its path or URL: on a disk, in a store, or on a filesystem of Beam's.
        staging: The folder in which half a file waits where half a file could be seen.
        replace: Whether it may replace a file of its name.

    Attributes:
        size: The bytes written so far.
        crc32c: Their checksum.
    """

    def __init__(self, path: str, staging: str, replace: bool = False) -> None:
        self._path = path
        self._draft = files_of(path).create(path, staging, replace)
        self.size = self.crc32c = 0
        self._published = False

    def __enter__(self) -> NewFile:
        return self

    def write(self, data: bytes) -> None:
        """Appends bytes."""
        self._draft.write(data)
        self.size += len(data)
        self.crc32c = google_crc32c.extend(self.crc32c, data)

    def append(self, piece: Piece) -> None:
        """Appends the bytes of a local file."""
        with Path(piece.path).open("rb", buffering=0) as file:
            while data := file.read(_COPIED_BYTES):
                self._draft.write(data)
        self.crc32c = combined_crc(self.crc32c, piece.crc32c, piece.size)
        self.size += piece.size

    def publish(self, synced: bool = False) -> None:
        """Makes the file appear.

        Args:
            synced: Whether its bytes must survive a loss of power if its name does, as for files that replace no other.

        Raises:
            TakenError: A file with its name has other bytes.
        """
        try:
            self._draft.publish(synced)
            self._published = True
        except ExistsError:
            # Another attempt has written the same bytes, or this one has, but did not get the answer.
            with contextlib.suppress(FileNotFoundError):
                if size_and_crc(self._path) == (self.size, self.crc32c):
                    return
            raise TakenError(
                f"{self._path} has other bytes than this job writes: another job writes to this directory; {AGAIN}"
            ) from None

    def __exit__(self, *_: object) -> None:
        if not self._published:
            with contextlib.suppress(OSError, JobError):
                self._draft.give_up()


def write_file(
    path: str, data: bytes, staging: str, replace: bool = False, synced: bool = False
) -> None:
    """Writes a small file that appears whole or not at all; arguments and errors as for `NewFile`."""
    with NewFile(path, staging, replace) as file:
        file.write(data)
        file.publish(synced)


def sync_names(directory: str, names: Iterable[str]) -> None:
    """Makes the names of files in a directory survive a loss of power; files elsewhere are left as they are.

    Only on a disk of this machine: stores and HDFS keep all data that they have acknowledged.
    """
    if not is_local(directory):
        return
    folders = {join(directory, name).rsplit("/", 1)[0] for name in names}
    folders = {folder for folder in folders if f"{folder}/".startswith(f"{directory}/")}
    # The directory itself may be new.
    for folder in sorted({*folders, directory, os.path.dirname(directory)}):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in _NO_SYNCS:
                raise
        finally:
            os.close(descriptor)


def make_directory(path: str) -> None:
    """Makes a local directory unless it exists; elsewhere a file's directory is made with the file."""
    if is_local(path):
        os.makedirs(path, exist_ok=True)


def drop_empty_directories(directory: str) -> None:
    """Removes the empty local directories in a directory."""
    if is_local(directory):
        for folder, _, _ in os.walk(directory, topdown=False):
            if folder != directory:
                drop_empty_folder(folder)


def list_files(directory: str) -> list[FileInfo]:
    """Lists all files in a directory and its sub-directories; the errors are those of `files_of`."""
    return list(files_of(directory).listed(directory))


def delete_files(paths: Iterable[str]) -> None:
    """Deletes files of one filesystem, and the local folders that become empty; missing files are ignored."""
    named = list(paths)
    if named:
        files_of(named[0]).delete(named)


def drop_uploads(directory: str) -> None:
    """Drops the parts of unfinished objects that a killed run has sent, which are charged for."""
    # Permission to write may not include listing uploads, and the dataset does not need it.
    with contextlib.suppress(OSError, JobError):
        files_of(directory).drop_uploads(f"{directory}/")
