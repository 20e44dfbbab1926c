"""Reading framed records by their numbers, from local files, GZIP files, a cache or a store."""

from __future__ import annotations

import functools
import itertools
import operator
import resource
import threading
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from readers.files.in_threads import map_in_threads
from readers.files.local import is_local
from readers.format.compiled import library
from readers.format.compiled.library import address
from readers.format.decode.column import Allocator
from readers.format.decode.scanner import MARGIN
from readers.format.manifest import DatasetError
from readers.format.tfrecord import MAX_FRAMED_BYTES
from readers.shards.cache import Cache
from readers.shards.fetch import ShardBytes, fetch
from readers.shards.gzip_files import DecompressedRecords, GzippedShard
from readers.shards.index import ShardIndexes
from readers.shards.local_shard import CHANGED, LONG_RUN, Run, is_changed, runs_of
from readers.shards.plan import Part, Plan

# Linux allows a process 65,530 maps, and a process may read several datasets.
_OPEN_SHARDS = 8_192

# A plan of more shards keeps no descriptors. The limit is an eighth of the descriptors that the process
# may have, often 1,024.
_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
_DESCRIPTORS = _OPEN_SHARDS if _FILES == resource.RLIM_INFINITY else _FILES // 8

# Shards that the cache fetches at a time, each with 32 MiB of requests. Four give 1.3 times the records a
# second of two.
_CACHED_AT_ONCE = 4

# Each takes a descriptor, and can only be read from front to back.
_OPEN_GZIPPED = 4


@dataclass(frozen=True)
class FramedRecords:
    """B records with their framing, as they are stored.

    Attributes:
        data: uint8 [n], the records, and at least `MARGIN` more bytes.
        starts, stops: int64 [B], where each record begins and ends in the data, in ascending order.
        parts: int64 [B], the part of the plan that holds each record.
        offsets: int64 [B], the position of each record in its file, in bytes.
        rows: int64 [B], the number of each record in its file.
    """

    data: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    parts: np.ndarray
    offsets: np.ndarray
    rows: np.ndarray

    def record(self, row: int) -> memoryview:
        """The bytes of one of the records."""
        return self.data.data[self.starts[row] : self.stops[row]]

    def places(self) -> RecordPlaces:
        """Where the records are in memory."""
        return RecordPlaces(address(self.data) + self.starts, self.stops - self.starts, self.data)

    def select(self, kept: np.ndarray) -> FramedRecords:
        """The records for which `kept`, bool [B], is true."""
        columns = self.starts, self.stops, self.parts, self.offsets, self.rows
        return FramedRecords(self.data, *(column[kept] for column in columns))


@dataclass(frozen=True)
class RecordPlaces:
    """Where B records with their framing are in memory.

    Attributes:
        addresses: int64 [B], the address of each record.
        sizes: int64 [B], the size of each record in bytes.
        owner: Keeps the memory.
    """

    addresses: np.ndarray
    sizes: np.ndarray
    owner: Any


