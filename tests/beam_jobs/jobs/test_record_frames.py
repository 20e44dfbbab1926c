"""The records of intact and damaged TFRecord files, compared with what TensorFlow reads."""

from __future__ import annotations

import gzip
import io
import math
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.errors import RejectError
from beam_jobs.jobs.reshard import record_frames
from beam_jobs.jobs.reshard.record_frames import decompressed, frame_batches
from readers.format.tfrecord import (
    FOOTER_BYTES,
    FRAME_BYTES,
    HEADER_BYTES,
    MAX_RECORD_BYTES,
    frame,
    masked_crc32c,
)
from tests.support.plain import write_plain

RECORDS = st.lists(st.binary(max_size=70), max_size=60)
LOST = (
    "the checksum of its length does not match: the next record cannot be found, so the rest "
    "of the file is lost"
)


def framed_all(records):
    return b"".join(map(frame, records))


def header(length):
    packed = struct.pack("<Q", length)
    return packed + struct.pack("<I", masked_crc32c(packed))


def stream(data):
    return decompressed(io.BufferedReader(io.BytesIO(data)))


def read(data):
    """(number, byte, data) of every intact record, and (number, error) of every broken one."""
    found, broken = [], []
    for batch in frame_batches(stream(data), MAX_RECORD_BYTES):
        starts = batch.stops - batch.lengths
        spans = zip(starts.tolist(), batch.stops.tolist(), strict=True)
        for row, (start, stop) in enumerate(spans):
            if batch.good[row]:
                content = batch.data[start + HEADER_BYTES : stop - FOOTER_BYTES].tobytes()
                found.append((batch.first + row, batch.offset + start, content))
        broken += batch.broken
    return found, [tuple(place) for place in broken]


def numbered(records):
    ends = np.cumsum([FRAME_BYTES + len(record) for record in records]).tolist()
    starts = [end - FRAME_BYTES - len(record) for end, record in zip(ends, records, strict=True)]
    return [(number, *rest) for number, rest in enumerate(zip(starts, records, strict=True), 1)]


@pytest.fixture(params=[80, 1000, 4 << 20])
def block(request, monkeypatch):
    """Blocks of a few bytes, of some records, and of all."""
    monkeypatch.setattr(record_frames, "_BLOCK_BYTES", request.param)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(record_frames, "_BLOCK_BYTES", 100)


@pytest.mark.parametrize("packed", ["", "GZIP"])
def test_files_written_by_tensorflow_are_read(tmp_path, block, packed):
    rng = np.random.default_rng(1)
    lengths = [*rng.integers(0, 300, 200), *[64] * 300, 5000, 0, 0, 0, 0, 0, 35_615]
    records = [rng.bytes(int(length)) for length in lengths]
    path = write_plain(tmp_path / "a", records, packed)
    assert read(Path(path).read_bytes()) == (numbered(records), [])
    assert list(tf.data.TFRecordDataset(path, packed).as_numpy_iterator()) == records


@given(RECORDS, st.booleans(), st.integers(50, 500))
@settings(max_examples=30)
def test_any_records_are_read_in_blocks_of_any_size(records, packed, size):
    data = framed_all(records)
    before, record_frames._BLOCK_BYTES = record_frames._BLOCK_BYTES, size
    try:
        assert read(gzip.compress(data) if packed else data) == (numbered(records), [])
    finally:
        record_frames._BLOCK_BYTES = before


def test_concatenated_gzip_files_are_read_as_one(block):
    records = [b"a" * 50, b"b", b"", b"c" * 700]
    data = framed_all(records)
    assert read(gzip.compress(data[:90]) + gzip.compress(data[90:])) == (numbered(records), [])


def test_a_first_record_whose_length_looks_like_gzip_is_read():
    record = bytes(0x8B1F)
    assert frame(record)[:2] == b"\x1f\x8b"
    assert read(frame(record)) == (numbered([record]), [])


@pytest.mark.parametrize("level", [0, 9])
def test_zlib_is_refused_with_a_hint(tmp_path, level):
    data = zlib.compress(frame(b"record"), level)
    with pytest.raises(RejectError, match=r"compressed with ZLIB, expected GZIP .*write it again"):
        stream(data)
    path = write_plain(tmp_path / "a", [b"record"], "ZLIB")
    with Path(path).open("rb") as file, pytest.raises(RejectError, match="ZLIB"):
        decompressed(file)


