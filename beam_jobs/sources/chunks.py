"""Pieces of inputs whose records are parts of files, and the tasks that read them."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO, NamedTuple

import numpy as np

from beam_jobs.columns import Ragged, pack, unpack
from beam_jobs.errors import RejectError, loss_error
from beam_jobs.sources.arrow_rows import row_groups
from beam_jobs.sources.source import Source, pack_reference, unpack_reference

# Small enough to spread a file over cores, large enough that 50 us and a seek for each are negligible.
CHUNK_BYTES = 2 << 20

# A task waits only for the first of its requests to a store, about 60 ms: several chunks keep a processor
# busy for five times as long.
STORE_TASK_BYTES = 4 * CHUNK_BYTES

# Small files share a task, up to this many, with rows of a table of up to this many bytes.
MOST_CHUNKS, _MAX_ROW_BYTES = 512, 1 << 18


class Chunk(NamedTuple):
    """Consecutive lines of a file, row groups of a table, or a whole source.

    Attributes:
        source: The file.
        start, end: Bytes, or row groups of Parquet; `end` is 0 if the file is read to its end.
        first: The number of the first line or row, from 1; 0 for a range of bytes whose lines have not
            been counted.
        size: Bytes, before a compressed file is decompressed.
    """

    source: Source
    start: int
    end: int
    first: int
    size: int

    @classmethod
    def whole(cls, source: Source) -> Chunk:
        """The whole of a source."""
        return cls(source, 0, 0, 1, source.size)

    @property
    def is_empty(self) -> bool:
        """Whether no line begins in it."""
        return 0 < self.end == self.start


class RangeCount(NamedTuple):
    """The lines or records that begin in a range of a file's bytes.

    Attributes:
        range: The range.
        found: Their number.
        begin: The byte of the file at which the first one begins.
        stop: The byte after the last one; None if that is where the next one in the file begins.
        error: Why the range cannot be read; else empty.
    """

    range: Chunk
    found: int = 0
    begin: int = 0
    stop: int | None = None
    error: str = ""


@dataclass(frozen=True)
class Task:
    """Chunks that are read together, in order.

    Attributes:
        id: Identifies the task within its job: the place where it begins.
        count: The number of chunks, one or more.
        size: Bytes of all chunks.
        numbered: Whether the numbers of their first lines or rows are known.
        packed: The chunks, which take about 20 bytes each while the task waits.
        dropped: The records that are dropped as duplicates: compressed bits, one for each record of all
            chunks. A file that is read in one task may have millions.
    """

    id: str
    count: int
    size: int
    numbered: bool
    packed: bytes
    dropped: bytes = b""

    @classmethod
    def of(cls, chunks: Sequence[Chunk]) -> Task:
        """The task of some chunks, one or more."""
        places = np.array([chunk[1:] for chunk in chunks], np.int64)
        references = Ragged.of([pack_reference(chunk.source) for chunk in chunks])
        name = f"{chunks[0].source.key}#{chunks[0].start}"
        packed = pack(places, references, compress=True)
        size, numbered = int(places[:, 3].sum()), chunks[0].first > 0
        return cls(name, len(chunks), size, numbered, packed)

    @property
    def references(self) -> Ragged:
        """The packed references of the sources of all chunks."""
        _, references = unpack(self.packed)
        return references

    @property
    def chunks(self) -> list[Chunk]:
        """The chunks."""
        places, references = unpack(self.packed)
        rows = zip(map(unpack_reference, references), places.tolist(), strict=True)
        return [Chunk(source, *place) for source, place in rows]

    def without(self, rows: np.ndarray) -> Task:
        """The task that drops some more records, by their numbers: int64 [n]."""
        if not len(rows):
            return self
        every = np.concatenate([rows, self.dropped_rows])
        bits = np.zeros(int(every.max()) + 1, bool)
        bits[every] = True
        return replace(self, dropped=zlib.compress(np.packbits(bits).tobytes(), 1))

    @property
    def dropped_rows(self) -> np.ndarray:
        """The numbers of the records that are dropped, int64 [n], rising."""
        packed = zlib.decompress(self.dropped) if self.dropped else b""
        return np.flatnonzero(np.unpackbits(np.frombuffer(packed, np.uint8)))


def byte_ranges(source: Source, size: int = CHUNK_BYTES) -> Iterator[Chunk]:
    """Yields the ranges of a file's bytes, up to `size` bytes each, that are not counted yet."""
    for start in range(0, source.size, size):
        end = min(start + size, source.size)
        yield Chunk(source, start, end, 0, end - start)


