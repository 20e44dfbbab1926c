"""Runs: encoded records sorted by split and hash, on their way to the writers of their shards.

The shards of a split are ranges of hashes, so the records of a shard, or of neighbouring shards, are one
range of bytes of a run. A run is a sequence of blocks; its index has the range of hashes of each block.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from beam_jobs.columns import Ragged, pack, unpack
from beam_jobs.records.blocks import Block
from beam_jobs.records.spool import LOCATED_BYTES, LOCATOR, Spool, SpoolFile

# Bytes of records that a process collects, for each task that it runs, until it writes them as a run. A shard
# takes one request for each run; with 16 MiB a store gets four times as many requests, with 256 MiB a worker
# of four threads takes a gigabyte.
RUN_BYTES = 64 << 20

# Bytes of a block if the shards are known, and if they are not: then a shard's writer also reads the records
# of its neighbours in two blocks. A disk reads ahead twice as much, and with a quarter, blocks of recordings take
# more time than their records.
_KNOWN_BYTES, _UNKNOWN_BYTES = 4 << 20, 64 << 10

# Blocks in one element of the runner, of 33 bytes each.
_INDEX_BLOCKS = 1 << 14

# (splits uint8 [n], hashes uint64 [n]) -> a number for the shard of each, or for a group of neighbouring shards,
# int64 [n], ascending with split and hash.
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


def locate(index: RunIndex, shards_of: ShardsOf) -> Iterator[tuple[int, bytes]]:
    """Yields (number of a shard, locators of the blocks with its records) in ascending order, for one block or more.

    A block with records of several shards gets a locator for each of them. The last block of a locator begins
    less than `LOCATED_BYTES` after the first.
    """
    first, last = (shards_of(index.splits, hashes) for hashes in (index.first, index.last))
    counts = last - first + 1
    blocks = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(blocks)) - np.repeat(np.cumsum(counts) - counts, counts)
    shards, starts, stops = first[blocks] + within, index.starts[blocks], index.stops[blocks]
    begins = _begins(shards, starts, LOCATED_BYTES)
    locators = np.zeros(len(begins), LOCATOR)
    locators["name"], locators["start"] = np.void(index.name), starts[begins]
    locators["size"] = stops[np.append(begins[1:], len(shards)) - 1] - starts[begins]
    numbers, edges = np.unique(shards[begins], return_index=True)
    for number, some in zip(numbers.tolist(), np.split(locators, edges[1:]), strict=True):
        yield number, some.tobytes()


class RunBuilder:
    """Collects blocks of records, and writes them as runs to a spool, in blocks of one shard each if they are known."""

    def __init__(self, spool: Spool, shards_of: ShardsOf | None = None) -> None:
        self._spool, self._shards_of = spool, shards_of
        self._file: SpoolFile | None = None
        self._blocks: list[Block] = []
        self._bytes = 0

    def add(self, block: Block) -> Iterator[RunIndex]:
        """Adds records; yields the index of a run once there are enough; DataError if the run cannot be written."""
        if not len(block.payloads):
            return
        self._blocks.append(block)
        self._bytes += len(block.payloads.data)
        if self._bytes >= RUN_BYTES:
            yield from self._write()

    def finish(self) -> Iterator[RunIndex]:
        """Writes the remaining records as a last run, and completes its file; DataError if it cannot be written."""
        if self._blocks:
            yield from self._write()
        if self._file:
            self._file.publish()
            self._file = None

    def give_up(self) -> None:
        """Forgets all records, and removes an incomplete file."""
        self._blocks, self._bytes = [], 0
        if self._file:
            self._file.give_up()
            self._file = None

    def _write(self) -> Iterator[RunIndex]:
        blocks, self._blocks, self._bytes = self._blocks, [], 0
        file = self._file = self._file or SpoolFile(self._spool)
        splits, first, last, at = [], [], [], [file.size]
        for block in _sorted(blocks, self._shards_of):
            file.append(block)
            splits.append(block.splits[0])
            first.append(block.hashes[0])
            last.append(block.hashes[-1])
            at.append(file.size)
        places = np.array(at, np.int64)
        columns = np.array(splits, np.uint8), np.array(first), np.array(last)
        yield from RunIndex(file.name, *columns, places[:-1], places[1:]).pieces()
        if not self._spool.on_disk:
            file.publish()
            self._file = None


def _sorted(blocks: Sequence[Block], shards_of: ShardsOf | None) -> Iterator[Block]:
    """Yields the records of some blocks by split and hash, in blocks of one shard, or of one split, each.

    Their payloads are copied one block at a time. The order of equal hashes does not matter.
    """
    hashes = np.concatenate([block.hashes for block in blocks])
    splits = np.concatenate([block.splits for block in blocks])
    lengths = np.concatenate([block.payloads.lengths for block in blocks])
    stops = np.concatenate([block.payloads.ends for block in blocks])
    numbers = np.repeat(np.arange(len(blocks)), [len(block.hashes) for block in blocks])
    by_split = [np.flatnonzero(splits == split) for split in np.unique(splits).tolist()]
    order = np.concatenate([rows[np.argsort(hashes[rows])] for rows in by_split])
    hashes, splits, lengths = hashes[order], splits[order], lengths[order]
    stops, numbers = stops[order], numbers[order]
    owners = shards_of(splits, hashes) if shards_of else splits.astype(np.int64)
    starts = np.cumsum(lengths, dtype=np.int64) - lengths
    begins = _begins(owners, starts, _KNOWN_BYTES if shards_of else _UNKNOWN_BYTES)
    datas = [block.payloads.data for block in blocks]
    for begin, end in itertools.pairwise([*begins.tolist(), len(owners)]):
        rows = slice(begin, end)
        columns = numbers[rows], stops[rows] - lengths[rows], stops[rows]
        spans = zip(*(column.tolist() for column in columns), strict=True)
        data = b"".join([datas[number][start:stop] for number, start, stop in spans])
        yield Block(hashes[rows], splits[rows], Ragged(lengths[rows], data))


def _begins(owners: np.ndarray, starts: np.ndarray, most: int) -> np.ndarray:
    """The first rows of pieces, int64 [pieces]: a piece has one owner, and its rows begin within `most` bytes.

    The owners of rows, int64 [n], and their offsets in bytes, int64 [n], ascend.
    """
    begins = np.flatnonzero(np.diff(owners, prepend=owners[0] - 1))
    offsets = starts - np.repeat(starts[begins], np.diff(begins, append=len(owners)))
    changes = np.diff(offsets // most, prepend=-1) != 0
    changes[begins] = True
    return np.flatnonzero(changes)


# By bundle, which has one thread in each process that works on it.
_builders: dict[str, RunBuilder] = {}


@dataclass(frozen=True)
class BundleRuns:
    """A `RunBuilder` in each process that works on a bundle; its name is unique among attempts at all bundles."""

    spool: Spool
    bundle: str

    def add(self, block: Block, shards_of: ShardsOf) -> list[RunIndex]:
        """Adds records in this process; returns the indexes of written runs."""
        if self.bundle not in _builders:
            _builders[self.bundle] = RunBuilder(self.spool, shards_of)
        return list(_builders[self.bundle].add(block))

    def finish(self) -> list[RunIndex]:
        """Writes the remaining records of this process; returns the indexes of their runs."""
        builder = _builders.pop(self.bundle, None)
        return list(builder.finish()) if builder else []

    def give_up(self) -> None:
        """Forgets the records of a failed bundle in this process."""
        if builder := _builders.pop(self.bundle, None):
            builder.give_up()
