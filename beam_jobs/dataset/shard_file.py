"""The file of one shard, with its checksum and its index."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from beam_jobs.dataset.directory import check_moves
from beam_jobs.errors import DataError
from beam_jobs.storage.atomic import NewFile, look, write_file
from readers.format.index import Index, head_crc32c
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
    """

    def __init__(self, directory: str, name: str) -> None:
        super().__init__()
        self._directory, self._name = directory, name
        seen, self._seen_index = look(directory, name), look(directory, name + INDEX_SUFFIX)
        check_moves(directory, expected=False)
        self._file = self.enter_context(NewFile(directory, name, seen))
        self.write = self._file.write

    def commit(self, index: Index) -> Shard:
        """Writes the index of the records that were written, and makes both files appear.

        Raises:
            DataError: Records have moved to or from the shard since this attempt began.
        """
        data = index.to_bytes()
        write_file(self._directory, self._name + INDEX_SUFFIX, data, self._seen_index)
        self._file.publish()
        sizes = self._file.size, self._file.crc32c, len(data), head_crc32c(data)
        return Shard(self._name, len(index.lengths), *sizes)