def row_group_sources(file: Source, open_: Callable[[Source], BinaryIO]) -> Iterator[Source]:
    """Yields the row groups of a Parquet file, several megabytes in each; the file with an error if it cannot be read.

    Args:
        file: The file.
        open_: Opens it, so that seeking is cheap.
    """
    try:
        with open_(file) as opened:
            rows = row_groups(opened)
    except (OSError, RejectError) as error:
        yield file._replace(error=str(error))
        return
    start, first, count, total = 0, 1, 0, max(sum(rows), 1)
    for end, more in enumerate(rows, 1):
        count += more
        size = file.size * count // total
        # Each source opens the file again.
        if size >= CHUNK_BYTES or end == len(rows):
            key = f"{file.key}#{first}-{first + count - 1}"
            groups = start, end, first
            yield file._replace(key=key, size=size, path=file.file, groups=groups)
            start, first, count = end, first + count, 0


def numbered_chunks(counts: Iterable[RangeCount]) -> Iterator[Chunk]:
    """Yields one numbered chunk of whole lines or records for each range of a file.

    The chunk is empty if none begins in the range. If a range cannot be read, or the records of the ranges
    do not follow each other, the first chunk is the whole file, and all others are empty.

    Args:
        counts: The counts of all ranges of the file, in any order.

    Raises:
        DataError: The ranges do not cover the file, or overlap.
    """
    ranges = sorted(counts, key=lambda count: count.range.start)
    source = ranges[0].range.source
    ends = [0, *(count.range.end for count in ranges)]
    if [count.range.start for count in ranges] != ends[:-1] or ends[-1] != source.size:
        raise loss_error(f"a range of {source.key}")
    full = [count for count in ranges if count.found]
    edges = [*(count.begin for count in full), source.size]
    follow = all(count.stop in (None, at) for count, at in zip(full, edges[1:], strict=True))
    if edges[0] or not follow or any(count.error for count in ranges):
        yield Chunk.whole(source)
        yield from (Chunk(source, end, end, 1, 0) for end in ends[2:])
        return
    number, stops = 1, iter(edges[1:])
    for whole, found, begin, _, _ in ranges:
        if found:
            stop = next(stops)
            yield Chunk(source, begin, stop, number, stop - begin)
        else:
            yield Chunk(source, whole.end, whole.end, 1, 0)
        number += found


def file_batches(sources: Iterable[Source]) -> Iterator[tuple[list[Source], list[bytes]]]:
    """Yields batches of files and their references, of the size of a task that does not read them."""
    batch: list[Source] = []
    references: list[bytes] = []
    row_bytes = 0
    for source in sources:
        reference = pack_reference(source)
        batch.append(source)
        references.append(reference)
        row_bytes += len(reference) if source.row else 0
        if len(batch) >= MOST_CHUNKS or row_bytes >= _MAX_ROW_BYTES:
            yield batch, references
            batch, references, row_bytes = [], [], 0
    if batch:
        yield batch, references


def batch_chunks(chunks: Iterable[Chunk], task_bytes: int = CHUNK_BYTES) -> Iterator[Task]:
    """Yields tasks of at least `task_bytes`: a large file in many, many small files in one."""
    batch: list[Chunk] = []
    size = row_bytes = 0
    for chunk in chunks:
        batch.append(chunk)
        size += chunk.size
        row_bytes += len(pack_reference(chunk.source)) if chunk.source.row else 0
        if size >= task_bytes or len(batch) >= MOST_CHUNKS or row_bytes >= _MAX_ROW_BYTES:
            yield Task.of(batch)
            batch, size, row_bytes = [], 0, 0
    if batch:
        yield Task.of(batch)
