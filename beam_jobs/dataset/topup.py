"""Balances shards to the last record: records move from the ends of fuller shards to shorter ones.

Shards are planned to ±1 record, but an input that is rejected while its shard is written leaves the shard
short. So at the end `moves` decides which records move. A shard that changes is written once more, under a
second name that follows from its bytes: what it keeps, then what it receives from the ends of other shards, all
of which stay as they are until the dataset is complete.
"""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import replace

import google_crc32c

from beam_jobs.dataset.moves import Change, Taken, read_index, shard_of
from beam_jobs.dataset.output import Output
from beam_jobs.dataset.resume import ShardResult, second_name
from beam_jobs.dataset.shard_file import ShardFile
from beam_jobs.errors import DataError
from beam_jobs.storage.files import open_file, size_and_crc
from readers.format.crc import crc_without_suffix
from readers.format.index import Index
from readers.format.manifest import join
from readers.format.splits import Shard
from readers.format.tfrecord import intact

_COPY_BYTES = 4 << 20


def _read_records(directory: str, taken: Taken) -> tuple[bytes, Index]:
    """Consecutive framed records of a shard, and their numbers.

    Raises:
        DataError: They are damaged.
    """
    index = read_index(directory, taken.file, taken.index_crc32c)
    start = int(index.lengths[: taken.first].sum())
    moved = index.slice(taken.first, taken.first + taken.records)
    path = join(directory, taken.file)
    with open_file(path) as file:
        file.seek(start)
        data = file.read(int(moved.lengths.sum()))
    if len(data) != moved.lengths.sum() or not intact(data, moved.lengths).all():
        raise DataError(f"{path}: a record fails its CRC32C; run the same command again")
    return data, moved


def apply_change(output: Output, change: Change) -> ShardResult:
    """Writes a shard once more: the records it keeps, followed by those it receives.

    Raises:
        DataError: A shard or its index has changed since it was written.
    """
    directory, shard = output.directory, shard_of(change.before)
    leaving = Taken(shard.path, shard.index_crc32c, change.keep, shard.records - change.keep)
    suffix = _read_records(directory, leaving)[0] if leaving.records else b""
    received = [_read_records(directory, taken) for taken in change.intake]
    intake = b"".join(data for data, _ in received)
    kept = read_index(directory, shard.path, shard.index_crc32c).slice(0, change.keep)
    crc = google_crc32c.extend(crc_without_suffix(shard.crc32c, suffix), intake)
    left = shard.bytes - len(suffix)
    name = second_name(shard.path, f"{crc:08x}")
    # An earlier run may have written it; if that is damaged, this shard has another name.
    with contextlib.suppress(FileNotFoundError):
        if size_and_crc(join(directory, name)) != (left + len(intake), crc):
            name = second_name(shard.path, uuid.uuid4().hex[:8])
    with open_file(join(directory, shard.path)) as source, ShardFile(output, name) as target:
        while left and (data := source.read(min(left, _COPY_BYTES))):
            target.write(data)
            left -= len(data)
        target.write(intake)

        def check(written: Shard) -> None:
            if left or written.crc32c != crc:
                raise DataError(
                    f"{join(directory, shard.path)} has changed since it was written; run the same command again"
                )

        after = target.commit(Index.join([kept, *(index for _, index in received)]), check)
    return replace(change.before, shard=after, kept=False)
