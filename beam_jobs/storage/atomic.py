"""Files of a dataset that is being written: each appears whole or not at all, on any filesystem.

An object of a store appears when it is complete, so it is written once, under its own name. On a disk,
on HDFS and wherever else half a file could be seen, a file waits in the staging folder of its run until it
is whole. Its name is then created: no file of a dataset ever replaces another, so an attempt that was
believed dead and continues changes nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Iterable
from pathlib import Path

import google_crc32c
from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beam_jobs.errors import JobError, TakenError
from beam_jobs.storage.files import size_and_crc
from beam_jobs.storage.listing import beam_info, walked_files
from beam_jobs.storage.object_store import ExistsError, FileInfo
from beam_jobs.storage.objects import NewObject, is_store, store_of
from beam_jobs.storage.paths import is_local
from readers.format.manifest import join

# How filesystems without hard links refuse one, such as exFAT and many network mounts.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)

# How filesystems refuse to sync a folder.
_NO_SYNCS = (errno.EINVAL, errno.EBADF, errno.EACCES, errno.ENOTSUP, errno.EOPNOTSUPP)


class _StagedFile:
    """A file that gets its name when it is whole; its methods are those of `NewObject`."""

    def __init__(self, path: str, staging: str, replace: bool) -> None:
        self._path, self._replace = path, replace
        # Each attempt has its own name, so two attempts never write to the same file.
        self._staged = join(staging, f"{path.rsplit('/', 1)[1]}.{uuid.uuid4().hex}")
        if is_local(staging):
            os.makedirs(staging, exist_ok=True)
        self._file = FileSystems.create(
            self._staged, compression_type=CompressionTypes.UNCOMPRESSED
        )
        self.write = self._file.write

    def publish(self, synced: bool = False) -> None:
        if (synced or not self._replace) and is_local(self._path):
            self._file.flush()
            os.fsync(self._file.fileno())
        self._file.close()
        name = _replace if self._replace else _create
        for left in (1, 0):
            try:
                make_directory(self._path.rsplit("/", 1)[0])
                name(self._staged, self._path)
                return
            except FileNotFoundError:  # A directory that was empty, and dropped.
                if not left:
                    raise

    def give_up(self) -> None:
        # The error that led here is the one to report: on a full disk, closing fails again.
        with contextlib.suppress(OSError, BeamIOError):
            self._file.close()
        with contextlib.suppress(OSError, BeamIOError):
            FileSystems.delete([self._staged])


def _create(staged: str, path: str) -> None:
    """Gives a whole file a name that no file has.

    Raises:
        ExistsError: A file has it.
    """
    taken = ExistsError(f"{path}: a file of this name exists")
    if not is_local(path):
        # HDFS refuses to rename onto a file.
        try:
            FileSystems.rename([staged], [path])
        except OSError:
            if not FileSystems.exists(path):
                raise
            raise taken from None
        return
    try:
        os.link(staged, path)
    except FileExistsError:
        raise taken from None
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # Between the two, another file could get the name, whose bytes would be the same.
        if os.path.lexists(path):
            raise taken from None
        os.rename(staged, path)
    else:
        os.unlink(staged)


def _replace(staged: str, path: str) -> None:
    """Gives a whole file its name, whoever has it."""
    if is_local(path):
        os.replace(staged, path)
        return
    if FileSystems.exists(path):  # For a moment the file is missing, but never half of it.
        FileSystems.delete([path])
    FileSystems.rename([staged], [path])


class NewFile:
    """A file that is being written; leaving the context removes it unless it was published.

    Args:
        path: Its path or URL, on any Beam filesystem.
        staging: The folder in which half a file waits where half a file could be seen.
        replace: Whether it may replace a file of its name.

    Attributes:
        size: The bytes written so far.
        crc32c: Their checksum.
    """

    def __init__(self, path: str, staging: str, replace: bool = False) -> None:
        self._path = path
        self._destination = (
            NewObject(path, replace) if is_store(path) else _StagedFile(path, staging, replace)
        )
        self.size = self.crc32c = 0
        self._published = False

    def __enter__(self) -> NewFile:
        return self

    def write(self, data: bytes) -> None:
        """Appends bytes."""
        self._destination.write(data)
        self.size += len(data)
        self.crc32c = google_crc32c.extend(self.crc32c, data)

    def publish(self, synced: bool = False) -> None:
        """Makes the file appear.

        Args:
            synced: Whether no loss of power may leave its name without its bytes, as with files that replace no other.

        Raises:
            TakenError: A file of other bytes has its name.
        """
        try:
            self._destination.publish(synced)
            self._published = True
        except ExistsError:
            # Another attempt has written the same, or this one has and did not get the answer.
            if not self._is_there():
                raise TakenError(
                    f"{self._path} has other bytes than this job writes: another job writes to this directory; "
                    "run the same command again: it keeps the shards that are done"
                ) from None

    def _is_there(self) -> bool:
        """Whether the file has the bytes that were written here."""
        try:
            return size_and_crc(self._path) == (self.size, self.crc32c)
        except FileNotFoundError:
            return False

    def __exit__(self, *_: object) -> None:
        if not self._published:
            with contextlib.suppress(OSError, JobError):
                self._destination.give_up()


def write_file(
    path: str, data: bytes, staging: str, replace: bool = False, synced: bool = False
) -> None:
    """Writes a small file that appears whole or not at all; arguments and errors as for `NewFile`."""
    with NewFile(path, staging, replace) as file:
        file.write(data)
        file.publish(synced)


def sync_names(directory: str, names: Iterable[str]) -> None:
    """Makes the names of files in a directory survive a loss of power.

    Only on a disk of this machine: stores and HDFS keep what they have acknowledged.
    """
    if not is_local(directory):
        return
    folders = {join(directory, name).rsplit("/", 1)[0] for name in names}
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


def drop_empty_directories(directory: str) -> None:
    """Removes the empty local directories in a directory."""
    if is_local(directory):
        for folder, _, _ in os.walk(directory, topdown=False):
            if folder != directory:
                drop_empty_directory(folder)


def make_directory(path: str) -> None:
    """Makes a directory unless it exists; several workers may do so at the same time."""
    if is_local(path):
        os.makedirs(path, exist_ok=True)
    elif not is_store(path) and not FileSystems.exists(path):
        try:
            FileSystems.mkdirs(path)
        except OSError:  # Another worker has made it.
            if not FileSystems.exists(path):
                raise


def list_files(directory: str) -> list[FileInfo]:
    """Lists all files in a directory and its sub-directories.

    Raises:
        OSError, ValueError: the filesystem refuses, or its package is not installed.
    """
    if is_store(directory):
        return list(store_of(directory).listed(directory + "/"))
    if not is_local(directory) and FileSystems.get_filesystem(directory).has_dirs():
        return list(walked_files(directory))
    return list(map(beam_info, FileSystems.match([join(directory, "**")])[0].metadata_list))


def delete_files(paths: Iterable[str]) -> None:
    """Deletes files, and the local folders that become empty; missing files are ignored.

    Raises:
        OSError: a file cannot be deleted.
    """
    named = list(paths)
    if named and is_store(named[0]):
        store_of(named[0]).delete(named)
        return
    for path in named:
        if is_local(path):
            Path(path).unlink(missing_ok=True)
        elif FileSystems.exists(path):
            FileSystems.delete([path])
    for folder in sorted({path.rsplit("/", 1)[0] for path in named}, reverse=True):
        drop_empty_directory(folder)


def drop_empty_directory(path: str) -> None:
    """Removes a local directory if it is empty; elsewhere an empty directory does not matter."""
    if is_local(path):
        with contextlib.suppress(OSError):
            os.rmdir(path)


def drop_uploads(directory: str) -> None:
    """Drops the parts of unfinished objects that a killed run has sent, which are charged for."""
    if is_store(directory):
        # Not everybody who may write may list uploads, and the dataset does not need this.
        with contextlib.suppress(OSError, JobError):
            store_of(directory).drop_uploads(directory + "/")
