"""TFRecord files and their indexes: by readers, by the reshard job, and by plain Python."""

from __future__ import annotations

import gzip
import io
import random
import struct
import zlib
from collections.abc import Iterator, Sequence

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.reshard.record_frames import FrameBatch, decompressed, frame_batches
from readers.format.index import Index
from readers.format.manifest import INDEX_SUFFIX
from readers.format.tfrecord import (
    frame,
    frame_all,
    masked_crc32c,
)
from tests.campaigns.fuzz.limits import Limits
from tests.campaigns.fuzz.mutations import frames
from tests.campaigns.fuzz.target import Plain, Target, written
from tests.support.indexes import compare_mapped, index_bytes, parsed, sealed

_LIMIT = 1 << 20


def _reference(data: bytes) -> tuple[list[tuple[bytes, bool]], bool]:
    """(data, whether its checksum matches) of each record, and whether all bytes are in records."""
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
        found.append((content, stored == masked_crc32c(content)))
        at = end + 4
    return found, at == len(data)


def _examine_tfrecord(data: bytes) -> None:
    records, whole = _reference(data)
    good = [content for content, intact in records if intact]
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
        return
    records, _ = _reference(unpacked)
    assert in_job == [content for content, intact in records if intact]


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
    known = parsed(data)
    expected = known.rows if known else None
    try:
        found = Index.of_bytes(data, "a.index")
    except ValueError as error:
        assert "a.index" in str(error)
        assert expected is None, f"an index is refused: {error}"
    else:
        assert known and expected is not None, "no index was taken for one"
        assert found.lengths.tolist() == [length for _, length in expected]
        assert parsed(found.to_bytes()) == known
    compare_mapped(data, written(data, f"a{INDEX_SUFFIX}"))


def _sealed(data: bytes, size: int, randomness: random.Random, plain: Plain) -> bytes:
    """Changes an index, and makes its checksums right."""
    return sealed(plain(data, size))


def _indexes() -> list[bytes]:
    some = {"hash": np.arange(3, dtype="<u4"), "value/x": np.ones(3, "<f2")}
    large = np.array([0, (1 << 63) - 1, (1 << 63) + 15, 16], "<u8")
    return [
        Index(np.array([16, 20, 1000]), some).to_bytes(),
        Index(np.array([], np.int64), {}).to_bytes(),
        Index(np.array([1 << 30] * 5), {"length/x": np.arange(5, dtype="<u4")}).to_bytes(),
        index_bytes(3, 1 << 40, [("offset", "u8", large.tobytes())]),
    ]


TARGETS = (
    Target("tfrecord", _tfrecords, _examine_tfrecord, frames.mutate, max_bytes=2048,
           limits=Limits(memory=48 << 20)),
    Target("index", _indexes, _examine_index, _sealed, (b"u8\0\0", b"b1\0\0", b"\xff" * 8), 1024),
)  # fmt: skip
