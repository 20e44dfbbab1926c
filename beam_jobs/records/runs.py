"""Runs: encoded records sorted by split and hash, on their way to the writers of their shards.

The shards of a split are ranges of hashes, so the records of a shard, or of neighbouring shards, are one
range of bytes of a run. A run is a sequence of blocks; its index says which hashes each block has.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from beam_jobs.columns import Ragged, pack, unpack
from beam_jobs.records.blocks import Block
from beam_jobs.records.spool import Spool, SpoolFile

# Bytes of records that a process holds, for each task that it runs, until it writes them as a run. A shard
# takes a request for each run; with 16 MiB a store has four times as many requests, with 256 MiB a worker of
# four threads holds a gigabyte.
RUN_BYTES = 64 << 20

# Bytes of a block if the shards are known, and if they are not: then a shard's writer also reads those
# records of two blocks that belong to its neighbours.
_KNOWN_BYTES, _UNKNOWN_BYTES = 4 << 20, 16 << 10

# Blocks in one element of the runner, of 33 bytes each.
_INDEX_BLOCKS = 1 << 14

# (splits uint8 [n], hashes uint64 [n]) -> the shard of each, int64 [n], ascending with split and hash.
ShardsOf = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class RunIndex:
    """The n blocks of a run, or some of them.

    Attributes:
        name: The name of the file.
        splits: uint8 [n], the split of each block's records.
        first, last: uint64 [n], the least and the greatest hash in each block.
        starts, stops: int64 [n], the range of each block in the file.
    """

    name: bytes
    splits: np.ndarray
    first: np.ndarray
    last: np.ndarray
    starts: np.ndarray
    stops: np.ndarray

    def pack(self) -> bytes:
        """The index as bytes."""
        name = np.frombuffer(self.name, np.uint8)
        return pack(name, self.splits, self.first, self.last, self.starts, self.stops)

    @classmethod
    def unpack(cls, data: bytes) -> RunIndex:
        """The index that `pack` packed."""
        name, *columns = unpack(data)
        return cls(name.tobytes(), *columns)

    def pieces(self) -> Iterator[RunIndex]:
        """Yields indexes of parts of the run, each of at most 540 KB when packed."""
        columns = (self.splits, self.first, self.last, self.starts, self.stops)
        for at in range(0, len(self.splits), _INDEX_BLOCKS):
            yield RunIndex(self.name, *(column[at : at + _INDEX_BLOCKS] for column in columns))


class RunBuilder:
    """Collects blocks of records, and writes them as runs.

    Args:
        spool: Takes the runs.
        shards_of: The shard of each record, which no block shares with another; None if it is unknown.
    """

    def __init__(self, spool: Spool, shards_of: ShardsOf | None = None) -> None:
        self._spool, self._shards_of = spool, shards_of
        self._file: SpoolFile | None = None
        self._clear()

    def _clear(self) -> None:
        self._blocks: list[Block] = []
        self._bytes = 0

    def add(self, block: Block) -> Iterator[RunIndex]:
        """Adds records; yields the index of a run when enough were added.

        Raises:
            DataError: The run cannot be written.
        """
        if not len(block.payloads):
            return
        self._blocks.append(block)
        self._bytes += len(block.payloads.data)
        if self._bytes >= RUN_BYTES:
            yield from self._write()

    def finish(self) -> Iterator[RunIndex]:
        """Writes what was added as a last run, and completes its file.

        Raises:
            DataError: It cannot be written.
        """
        if self._blocks:
            yield from self._write()
        if self._file:
            self._file.publish()
            self._file = None

    def give_up(self) -> None:
        """Forgets everything, and removes a file that is not complete."""
        self._clear()
        if self._file:
            self._file.give_up()
            self._file = None

    def _write(self) -> Iterator[RunIndex]:
        records = _Sorted(self._blocks)
        self._clear()
        splits, hashes = records.splits, records.hashes
        if self._shards_of:
            edges = _edges(self._shards_of(splits, hashes), records.lengths, _KNOWN_BYTES)
        else:
            edges = _edges(splits.astype(np.int64), records.lengths, _UNKNOWN_BYTES)
        if self._file is None:
            self._file = SpoolFile(self._spool)
        at = [self._file.size]
        for first, last in itertools.pairwise(edges.tolist()):
            self._file.append(records.block(slice(first, last)).pack())
            at.append(self._file.size)
        firsts, lasts = edges[:-1], edges[1:] - 1
        places = np.array(at, np.int64)
        yield from RunIndex(
            self._file.name, splits[firsts], hashes[firsts], hashes[lasts], places[:-1], places[1:]
        ).pieces()
        if not self._spool.on_disk:
            self._file.publish()
            self._file = None


class _Sorted:
    """The records of some blocks, by split and hash; their payloads are copied one block at a time.

    Attributes:
        splits: uint8 [n].
        hashes: uint64 [n].
        lengths: int64 [n], the sizes of the payloads in bytes.
    """

    def __init__(self, blocks: Sequence[Block]) -> None:
        hashes = np.concatenate([block.hashes for block in blocks])
        splits = np.concatenate([block.splits for block in blocks])
        lengths = np.concatenate([block.payloads.lengths for block in blocks])
        stops = np.concatenate([block.payloads.ends for block in blocks])
        numbers = np.repeat(np.arange(len(blocks)), [len(block.hashes) for block in blocks])
        order = _in_order(splits, hashes)
        self.hashes, self.splits, self.lengths = hashes[order], splits[order], lengths[order]
        self._stops, self._numbers = stops[order], numbers[order]
        self._datas = [block.payloads.data for block in blocks]

    def block(self, rows: slice) -> Block:
        """A block of consecutive records."""
        lengths, stops = self.lengths[rows], self._stops[rows]
        columns = self._numbers[rows], stops - lengths, stops
        spans = zip(*(column.tolist() for column in columns), strict=True)
        data = b"".join([self._datas[number][start:stop] for number, start, stop in spans])
        return Block(self.hashes[rows], self.splits[rows], Ragged(lengths, data))


def _in_order(splits: np.ndarray, hashes: np.ndarray) -> np.ndarray:
    """The order of records by split and hash, int64 [n]; that of equal hashes does not matter."""
    found = [np.flatnonzero(splits == split) for split in np.unique(splits).tolist()]
    return np.concatenate([rows[np.argsort(hashes[rows])] for rows in found])


def _edges(owners: np.ndarray, lengths: np.ndarray, most: int) -> np.ndarray:
    """Where blocks begin, and the end of the last one: one owner each, and about `most` bytes."""
    ends = np.cumsum(lengths, dtype=np.int64)
    starts = ends - lengths
    begins = np.flatnonzero(np.diff(owners, prepend=owners[0] - 1))
    counts = np.diff(begins, append=len(owners))
    pieces = (starts - np.repeat(starts[begins], counts)) // most
    changes = np.diff(pieces, prepend=-1) != 0
    changes[begins] = True
    return np.append(np.flatnonzero(changes), len(owners))


@dataclass(frozen=True)
class Held:
    """A `RunBuilder` in each process that works on a bundle of the runner.

    Args:
        spool: Takes the runs.
        bundle: A name that no other attempt at any bundle has.
    """

    spool: Spool
    bundle: str

    def add(self, block: Block, shards_of: ShardsOf) -> list[RunIndex]:
        """Adds records in this process; returns the indexes of runs that it has written."""
        if self.bundle not in _held:
            _held[self.bundle] = RunBuilder(self.spool, shards_of)
        return list(_held[self.bundle].add(block))

    def finish(self) -> list[RunIndex]:
        """Writes what this process holds; returns its indexes."""
        builder = _held.pop(self.bundle, None)
        return list(builder.finish()) if builder else []

    def give_up(self) -> None:
        """Forgets what this process holds of a bundle that failed."""
        if builder := _held.pop(self.bundle, None):
            builder.give_up()


# By bundle: a bundle has one thread in each process that works on it.
_held: dict[str, RunBuilder] = {}
