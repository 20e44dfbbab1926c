"""Which records move from fuller shards to shorter ones: pure numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from beam_jobs.dataset.resume import ShardResult
from beam_jobs.errors import DataError
from beam_jobs.plan.shards import shard_sizes
from beam_jobs.storage.files import read_bytes
from readers.format.index import Index, head_crc32c
from readers.format.manifest import INDEX_SUFFIX, join
from readers.format.splits import Shard


class Move(NamedTuple):
    """Consecutive records of one shard that end up in another one.

    Attributes:
        donor, first, records: The shard, the number of its first record that moves, and how many.
        receiver: The shard to whose end they move.
    """

    donor: int
    first: int
    records: int
    receiver: int


def moves_by_records(records: Sequence[int]) -> list[Move]:
    """The fewest moves after which shards differ by at most one record.

    Args:
        records: The number of records in each shard.
    """
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
                moves.append(Move(donor, first, count, receiver))
            first += count
            room[receiver] -= count
            receiver += not room[receiver]
    return moves


class Taken(NamedTuple):
    """Consecutive records of a donor.

    Attributes:
        file: The path of the donor's file in the dataset.
        index_crc32c: The checksum of the head of its index, as its writer left it.
        first, records: The number of the first record, and how many.
    """

    file: str
    index_crc32c: int
    first: int
    records: int


@dataclass(frozen=True)
class Change:
    """A change of one shard.

    Attributes:
        before: The shard as its writer left it.
        keep: The number of its first records that stay.
        intake: The records to append, in this order.
    """

    before: ShardResult
    keep: int
    intake: tuple[Taken, ...]

    @property
    def name(self) -> str:
        """The path of the shard's file."""
        return shard_of(self.before).path

    @property
    def incoming(self) -> int:
        """The number of records to append."""
        return sum(taken.records for taken in self.intake)


def shard_of(result: ShardResult) -> Shard:
    """The committed file of a result that has one."""
    assert result.shard is not None
    return result.shard


def changes_of(results: Sequence[ShardResult], moves: Iterable[Move]) -> list[Change]:
    """The changes of the shards of one split; shards that stay as they are have none.

    Args:
        results: The results of all shards of the split, in order.
        moves: The moves between these shards.
    """
    keep = {result.index: shard_of(result).records for result in results}
    intake: dict[int, list[Taken]] = {}
    for move in moves:
        keep[move.donor] = min(keep[move.donor], move.first)
        donor = results[move.donor]
        shard = shard_of(donor)
        taken = Taken(shard.path, shard.index_crc32c, move.first, move.records)
        intake.setdefault(move.receiver, []).append(taken)
    return [
        Change(result, keep[result.index], tuple(intake.get(result.index, ())))
        for result in results
        if keep[result.index] < shard_of(result).records or result.index in intake
    ]


def plan_changes(results: Iterable[ShardResult]) -> Iterator[Change]:
    """Yields the changes that balance all splits."""
    written = {(r.split, r.index): r for r in results if r.shard}
    for split in sorted({split for split, _ in written}):
        mine = [written[key] for key in sorted(written) if key[0] == split]
        if [result.index for result in mine] != list(range(len(mine))):
            return  # A shard is missing: reconciliation reports it.
        moves = moves_by_records([shard_of(result).records for result in mine])
        yield from changes_of(mine, moves)


def read_index(directory: str, name: str, crc32c: int) -> Index:
    """The index of a shard.

    Args:
        directory: The dataset's directory.
        name: The path of the shard's file in the dataset.
        crc32c: The checksum of the head of its index, as the shard's writer left it.

    Raises:
        DataError: The index has changed.
    """
    path = join(directory, name + INDEX_SUFFIX)
    data = read_bytes(path)
    if crc32c != head_crc32c(data):
        raise DataError(
            f"{path} has changed since its shard was written; run the same command again"
        )
    return Index.of_bytes(data, path)