@pytest.mark.parametrize("place", ["data", "footer"])
def test_a_flipped_byte_costs_its_record_alone(block, place):
    records = [bytes([n]) * (n * 7 % 90) for n in range(1, 60)]
    data = bytearray(framed_all(records))
    broken = numbered(records)[20]
    at = broken[1] + HEADER_BYTES + (3 if place == "data" else len(broken[2]))
    data[at] ^= 1
    found, places = read(data)
    assert found == [each for each in numbered(records) if each != broken]
    assert places == [(21, f"byte {broken[1]:,}: its checksum does not match its data")]


@pytest.mark.parametrize("at", [0, 7, 8, HEADER_BYTES - 1])
def test_after_a_damaged_length_the_rest_is_one_broken_record(block, at):
    records = [bytes([n]) * (n * 7 % 90) for n in range(1, 60)]
    data = bytearray(framed_all(records))
    start = numbered(records)[40][1]
    data[start + at] ^= 0x80
    assert read(data) == (numbered(records)[:40], [(41, f"byte {start:,}: {LOST}")])


@given(RECORDS.filter(bool), st.data())
@settings(max_examples=40)
def test_a_file_cut_anywhere_keeps_the_records_before(records, draw):
    data = framed_all(records)
    cut = draw.draw(st.integers(0, len(data)))
    found, broken = read(data[:cut])
    whole = [each for each in numbered(records) if each[1] + FRAME_BYTES + len(each[2]) <= cut]
    assert found == whole
    used = sum(FRAME_BYTES + len(each[2]) for each in whole)
    rest = f"byte {used:,}: cut off after {cut - used:,} bytes"
    assert broken == ([] if cut == used else [(len(whole) + 1, rest)])


def test_an_impossible_length_takes_no_memory(small_blocks):
    for length in (1 << 31, 1 << 40, (1 << 64) - 1):
        found, broken = read(frame(b"first") + header(length) + b"x" * 500)
        assert found == numbered([b"first"])
        wrong = f"a record of {length} bytes, more than {MAX_RECORD_BYTES}"
        assert broken == [(2, f"byte 21: {wrong}: raise --max_record_bytes to keep it")]


def test_memory_follows_the_data_not_the_stated_length(monkeypatch):
    taken = []
    empty = np.empty
    monkeypatch.setattr(
        record_frames.np,
        "empty",
        lambda *args: taken.append(math.prod(np.atleast_1d(args[0]).tolist())) or empty(*args),
    )
    found, broken = read(frame(b"first") + header((1 << 31) - 1) + b"x" * 5_000_000)
    assert found == numbered([b"first"])
    assert broken == [(2, "byte 21: cut off after 5,000,012 bytes")]
    assert max(taken) < 20_000_000


def test_a_record_larger_than_a_block_is_read(small_blocks):
    records = [b"a" * 90, b"b" * 100_000, b"c", b"d" * 5000]
    assert read(framed_all(records)) == (numbered(records), [])


@given(st.integers(0, 100), st.integers(5, 30))
@settings(max_examples=30)
def test_a_truncated_gzip_file_is_read_as_far_as_it_can_be_decompressed(percent, count):
    rng = np.random.default_rng(count)
    records = [rng.bytes(5000) for _ in range(count)]
    packed = gzip.compress(framed_all(records))
    packed = packed[: max(2, len(packed) * percent // 100)]
    unpacker = zlib.decompressobj(31)
    there = len(unpacker.decompress(packed)) // (FRAME_BYTES + 5000)
    found, broken = read(packed)
    assert found == numbered(records)[:there]
    if unpacker.eof:
        assert broken == []
    else:
        ((number, error),) = broken
        assert number == there + 1
        assert error.startswith(
            f"byte {there * 5016:,}: the rest cannot be read: Compressed file ended"
        )


def test_garbage_after_a_gzip_file_is_reported():
    found, broken = read(gzip.compress(frame(b"record")) + b"garbage")
    assert found == numbered([b"record"])
    assert broken == [(2, "byte 22: the rest cannot be read: Not a gzipped file (b'ga')")]


@given(st.binary(max_size=300))
@settings(max_examples=60)
def test_any_bytes_are_records_or_reported(data):
    try:
        found, broken = read(data)
    except RejectError:
        assert data[:1] == b"\x78"
        return
    assert found or broken or not data
    assert len(broken) <= 1 + len(found)
