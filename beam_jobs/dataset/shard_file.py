"""One shard: its file, checksum and index as it grows, and the commit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import TracebackType

import google_crc32c
import numpy as np

from beam_jobs.errors import DataError
from beam_jobs.storage.atomic import NewFile, write_file
from readers.format.index import format_index
from readers.format.manifest import INDEX_SUFFIX, Shard


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
        self._file = NewFile(directory, name)
        self._lengths: list[np.ndarray] = []
        self._crc = 0
        self.index_bytes = self.index_crc32c = self.largest = 0

    def __enter__(self) -> ShardFile:
        self._file.__enter__()
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
        """Writes the index, and lets both appear."""
        lengths = np.concatenate([np.empty(0, np.int64), *self._lengths])
        index = format_index(lengths)
        write_file(self._directory, self._name + INDEX_SUFFIX, index)
        self.index_bytes, self.index_crc32c = len(index), google_crc32c.value(index)
        self.largest = int(lengths.max(initial=0))
        self._file.publish()
        return Shard(self._name, len(lengths), int(lengths.sum()), self._crc)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.__exit__(kind, error, traceback)
