"""Files of a dataset that is being written: each appears whole or not at all, on any filesystem.

A store's objects appear when they are complete, so they are written once, under their own names. On a
disk, on HDFS and wherever else somebody could see half a file, it is written below `.staging/` and
renamed. An attempt that dies half-way, or one that was thought dead and goes on, never leaves half a
file in the place of a good one; a whole one it may write again, as all attempts make the same bytes.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable
from types import TracebackType
from typing import Any, NamedTuple, Protocol

from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beam_jobs.errors import JobError
from beam_jobs.storage.listing import walked_files
from beam_jobs.storage.objects import NewObject, is_store, store_of
from beam_jobs.storage.paths import is_local
from readers.format.manifest import join

STAGING = ".staging"


class Found(NamedTuple):
    """A file below a directory.

    Attributes:
        path: Of the file.
        size: In bytes.
    """

    path: str
    size: int


class _Way(Protocol):
    """How the bytes of a file come to their place."""

    def write(self, data: bytes) -> Any:
        """Appends bytes."""

    def publish(self) -> None:
        """Lets the file appear."""

    def give_up(self) -> None:
        """Leaves no trace of it, as far as that can be."""


class _Staged:
    """A file that is renamed when it is whole."""

    def __init__(self, directory: str, name: str) -> None:
        self._directory, self._name = directory, name
        # A name of its own for every attempt, so that two attempts never share a file.
        attempt = f"{name.replace('/', '-')}.{uuid.uuid4().hex}"
        self._staged = join(join(directory, STAGING), attempt)
        self._file = FileSystems.create(
            self._staged, compression_type=CompressionTypes.UNCOMPRESSED
        )
        self.write = self._file.write

    def publish(self) -> None:
        self._file.close()
        if "/" in self._name:
            make_directory(join(self._directory, self._name.rsplit("/", 1)[0]))
        target = join(self._directory, self._name)
        try:
            FileSystems.rename([self._staged], [target])
        except OSError:
            if is_local(target) or not FileSystems.exists(target):
                raise
            # HDFS renames nothing onto a file. For a moment there is none, but never half of one.
            FileSystems.delete([target])
            FileSystems.rename([self._staged], [target])

    def give_up(self) -> None:
        # The error that led here is the one to tell: on a full disk, closing fails again.
        with contextlib.suppress(OSError, BeamIOError):
            self._file.close()
        with contextlib.suppress(OSError, BeamIOError):
            FileSystems.delete([self._staged])


class NewFile:
    """A file being written; a context manager that leaves nothing of what was not published.

    Args:
        directory: Of the dataset, on any Beam filesystem.
        name: Its path below.
    """

    def __init__(self, directory: str, name: str) -> None:
        self._directory, self._name = directory, name
        self._published = False

    def __enter__(self) -> NewFile:
        path = join(self._directory, self._name)
        self._way: _Way = (
            NewObject(path) if is_store(path) else _Staged(self._directory, self._name)
        )
        return self

    def write(self, data: bytes) -> None:
        """Appends bytes."""
        self._way.write(data)

    def publish(self) -> None:
        """Lets the file appear, in the place of one that has its name."""
        self._way.publish()
        self._published = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._published:
            with contextlib.suppress(OSError, JobError):
                self._way.give_up()


def write_file(directory: str, name: str, data: bytes) -> None:
    """Writes a small file that appears whole or not at all."""
    with NewFile(directory, name) as file:
        file.write(data)
        file.publish()


def make_directory(path: str) -> None:
    """Makes a directory unless it is there; several workers may do so at once."""
    if is_store(path):
        return
    try:
        FileSystems.mkdirs(path)
    except OSError:  # Beam's way to say that it is there
        if not FileSystems.exists(path):
            raise


def list_files(directory: str) -> list[Found]:
    """All files below a directory.

    Raises:
        OSError, ValueError: The filesystem refuses, or no package for it is installed.
    """
    if is_store(directory):
        return [Found(path, size) for path, size, _ in store_of(directory).listed(directory + "/")]
    if not is_local(directory) and FileSystems.get_filesystem(directory).has_dirs():
        return [Found(path, size) for path, size, _ in walked_files(directory)]
    found = FileSystems.match([join(directory, "**")])[0].metadata_list
    return [Found(metadata.path, metadata.size_in_bytes) for metadata in found]


def delete_files(paths: Iterable[str]) -> None:
    """Deletes files.

    Raises:
        OSError: One cannot be deleted; on a disk also where it is gone.
    """
    named = list(paths)
    if named and is_store(named[0]):
        store_of(named[0]).delete(named)
    elif named:
        FileSystems.delete(named)


def clear_staging(directory: str, found: Iterable[Found]) -> None:
    """Deletes what is below `.staging/` once a dataset is whole.

    Args:
        found: All files below the directory.
    """
    staging = join(directory, STAGING)
    if is_store(directory):
        delete_files(path for path, _ in found if path.startswith(f"{staging}/"))
    else:
        with contextlib.suppress(OSError):
            FileSystems.delete([staging])


def drop_halves(directory: str) -> None:
    """Drops what a killed run has sent of files that never appeared, which costs money meanwhile."""
    if is_store(directory):
        # Not everybody who may write may list these; they are no part of the dataset.
        with contextlib.suppress(OSError, JobError):
            store_of(directory).drop_uploads(directory + "/")
