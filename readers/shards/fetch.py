"""Records -> bytes: a memory map where the file is local, range reads through fsspec elsewhere."""

from __future__ import annotations

import bisect
import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from readers.files.mapped import Mapped
from readers.files.remote import filesystem_of, local_path, read_ranges

# A request to an object store costs about as long as a MiB takes to arrive: below this gap two
# records come cheaper in one request than in two.
_GAP_BYTES = 1 << 20

# One connection to a store gives some 50 MB/s: what is larger comes quicker in pieces, side by side.
_PIECE_BYTES = 8 << 20

# Held in memory at a time, with what lies between records that are fetched together.
_TOGETHER_BYTES = 64 << 20

# From here on a call to the kernel is cheaper than the page faults of a map.
_LONG_RUN = 64 << 10

# Bytes in a row: the number of a file, where they begin in it, how many they are, and where they are
# to stand in a buffer. No class: of small records in a random order there are millions a second.
Run = tuple[int, int, int, int]


class ShardBytes:
    """The bytes of one shard by position; safe to share between threads.

    Args:
        path: A local path or any URL that fsspec knows.
        descriptor: Whether it may keep one. Without, long runs of a local file take a third longer.
        kept: An open copy of the file on a local disk, to be read instead; it is closed.

    Attributes:
        is_local: Whether it is read from a local disk.

    Raises:
        FileNotFoundError: There is no such file.
    """

    def __init__(self, path: str, descriptor: bool = True, kept: BinaryIO | None = None) -> None:
        local = local_path(path)
        self.path = path
        self._map: Mapped | None = None
        self._file: io.FileIO | None = None
        self.is_local = kept is not None or local is not None
        if not self.is_local:
            self.filesystem, self.name = filesystem_of(path)
            return
        with kept or Path(local or "").open("rb", buffering=0) as file:
            self._map = Mapped(file)
            if descriptor:
                # It is closed when nothing refers to it any more.
                self._file = io.FileIO(os.dup(file.fileno()))

    def read(self, runs: Sequence[Run], buffer: memoryview) -> None:
        """Reads runs of bytes, each to its place in a buffer.

        What lies beyond the end of the file is zeros, which no checksum fits.

        Args:
            buffer: Used again and again: new memory costs a page fault for every 4 KiB.

        Raises:
            StoreError: (an OSError) A store does not give them.
        """
        if self._map is None:
            fetch([(self, runs)], buffer)
            return
        view = self._map.view
        for _, start, length, at in runs:
            if start + length > len(view):
                _fill(buffer[at : at + length], view[start:])
            elif length < _LONG_RUN:
                buffer[at : at + length] = view[start : start + length]
            elif self._file:
                self._read_long(self._file, start, buffer[at : at + length])
            else:
                buffer[at : at + length] = view[start : start + length]
                # They would count as memory of the process: all of a dataset that is read in order.
                self._map.forget(start, length)

    def _read_long(self, file: io.FileIO, start: int, buffer: memoryview) -> None:
        while buffer:
            found = os.preadv(file.fileno(), [buffer], start)
            if not found:
                raise OSError(f"{self.path}: it was cut at byte {start} while it was read")
            buffer, start = buffer[found:], start + found


@dataclass
class _Piece:
    """What one request fetches.

    Attributes:
        shard: Of which file.
        first, last: From which byte to before which.
        copies: (first byte, length, place in the buffer) of what is wanted of it.
    """

    shard: ShardBytes
    first: int
    last: int
    copies: list[tuple[int, int, int]] = field(default_factory=list)


def fetch(wanted: Sequence[tuple[ShardBytes, Sequence[Run]]], buffer: memoryview) -> None:
    """Reads runs of shards that are not local, each to its place in a buffer.

    Neighbours are fetched together, and as many requests run at once as a filesystem lets and as
    64 MiB hold.

    Raises:
        StoreError: (an OSError) A store does not give them.
    """
    pieces = [piece for shard, runs in wanted for piece in _pieces(shard, runs)]
    pieces.sort(key=lambda piece: id(piece.shard.filesystem))
    for several in _together(pieces):
        ranges = [(p.shard.path, p.shard.name, p.first, p.last) for p in several]
        for piece, data in zip(
            several, read_ranges(several[0].shard.filesystem, ranges), strict=True
        ):
            view = memoryview(data)
            for start, length, at in piece.copies:
                begin = start - piece.first
                _fill(buffer[at : at + length], view[begin : begin + length])


def _pieces(shard: ShardBytes, runs: Sequence[Run]) -> list[_Piece]:
    """The requests for runs of a shard, with what is wanted of each."""
    pieces = [
        _Piece(shard, begin, min(begin + _PIECE_BYTES, last))
        for first, last in spans_of([(start, length) for _, start, length, _ in runs])
        for begin in range(first, last, _PIECE_BYTES)
    ]
    firsts = [piece.first for piece in pieces]
    for _, start, length, at in runs:
        number = bisect.bisect_right(firsts, start) - 1
        while length:
            size = min(pieces[number].last - start, length)
            pieces[number].copies.append((start, size, at))
            start, length, at, number = start + size, length - size, at + size, number + 1
    return pieces


def _together(pieces: Sequence[_Piece]) -> Iterator[list[_Piece]]:
    """Pieces of one filesystem that are in memory at the same time."""
    several, size = list[_Piece](), 0
    for piece in pieces:
        length = piece.last - piece.first
        other = several and several[0].shard.filesystem is not piece.shard.filesystem
        if several and (other or size + length > _TOGETHER_BYTES):
            yield several
            several, size = [], 0
        several.append(piece)
        size += length
    if several:
        yield several


def _fill(buffer: memoryview, data: memoryview) -> None:
    """Copies data to the beginning of a buffer, and zeros to the rest."""
    buffer[: len(data)] = data
    if len(data) < len(buffer):
        buffer[len(data) :] = bytes(len(buffer) - len(data))


def spans_of(rows: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """The (start, stop) of the fewest requests that cover every (offset, length), ascending."""
    spans: list[tuple[int, int]] = []
    for offset, length in sorted((row[0], row[1]) for row in rows):
        if spans and offset <= spans[-1][1] + _GAP_BYTES:
            spans[-1] = (spans[-1][0], max(spans[-1][1], offset + length))
        else:
            spans.append((offset, offset + length))
    return spans
