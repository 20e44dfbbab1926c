"""Finds framed records by number: in the maps of local files, or in a buffer, read from files, a cache or a store."""

from __future__ import annotations

import itertools
import operator
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from readers.format.compiled import library
from readers.format.decode.column import Allocator
from readers.format.tfrecord import MAX_FRAMED_BYTES
from readers.shards.opened.fetch import fetch
from readers.shards.opened.local_shard import LONG_RUN, LocalShard, Run, runs_of
from readers.shards.opened.open_shards import MOST_OPEN, OpenShards
from readers.shards.plan import Part

# Numbers the calls of the kernel, which asks once per call whether a file was truncated.
_CALLS = itertools.count(1)


class Addresses(NamedTuple):
    """The addresses of framed records and their sizes in bytes, int64 [B] each. `owner` keeps their memory alive."""

    addresses: np.ndarray
    sizes: np.ndarray
    owner: Any


@dataclass(frozen=True)
class FramedRecords:
    """B records with their framing, as stored, in memory.

    They are in the data, uint8 [n], from `starts` to `stops`, int64 [B], in ascending order; `numbers`, int64 [B], are
    their numbers in the plan.
    """

    data: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    numbers: np.ndarray

    def record(self, row: int) -> memoryview:
        """The bytes of one of the records."""
        return self.data.data[self.starts[row] : self.stops[row]]

    def addresses(self) -> Addresses:
        """The addresses of the records in memory."""
        return Addresses(
            library.address(self.data) + self.starts, self.stops - self.starts, self.data
        )

    def find(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The row of each number, int64 [k], among these records, and bool [k], whether it is one of them.

        The numbers of these records must ascend.
        """
        if not len(self.numbers):
            return np.zeros(len(numbers), np.int64), np.zeros(len(numbers), bool)
        rows = np.minimum(np.searchsorted(self.numbers, numbers), len(self.numbers) - 1)
        return rows, self.numbers[rows] == numbers


# Rows of some records, int64 [k], and their places among other records, int64 [k].
_Piece = tuple[FramedRecords, np.ndarray, np.ndarray]


class FramedReader:
    """Random access to the framed records of a plan. It is safe to share between threads."""

    def __init__(self, shards: OpenShards, empty: Allocator) -> None:
        self._shards, self._empty = shards, empty
        self._local = threading.local()
        self.forget()

    def forget(self) -> None:
        """Forgets the maps of all shards, whose files may have been replaced."""
        # FILE [parts], and the owners of their memory.
        self._known = np.zeros(len(self._shards.parts), library.FILE), list[LocalShard]()

    def mapped(self, numbers: np.ndarray) -> Addresses | None:
        """The addresses of the records with some numbers, int64 [B], for the kernel.

        None if a record is not on a local disk or is cut off, or if records are in long runs, which are faster to read.
        Raises DatasetError if a file or its index was changed, or an index is damaged.
        """
        shards, (files, owners) = self._shards, self._known
        if not shards.is_fetched or len(files) > MOST_OPEN:
            return None
        stored = np.ascontiguousarray(shards.stored(numbers))
        for _ in range(2):
            found, addresses, sizes = library.locate(
                stored, shards.ends, shards.firsts, files, next(_CALLS), MAX_FRAMED_BYTES, LONG_RUN
            )
            if found == len(numbers):
                return Addresses(addresses, sizes, owners)
            if found < 0 or not self._map(numbers, files, owners):
                break
        return None

    def _map(self, numbers: np.ndarray, files: np.ndarray, owners: list[LocalShard]) -> bool:
        """Maps the shards of some records, and checks the blocks of their indexes; false if a shard cannot be mapped."""
        shards = self._shards
        parts, rows = shards.locate(numbers)
        found = np.flatnonzero(np.bincount(parts, minlength=len(files))).tolist()
        shards.load_indexes(found)
        shards.indexes.of(rows, parts)
        for number in found:
            if files["map"][number]:
                continue
            shard = shards.open(shards.parts[number].path)
            here = shard.in_memory() if shard else None
            if shard is None or here is None:
                return False
            owners.append(shard)
            for member, value in shards.indexes.in_memory(number).items():
                files[member][number] = value
            address, files["of_file"][number] = here
            # The file may have been shorter when it was mapped.
            files["bytes"][number] = min(files["bytes"][number], here[1][3])
            files["map"][number] = address  # Set last, because other threads may look.
        return True

    def read(self, numbers: np.ndarray, fetched: Sequence[FramedRecords] = ()) -> FramedRecords:
        """Reads the records with some numbers, int64 [B]. Records in `fetched` are copied from memory."""
        pieces, left = list[_Piece](), np.ones(len(numbers), bool)
        for records in fetched:
            rows, is_here = records.find(numbers)
            is_here &= left
            left &= ~is_here
            if is_here.any():
                pieces.append((records, rows[is_here], np.flatnonzero(is_here)))
        if left.all():
            return self._read(numbers)
        if left.any():
            records = self._read(numbers[left])
            pieces.append((records, np.arange(len(records.starts)), np.flatnonzero(left)))
        return self._joined(pieces, numbers)

    def _joined(self, pieces: Sequence[_Piece], numbers: np.ndarray) -> FramedRecords:
        """Copies records from several pieces, each to its place."""
        lengths = np.empty(len(numbers), np.int64)
        for records, rows, places in pieces:
            lengths[places] = records.stops[rows] - records.starts[rows]
        data, starts, stops = self._allocate(lengths)
        target = data.data
        for records, rows, places in pieces:
            source, here = records.data.data, (records.starts[rows], records.stops[rows])
            columns = (starts[places], *here)
            for at, start, stop in zip(*(column.tolist() for column in columns), strict=True):
                target[at : at + stop - start] = source[start:stop]
        return FramedRecords(data, starts, stops, numbers)

    def read_one(self, number: int) -> memoryview:
        """Reads one record into memory that the thread's next call reuses."""
        part, _, offset, length = self._found(number)
        framed = memoryview(self._buffer(length))[:length]
        path, runs = self._shards.parts[part].path, [(part, offset, length, 0)]
        if shard := self._shards.open(path):
            shard.read(runs, framed)
        else:
            fetch([(path, runs)], framed)
        return framed

    def place(self, number: int) -> tuple[Part, int, int]:
        """The position of a record: its part of the plan, its number in the file, and its first byte."""
        part, row, offset, _ = self._found(number)
        return self._shards.parts[part], row, offset

    def _found(self, number: int) -> tuple[int, int, int, int]:
        """The part of a record, its number in the part's file, and its offset and length there in bytes."""
        if self._shards.rows is not None:
            number = int(self._shards.stored(np.array([number]))[0])
        part = int(self._shards.ends.searchsorted(number, side="right"))
        self._shards.load_index(part)
        row = number - int(self._shards.firsts[part])
        return part, row, *self._shards.indexes.of_one(row, part)

    def _read(self, numbers: np.ndarray) -> FramedRecords:
        """Reads records file by file, each into its position in one buffer."""
        shards = self._shards
        parts, rows = shards.locate(numbers)
        order = np.argsort(parts, kind="stable")
        found = np.unique(parts).tolist()
        shards.load_indexes(found)
        shards.fill_cache({shards.parts[number].path for number in found})
        index = shards.indexes.of(rows, parts)
        data, starts, stops = self._allocate(index[:, 1])
        runs = runs_of(parts[order], index[order], starts[order])
        remote = list[tuple[str, list[Run]]]()
        for number, several in itertools.groupby(runs, key=operator.itemgetter(0)):
            path = shards.parts[number].path
            if shard := shards.open(path):
                shard.read(list(several), data.data)
            else:
                remote.append((path, list(several)))
        # All remote shards together: a hundred requests take as long as one.
        fetch(remote, data.data)
        return FramedRecords(data, starts, stops, numbers)

    def _allocate(self, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """A buffer for records of these lengths, int64 [B], and where each record starts and stops in it."""
        stops = np.cumsum(lengths)
        size = int(stops[-1]) if len(stops) else 0
        return self._empty((size,), np.dtype(np.uint8)), stops - lengths, stops

    def _buffer(self, size: int) -> bytearray:
        """A buffer of at least `size` bytes, the same for all calls of a thread."""
        if len(getattr(self._local, "buffer", b"")) < size:
            self._local.buffer = bytearray(size)
        buffer: bytearray = self._local.buffer
        return buffer
