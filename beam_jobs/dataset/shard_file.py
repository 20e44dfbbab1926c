"""The file of one shard, with its checksum and its index."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import google_crc32c
import numpy as np

from beam_jobs.dataset.directory import check_moves
from beam_jobs.errors import DataError
from beam_jobs.storage.atomic import NewFile, look, write_file
from readers.format.index import format_index
from readers.format.manifest import INDEX_SUFFIX, join
from readers.format.splits import Shard


@contextlib.contextmanager
def unwritable(directory: str, name: str) -> Iterator[None]:
    """Reports a filesystem that refuses to write in one line.

    Raises:
        DataError: The filesystem refuses to write.
    """
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{join(directory, name)} cannot be written ({error}); make room or choose another "
            "place, and run the same command again: it keeps the shards that are done"
        ) from error


class ShardFile(contextlib.ExitStack):
    """A TFRecord file being written; leaving the context removes it unless it was committed.

    Args:
        directory: The dataset's directory, on any Beam filesystem.
        name: The file's name.

    Attributes:
        index_bytes, index_crc32c: The size in bytes and the checksum of the committed index.
    """

    def __init__(self, directory: str, name: str) -> None:
        super().__init__()
        self._directory, self._name = directory, name
        seen, self._seen_index = look(directory, name), look(directory, name + INDEX_SUFFIX)
        check_moves(directory, expected=False)
        self._file = self.enter_context(NewFile(directory, name, seen))
        self._lengths: list[np.ndarray] = []
        self.index_bytes = self.index_crc32c = 0

    def write(self, frames: bytes, lengths: np.ndarray) -> None:
        """Appends records.

        Args:
            frames: Framed records, one after another.
            lengths: The size of each framed record in bytes, int64 [n].
        """
        self._file.write(frames)
        self._lengths.append(lengths)

    def commit(self) -> Shard:
        """Writes the index, and makes both files appear.

        Raises:
            DataError: Records have moved to or from the shard since this attempt began.
        """
        lengths = np.concatenate([np.empty(0, np.int64), *self._lengths])
        index = format_index(lengths)
        write_file(self._directory, self._name + INDEX_SUFFIX, index, self._seen_index)
        self.index_bytes, self.index_crc32c = len(index), google_crc32c.value(index)
        self._file.publish()
        return Shard(self._name, len(lengths), self._file.size, self._file.crc32c)
