"""Writes one shard: its records in order, its rejects, and a note that it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import google_crc32c
import numpy as np

from beam_jobs import progress
from beam_jobs.dataset.output import Output
from beam_jobs.dataset.resume import Digest, ShardResult, find_done, note_done, read_note
from beam_jobs.dataset.shard_file import ShardFile, unwritable
from beam_jobs.errors import DataError, UsageError
from beam_jobs.plan.shards import ONE_KEY, SHARD_BITS, Plan, loss_error, shard_sizes, shards_of
from beam_jobs.records.rejects import Reject, format_rejects, rejects_file
from beam_jobs.sources.classes import Names
from beam_jobs.storage.atomic import write_file
from readers.format.encode.index_rows import IndexRows
from readers.format.index import HASH, Index
from readers.format.schema import Schema
from readers.format.splits import shard_name


class Run(NamedTuple):
    """Records that follow one another in a shard.

    Attributes:
        frames: The framed records, one after another.
        lengths: int64 [n], the size of each frame in bytes.
        hashes: uint64 [n], the hashes by which they are ordered.
        rows: Their rows of the index, one after another.
        rejects: Inputs among them that became no record.
    """

    frames: bytes
    lengths: np.ndarray
    hashes: np.ndarray
    rows: bytes
    rejects: list[Reject]


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
        raise loss_error(len(hashes), expected, f"records of {name}")


class ShardWriter:
    """Writes the records of one shard and the list of its rejects.

    Args:
        output: The dataset.
        plan: The plan of the whole dataset.
        key: Split and shard in one number, as `assign_shards` yields it.
        schema: The features of every record.

    Attributes:
        rows: Unpacks the rows of the index.
    """

    def __init__(self, output: Output, plan: Plan, key: int, schema: Schema) -> None:
        self.split, self.index = key >> SHARD_BITS, key & ((1 << SHARD_BITS) - 1)
        # The job may have learned the schema from its inputs.
        self._output, self.rows = replace(output, schema=schema), IndexRows(schema)
        self._key, self._shards = key, plan
        self._plan = plan.splits[self.split]
        count = max(self._plan.shards, 1)
        self.name = shard_name(output.placement.splits.names[self.split], self.index, count)

    @property
    def expected(self) -> int:
        """The number of records that the plan put into this shard."""
        if not self._plan.shards:
            return 0
        return shard_sizes(self._plan.records, self._plan.shards)[self.index]

    def owns(self, splits: np.ndarray, hashes: np.ndarray) -> np.ndarray:
        """Which records (splits uint8 [n], hashes uint64 [n]) are of this shard, bool [n]."""
        return shards_of(self._shards, splits, hashes) == self._key

    def write(self, runs: Iterable[Run]) -> ShardResult:
        """Writes and commits the shard, from its records in the order of their hashes.

        Raises:
            DataError: An input was rejected, and `on_reject` is "fail"; or the output cannot be
                written.
        """
        rejects: list[Reject] = []
        directory = self._output.directory
        progress.advance("writing", 0)
        shard, listed = None, b""
        lengths, hashes = [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
        rows = list[bytes]()
        with unwritable(directory, self.name):
            if self._plan.shards:
                with ShardFile(directory, self.name) as file:
                    for run in runs:
                        rejects += map(self._rejected, run.rejects)
                        file.write(run.frames)
                        lengths.append(run.lengths)
                        hashes.append(run.hashes)
                        rows.append(run.rows)
                        found = len(run.lengths) + len(run.rejects)
                        progress.advance("writing", found, len(run.rejects))
                    shard = file.commit(self._index(lengths, hashes, rows))
            else:
                rejects += [self._rejected(reject) for run in runs for reject in run.rejects]
            if rejects:
                listed = format_rejects(rejects)
                write_file(directory, rejects_file(self.name), listed)
        return ShardResult(
            split=self.split,
            index=self.index,
            shard=shard,
            rejected=len(rejects),
            first_reject=min(rejects, default=None),
            rejects_crc32c=google_crc32c.value(listed),
        )

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

    def read_note(self) -> bytes | None:
        """The note of an earlier run about the shard, if there is one."""
        return read_note(self._output.directory, self.name)

    def find_done(self, digest: str, noted: bytes | None = None) -> tuple[ShardResult, Any] | None:
        """The (result, figures) of a shard that an earlier run wrote with the same digest."""
        found = find_done(self._output.directory, self.name, digest, noted)
        if found:
            progress.advance("writing", self.expected, found[0].rejected)
        return found

    def note_done(self, digest: str, result: ShardResult, figures: Any = None) -> None:
        """Writes the note that the shard is committed, with figures for `find_done` to return."""
        with unwritable(self._output.directory, self.name):
            note_done(self._output.directory, self.name, digest, result, figures)

    def _rejected(self, reject: Reject) -> Reject:
        if self._output.on_reject == "fail":
            raise DataError(f"{reject} (--on_reject fail)")
        return reject
