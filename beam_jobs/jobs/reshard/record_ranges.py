"""Cuts large TFRecord files by bytes, finds the records in each range, and numbers them.

In a TFRecord file only the checksum of its length marks where a record begins. So a range begins with
the first header whose checksum fits, and from which one intact header follows another to the end of the
range. If the records of all ranges follow each other from the first byte of the file to the last, they
are the same as when the file is read from its front. If not, the file is compressed or damaged, or its
records contain TFRecord files: it is read from its front, like a small one.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.reshard.record_frames import frames_of, header_error
from beam_jobs.sources.chunks import Chunk, RangeCount
from beam_jobs.sources.inputs import Inputs
from readers.format.tfrecord import HEADER_BYTES

# Finding the records of a file costs reading it once more, which many workers make up for.
RANGE_BYTES = 32 << 20

_BLOCK_BYTES = 4 << 20

# A length below 2 GiB, and its checksum, which is never 0, so that zeros are not taken for headers.
_HEADER = re.compile(rb"(?=([\s\S]{3}[\x00-\x7f]\0{4}(?!\0{4})[\s\S]{4}))")

# A range counts as damaged after this many headers that no other header follows.
_TRIES = 8


def count_records(inputs: Inputs, chunk: Chunk) -> RangeCount:
    """The records that begin in a range of a file."""
    start, end, limit = chunk.start, chunk.end, inputs.max_bytes
    try:
        with inputs.stream(chunk.source) as file:
            # The first record can only begin here.
            begins = _headers(file, start, end, limit) if start else iter([0])
            for begin in itertools.islice(begins, _TRIES):
                if followed := _follow(file, begin, end, limit):
                    records, last = followed
                    return RangeCount(chunk, records, begin, last)
            if start and next(begins, None) is None:
                return RangeCount(chunk)
    except (OSError, RejectError) as error:
        return RangeCount(chunk, error=str(error))
    return RangeCount(chunk, error="its records do not follow each other")


def _headers(file: BinaryIO, start: int, end: int, limit: int) -> Iterator[int]:
    """Yields the places in a range where bytes have the form of a header, so that a record may begin there."""
    for at in range(start, end, _BLOCK_BYTES):
        file.seek(at)
        block = file.read(min(_BLOCK_BYTES, end - at) + HEADER_BYTES - 1)
        for match in _HEADER.finditer(block):
            if not header_error(match[1], limit):
                yield at + match.start()


def _follow(file: BinaryIO, begin: int, end: int, limit: int) -> tuple[int, int] | None:
    """The number of records that begin from `begin` to `end`, and where the last one ends.

    None if one of their headers is damaged, or the file ends within one.
    """
    at, records = begin, 0
    while at < end:
        file.seek(at)
        block = np.frombuffer(file.read(min(_BLOCK_BYTES, end - at) + HEADER_BYTES), np.uint8)
        lengths, needed, wrong = frames_of(block, limit)
        starts = at + np.cumsum(lengths) - lengths
        count = int(np.searchsorted(starts, end))
        records += count
        at += int(lengths[:count].sum())
        if at >= end:
            break
        if wrong or not (needed or count):
            return None
        # The data of a record that is longer than the block is not read.
        records += bool(needed)
        at += needed
    return records, at
