"""Balances shards to the last record: records move from the ends of fuller shards to shorter ones.

Shards are planned to ±1 record, but an input that is rejected while its shard is written leaves
the shard short. So at the end `moves` decides which records move. First their bytes are copied out of the ends of their shards;
only then are shards changed, each by itself. The cost is that of the moved records.

Every step may run twice, or in two workers at once: the bytes copied are the same, in a file of each
attempt, bytes are written at fixed offsets, and the note about a shard is removed before the shard
changes. An attempt that was believed dead finds that the job has gone further, and changes nothing.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from pathlib import Path

import google_crc32c

from beam_jobs.dataset.directory import check_moves
from beam_jobs.dataset.moves import Change, Taken, read_index, shard_of
from beam_jobs.dataset.resume import ShardResult, forget_done
from beam_jobs.storage.atomic import STAGING, NewFile, look, write_file
from beam_jobs.storage.files import open_file, read_bytes
from beam_jobs.storage.object_store import Seen
from beam_jobs.storage.paths import is_local
from readers.format.crc import crc_without_suffix
from readers.format.index import Index, head_crc32c
from readers.format.manifest import INDEX_SUFFIX, join
from readers.format.splits import Shard
from readers.format.tfrecord import CorruptRecordError, intact

_COPY_BYTES = 4 << 20


@dataclass(frozen=True)
class PreparedChange:
    """A change whose incoming records are copied out of their donors.

    Attributes:
        change: The change of the shard.
        intake: The name of the file with the incoming records, which has an index; empty if there are none.
        kept_bytes, kept_crc32c: The size in bytes and the checksum of the part that stays.
    """

    change: Change
    intake: str
    kept_bytes: int
    kept_crc32c: int


def _read_records(directory: str, taken: Taken) -> tuple[bytes, Index]:
    """Consecutive framed records of a shard, and their numbers."""
    index = read_index(directory, taken.file, taken.index_crc32c)
    start = int(index.lengths[: taken.first].sum())
    moved = index.slice(taken.first, taken.first + taken.records)
    with open_file(join(directory, taken.file)) as file:
        file.seek(start)
        return file.read(int(moved.lengths.sum())), moved


def prepare_change(directory: str, change: Change) -> PreparedChange:
    """Copies the records that a shard receives to a file of their own; no shard is changed.

    Raises:
        DataError: A shard has changed since it was written.
    """
    shard, intake = shard_of(change.before), ""
    if change.intake:
        intake = f"{STAGING}/{change.name}.{uuid.uuid4().hex}.intake"
        parts = [_read_records(directory, taken) for taken in change.intake]
        write_file(directory, intake, b"".join(data for data, _ in parts))
        index = Index.join([index for _, index in parts])
        write_file(directory, intake + INDEX_SUFFIX, index.to_bytes())
    leaving = Taken(shard.file, shard.index_crc32c, change.keep, shard.records - change.keep)
    suffix = _read_records(directory, leaving)[0] if leaving.records else b""
    crc = crc_without_suffix(shard.crc32c, suffix)
    return PreparedChange(change, intake, shard.bytes - len(suffix), crc)


def apply_change(directory: str, prepared: PreparedChange) -> ShardResult:
    """Cuts a shard to the records it keeps, and appends those it receives.

    A local file is changed in place; elsewhere the whole file is written again.

    Raises:
        DataError: The dataset is complete, or another job has changed the shard meanwhile.
        CorruptRecordError: The records that it receives are damaged.
    """
    change = prepared.change
    name, path = change.name, join(directory, change.name)
    seen, seen_index = look(directory, name), look(directory, name + INDEX_SUFFIX)
    check_moves(directory, expected=True)
    intake, index = b"", read_index(directory, name).slice(0, change.keep)
    if prepared.intake:
        intake, received = _read_intake(directory, prepared.intake)
        index = Index.join([index, received])
    forget_done(directory, name)
    if is_local(path):
        with Path(path).open("r+b") as shard:
            shard.seek(prepared.kept_bytes)
            shard.write(intake)
            shard.truncate()
    else:
        _rewrite(directory, name, seen, prepared.kept_bytes, intake)
    data = index.to_bytes()
    write_file(directory, name + INDEX_SUFFIX, data, seen_index)
    crc = google_crc32c.extend(prepared.kept_crc32c, intake)
    size = prepared.kept_bytes + len(intake)
    after = Shard(name, len(index.lengths), size, crc, len(data), head_crc32c(data))
    return replace(change.before, shard=after, kept=False)


def _read_intake(directory: str, name: str) -> tuple[bytes, Index]:
    """The framed records that a shard receives, and their numbers.

    Raises:
        CorruptRecordError: They are not as they were copied.
    """
    path = join(directory, name)
    data, index = read_bytes(path), read_index(directory, name)
    if len(data) != index.lengths.sum() or not intact(data, index.lengths).all():
        raise CorruptRecordError(f"{path}: a record fails its CRC32C")
    return data, index


def _rewrite(directory: str, name: str, seen: Seen, kept_bytes: int, intake: bytes) -> None:
    """Replaces a shard by its first bytes, followed by the incoming records."""
    with open_file(join(directory, name)) as source, NewFile(directory, name, seen) as target:
        left = kept_bytes
        while left and (data := source.read(min(left, _COPY_BYTES))):
            target.write(data)
            left -= len(data)
        if left:
            raise OSError(f"{name} ends {left} bytes early")
        target.write(intake)
        target.publish()
