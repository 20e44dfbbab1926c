"""Balances shards to the last record: records move from the ends of fuller shards to shorter ones.

Shards are planned to ±1 record, but an input that is rejected while its shard is written leaves
the shard short, and sizes in bytes are only known once everything is written. So at the end
`moves` decides which records move. First their bytes are copied out of the ends of their shards;
only then are shards changed, each by itself. The cost is that of the moved records.

Every step may run twice, or in two workers at once: the copies are the same, bytes are written at
fixed offsets, and the note about a shard is removed before the shard changes.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from pathlib import Path

import google_crc32c
import numpy as np

from beam_jobs.dataset.moves import Change, read_index, shard_of
from beam_jobs.dataset.resume import ShardResult, forget_done
from beam_jobs.storage.atomic import STAGING, NewFile, write_file
from beam_jobs.storage.files import open_file
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
        kept_bytes, kept_crc32c: The size in bytes and the checksum of the part that stays.
    """

    change: Change
    kept_bytes: int
    kept_crc32c: int


def _intake_name(change: Change) -> str:
    return f"{STAGING}/{change.name}.intake"


def _read_records(directory: str, name: str, first: int, count: int) -> bytes:
    """Consecutive framed records of a shard."""
    index = read_index(directory, name)[first : first + count]
    start, stop = int(index[0, 0]), int(index[-1].sum())
    with open_file(join(directory, name)) as file:
        file.seek(start)
        return file.read(stop - start)


def prepare_change(directory: str, change: Change) -> PreparedChange:
    """Copies the records that a shard receives to a file of their own; no shard is changed."""
    shard = shard_of(change.before)
    if change.intake:
        parts = [_read_records(directory, *source) for source in change.intake]
        write_file(directory, _intake_name(change), b"".join(parts))
    leaving = shard.records - change.keep
    suffix = _read_records(directory, shard.file, change.keep, leaving) if leaving else b""
    crc = crc_without_suffix(shard.crc32c, suffix)
    return PreparedChange(change, shard.bytes - len(suffix), crc)


def apply_change(directory: str, prepared: PreparedChange) -> ShardResult:
    """Cuts a shard to the records it keeps, and appends those it receives.

    A local file is changed in place; elsewhere the whole file is written again.
    """
    change = prepared.change
    name, path = change.name, join(directory, change.name)
    intake = b""
    if change.intake:
        with open_file(join(directory, _intake_name(change))) as file:
            intake = file.read()
    incoming = [FRAME_BYTES + len(data) for _, data in read_records(io.BytesIO(intake), path)]
    lengths = np.append(read_index(directory, name)[: change.keep, 1], np.array(incoming, np.int64))
    forget_done(directory, name)
    if is_local(path):
        with Path(path).open("r+b") as shard:
            shard.seek(prepared.kept_bytes)
            shard.write(intake)
            shard.truncate()
    else:
        _rewrite(directory, name, prepared.kept_bytes, intake)
    index = format_index(lengths)
    write_file(directory, name + INDEX_SUFFIX, index)
    crc = google_crc32c.extend(prepared.kept_crc32c, intake)
    after = Shard(name, len(lengths), prepared.kept_bytes + len(intake), crc)
    index_crc = google_crc32c.value(index)
    return replace(
        change.before, shard=after, index_bytes=len(index), index_crc32c=index_crc, kept=False
    )


def _rewrite(directory: str, name: str, kept_bytes: int, intake: bytes) -> None:
    """Replaces a shard by its first bytes, followed by the incoming records."""
    with open_file(join(directory, name)) as source, NewFile(directory, name) as target:
        left = kept_bytes
        while left and (data := source.read(min(left, _COPY_BYTES))):
            target.write(data)
            left -= len(data)
        if left:
            raise OSError(f"{name} ends {left} bytes early")
        target.write(intake)
        target.publish()
