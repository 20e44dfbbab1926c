"""Balances shards to the last record: records move from the ends of fuller shards to shorter ones.

Shards are planned to ±1 record, but an input that is rejected while its shard is written leaves the shard
short. So at the end `plan_changes` chooses the records to move. A shard that changes is written once more, under
a second name that follows from its bytes: the records that it keeps, then those that it receives. The old shards
stay as they are until the dataset is complete.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import google_crc32c

from beam_jobs.dataset.output import Output
from beam_jobs.dataset.resume import ShardResult, second_name
from beam_jobs.dataset.shard_writer import ShardFile
from beam_jobs.errors import DataError
from beam_jobs.plan.shards import shard_sizes
from beam_jobs.storage.files import open_file, read_bytes, size_and_crc
from readers.format.crc import crc_without_suffix
from readers.format.index import Index, head_crc32c
from readers.format.manifest import INDEX_SUFFIX, join
from readers.format.splits import Shard
from readers.format.tfrecord import intact

_COPY_BYTES = 4 << 20


class Move(NamedTuple):
    """Consecutive records that leave a shard: the number of the first one, and how many."""

    donor: Shard
    first: int
    records: int


@dataclass(frozen=True)
class Change:
    """A change of one shard.

    Attributes:
        before, shard: The result of its writer, and the shard in it.
        keep: The number of its first records that stay.
        intake: The records to append, in this order.
    """

    before: ShardResult
    shard: Shard
    keep: int
    intake: tuple[Move, ...]


# Donor, the number of its first record that moves, how many move, receiver.
_Numbers = tuple[int, int, int, int]


def moves_by_records(records: Sequence[int]) -> list[_Numbers]:
    """The fewest moves after which shards differ by at most one record, given the number of records in each."""
    shards = len(records)
    fair = shard_sizes(sum(records), shards) if shards else []
    # The fullest shards keep the remaining records.
    fullest = sorted(range(shards), key=lambda shard: (-records[shard], shard))
    target = dict(zip(fullest, sorted(fair, reverse=True), strict=True))
    room = [max(target[shard] - records[shard], 0) for shard in range(shards)]
    moves, receiver = [], 0
    for donor in range(shards):
        first = target[donor]
        while first < records[donor]:
            if count := min(records[donor] - first, room[receiver]):
                moves.append((donor, first, count, receiver))
            first += count
            room[receiver] -= count
            receiver += not room[receiver]
    return moves


def changes_of(
    shards: Sequence[Shard], results: Sequence[ShardResult], moves: Iterable[_Numbers]
) -> Iterator[Change]:
    """Yields the changes of the shards of one split, given in order; unchanged shards have none."""
    keep = [shard.records for shard in shards]
    intake: list[list[Move]] = [[] for _ in shards]
    for donor, first, records, receiver in moves:
        keep[donor] = min(keep[donor], first)
        intake[receiver].append(Move(shards[donor], first, records))
    for before, shard, stays, moved in zip(results, shards, keep, intake, strict=True):
        if stays < shard.records or moved:
            yield Change(before, shard, stays, tuple(moved))


def plan_changes(results: Iterable[ShardResult]) -> Iterator[Change]:
    """Yields the changes that balance all splits."""
    written = {(r.split, r.index): (r.shard, r) for r in results if r.shard}
    for split in sorted({split for split, _ in written}):
        numbers = sorted(index for of, index in written if of == split)
        if numbers != list(range(len(numbers))):
            return  # A shard is missing: reconciliation reports it.
        shards, before = zip(*(written[split, number] for number in numbers), strict=True)
        yield from changes_of(shards, before, moves_by_records([s.records for s in shards]))


def read_index(directory: str, shard: Shard) -> Index:
    """The index of a shard of a dataset; DataError if the index has changed since its writer left it."""
    path = join(directory, shard.path + INDEX_SUFFIX)
    data = read_bytes(path)
    if shard.index_crc32c != head_crc32c(data):
        raise DataError(
            f"{path} has changed since its shard was written; run the same command again"
        )
    return Index.of_bytes(data, path)


def _read_records(directory: str, move: Move) -> tuple[bytes, Index]:
    """Framed records, and their part of the index; DataError if they are damaged."""
    index = read_index(directory, move.donor)
    start = int(index.lengths[: move.first].sum())
    part = index.slice(move.first, move.first + move.records)
    path = join(directory, move.donor.path)
    with open_file(path) as file:
        file.seek(start)
        data = file.read(int(part.lengths.sum()))
    if len(data) != part.lengths.sum() or not intact(data, part.lengths).all():
        raise DataError(f"{path}: a record fails its CRC32C; run the same command again")
    return data, part


def apply_change(output: Output, change: Change) -> ShardResult:
    """Writes a changed shard: kept records, then received ones; DataError if a shard or its index has changed."""
    directory, shard = output.directory, change.shard
    leaving = Move(shard, change.keep, shard.records - change.keep)
    suffix = _read_records(directory, leaving)[0] if leaving.records else b""
    received = [_read_records(directory, move) for move in change.intake]
    intake = b"".join(data for data, _ in received)
    stays = read_index(directory, shard).slice(0, change.keep)
    crc = google_crc32c.extend(crc_without_suffix(shard.crc32c, suffix), intake)
    left = shard.bytes - len(suffix)
    name = second_name(shard.path, f"{crc:08x}")
    # An earlier run may have written it; if that is damaged, this shard has another name.
    with contextlib.suppress(FileNotFoundError):
        if size_and_crc(join(directory, name)) != (left + len(intake), crc):
            name = second_name(shard.path, uuid.uuid4().hex[:8])
    path = join(directory, shard.path)
    with open_file(path) as source, ShardFile(output, name) as target:
        while left and (data := source.read(min(left, _COPY_BYTES))):
            target.write(data)
            left -= len(data)
        target.write(intake)
        after = target.finish(Index.join([stays, *(index for _, index in received)]))
        if left or after.crc32c != crc:
            raise DataError(f"{path} has changed since it was written; run the same command again")
        target.commit()
    return replace(change.before, shard=after, kept=False)
