"""Pieces of inputs whose records are less than a file, and the tasks that read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from beam_jobs.sources.source import Source

# Small enough to spread a file over cores, large enough that 50 us and a seek for each are nothing.
CHUNK_BYTES = 2 << 20

# Small files share a task, up to this many.
_MAX_CHUNKS = 256


@dataclass(frozen=True)
class Chunk:
    """Consecutive lines of a file, row groups of a table, or everything that a source holds.

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

    @property
    def is_empty(self) -> bool:
        """Whether no line begins in it."""
        return 0 < self.end == self.start


class RangeCount(NamedTuple):
    """Line ends in a range of a file's bytes.

    Attributes:
        range: The range.
        newlines: How many line ends are in it.
        begin: The byte of the file at which the first line of the range begins; the end of the range
            if none begins in it.
        last: The byte after the last line end in the range; the beginning of the range without any.
        error: Why the range cannot be read; else empty.
    """

    range: Chunk
    newlines: int = 0
    begin: int = 0
    last: int = 0
    error: str = ""


@dataclass(frozen=True)
class Task:
    """Chunks that are read together, in order.

    Attributes:
        chunks: One or more.
        dropped: Numbers of records, counted through all chunks, that are dropped as duplicates: int64
            [n] as bytes.
    """

    chunks: tuple[Chunk, ...]
    dropped: bytes = b""

    @property
    def size(self) -> int:
        """Bytes of all chunks."""
        return sum(chunk.size for chunk in self.chunks)

    @property
    def id(self) -> str:
        """Identifies the task within its job: the place where it begins."""
        first = self.chunks[0]
        return f"{first.source.key}#{first.start}"


def batch_chunks(chunks: Iterable[Chunk]) -> Iterator[Task]:
    """Yields tasks of several megabytes: a large file in many, many small files in one."""
    batch: list[Chunk] = []
    size = 0
    for chunk in chunks:
        batch.append(chunk)
        size += chunk.size
        if size >= CHUNK_BYTES or len(batch) >= _MAX_CHUNKS:
            yield Task(tuple(batch))
            batch, size = [], 0
    if batch:
        yield Task(tuple(batch))
