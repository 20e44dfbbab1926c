"""Pieces of inputs, where a record is less than a file: what one task reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from beam_jobs.sources.source import Source

# A piece of a file that one worker reads: small enough to spread over cores, large enough that
# a piece's 50 us and its seek are nothing.
CHUNK_BYTES = 2 << 20

# Small files go into one task together, at most so many.
_MAX_CHUNKS = 256


@dataclass(frozen=True)
class Chunk:
    """Consecutive lines of a file, row groups of a table, or all that a source holds.

    Attributes:
        source: The file.
        start, end: Bytes, or row groups of Parquet; `end` is 0 where it is read to its end.
        first: Number of the first line or row, from 1.
        size: Bytes, before a packed file is unpacked.
    """

    source: Source
    start: int
    end: int
    first: int
    size: int


@dataclass(frozen=True)
class Task:
    """Chunks that one task reads, in order.

    Attributes:
        chunks: One or more.
        dropped: Which of their records, counted through all of them, equal others and go: int64 [n]
            as bytes.
    """

    chunks: tuple[Chunk, ...]
    dropped: bytes = b""

    @property
    def size(self) -> int:
        """Bytes of all chunks."""
        return sum(chunk.size for chunk in self.chunks)

    @property
    def id(self) -> str:
        """What no other work of the job has: the place where it begins."""
        first = self.chunks[0]
        return f"{first.source.key}#{first.start}"


def batch_chunks(chunks: Iterable[Chunk]) -> Iterator[Task]:
    """Yields chunks in pieces of work: a large file in many, many small files in one."""
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