@dataclass(frozen=True)
class FetchedRecords:
    """Records that were read into memory before they are needed.

    Attributes:
        numbers: int64 [n], the numbers of the records, ascending.
        records: The records in the same order.
    """

    numbers: np.ndarray
    records: FramedRecords

    def find(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The row of each number, int64 [B], among the records; and bool [B], whether it is here."""
        if not len(self.numbers):
            return np.zeros(len(numbers), np.int64), np.zeros(len(numbers), bool)
        rows = np.minimum(np.searchsorted(self.numbers, numbers), len(self.numbers) - 1)
        return rows, self.numbers[rows] == numbers


@dataclass(frozen=True)
class _KnownFiles:
    """The files of a plan in which the kernel can find records.

    Attributes:
        files: FILE [parts].
        shards: Keeps their memory.
    """

    files: np.ndarray
    shards: list[ShardBytes]


# Numbers of calls of the kernel, which asks once a call whether a file was truncated.
_CALLS = itertools.count(1)

# Some of the rows of records, int64 [k], and their places among other records, int64 [k].
_Piece = tuple[FramedRecords, np.ndarray, np.ndarray]


class FramedReader:
    """Random access to the framed records of a plan. It is safe to share between threads.

    Shards and their indexes are opened when their first record is read.

    Args:
        plan: The plan.
        empty: Allocates large arrays.
        cache: Where to keep remote shards; None to read them from the store.

    Attributes:
        is_local: Whether every file is on a local disk, or cached there when it is first read.
    """

    def __init__(self, plan: Plan, empty: Allocator, cache: Cache | None) -> None:
        self._plan, self._empty = plan, empty
        cached = cache.cacheable(plan.parts) if cache else frozenset()
        self.is_local = all(is_local(part.path) or part.path in cached for part in plan.parts)
        self._cache, self._cacheable = cache, cached
        # The files to read from the cache, and those that it does not have yet, or not any more.
        self._cached, self._uncached = set(cached), set(cached)
        self._ends = np.cumsum([part.take for part in plan.parts], dtype=np.int64)
        # The number that the first record in each part's file would have.
        before = [part.take + part.skip for part in plan.parts]
        self._firsts = self._ends - np.array(before, np.int64)
        self._indexes = ShardIndexes(plan.parts, len(plan.parts) <= _DESCRIPTORS)
        # The least recently used shard is dropped; it closes once its last reader is done with it.
        self._open = functools.lru_cache(_OPEN_SHARDS)(_opener(plan.parts, cache, self._cached))
        self._open_gzipped = functools.lru_cache(_OPEN_GZIPPED)(_open_gzipped)
        self._lock = threading.Lock()
        self._local = threading.local()
        self._known = self._new_known()

    @property
    def is_fetched(self) -> bool:
        """Whether every file is on a local disk by now, so that no record takes a request."""
        return self.is_local and not self._uncached

    def _new_known(self) -> _KnownFiles | None:
        """No file is known yet; None without a kernel, or if files keep no descriptors."""
        parts = len(self._plan.parts)
        if not library.is_compiled() or parts > _DESCRIPTORS:
            return None
        return _KnownFiles(np.zeros(parts, library.FILE), [])

    def read(self, numbers: np.ndarray, fetched: Sequence[FetchedRecords] = ()) -> FramedRecords:
        """The records of some numbers, int64 [B], from memory as far as they were fetched before."""
        pieces, left = list[_Piece](), np.ones(len(numbers), bool)
        for held in fetched:
            rows, is_here = held.find(numbers)
            is_here &= left
            left &= ~is_here
            if is_here.any():
                pieces.append((held.records, rows[is_here], np.flatnonzero(is_here)))
        if left.all():
            return self._read(numbers)
        if left.any():
            records = self._read(numbers[left])
            pieces.append((records, np.arange(len(records.starts)), np.flatnonzero(left)))
        return self._joined(pieces, len(numbers))

    def _joined(self, pieces: Sequence[_Piece], count: int) -> FramedRecords:
        """A copy of `count` records from several pieces, each at its place."""
        columns = np.empty((4, count), np.int64)
        for records, rows, places in pieces:
            lengths = records.stops - records.starts
            for column, values in zip(
                columns, (lengths, records.parts, records.offsets, records.rows), strict=True
            ):
                column[places] = values[rows]
        data, starts, stops = self._allocate(columns[0])
        target = data.data
        for records, rows, places in pieces:
            source = records.data.data
            starts_here, stops_here = records.starts[rows], records.stops[rows]
            runs = zip(
                starts[places].tolist(), starts_here.tolist(), stops_here.tolist(), strict=True
            )
            for at, start, stop in runs:
                target[at : at + stop - start] = source[start:stop]
        return FramedRecords(data, starts, stops, *columns[1:])

    def places(self, numbers: np.ndarray) -> RecordPlaces | None:
        """Where records, int64 [B], are in mapped files; None if they are not, or for long runs of them.

        They must be read at once: a file may become shorter.
        """
        if not self.is_fetched or self._plan.gzipped:
            return None
        known = self._known
        if known is not None:
            located = library.locate(
                np.ascontiguousarray(numbers), self._ends, self._firsts, known.files, next(_CALLS),
                MAX_FRAMED_BYTES, LONG_RUN,
            )  # fmt: skip
            if located is not None:
                return RecordPlaces(*located, known.shards)
        parts = np.searchsorted(self._ends, numbers, side="right")
        found = np.flatnonzero(np.bincount(parts, minlength=len(self._ends))).tolist()
        self._load_indexes(found)
        index = self._indexes.of(numbers - self._firsts[parts], parts)
        starts, sizes = index[:, 0], np.ascontiguousarray(index[:, 1])
        stops = starts + sizes
        follows = (starts[1:] == stops[:-1]) & (parts[1:] == parts[:-1])
        if sizes.sum() >= LONG_RUN * (len(numbers) - np.count_nonzero(follows)):
            return None
        maps = np.zeros((2, len(self._ends)), np.int64)
        shards = []
        for number in found:
            shard = self._open(self._plan.parts[number].path)
            here = shard.local.in_memory() if shard.local else None
            if here is None:
                return None
            maps[:, number] = here
            shards.append(shard)
        addresses, present = maps[:, parts]
        if not (stops <= present).all():
            return None
        if known is not None:
            for number, shard in zip(found, shards, strict=True):
                self._note(known, number, shard)
        return RecordPlaces(addresses + starts, sizes, shards)

    def _note(self, known: _KnownFiles, number: int, shard: ShardBytes) -> None:
        """Lets the kernel find the records of a file, if it can ask whether the file was truncated."""
        index = self._indexes.in_memory(number)
        descriptor = shard.local.descriptor if shard.local else None
        if index is None or descriptor is None or known.files["map"][number]:
            return
        known.shards.append(shard)
        file = known.files[number]
        file["descriptor"] = descriptor
        for member, value in index.items():
            file[member] = value
        assert shard.local is not None
        found = shard.local.in_memory()
        assert found is not None
        file["map"] = found[0]  # At last: other threads may look.

    def read_one(self, number: int) -> tuple[memoryview, str, int] | None:
        """One record, with the path of its file and its offset there; None if it is in a GZIP file.

        The thread's next call reuses the memory.
        """
        part = int(self._ends.searchsorted(number, side="right"))
        if self._plan.parts[part].gzipped:
            return None
        path = self._plan.parts[part].path
        shard = self._open(path)
        self._load_index(part)
        offset, length = self._indexes.of_one(number - int(self._firsts[part]), part)
        framed = memoryview(self._buffer(length))[:length]
        shard.read([(part, offset, length, 0)], framed)
        return framed, path, offset

    def read_from_store(self, framed: FramedRecords, damaged: np.ndarray) -> FramedRecords | None:
        """Reads records again if copies in the cache may have damaged some of them, which are deleted.

        From then on their shards are read from the store: a disk that damaged one copy may damage the next.

        Args:
            framed: The records.
            damaged: bool [B], which of them are damaged.

        Returns:
            The records, in the same order; None if no damaged one came from a copy.
        """
        found = [self._plan.parts[part] for part in np.unique(framed.parts[damaged]).tolist()]
        copied = {part.path for part in found} & self._cacheable
        if not self._cache or not copied:
            return None
        with self._lock:  # Another thread may have found the same damage.
            for part in found:
                if part.path in self._cached & copied and self._open(part.path).local:
                    self._cache.drop(part)
            self._cached -= copied
            self._uncached |= copied
            self._open.cache_clear()
            self._known = self._new_known()
        return self._read(framed.rows + self._firsts[framed.parts])

    def _read(self, numbers: np.ndarray) -> FramedRecords:
        """Reads records file by file, each into its position in one buffer."""
        parts = np.searchsorted(self._ends, numbers, side="right")
        order = np.argsort(parts, kind="stable")
        rows_in_files = numbers - self._firsts[parts]
        index = np.empty((len(numbers), 2), np.int64)
        decompressed: dict[int, DecompressedRecords] = {}
        indexed = np.ones(len(numbers), bool)
        for number in np.unique(parts).tolist():
            part = self._plan.parts[number]
            if part.gzipped:
                here = parts == number
                decompressed[number] = self._open_gzipped(part)[rows_in_files[here]]
                index[here] = decompressed[number].index
                indexed &= ~here
        found_parts = [n for n in np.unique(parts).tolist() if n not in decompressed]
        self._load_indexes(found_parts)
        self._fill_cache({self._plan.parts[number].path for number in found_parts})
        index[indexed] = self._indexes.of(rows_in_files[indexed], parts[indexed])
        data, starts, stops = self._allocate(index[:, 1])
        runs = runs_of(parts[order], index[order], starts[order])
        remote = list[tuple[ShardBytes, list[Run]]]()
        for number, several in itertools.groupby(runs, key=operator.itemgetter(0)):
            shard = decompressed.get(number) or self._open(self._plan.parts[number].path)
            if isinstance(shard, DecompressedRecords) or shard.local:
                shard.read(list(several), data.data)
            else:
                remote.append((shard, list(several)))
        # All remote shards together: a hundred requests take as long as one.
        fetch(remote, data.data)
        return FramedRecords(data, starts, stops, parts, index[:, 0], rows_in_files)

    def _fill_cache(self, paths: set[str]) -> None:
        """Opens the shards that are to be cached, which fetches them, several at a time."""
        missing = sorted(paths & self._uncached)
        opened = map_in_threads(self._open, missing, False, _CACHED_AT_ONCE)
        # Those that could not be kept are read from the store.
        kept = [path for path, shard in zip(missing, opened, strict=True) if shard.local]
        self._uncached.difference_update(kept)

    def _allocate(self, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """A buffer for records of these lengths, int64 [B], and where each starts and stops in it."""
        stops = np.cumsum(lengths)
        size = int(stops[-1]) if len(stops) else 0
        return self._empty((size + MARGIN,), np.dtype(np.uint8)), stops - lengths, stops

    def _buffer(self, size: int) -> bytearray:
        """A buffer of `size` bytes or more, the same for all calls of a thread."""
        if len(getattr(self._local, "buffer", b"")) < size:
            self._local.buffer = bytearray(size)
        buffer: bytearray = self._local.buffer
        return buffer

    def has_section(self, name: str, dtype: np.dtype[Any]) -> bool:
        """Whether the index of every file has a section of a dtype.

        The indexes of files without a manifest are opened. Those of a dataset are alike: one shows it.
        """
        parts = self._plan.parts
        numbers = [number for number, part in enumerate(parts) if part.take]
        if self._plan.gzipped:
            return False
        foreign = [number for number in numbers if parts[number].index_crc32c is None]
        asked = numbers[:1] + foreign
        self._load_indexes(asked)
        return all(self._indexes.has(name, dtype, number) for number in asked)

    def section(self, name: str, dtype: np.dtype[Any], numbers: np.ndarray) -> np.ndarray:
        """The numbers of a section, [B], of the records of some numbers, int64 [B].

        Raises:
            DatasetError: (a ValueError) An index is damaged.
        """
        parts = np.searchsorted(self._ends, numbers, side="right")
        self._load_indexes(np.unique(parts).tolist())
        return self._indexes.numbers(name, dtype, numbers - self._firsts[parts], parts)

    def _load_index(self, number: int) -> None:
        """Reads the index of a part, unless it was read before."""
        if self._indexes.is_loaded(number):
            return
        part = self._plan.parts[number]
        if is_local(part.path):
            self._open(part.path)  # Raises an error if the file is not the one of the plan.
        self._indexes.load(number)

    def _load_indexes(self, numbers: Sequence[int]) -> None:
        """Reads the indexes of parts."""
        missing = self._indexes.missing(numbers)
        map_in_threads(
            self._load_index,
            missing,
            all(is_local(self._plan.parts[number].path) for number in missing),
        )


def _opener(
    parts: Sequence[Part], cache: Cache | None, cached: Set[str]
) -> Callable[[str], ShardBytes]:
    """A function that opens a shard by its path.

    It must not refer to the reader, which has it in a cache and would never be freed.
    """
    descriptor = len(parts) <= _DESCRIPTORS
    by_path = {part.path: part for part in parts}

    def open_shard(path: str) -> ShardBytes:
        part = by_path[path]
        file = cache.open(part) if cache and path in cached else None
        shard = ShardBytes(path, descriptor, file)
        if shard.local and part.version not in (None, shard.local.version):
            raise DatasetError(f"{path}: {CHANGED}")
        return shard

    return open_shard


def _open_gzipped(part: Part) -> GzippedShard:
    if is_changed(part):
        raise DatasetError(f"{part.path}: {CHANGED}")
    return GzippedShard(part.path)
