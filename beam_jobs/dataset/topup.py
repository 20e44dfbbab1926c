"""Balance to the last record: records move from the tails of fuller shards to shorter ones.

Shards are planned to ±1 record, but an input that turns out bad while its shard is written leaves
the shard short, and nobody knows bytes before they are written. So at the end a plan, a pure
function of what was written, says which records move. Their bytes are copied out of the tails of
the donors first; only then shards change, each on its own: the work is that of the moved records.

Every step may be done twice, or by two workers at once: the copies are the same, bytes are
written at fixed places, and a shard that is about to change is forgotten as one that is done.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from pathlib import Path

import google_crc32c
import numpy as np

from beam_jobs.dataset.moves import Change, _shard, read_index
from beam_jobs.dataset.resume import ShardResult, forget_done
from beam_jobs.storage.atomic import STAGING, NewFile, write_file
from beam_jobs.storage.files import open_file
from beam_jobs.storage.paths import is_local
from readers.format.crc import crc_without_suffix
from readers.format.index import format_index
from readers.format.manifest import INDEX_SUFFIX, Shard, join
from readers.format.tfrecord import FRAME_BYTES, read_records

_COPY_BYTES = 4 << 20


@dataclass(frozen=True)
class Prepared:
    """A change whose incoming records are copied out of their donors.

    Attributes:
        change: What becomes of the shard.
        kept_bytes, kept_crc32c: Of the part that stays.
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


def prepare_change(directory: str, change: Change) -> Prepared:
    """Copies the records that a shard receives to a file of their own; changes no shard."""
    shard = _shard(change.before)
    if change.intake:
        parts = [_read_records(directory, *source) for source in change.intake]
        write_file(directory, _intake_name(change), b"".join(parts))
    leaving = shard.records - change.keep
    suffix = _read_records(directory, shard.file, change.keep, leaving) if leaving else b""
    crc = crc_without_suffix(shard.crc32c, suffix)
    return Prepared(change, shard.bytes - len(suffix), crc)


def apply_change(directory: str, prepared: Prepared) -> ShardResult:
    """Cuts a shard to the records it keeps, and appends those it receives.

    A local file is changed in place, at the cost of what changes; elsewhere it is written anew.
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
    """Replaces a shard by its first bytes followed by others."""
    with open_file(join(directory, name)) as source, NewFile(directory, name) as target:
        left = kept_bytes
        while left and (data := source.read(min(left, _COPY_BYTES))):
            target.write(data)
            left -= len(data)
        if left:
            raise OSError(f"{name}: it ends {left} bytes early")
        target.write(intake)
        target.publish()
