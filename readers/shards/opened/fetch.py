"""Reading byte runs of shards, from local disks or by range requests from stores."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from readers.files.files import Range
from readers.files.local import is_local, open_local
from readers.files.of_path import files_of
from readers.shards.opened.local_shard import LocalShard, Run, fill

# A request to an object store costs about as long as a MiB takes to arrive: with a smaller gap between
# them, two records are cheaper in one request than in two.
_GAP_BYTES = 1 << 20

# One connection to a store delivers some 50 MB/s, so longer ranges are faster in concurrent requests.
_REQUEST_BYTES = 8 << 20

# Fetched into memory at a time, including the gaps between records in the same request.
_MAX_BYTES_IN_FLIGHT = 64 << 20


class ShardBytes:
    """The bytes of one shard. It is safe to share between threads.

    Args:
        path: A path, or a URL of a store or of another protocol of fsspec.
        descriptor: Whether the object may keep a file descriptor. Without one, reading long runs of a
            local file takes a third longer.
        cached: An open copy of the file on a local disk, which is read in its place, and closed here.

    Attributes:
        local: The file on a local disk; None if the bytes are read from a store.

    Raises:
        FileNotFoundError: The file does not exist.
    """

    def __init__(self, path: str, descriptor: bool = True, cached: BinaryIO | None = None) -> None:
        self.path = path
        self.local: LocalShard | None = None
        if cached or is_local(path):
            with cached or open_local(path, buffering=0) as file:
                self.local = LocalShard(file, None if cached else path, descriptor)

    def read(self, runs: Sequence[Run], buffer: memoryview) -> None:
        """Reads runs of bytes into their positions in a buffer.

        Bytes past the end of the file become zeros, which fail every checksum.

        Args:
            runs: The runs to read; their file numbers are ignored.
            buffer: The buffer to fill. Reusing it saves a page fault for every 4 KiB.

        Raises:
            StoreError: (an OSError) A store did not deliver the bytes.
            DatasetError: Another file has taken the name of a local one.
        """
        if self.local:
            self.local.read(runs, buffer)
        else:
            fetch([(self, runs)], buffer)


@dataclass
class _Request:
    """One range request.

    Attributes:
        shard: The file.
        first, last: The range, from the first byte to before the last one.
        copies: (first byte, length, position in the buffer) of each run of bytes that is needed.
    """

    shard: ShardBytes
    first: int
    last: int
    copies: list[tuple[int, int, int]] = field(default_factory=list)


def fetch(wanted: Sequence[tuple[ShardBytes, Sequence[Run]]], buffer: memoryview) -> None:
    """Reads runs of bytes of remote shards into their positions in a buffer.

    Neighbouring runs share a request, and requests run concurrently: as many as the filesystem allows
    and as fit into 64 MiB.

    Args:
        wanted: The runs of each shard; their file numbers are ignored.
        buffer: The buffer to fill.

    Raises:
        StoreError: (an OSError) A store did not deliver the bytes.
    """
    requests = [request for shard, runs in wanted for request in _requests(shard, runs)]
    requests.sort(key=lambda request: _scheme(request.shard.path))
    for batch in _batches(requests):
        files = files_of(batch[0].shard.path)
        bodies = files.read_ranges([Range(r.shard.path, r.first, r.last) for r in batch])
        for request, data in zip(batch, bodies, strict=True):
            view = memoryview(data)
            for start, length, at in request.copies:
                begin = start - request.first
                fill(buffer[at : at + length], view[begin : begin + length])


def _requests(shard: ShardBytes, runs: Sequence[Run]) -> list[_Request]:
    """The requests for runs of a shard, each with the copies to make of its response."""
    requests = [
        _Request(shard, begin, min(begin + _REQUEST_BYTES, last))
        for first, last in merged_ranges([(start, length) for _, start, length, _ in runs])
        for begin in range(first, last, _REQUEST_BYTES)
    ]
    firsts = [request.first for request in requests]
    for _, start, length, at in runs:
        number = bisect.bisect_right(firsts, start) - 1
        while length:
            size = min(requests[number].last - start, length)
            requests[number].copies.append((start, size, at))
            start, length, at, number = start + size, length - size, at + size, number + 1
    return requests


def _batches(requests: Sequence[_Request]) -> Iterator[list[_Request]]:
    """The requests in groups that run at the same time, each to files of one kind."""
    batch, size = list[_Request](), 0
    for request in requests:
        length = request.last - request.first
        other = batch and _scheme(batch[0].shard.path) != _scheme(request.shard.path)
        if batch and (other or size + length > _MAX_BYTES_IN_FLIGHT):
            yield batch
            batch, size = [], 0
        batch.append(request)
        size += length
    if batch:
        yield batch


def _scheme(path: str) -> str:
    return path.partition("://")[0]


def merged_ranges(rows: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """The fewest (start, stop) ranges that cover every (offset, length), ascending.

    Ranges with a gap of at most `_GAP_BYTES` between them are merged.
    """
    ranges: list[tuple[int, int]] = []
    for offset, length in sorted((row[0], row[1]) for row in rows):
        if ranges and offset <= ranges[-1][1] + _GAP_BYTES:
            ranges[-1] = (ranges[-1][0], max(ranges[-1][1], offset + length))
        else:
            ranges.append((offset, offset + length))
    return ranges
