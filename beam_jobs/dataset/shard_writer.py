"""Writes one shard: its records in order, its rejects, and a note that it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import google_crc32c
import numpy as np

from beam_jobs import progress
from beam_jobs.dataset.output import Output
from beam_jobs.dataset.resume import Digest, Note, ShardResult
from beam_jobs.dataset.shard_file import ShardFile, unwritable
from beam_jobs.errors import DataError, UsageError, loss_error
from beam_jobs.plan.shards import ONE_KEY, SHARD_BITS, Plan, shard_sizes, shards_of
from beam_jobs.records.rejects import Reject, format_rejects, rejects_file
from beam_jobs.sources.classes import Names
from beam_jobs.storage.atomic import Piece, write_file
from readers.format.encode.index_rows import IndexRows
from readers.format.index import HASH, Index
from readers.format.manifest import join
from readers.format.schema import Schema
from readers.format.splits import Shard, shard_name


class Run(NamedTuple):
    """Records that follow one another in a shard.

    Attributes:
        frames: The framed records, one after another.
        lengths: int64 [n], the size of each frame in bytes.
        hashes: uint64 [n], the hashes by which they are ordered.
        rows: Their rows of the index, one after another.
        rejects: Inputs among them that became no record.
        piece: The file in which the frames wait; None if they are in `frames`.
    """

    frames: bytes
    lengths: np.ndarray
    hashes: np.ndarray
    rows: bytes
    rejects: list[Reject]
    piece: Piece | None = None

    @classmethod
    def of_rejects(cls, rejects: list[Reject]) -> Run:
        """No records."""
        return cls(b"", np.empty(0, np.int64), np.empty(0, np.uint64), b"", rejects)


def rows_in_order(hashes: np.ndarray, key_of: Callable[[int], bytes]) -> list[int]:
    """The order of a shard's records: by hash (uint64 [n]), then by key."""
    order: list[int] = np.argsort(hashes, kind="stable").tolist()
    if (np.diff(hashes[order]) == 0).any():
        order.sort(key=lambda row: (hashes[row], key_of(row)))
    return order


def check_records(
    hashes: np.ndarray, key_of: Callable[[int], bytes], name: str, expected: int
) -> None:
    """Checks the records that reached a shard's writer, sorted by hash and key.

    Args:
        hashes: The hash of each record, uint64 [n].
        key_of: Row -> key of its record.
        name: The shard's file name.
        expected: The number of records that the plan put into the shard.

    Raises:
        UsageError: Two records have the same key.
        DataError: The runner lost or repeated records.
    """
    for row in np.flatnonzero(hashes[1:] == hashes[:-1]).tolist():
        if key_of(row) == key_of(row + 1):
            raise UsageError(f"duplicate key {key_of(row).decode('utf-8', 'replace')!r}: {ONE_KEY}")
    if len(hashes) != expected:
        raise loss_error(f"records of {name}", len(hashes), expected)


class ShardWriter:
    """Writes the records of one shard and the list of its rejects.

    Args:
        output: The dataset.
        plan: The plan of the whole dataset.
        key: Split and shard in one number, as `assign_shards` yields it.
        schema: The features of every record.

    Attributes:
        rows: Unpacks the rows of the index.
        name: The regular path of the shard in the dataset.
    """

    def __init__(self, output: Output, plan: Plan, key: int, schema: Schema) -> None:
        self.split, self.index = key >> SHARD_BITS, key & ((1 << SHARD_BITS) - 1)
        # The job may have learned the schema from its inputs.
        self._output, self.rows = replace(output, schema=schema), IndexRows(schema)
        self._key, self._shards = key, plan
        self._plan = plan.splits[self.split]
        count = max(self._plan.shards, 1)
        file = shard_name(output.placement.splits.names[self.split], self.index, count)
        self.name = self._path = f"{plan.folder}/{file}"
        self._note = Note(output, self.name)

    @property
    def expected(self) -> int:
        """The number of records that the plan put into this shard."""
        if not self._plan.shards:
            return 0
        return shard_sizes(self._plan.records, self._plan.shards)[self.index]

    def owns(self, splits: np.ndarray, hashes: np.ndarray) -> np.ndarray:
        """Which records (splits uint8 [n], hashes uint64 [n]) are of this shard, bool [n]."""
        return shards_of(self._shards, splits, hashes) == self._key

    def write(
        self, runs: Iterable[Run], digest: Digest, figures: Callable[[], Any] = lambda: None
    ) -> ShardResult:
        """Writes the shard and a note that it is done.

        Args:
            runs: Its records in the order of their hashes.
            digest: The digest of the shard, complete when all runs were taken.
            figures: Returns what `find_done` shall return with the result, when all runs were taken.

        Raises:
            DataError: An input was rejected, and `on_reject` is "fail"; or the output cannot be
                written.
        """
        rejects: list[Reject] = []
        progress.advance("writing", 0)
        lengths, hashes = [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
        rows = list[bytes]()
        result = ShardResult(self.split, self.index, None, 0, None)

        def note(shard: Shard | None) -> None:
            nonlocal result
            listed = format_rejects(rejects) if rejects else b""
            result = replace(
                result,
                shard=shard,
                rejected=len(rejects),
                first_reject=min(rejects, default=None),
                rejects=rejects_file(self._path) if rejects else "",
                rejects_crc32c=google_crc32c.value(listed),
            )
            self._note.write(digest.text(), result, figures())
            if rejects:
                path = join(self._output.directory, result.rejects)
                write_file(path, listed, self._output.staging)

        with unwritable(self._output.directory, self._path):
            if not self._plan.shards:
                rejects += [self._rejected(reject) for run in runs for reject in run.rejects]
                note(None)
                return result
            with ShardFile(self._output, self._path) as file:
                for run in runs:
                    rejects += map(self._rejected, run.rejects)
                    file.write(run.frames)
                    if run.piece:
                        file.append(run.piece)
                    lengths.append(run.lengths)
                    hashes.append(run.hashes)
                    rows.append(run.rows)
                    found = len(run.lengths) + len(run.rejects)
                    progress.advance("writing", found, len(run.rejects))
                file.commit(self._index(lengths, hashes, rows), note)
        return result

    def _index(
        self, lengths: list[np.ndarray], hashes: list[np.ndarray], rows: list[bytes]
    ) -> Index:
        top = (np.concatenate(hashes) >> np.uint64(32)).astype(np.uint32)
        sections = self.rows.unpack(b"".join(rows), self._output.feature_names)
        return Index(np.concatenate(lengths), {HASH: top, **sections})

    @property
    def record_bytes(self) -> int:
        """The approximate size of a framed record in bytes."""
        return self._plan.record_bytes

    def digest(self, names: Names | None = None) -> Digest:
        """The digest of the shard, to which its records must be added."""
        return Digest(self._output, self.name, names or {})

    def read_note(self) -> dict[str, Any] | None:
        """The note of an earlier run about the shard, if there is one."""
        return self._note.read()

    def find_done(self, note: dict[str, Any] | None, digest: str) -> tuple[ShardResult, Any] | None:
        """The (result, figures) of a shard that an earlier run wrote with the same digest.

        If there is a note and no such shard, the shard may be written under a second name.
        """
        found = self._note.found(note, digest) if note else None
        if found is None:
            return None
        if isinstance(found, str):
            self._path = found
            return None
        progress.advance("writing", self.expected, found[0].rejected)
        return found

    def _rejected(self, reject: Reject) -> Reject:
        if self._output.on_reject == "fail":
            raise DataError(f"{reject} (--on_reject fail)")
        return reject
