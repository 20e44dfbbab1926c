"""One shard on disk: a staging file, its checksum and index as it grows, and the commit."""

from __future__ import annotations

import contextlib
import uuid
from types import TracebackType

import google_crc32c
import numpy as np
from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from readers.format.manifest import INDEX_SUFFIX, Shard, join
from readers.format.tfrecord import format_index, frame

STAGING = ".staging"


def staging_path(directory: str, name: str) -> str:
    """A name of its own for every attempt, so that two attempts never share a file."""
    return join(join(directory, STAGING), f"{name}.{uuid.uuid4().hex}")


def write_file(directory: str, name: str, data: bytes) -> None:
    """Writes a small file that appears whole or not at all."""
    staged = staging_path(directory, name.replace("/", "-"))
    with FileSystems.create(staged, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        file.write(data)
    if "/" in name:
        make_directory(join(directory, name.rsplit("/", 1)[0]))
    FileSystems.rename([staged], [join(directory, name)])


def make_directory(path: str) -> None:
    """Makes a directory unless it is there; several workers may do so at once."""
    try:
        FileSystems.mkdirs(path)
    except OSError:  # Beam's way to say that it is there
        if not FileSystems.exists(path):
            raise


class ShardFile:
    """A TFRecord file being written; a context manager that cleans up what was not committed.

    Args:
        directory: Of the dataset, on any Beam filesystem.
        name: The shard's final name.
    """

    def __init__(self, directory: str, name: str) -> None:
        self._directory, self._name = directory, name
        self._staged = staging_path(directory, name)
        self._lengths: list[int] = []
        self._crc = 0
        self._committed = False

    def __enter__(self) -> ShardFile:
        self._file = FileSystems.create(
            self._staged, compression_type=CompressionTypes.UNCOMPRESSED
        )
        return self

    def write(self, example: bytes) -> None:
        """Appends one record."""
        framed = frame(example)
        self._file.write(framed)
        self._crc = google_crc32c.extend(self._crc, framed)
        self._lengths.append(len(framed))

    def commit(self) -> Shard:
        """Closes the file, writes its index, and gives both their final names."""
        self._file.close()
        lengths = np.array(self._lengths, np.int64)
        write_file(self._directory, self._name + INDEX_SUFFIX, format_index(lengths))
        FileSystems.rename([self._staged], [join(self._directory, self._name)])
        self._committed = True
        return Shard(self._name, len(lengths), int(lengths.sum()), self._crc)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._committed:
            # The error that led here is the one to tell: on a full disk, closing fails again.
            with contextlib.suppress(OSError, BeamIOError):
                self._file.close()
            with contextlib.suppress(OSError, BeamIOError):
                FileSystems.delete([self._staged])
