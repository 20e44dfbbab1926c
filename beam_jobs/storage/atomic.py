"""Files of a dataset that is being written: each appears whole or not at all, on any filesystem.

An object of a store appears when it is complete, so it is written once, under its own name. On a disk,
on HDFS and wherever else half a file could be seen, a file is written to `.staging/` and renamed. An
attempt that dies half-way, or resumes after it was believed dead, never replaces a good file with half
a file. It may write a whole file again, because all attempts write the same bytes; where a later step
changes a file, a condition keeps attempts at the earlier step from replacing it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import google_crc32c
from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beam_jobs.errors import DataError, JobError
from beam_jobs.storage.files import size_and_crc
from beam_jobs.storage.listing import beam_info, walked_files
from beam_jobs.storage.object_store import ChangedError, FileInfo, Seen
from beam_jobs.storage.objects import NewObject, is_store, store_of
from beam_jobs.storage.paths import is_local
from readers.format.manifest import join

STAGING = ".staging"

# How filesystems without hard links refuse one, such as exFAT and many network mounts.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)

# How filesystems refuse to sync a folder.
_NO_SYNCS = (errno.EINVAL, errno.EBADF, errno.EACCES, errno.ENOTSUP, errno.EOPNOTSUPP)

# Disks write the bytes of many files in the order that suits them.
_SYNCED_AT_ONCE = 16

# A copy inside a store is a request without a body: it waits for the store, not for the network.
_COPIED_AT_ONCE = 16


def look(directory: str, name: str) -> Seen:
    """What a file's name has now, as the condition of a write.

    Raises:
        OSError: The filesystem refuses.
    """
    path = join(directory, name)
    if is_store(path):
        return store_of(path).look(path)
    if is_local(path):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            status = os.stat(path)
            return Seen((status.st_ino, status.st_size, status.st_mtime_ns))
    elif FileSystems.exists(path):
        return Seen(beam_info(FileSystems.get_filesystem(path).metadata(path)))
    return Seen(None)


class _StagedFile:
    """A file that is renamed when it is whole; its methods are those of `NewObject`."""

    def __init__(self, directory: str, name: str, seen: Seen | None, synced: bool) -> None:
        self._directory, self._name, self._seen = directory, name, seen
        self._synced = synced and is_local(directory)
        # Each attempt has its own name, so two attempts never write to the same file.
        attempt = f"{name.replace('/', '-')}.{uuid.uuid4().hex}"
        self._staged = join(join(directory, STAGING), attempt)
        self._file = FileSystems.create(
            self._staged, compression_type=CompressionTypes.UNCOMPRESSED
        )
        self.write = self._file.write

    def publish(self) -> None:
        if self._synced:
            self._file.flush()
            os.fsync(self._file.fileno())
        self._file.close()
        if "/" in self._name:
            make_directory(join(self._directory, self._name.rsplit("/", 1)[0]))
        # No filesystem renames on a condition, so this leaves a moment in which the file may change.
        if self._seen and look(self._directory, self._name) != self._seen:
            raise ChangedError(f"{self._name}: it was replaced while it was written")
        _rename(self._staged, join(self._directory, self._name))

    def give_up(self) -> None:
        # The error that led here is the one to report: on a full disk, closing fails again.
        with contextlib.suppress(OSError, BeamIOError):
            self._file.close()
        with contextlib.suppress(OSError, BeamIOError):
            FileSystems.delete([self._staged])


def _rename(source: str, target: str) -> None:
    try:
        FileSystems.rename([source], [target])
    except OSError:
        if is_local(target) or not (FileSystems.exists(source) and FileSystems.exists(target)):
            raise
        # HDFS cannot rename onto a file. For a moment the file is missing, but never half of it.
        FileSystems.delete([target])
        FileSystems.rename([source], [target])


class NewFile:
    """A file that is being written; leaving the context removes it unless it was published.

    Args:
        directory: The dataset's directory, on any Beam filesystem.
        name: The file's path relative to the directory.
        seen: What it may replace, from `look`; None for anything.
        synced: Whether no loss of power may leave its name without its bytes; only disks of this machine need it.

    Attributes:
        size: The bytes written so far.
        crc32c: Their checksum.
    """

    def __init__(
        self, directory: str, name: str, seen: Seen | None = None, synced: bool = False
    ) -> None:
        self._path = join(directory, name)
        self._destination = (
            NewObject(self._path, seen)
            if is_store(self._path)
            else _StagedFile(directory, name, seen, synced)
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

    def publish(self) -> None:
        """Makes the file appear, replacing one of the same name.

        Raises:
            DataError: The name no longer has what was seen there, but other bytes than these.
        """
        try:
            self._destination.publish()
            self._published = True
        except ChangedError:
            # Another attempt has written the same, or this one has and did not get the answer.
            if not self._is_there():
                raise DataError(
                    f"{self._path} was changed by another worker or job while this one wrote it; if the job "
                    "fails, run the same command again: it keeps the shards that are done"
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
    directory: str, name: str, data: bytes, seen: Seen | None = None, synced: bool = False
) -> None:
    """Writes a small file that appears whole or not at all; arguments and errors as for `NewFile`."""
    with NewFile(directory, name, seen, synced) as file:
        file.write(data)
        file.publish()


def sync_files(directory: str, names: Iterable[str]) -> None:
    """Makes files, and all changes of names in their folders, survive a loss of power.

    Only on a disk of this machine: stores and HDFS keep what they have acknowledged.

    Raises:
        OSError: The disk cannot keep the bytes of a file.
    """
    if not is_local(directory):
        return
    paths = {join(directory, name) for name in names}
    with ThreadPoolExecutor(_SYNCED_AT_ONCE) as threads:
        list(threads.map(_sync, paths))
    folders = {directory, *(path.rsplit("/", 1)[0] for path in paths)}
    # The directory itself may be new.
    for folder in sorted(folders | {os.path.dirname(directory)}):
        try:
            _sync(folder)
        except OSError as error:
            if error.errno not in _NO_SYNCS:
                raise


def _sync(path: str) -> None:
    """Waits until a file or a folder is on the disk, whoever has written it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def create_file(directory: str, name: str, data: bytes) -> bool:
    """Writes a small file unless there is one of this name; returns whether it did.

    Of several processes on this machine, or of several that use a store, only one does so.
    """
    path = join(directory, name)
    if is_store(path):
        return store_of(path).create(path, data)
    make_directory(path.rsplit("/", 1)[0])
    if not is_local(path):
        if FileSystems.exists(path):
            return False
        write_file(directory, name, data)
        return True
    staged = Path(f"{path}.{uuid.uuid4().hex}")
    try:
        staged.write_bytes(data)
        _link(staged, path)
    except FileExistsError:
        return False
    finally:
        staged.unlink(missing_ok=True)
    return True


