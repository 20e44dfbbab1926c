"""Reads runs of bytes of shards with range requests from stores."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence

from readers.files.files import Range
from readers.files.of_path import files_of
from readers.shards.opened.local_shard import Run, fill

# A request to an object store costs about as long as a MiB takes to arrive: two records with a smaller gap
# between them are cheaper in one request than in two.
_GAP_BYTES = 1 << 20

# One connection to a store delivers about 50 MB/s, so longer ranges are faster in concurrent requests.
_REQUEST_BYTES = 8 << 20

# Bytes fetched into memory at a time, including the gaps between records in the same request.
_MAX_BYTES_IN_FLIGHT = 64 << 20


# A range of bytes to request; and the first byte, the length and the position in the buffer of each run in it.
_Request = tuple[Range, list[tuple[int, int, int]]]


def fetch(wanted: Sequence[tuple[str, Sequence[Run]]], buffer: memoryview) -> None:
    """Reads runs of bytes of files, by path, into their positions in a buffer; bytes that do not exist are zeros.

    Neighbouring runs share a request, and requests run concurrently, as many as the filesystem allows and as fit into
    64 MiB. Raises StoreError (an OSError) if a store did not deliver the bytes.
    """
    requests = [request for path, runs in wanted for request in _requests(path, runs)]
    requests.sort(key=_scheme)
    for batch in _batches(requests):
        bodies = files_of(batch[0][0].path).read_ranges([asked for asked, _ in batch])
        for (asked, copies), data in zip(batch, bodies, strict=True):
            view = memoryview(data)
            for start, length, at in copies:
                begin = start - asked.start
                fill(buffer[at : at + length], view[begin : begin + length])


def _requests(path: str, runs: Sequence[Run]) -> list[_Request]:
    requests: list[_Request] = [
        (Range(path, begin, min(begin + _REQUEST_BYTES, last)), [])
        for first, last in merged_ranges([(start, length) for _, start, length, _ in runs])
        for begin in range(first, last, _REQUEST_BYTES)
    ]
    firsts = [asked.start for asked, _ in requests]
    for _, start, length, at in runs:
        number = bisect.bisect_right(firsts, start) - 1
        while length:
            asked, copies = requests[number]
            size = min(asked.stop - start, length)
            copies.append((start, size, at))
            start, length, at, number = start + size, length - size, at + size, number + 1
    return requests


def _batches(requests: Sequence[_Request]) -> Iterator[list[_Request]]:
    """Groups requests that run at the same time, each group for files of one kind."""
    batch, size = list[_Request](), 0
    for request in requests:
        length = request[0].stop - request[0].start
        other = batch and _scheme(batch[0]) != _scheme(request)
        if batch and (other or size + length > _MAX_BYTES_IN_FLIGHT):
            yield batch
            batch, size = [], 0
        batch.append(request)
        size += length
    if batch:
        yield batch


def _scheme(request: _Request) -> str:
    return request[0].path.partition("://")[0]


def merged_ranges(rows: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """The fewest ranges (start, stop), ascending, that cover every (offset, length); gaps of up to `_GAP_BYTES` are included."""
    ranges: list[tuple[int, int]] = []
    for offset, length in sorted((row[0], row[1]) for row in rows):
        if ranges and offset <= ranges[-1][1] + _GAP_BYTES:
            ranges[-1] = (ranges[-1][0], max(ranges[-1][1], offset + length))
        else:
            ranges.append((offset, offset + length))
    return ranges
