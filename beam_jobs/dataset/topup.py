"""Balances shards to the last record: records move from the ends of fuller shards to shorter ones.

Shards are planned to ±1 record, but an input that is rejected while its shard is written leaves
the shard short. So at the end `moves` decides which records move. First their bytes are copied out of the ends of their shards;
only then are shards changed, each by itself. The cost is that of the moved records.

Every step may run twice, or in two workers at once: the bytes copied are the same, in a file of each
attempt, bytes are written at fixed offsets, and the note about a shard is removed before the shard
changes. An attempt that was believed dead finds that the job has gone further, and changes nothing.
"""

from __future__ import annotations

import io
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

import google_crc32c
import numpy as np

from beam_jobs.dataset.directory import check_moves
from beam_jobs.dataset.moves import Change, Taken, read_index, shard_of
from beam_jobs.dataset.resume import ShardResult, forget_done
from beam_jobs.storage.atomic import STAGING, NewFile, look, write_file
from beam_jobs.storage.files import open_file, read_bytes
from beam_jobs.storage.object_store import Seen
from beam_jobs.storage.paths import is_local
from readers.format.crc import crc_without_suffix
from readers.format.index import format_index
from readers.format.manifest import INDEX_SUFFIX, join
from readers.format.splits import Shard
from readers.format.tfrecord import FRAME_BYTES, read_records

_COPY_BYTES = 4 << 20


@dataclass(frozen=True)
class PreparedChange:
    """A change whose incoming records are copied out of their donors.

    Attributes:
        change: The change of the shard.
        intake: The name of the file with the incoming records; empty if there are none.
        kept_bytes, kept_crc32c: The size in bytes and the checksum of the part that stays.
    """

    change: Change
    intake: str
    kept_bytes: int
    kept_crc32c: int


def _read_records(directory: str, taken: Taken) -> bytes:
    """Consecutive framed records of a shard."""
    index = read_index(directory, taken.file, taken.index_crc32c)[taken.first :][: taken.records]
    start, stop = int(index[0, 0]), int(index[-1].sum())
    with open_file(join(directory, taken.file)) as file:
        file.seek(start)
        return file.read(stop - start)


def prepare_change(directory: str, change: Change) -> PreparedChange:
    """Copies the records that a shard receives to a file of their own; no shard is changed.

    Raises:
        DataError: A shard has changed since it was written.
    """
    shard, intake = shard_of(change.before), ""
    if change.intake:
        intake = f"{STAGING}/{change.name}.{uuid.uuid4().hex}.intake"
        parts = [_read_records(directory, taken) for taken in change.intake]
        write_file(directory, intake, b"".join(parts))
    leaving = Taken(
        shard.file, change.before.index_crc32c, change.keep, shard.records - change.keep
    )
    suffix = _read_records(directory, leaving) if leaving.records else b""
    crc = crc_without_suffix(shard.crc32c, suffix)
    return PreparedChange(change, intake, shard.bytes - len(suffix), crc)


def apply_change(directory: str, prepared: PreparedChange) -> ShardResult:
    """Cuts a shard to the records it keeps, and appends those it receives.

    A local file is changed in place; elsewhere the whole file is written again.

    Raises:
        DataError: The dataset is complete, or another job has changed the shard meanwhile.
    """
    change = prepared.change
    name, path = change.name, join(directory, change.name)
    seen, seen_index = look(directory, name), look(directory, name + INDEX_SUFFIX)
    check_moves(directory, expected=True)
    intake = read_bytes(join(directory, prepared.intake)) if prepared.intake else b""
    incoming = [FRAME_BYTES + len(data) for _, data in read_records(io.BytesIO(intake), path)]
    lengths = np.append(read_index(directory, name)[: change.keep, 1], np.array(incoming, np.int64))
    forget_done(directory, name)
    if is_local(path):
        with Path(path).open("r+b") as shard:
            shard.seek(prepared.kept_bytes)
            shard.write(intake)
            shard.truncate()
    else:
        _rewrite(directory, name, seen, prepared.kept_bytes, intake)
    index = format_index(lengths)
    write_file(directory, name + INDEX_SUFFIX, index, seen_index)
    crc = google_crc32c.extend(prepared.kept_crc32c, intake)
    after = Shard(name, len(lengths), prepared.kept_bytes + len(intake), crc)
    index_crc = google_crc32c.value(index)
    return replace(
        change.before, shard=after, index_bytes=len(index), index_crc32c=index_crc, kept=False
    )


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