def _link(staged: Path, path: str) -> None:
    """Gives a file its name; unlike a rename, this never replaces another."""
    try:
        os.link(staged, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # For a moment the file is empty.
        with Path(path).open("xb") as file:
            file.write(staged.read_bytes())


def make_directory(path: str) -> None:
    """Makes a directory unless it exists; several workers may do so at the same time."""
    if is_store(path):
        return
    try:
        FileSystems.mkdirs(path)
    except OSError:  # Beam raises this if the directory exists.
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
    """Deletes files.

    Raises:
        OSError: a file cannot be deleted; on a disk also if it is missing.
    """
    named = list(paths)
    if named and is_store(named[0]):
        store_of(named[0]).delete(named)
    elif named:
        FileSystems.delete(named)


def move_files(moves: Sequence[tuple[str, str]]) -> None:
    """Moves files, in place of any that have the new names; a store copies and deletes them.

    Args:
        moves: (path, new path) of each file, all on the same filesystem.
    """
    if moves and is_store(moves[0][0]):
        store = store_of(moves[0][0])
        with ThreadPoolExecutor(_COPIED_AT_ONCE) as threads:
            list(threads.map(lambda move: store.copy(*move), moves))
        store.delete([source for source, _ in moves])
        return
    for folder in {target.rsplit("/", 1)[0] for _, target in moves}:
        make_directory(folder)
    for source, target in moves:
        _rename(source, target)


def drop_empty_directory(path: str) -> None:
    """Removes a local directory if it is empty; elsewhere an empty directory does not matter."""
    if is_local(path):
        with contextlib.suppress(OSError):
            os.rmdir(path)


def clear_staging(directory: str, found: Iterable[FileInfo]) -> None:
    """Deletes `.staging/` of a complete dataset.

    Args:
        found: All files in the directory.
    """
    staging = join(directory, STAGING)
    if is_store(directory):
        delete_files(file.path for file in found if file.path.startswith(f"{staging}/"))
    else:
        with contextlib.suppress(OSError):
            FileSystems.delete([staging])


def drop_uploads(directory: str) -> None:
    """Drops the parts of unfinished objects that a killed run has sent, which are charged for."""
    if is_store(directory):
        # Not everybody who may write may list uploads, and the dataset does not need this.
        with contextlib.suppress(OSError, JobError):
            store_of(directory).drop_uploads(directory + "/")
