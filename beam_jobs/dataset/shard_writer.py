"""Writes one shard: its records in order, their index, its rejects, and a note that it is done."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import google_crc32c
import numpy as np

from beam_jobs import progress
from beam_jobs.dataset.output import Holder, Output
from beam_jobs.dataset.resume import Digest, Note, ShardResult
from beam_jobs.errors import DataError, UsageError, loss_error
from beam_jobs.plan.shards import ONE_KEY, SHARD_BITS, Plan, shard_sizes, shards_of
from beam_jobs.records.rejects import Reject, format_rejects, rejects_file
from beam_jobs.sources.labels import Names
from beam_jobs.storage.atomic import NewFile, Piece, write_file
from readers.format.encode.index_rows import IndexRows
from readers.format.index import HASH, HASH_LOW, Index, head_crc32c
from readers.format.manifest import INDEX_SUFFIX, join
from readers.format.schema import Schema
from readers.format.splits import Shard, shard_name


class Stretch(NamedTuple):
    """Records that follow one another in a shard.

    Attributes:
        frames: The framed records, one after another.
        lengths: int64 [n], the size of each frame in bytes.
        hashes: uint64 [n], the hashes by which they are ordered.
        rows: Their rows of the index, one after another.
        rejects: Inputs among them that became no record.
        piece: The file with the frames; None if they are in `frames`.
    """

    frames: bytes
    lengths: np.ndarray
    hashes: np.ndarray
    rows: bytes
    rejects: list[Reject]
    piece: Piece | None = None

    @classmethod
    def of_rejects(cls, rejects: list[Reject]) -> Stretch:
        """No records."""
        return cls(b"", np.empty(0, np.int64), np.empty(0, np.uint64), b"", rejects)


@contextlib.contextmanager
def unwritable(directory: str, name: str) -> Iterator[None]:
    """Turns the OSError of a failed write into DataError."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{join(directory, name)} cannot be written ({error}); make room or choose another "
            "place, and run the same command again: it keeps the shards that are done"
        ) from error


def rows_in_order(hashes: np.ndarray, key_of: Callable[[int], bytes]) -> list[int]:
    """The order of a shard's records: by hash (uint64 [n]), then by key."""
    order: list[int] = np.argsort(hashes, kind="stable").tolist()
    if (np.diff(hashes[order]) == 0).any():
        order.sort(key=lambda row: (hashes[row], key_of(row)))
    return order


def check_records(
    hashes: np.ndarray, key_of: Callable[[int], bytes], name: str, expected: int
) -> None:
    """Checks the records that reached a shard's writer, given their hashes, uint64 [n], sorted by hash and key.

    Raises:
        UsageError: Two records have the same key.
        DataError: The runner lost or repeated records.
    """
    for row in np.flatnonzero(hashes[1:] == hashes[:-1]).tolist():
        if key_of(row) == key_of(row + 1):
            raise UsageError(f"duplicate key {key_of(row).decode('utf-8', 'replace')!r}: {ONE_KEY}")
    if len(hashes) != expected:
        raise loss_error(f"records of {name}", len(hashes), expected)


class ShardFile(contextlib.ExitStack):
    """A TFRecord file of a dataset; leaving the context removes it unless it was committed."""

    def __init__(self, output: Holder, path: str) -> None:
        super().__init__()
        self._output, self._path = output, path
        self._file = self.enter_context(NewFile(join(output.directory, path), output.staging))
        self.write, self.append = self._file.write, self._file.append

    def finish(self, index: Index) -> Shard:
        """The shard, which no reader sees yet, given the index of its records."""
        self._index = index.to_bytes()
        size, crc, index_size = self._file.size, self._file.crc32c, len(self._index)
        of_index = Piece(self._path + INDEX_SUFFIX, index_size, google_crc32c.value(self._index))
        self.files = [Piece(self._path, size, crc), of_index]
        smallest = int(index.sections[HASH].min(initial=0xFFFFFFFF))
        sizes = size, crc, index_size, head_crc32c(self._index)
        return Shard(self._path, len(index.lengths), *sizes, smallest)

    def commit(self) -> None:
        """Makes the file appear, after its index; DataError if a file of its name has other bytes."""
        path = join(self._output.directory, self._path + INDEX_SUFFIX)
        write_file(path, self._index, self._output.staging)
        self._file.publish()


