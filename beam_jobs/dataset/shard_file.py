"""The file of one shard, which appears with its index."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator

from beam_jobs.dataset.output import Output
from beam_jobs.errors import DataError, JobError, UsageError
from beam_jobs.storage.atomic import NewFile, write_file
from readers.format.index import HASH, Index, head_crc32c
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


def not_writable(directory: str, error: OSError) -> JobError:
    """The error of a directory that cannot be written; a full disk is not the user's mistake."""
    kind = DataError if error.errno in (errno.ENOSPC, errno.EDQUOT) else UsageError
    return kind(
        f"--output {directory}: cannot be written ({error}); make room or choose another place"
    )


class ShardFile(contextlib.ExitStack):
    """A TFRecord file being written; leaving the context removes it unless it was committed.

    Args:
        output: The dataset.
        path: The file's path in the dataset.
    """

    def __init__(self, output: Output, path: str) -> None:
        super().__init__()
        self._output, self._path = output, path
        self._file = self.enter_context(NewFile(join(output.directory, path), output.staging))
        self.write, self.append = self._file.write, self._file.append

    def commit(self, index: Index, before: Callable[[Shard], None]) -> Shard:
        """Makes the file appear, after its index.

        Args:
            index: The index of the records that were written.
            before: Called with the shard before the first of its files appears.

        Raises:
            DataError: There is a file of its name with other bytes.
        """
        data = index.to_bytes()
        sizes = self._file.size, self._file.crc32c, len(data), head_crc32c(data)
        smallest = int(index.sections[HASH].min(initial=0xFFFFFFFF))
        shard = Shard(self._path, len(index.lengths), *sizes, smallest)
        before(shard)
        path = join(self._output.directory, self._path + INDEX_SUFFIX)
        write_file(path, data, self._output.staging)
        self._file.publish()
        return shard
