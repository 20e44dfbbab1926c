"""TFRecord files and their indexes: by readers, by the reshard job, and by plain Python."""

from __future__ import annotations

import gzip
import io
import itertools
import struct
import zlib
from collections.abc import Iterator, Sequence

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.reshard.framed import FrameBatch, decompressed, frame_batches
from readers.format.index import format_index, parse_index
from readers.format.tfrecord import (
    FRAME_BYTES,
    CorruptRecordError,
    frame,
    frame_all,
    masked_crc32c,
    read_records,
)
from readers.shards.gzip_files import decompressed_extent, is_gzipped
from tests.campaigns.fuzz.limits import Limits
from tests.campaigns.fuzz.mutations import frames
from tests.campaigns.fuzz.target import Target, written

_LIMIT = 1 << 20


def _reference(data: bytes) -> tuple[list[tuple[int, bytes, bool]], bool]:
    """(offset, data, whether its checksum matches) of each record, and whether all bytes are in records."""
    found, at = [], 0
    while at + 12 <= len(data):
        length, crc = struct.unpack_from("<QI", data, at)
        if crc != masked_crc32c(data[at : at + 8]) or length > _LIMIT:
            break
        end = at + 12 + length
        if end + 4 > len(data):
            break
        content = data[at + 12 : end]
        (stored,) = struct.unpack_from("<I", data, end)
        found.append((at, content, stored == masked_crc32c(content)))
        at = end + 4
    return found, at == len(data)


def _examine_tfrecord(data: bytes) -> None:
    records, whole = _reference(data)
    good = [content for _, content, intact in records if intact]
    read = list[tuple[int, bytes]]()
    try:
        read += read_records(io.BytesIO(data), "f")
        assert whole and len(good) == len(records), "a damaged file was read"
    except CorruptRecordError as error:
        assert not whole or len(good) < len(records), f"an intact file is corrupt: {error}"
        assert error.file == "f" and "f" in str(error)
    broken = next((row for row, (_, _, intact) in enumerate(records) if not intact), len(records))
    assert read == [(at, content) for at, content, _ in records[:broken]], "other records"
    try:
        stream = decompressed(io.BufferedReader(io.BytesIO(data)))
    except RejectError:
        return
    packed = isinstance(stream, gzip.GzipFile)
    assert not packed or data[:2] == b"\x1f\x8b"
    in_job, ended_well = _of_job(frame_batches(stream, _LIMIT))
    if not packed:
        assert in_job == good, "the job has other records"
        assert ended_well == (whole and len(good) == len(records)), "the job reports other damage"
        if whole and len(good) == len(records):
            assert b"".join(frame_all(good)) == data
        return
    _examine_packed(data, in_job, ended_well)


def _of_job(batches: Iterator[FrameBatch]) -> tuple[list[bytes], bool]:
    """The records of a job, and whether it reports no damage."""
    found, ended_well = [], True
    for batch in batches:
        ends = batch.stops.tolist()
        for end, length, intact in zip(ends, batch.lengths.tolist(), batch.good, strict=True):
            if intact:
                found.append(bytes(batch.data[end - length + 12 : end - 4]))
        ended_well = ended_well and not batch.broken
    return found, ended_well


def _examine_packed(data: bytes, in_job: Sequence[bytes], ended_well: bool) -> None:
    try:
        unpacked = gzip.decompress(data)
    except (OSError, EOFError, zlib.error):
        assert not ended_well, "the job takes damaged GZIP for whole"
        unpacked = None
    path = written(data, "a.gz")
    assert is_gzipped(path)
    try:
        extent = decompressed_extent(path)
    except CorruptRecordError as error:
        assert error.file == path
        extent = None
    if unpacked is None:
        assert extent is None, "readers take damaged GZIP for whole"
        return
    records, whole = _reference(unpacked)
    assert in_job == [content for _, content, intact in records if intact]
    assert (extent is not None) == whole, "readers disagree with plain Python"
    assert extent in (None, (len(records), len(unpacked)))


def _tfrecords() -> list[bytes]:
    rng = np.random.default_rng(0)
    some = [b"", b"abc", bytes(300), rng.bytes(40)]
    plain = b"".join(map(frame, some))
    return [
        plain,
        b"".join(map(frame, [b"ab"] * 20)),
        frame(b"x") * 4 + frame(b"yy") * 5,
        gzip.compress(plain, mtime=0),
        plain[:-1],
        b"",
        b"\x78\x9c" + zlib.compress(plain)[2:],
    ]


def _examine_index(data: bytes) -> None:
    expected = _reference_index(data)
    try:
        found = parse_index(data, "a.idx")
    except ValueError as error:
        assert "a.idx" in str(error)
        assert expected is None, f"an index is refused: {error}"
        return
    assert expected is not None, "no index was taken for one"
    assert found.dtype == np.int64 and found.tolist() == expected
    lengths = found[:, 1]
    # NumPy's sums wrap around; real offsets are below the size of a file.
    ends = np.cumsum(lengths.astype(object))
    if len(found) and [0, *ends[:-1]] == found[:, 0].tolist() and ends[-1] < 1 << 63:
        assert parse_index(format_index(lengths), "b").tolist() == expected


def _reference_index(data: bytes) -> list[list[int]] | None:
    if set(data) - set(b"0123456789 \r\n"):
        return None
    numbers = [int(word) for word in data.split()]
    if len(numbers) % 2 or any(number >= (1 << 63) - 1 for number in numbers):
        return None
    rows = [[*pair] for pair in zip(numbers[::2], numbers[1::2], strict=True)]
    ascending = all(a[0] < b[0] for a, b in itertools.pairwise(rows))
    return rows if ascending and all(length >= FRAME_BYTES for _, length in rows) else None


def _indexes() -> list[bytes]:
    return [
        format_index(np.array([16, 20, 1000])),
        b"",
        b"0 16\r\n16 9223372036854775806\n",
        b"5 17 30 40\n",
    ]


TARGETS = (
    Target("tfrecord", _tfrecords, _examine_tfrecord, frames.mutate, max_bytes=2048,
           limits=Limits(memory=48 << 20)),
    Target("index", _indexes, _examine_index, words=(b"9223372036854775807", b"\r\n", b"0 16\n"),
           max_bytes=512),
)  # fmt: skip
