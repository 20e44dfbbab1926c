"""The records of a plan by their number, decoded, without TensorFlow."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import operator
import resource
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from readers.files.remote import local_path
from readers.format.decode.batches import MARGIN, ColumnDecoder
from readers.format.decode.column import Column, column_of, merged, objects
from readers.format.decode.images import pixels_of, with_pixels
from readers.format.decode.records import Decoder
from readers.format.manifest import DatasetError
from readers.format.schema import Feature, Schema
from readers.format.tfrecord import FOOTER_BYTES, HEADER_BYTES, intact, unframe
from readers.shards.cache import ShardCache
from readers.shards.fetch import Run, ShardBytes, fetch
from readers.shards.gzip_files import GzippedShard, Unpacked
from readers.shards.index import read_index
from readers.shards.memory import Recycled
from readers.shards.plan import Part, Plan

_LOGGER = logging.getLogger("readers")

# Linux lets a process have 65,530 maps, and a process may read several datasets.
_OPEN_SHARDS = 8_192

# Shards of a plan that may have a descriptor each, of those that a process may have: often 1,024.
_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[0]

_DESCRIPTORS = _OPEN_SHARDS if _FILES == resource.RLIM_INFINITY else _FILES // 8

_INDEXES_AT_ONCE = 16

# They take a descriptor each, and can be read in order alone.
_OPEN_GZIPPED = 4


@dataclass(frozen=True)
class _Framed:
    """Records as they stand in their files, with framing.

    Attributes:
        data: uint8 [n], the records and at least `MARGIN` bytes more.
        starts, stops: int64 [B], where each stands in the data, one after another.
        parts: int64 [B], the part of the plan that each is from.
        offsets: int64 [B], where each stands in its file, in bytes.
        rows: int64 [B], which record of its file each is.
    """

    data: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    parts: np.ndarray
    offsets: np.ndarray
    rows: np.ndarray

    def record(self, row: int) -> memoryview:
        return self.data.data[self.starts[row] : self.stops[row]]


class Records:
    """Random access to the records of a plan; safe to share between threads, and to pickle.

    Shards and their indexes are opened when the first record of theirs is asked for.

    Args:
        plan: One that knows its number of records.
        verify_crc: Whether the CRC32C of every record read is checked.
        skip: Whether `columns` leaves out records that fail it.
        cache: Where files that are not local are kept; None to read them where they are.

    Attributes:
        skipped: (path, number in the file) of the records left out so far.
        is_local: Whether every file is on a local disk, or kept there when it is read.
    """

    def __init__(
        self,
        plan: Plan,
        verify_crc: bool = True,
        skip: bool = False,
        cache: ShardCache | None = None,
    ) -> None:
        if plan.records is None:
            raise ValueError(f"{plan.name}: the number of records is unknown")
        self.plan = plan
        self._verify_crc, self._skip, self._cache = verify_crc, skip, cache
        self._kept = cache.chosen(plan.parts) if cache else frozenset()
        self.is_local = all(
            local_path(part.path) is not None or part.path in self._kept for part in plan.parts
        )
        self.skipped: set[tuple[str, int]] = set()
        self._decoder = Decoder(plan.schema)
        self.memory = Recycled()
        self._columns = ColumnDecoder(plan.schema, self.memory.empty)
        self._ends = np.cumsum([part.take or 0 for part in plan.parts], dtype=np.int64)
        # The number that the first record of each part's file would have.
        before = [(part.take or 0) + part.skip for part in plan.parts]
        self._firsts = self._ends - np.array(before, np.int64)
        # The (offset, length) of each record; of a part that was not opened yet, it takes no memory.
        self._index = np.empty((plan.records, 2), np.int64)
        self._indexed: set[int] = set()
        # By path; the least recently used one may close once whoever reads it lets go of it.
        self._open = functools.lru_cache(_OPEN_SHARDS)(self._opener(len(plan.parts)))
        self._open_gzipped = functools.lru_cache(_OPEN_GZIPPED)(GzippedShard)
        # The numbers of the records that `ahead` has read, rising, and where they are.
        self._held: tuple[np.ndarray, _Framed] | None = None
        self._lock = threading.Lock()
        self._local = threading.local()

    def _opener(self, files: int) -> Callable[[str], ShardBytes]:
        """What opens a shard, and does not refer to the records: they would never be let go of."""
        kept, cache, descriptor = self._kept, self._cache, files <= _DESCRIPTORS
        parts = {part.path: part for part in self.plan.parts if part.path in kept}

        def opened(path: str) -> ShardBytes:
            file = cache.open(parts[path]) if cache and path in kept else None
            return ShardBytes(path, descriptor, file)

        return opened

    def __len__(self) -> int:
        return self.plan.records or 0

    def __getstate__(self) -> dict[str, Any]:
        return {
            "plan": self.plan,
            "verify_crc": self._verify_crc,
            "skip": self._skip,
            "cache": self._cache,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def read(self, numbers: Sequence[int] | np.ndarray) -> list[dict[str, Any]]:
        """The records of some numbers, each from 0 to the length, in the order asked for.

        Raises:
            CorruptRecordError: A record fails its checksum; the message names file and byte.
            ValueError: A record does not fit the schema; the message also names the feature.
        """
        framed = self._framed(np.asarray(numbers, np.int64))
        records = []
        for row in range(len(framed.starts)):
            if self._verify_crc:
                self._verify(framed, row)
            record = self._decode(framed, row, self._decoder)
            with self._naming(framed, row):
                records.append(with_pixels(record, self.plan.schema))
        return records

    def record(self, number: int) -> dict[str, Any]:
        """What `read` gives for one number, in a fifth of the time.

        Its arrays may be views of memory that the thread's next call uses again.

        Raises:
            CorruptRecordError, ValueError: As `read`.
        """
        part = int(self._ends.searchsorted(number, side="right"))
        if self.plan.parts[part].gzipped:
            return self.read([number])[0]
        self._find(part)
        offset, length = self._index[number].tolist()
        framed = memoryview(self._buffer(length))[:length]
        self._open(self.plan.parts[part].path).read([(part, offset, length, 0)], framed)
        try:
            data = framed[HEADER_BYTES:-FOOTER_BYTES]
            if self._verify_crc:
                data = unframe(framed, self.plan.parts[part].path, offset)
            return with_pixels(self._decoder.decode(data), self.plan.schema)
        except ValueError:
            return self.read([number])[0]  # raises, and says which record it is about

    def columns(self, numbers: np.ndarray) -> tuple[dict[str, Column], np.ndarray]:
        """The same records feature by feature, which for many takes a tenth of the time.

        Args:
            numbers: int64 [B], each from 0 to the length.

        Returns:
            The columns; and bool [B], which of the records they hold, if damaged ones are skipped.

        Raises:
            CorruptRecordError, ValueError: As `read`.
        """
        schema = self.plan.schema
        framed = self._framed(numbers)
        kept = np.ones(len(numbers), bool)
        if self._verify_crc:
            kept = intact(framed.data, framed.stops - framed.starts)
            if not kept.all():
                if not self._skip:
                    self._verify(framed, int(np.argmin(kept)))  # raises
                framed = self._without_damaged(framed, kept)
        starts, stops = framed.starts + HEADER_BYTES, framed.stops - FOOTER_BYTES
        columns, rows = self._columns.decode(framed.data, starts, stops)
        if len(rows) < len(starts):
            others = np.setdiff1d(np.arange(len(starts)), rows)
            odd = self._one_by_one(framed, others, schema)
            columns = {
                name: merged(schema[name], [(rows, column), (others, odd[name])])
                for name, column in columns.items()
            }
        left = [name for name in schema if name not in columns]
        if left:
            every = np.arange(len(starts))
            columns |= self._one_by_one(framed, every, schema.select(left))
        for name, feature in schema.items():
            if feature.is_picture:
                pixels = []
                for row, data in enumerate(columns[name].flat().tolist()):
                    with self._naming(framed, row):
                        pixels.append(pixels_of(name, feature, data))
                columns[name] = column_of(feature, pixels)
        return columns, kept

    def ahead(self, numbers: np.ndarray) -> None:
        """Reads records into memory, where `columns` finds them; those of the call before go.

        Each call to a store costs as long as a MiB takes to arrive, whatever it is for.

        Args:
            numbers: int64 [B], each from 0 to the length.
        """
        self._held = None
        rising = np.unique(numbers)
        self._held = rising, self._read_framed(rising)

    def _without_damaged(self, framed: _Framed, whole: np.ndarray) -> _Framed:
        for row in np.flatnonzero(~whole).tolist():
            path, number = self.plan.parts[framed.parts[row]].path, int(framed.rows[row])
            if (path, number) not in self.skipped:
                self.skipped.add((path, number))
                _LOGGER.warning(
                    "%s: record %d at byte %d is damaged and skipped (%d so far)",
                    path,
                    number,
                    framed.offsets[row],
                    len(self.skipped),
                )
        columns = framed.starts, framed.stops, framed.parts, framed.offsets, framed.rows
        return _Framed(framed.data, *(column[whole] for column in columns))

    def _one_by_one(self, framed: _Framed, rows: np.ndarray, schema: Schema) -> dict[str, Column]:
        decoder = Decoder(schema)
        records = [self._decode(framed, row, decoder) for row in rows.tolist()]
        return {
            name: _column(feature, [record[name] for record in records])
            for name, feature in schema.items()
        }

    def _verify(self, framed: _Framed, row: int) -> None:
        where = f"{self.plan.parts[framed.parts[row]].path}: record {framed.rows[row]}"
        unframe(framed.record(row), where, int(framed.offsets[row]))

    def _decode(self, framed: _Framed, row: int, decoder: Decoder) -> dict[str, Any]:
        with self._naming(framed, row):
            return decoder.decode(framed.record(row)[HEADER_BYTES:-FOOTER_BYTES])

    @contextlib.contextmanager
    def _naming(self, framed: _Framed, row: int) -> Iterator[None]:
        """Says in an error which record it is about."""
        try:
            yield
        except ValueError as error:
            path, number = self.plan.parts[framed.parts[row]].path, framed.rows[row]
            raise ValueError(
                f"{path}: record {number} at byte {framed.offsets[row]}: {error}"
            ) from None

    def _framed(self, numbers: np.ndarray) -> _Framed:
        """Records, from memory where they have been read ahead."""
        if self._held is None or not len(self._held[0]):
            return self._read_framed(numbers)
        known, held = self._held
        rows = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
        if (known[rows] != numbers).any():
            return self._read_framed(numbers)
        lengths = held.stops[rows] - held.starts[rows]
        stops = np.cumsum(lengths)
        starts = stops - lengths
        size = int(stops[-1]) if len(stops) else 0
        data = self.memory.empty((size + MARGIN,), np.dtype(np.uint8))
        target, source = data.data, held.data.data
        runs = zip(starts.tolist(), held.starts[rows].tolist(), lengths.tolist(), strict=True)
        for at, start, length in runs:
            target[at : at + length] = source[start : start + length]
        return _Framed(data, starts, stops, held.parts[rows], held.offsets[rows], held.rows[rows])

    def _read_framed(self, numbers: np.ndarray) -> _Framed:
        """Reads records, file after file, each to its place."""
        parts = np.searchsorted(self._ends, numbers, side="right")
        order = np.argsort(parts, kind="stable")
        rows_in_files = numbers - self._firsts[parts]
        unpacked: dict[int, Unpacked] = {}
        for number in np.unique(parts).tolist():
            part = self.plan.parts[number]
            if part.gzipped:
                unpacked[number] = self._open_gzipped(part.path)[rows_in_files[parts == number]]
        self._find_all([number for number in np.unique(parts).tolist() if number not in unpacked])
        index = self._index[numbers]
        for number, found in unpacked.items():
            index[parts == number] = found.index
        stops = np.cumsum(index[:, 1])
        starts = stops - index[:, 1]
        size = int(stops[-1]) if len(stops) else 0
        data = self.memory.empty((size + MARGIN,), np.dtype(np.uint8))
        runs = _runs(parts[order], index[order], starts[order])
        remote = list[tuple[ShardBytes, list[Run]]]()
        for number, several in itertools.groupby(runs, key=operator.itemgetter(0)):
            shard = unpacked.get(number) or self._open(self.plan.parts[number].path)
            if isinstance(shard, Unpacked) or shard.is_local:
                shard.read(list(several), data.data)
            else:
                remote.append((shard, list(several)))
        # A request waits for its answer as long as a hundred of them do.
        fetch(remote, data.data)
        return _Framed(data, starts, stops, parts, index[:, 0], rows_in_files)

    def _buffer(self, size: int) -> bytearray:
        """A buffer of at least so many bytes, the same one in each call of a thread."""
        if len(getattr(self._local, "buffer", b"")) < size:
            self._local.buffer = bytearray(size)
        buffer: bytearray = self._local.buffer
        return buffer

    def _find(self, number: int) -> None:
        """Sees to it that the index has the records of a part."""
        if number in self._indexed:
            return
        part = self.plan.parts[number]
        index = _checked_index(part)[part.skip :][: part.take]
        with self._lock:
            self._index[self._ends[number] - len(index) : self._ends[number]] = index
            self._indexed.add(number)

    def _find_all(self, numbers: Sequence[int]) -> None:
        """Sees to it that the index has the records of parts, whose indexes a store gives at once."""
        missing = [number for number in numbers if number not in self._indexed]
        remote = [n for n in missing if local_path(self.plan.parts[n].path) is None]
        if len(remote) > 1:
            with ThreadPoolExecutor(_INDEXES_AT_ONCE) as threads:
                list(threads.map(self._find, remote))
        for number in missing:
            self._find(number)


def _column(feature: Feature, values: list[Any]) -> Column:
    return Column(objects(values)) if feature.is_picture else column_of(feature, values)


def _checked_index(part: Part) -> np.ndarray:
    index = read_index(part.path, part.bytes)
    if len(index) != part.total:
        raise DatasetError(
            f"{part.path}: the manifest says {part.total} records, the index has {len(index)}"
        )
    return index


def _runs(parts: np.ndarray, index: np.ndarray, at: np.ndarray) -> Iterator[Run]:
    """Records as runs of those that follow each other in their file and in a buffer.

    Args:
        parts: int64 [B], rising: which file each is in.
        index: int64 [B, 2], the (offset, length) of each.
        at: int64 [B], where each is to stand in the buffer.
    """
    if not len(parts):
        return iter(())
    lengths = index[:, 1]
    follows = parts[1:] == parts[:-1]
    for places in (index[:, 0], at):
        follows &= places[1:] == places[:-1] + lengths[:-1]
    firsts = np.flatnonzero(np.append(True, ~follows))
    columns = parts[firsts], index[firsts, 0], np.add.reduceat(lengths, firsts), at[firsts]
    return zip(*(column.tolist() for column in columns), strict=True)
