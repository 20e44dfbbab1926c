"""One shard on disk: a staging file, its checksum and index as it grows, and the commit."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from types import TracebackType

import google_crc32c
import numpy as np
from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beam_jobs.errors import DataError
from readers.format.manifest import INDEX_SUFFIX, Shard, join
from readers.format.tfrecord import format_index

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


@contextlib.contextmanager
def unwritable(directory: str, name: str) -> Iterator[None]:
    """Makes one clear line of a filesystem that refuses to write.

    Raises:
        DataError: It did.
    """
    try:
        yield
    except OSError as error:
        raise DataError(
            f"--output {directory}: {name} cannot be written ({error}); make room or choose "
            "another place, and run the same command again: it keeps the shards that are done"
        ) from error


class ShardFile:
    """A TFRecord file being written; a context manager that cleans up what was not committed.

    Args:
        directory: Of the dataset, on any Beam filesystem.
        name: The shard's final name.

    Attributes:
        index_bytes, index_crc32c: Of the index, once it is committed.
        largest: Bytes of the largest record, likewise.
    """

    def __init__(self, directory: str, name: str) -> None:
        self._directory, self._name = directory, name
        self._staged = staging_path(directory, name)
        self._lengths: list[np.ndarray] = []
        self._crc = 0
        self._committed = False
        self.index_bytes = self.index_crc32c = self.largest = 0

    def __enter__(self) -> ShardFile:
        self._file = FileSystems.create(
            self._staged, compression_type=CompressionTypes.UNCOMPRESSED
        )
        return self

    def write(self, frames: bytes, lengths: np.ndarray) -> None:
        """Appends records.

        Args:
            frames: Framed, one after another.
            lengths: int64 [n], bytes of each.
        """
        self._file.write(frames)
        self._crc = google_crc32c.extend(self._crc, frames)
        self._lengths.append(lengths)

    def commit(self) -> Shard:
        """Closes the file, writes its index, and gives both their final names."""
        self._file.close()
        lengths = np.concatenate([np.empty(0, np.int64), *self._lengths])
        index = format_index(lengths)
        write_file(self._directory, self._name + INDEX_SUFFIX, index)
        self.index_bytes, self.index_crc32c = len(index), google_crc32c.value(index)
        self.largest = int(lengths.max(initial=0))
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