class ShardWriter:
    """Writes the records of one shard, whose `key` is from `shards_of`, and the list of its rejects.

    Attributes:
        rows: Unpacks the rows of the index.
        name: The regular path of the shard in the dataset.
        expected: The number of records that the plan put into it.
    """

    def __init__(self, output: Output, plan: Plan, key: int, schema: Schema) -> None:
        self._split, self._number = key >> SHARD_BITS, key & ((1 << SHARD_BITS) - 1)
        # The job may have learned the schema from its inputs.
        self._output, self.rows = replace(output, schema=schema), IndexRows(schema)
        self._key, self._plan = key, plan
        split = plan.splits[self._split]
        self._is_empty = not split.shards
        sizes = shard_sizes(split.records, max(split.shards, 1))
        self.expected = sizes[self._number]
        file = shard_name(output.placement.splits.names[self._split], self._number, len(sizes))
        self.name = self._path = f"{plan.folder}/{file}"
        self._note = Note(output, self.name)

    @property
    def record_bytes(self) -> int:
        """The approximate size of a framed record in bytes."""
        return self._plan.splits[self._split].record_bytes

    def owns(self, splits: np.ndarray, hashes: np.ndarray) -> np.ndarray:
        """Whether records (splits uint8 [n], hashes uint64 [n]) are of this shard, bool [n]."""
        return shards_of(self._plan, splits, hashes) == self._key

    def digest(self, names: Names | None = None) -> Digest:
        """The digest of the shard, to which its records must be added."""
        return Digest(self._output, self.name, names or {})

    def find_done(self, digest: Callable[[], str]) -> tuple[ShardResult, Any] | None:
        """The (result, figures) of the shard if an earlier run wrote it with the same digest; else chooses its name.

        Its complete digest is computed only if an earlier run has left a note.
        """
        self._path, done = self._note.find(digest)
        if done:
            progress.advance("writing", self.expected, done[0].rejected)
        return done

    def write(
        self,
        stretches: Iterable[Stretch],
        digest: Digest,
        figures: Callable[[], Any] = lambda: None,
    ) -> ShardResult:
        """Writes the shard and a note that it is done.

        Args:
            stretches: Its records in the order of their hashes.
            digest: The digest of the shard, complete after the last stretch.
            figures: Returns the figures for `find_done`, after the last stretch.

        Raises:
            DataError: The output cannot be written.
        """
        rejects, rows = list[Reject](), list[bytes]()
        lengths, hashes = [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
        progress.advance("writing", 0)
        with unwritable(self._output.directory, self._path):
            if self._is_empty:
                rejects += [one for some in stretches for one in some.rejects]
                return self._noted(None, [], rejects, digest, figures())
            with ShardFile(self._output, self._path) as file:
                for stretch in stretches:
                    rejects += stretch.rejects
                    file.write(stretch.frames)
                    if stretch.piece:
                        file.append(stretch.piece)
                    lengths.append(stretch.lengths)
                    hashes.append(stretch.hashes)
                    rows.append(stretch.rows)
                    inputs = len(stretch.lengths) + len(stretch.rejects)
                    progress.advance("writing", inputs, len(stretch.rejects))
                whole = np.concatenate(hashes)
                halves = {HASH: whole >> np.uint64(32), HASH_LOW: whole & np.uint64(0xFFFFFFFF)}
                of_keys = {name: half.astype(np.uint32) for name, half in halves.items()}
                sections = self.rows.unpack(b"".join(rows), self._output.feature_names)
                shard = file.finish(Index(np.concatenate(lengths), {**of_keys, **sections}))
                result = self._noted(shard, file.files, rejects, digest, figures())
                file.commit()
        return result

    def _noted(
        self,
        shard: Shard | None,
        files: list[Piece],
        rejects: list[Reject],
        digest: Digest,
        figures: Any,
    ) -> ShardResult:
        """Writes the note and the list of rejects; returns the result."""
        path = rejects_file(self._path) if rejects else ""
        count, first = len(rejects), min(rejects, default=None)
        result = ShardResult(self._split, self._number, shard, count, first, rejects=path)
        lines = format_rejects(rejects)
        if rejects:
            files.append(Piece(path, len(lines), google_crc32c.value(lines)))
        self._note.write(digest.text(), result, figures, files)
        if rejects:
            write_file(join(self._output.directory, path), lines, self._output.staging)
        return result
