import struct
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers.format.tfrecord import (
    MAX_RECORD_BYTES,
    CorruptRecordError,
    crc32c_is_native,
    frame,
    frame_all,
    frame_parts,
    intact,
    masked_crc32c,
    record_length,
    unframe,
)
from tests.support.plain import write_plain

RECORDS = [b"", b"hello", b"\0" * 16, bytes(range(256)), b"x" * 5000]

# Written once with tf.io.TFRecordWriter. The format on disk never changes.
GOLDEN = bytes.fromhex("000000000000000029039807d8ea82a2")
GOLDEN_HELLO = bytes.fromhex("0500000000000000eab2043e68656c6c6fbb1f1c19")


def read_all(data: bytes) -> list[tuple[int, bytes]]:
    found, at = [], 0
    while at < len(data):
        end = at + 16 + record_length(data[at : at + 12], "a.tfrecord", at)
        found.append((at, bytes(unframe(data[at:end], "a.tfrecord", at))))
        at = end
    return found


def test_golden_bytes_are_written_and_read():
    assert frame(b"") == GOLDEN
    assert frame(b"hello") == GOLDEN_HELLO
    assert read_all(GOLDEN + GOLDEN_HELLO) == [(0, b""), (16, b"hello")]


def test_the_checksum_is_native_and_masked():
    assert crc32c_is_native()
    # RFC 3720, B.4: 32 bytes of zeros.
    assert google_crc32c.value(bytes(32)) == 0x8A9136AA
    rotated = (0x8A9136AA >> 15 | 0x8A9136AA << 17) & 0xFFFFFFFF
    assert masked_crc32c(bytes(32)) == (rotated + 0xA282EAD8) % 2**32
    assert masked_crc32c(memoryview(bytes(32))) == masked_crc32c(bytes(32))


@pytest.fixture(scope="module")
def written_by_tensorflow(tmp_path_factory) -> Path:
    return Path(write_plain(tmp_path_factory.mktemp("tensorflow") / "a.tfrecord", RECORDS))


def test_concatenated_frames_are_the_file_that_tensorflow_writes(written_by_tensorflow):
    assert b"".join(map(frame, RECORDS)) == written_by_tensorflow.read_bytes()


def test_a_file_of_tensorflow_is_read_with_offsets(written_by_tensorflow):
    found = read_all(written_by_tensorflow.read_bytes())
    offsets = np.cumsum([0] + [len(record) + 16 for record in RECORDS])[:-1]
    assert found == list(zip(offsets.tolist(), RECORDS, strict=True))


@given(st.lists(st.binary(max_size=200), max_size=8))
def test_any_records_round_trip(records):
    data = b"".join(map(frame, records))
    found = read_all(data)
    assert [record for _, record in found] == records
    for offset, record in found:
        framed = data[offset : offset + len(record) + 16]
        assert unframe(framed, "a.tfrecord", offset) == record
        assert unframe(memoryview(framed), "a.tfrecord", offset) == record


def flipped(data: bytes, bit: int) -> bytes:
    octets = bytearray(data)
    octets[bit // 8] ^= 1 << bit % 8
    return bytes(octets)


def test_every_flipped_bit_is_detected():
    data = frame(b"first") + frame(b"") + frame(b"third record")
    for bit in range(8 * len(data)):
        with pytest.raises(CorruptRecordError, match=r"^a\.tfrecord: .* byte (0|21|37) "):
            read_all(flipped(data, bit))
    data = frame(b"a record")
    for bit in range(8 * len(data)):
        with pytest.raises(CorruptRecordError, match=r"^b\.tfrecord: the record at byte 99 "):
            unframe(flipped(data, bit), "b.tfrecord", 99)


def test_every_truncation_is_detected():
    first, second = frame(b"first"), frame(b"the second record")
    for length in range(len(first) + 1, len(first) + len(second)):
        with pytest.raises(CorruptRecordError, match=f"byte {len(first)} (is cut off|holds)"):
            read_all((first + second)[:length])
    assert read_all(first) == [(0, b"first")]


@pytest.mark.parametrize("length", range(16))
def test_a_frame_shorter_than_its_framing_is_cut_off(length):
    with pytest.raises(CorruptRecordError, match="byte 7 is cut off"):
        unframe(frame(b"")[:length], "a.tfrecord", 7)


def test_an_error_about_a_record_names_its_number_if_that_is_known():
    with pytest.raises(CorruptRecordError) as caught:
        unframe(frame(b"hello") + b"\0", "a.tfrecord", 7, 3)
    assert str(caught.value).startswith("a.tfrecord: record 3 at byte 7 holds 5 bytes according")
    assert (caught.value.file, caught.value.record, caught.value.offset) == ("a.tfrecord", 3, 7)


def test_a_wrong_length_is_noticed_where_data_are_not_verified():
    for bit in range(8 * 12):
        with pytest.raises(CorruptRecordError, match="no TFRecord starts at byte 21 ") as caught:
            record_length(flipped(frame(b"second")[:12], bit), "a.tfrecord", 21)
        assert (caught.value.file, caught.value.record, caught.value.offset) == (
            "a.tfrecord",
            None,
            21,
        )


def test_the_largest_record_has_a_header_that_is_read():
    length = struct.pack("<Q", MAX_RECORD_BYTES)
    header = length + struct.pack("<I", masked_crc32c(length))
    assert record_length(header, "a.tfrecord", 0) == MAX_RECORD_BYTES


def test_a_length_above_the_limit_is_refused_before_it_is_read():
    length = struct.pack("<Q", MAX_RECORD_BYTES + 1)
    header = length + struct.pack("<I", masked_crc32c(length))
    with pytest.raises(CorruptRecordError, match="no TFRecord starts at byte 0"):
        read_all(header + b"data")


@given(st.lists(st.binary(max_size=300), max_size=50))
def test_many_records_are_framed_the_same_as_one_by_one(records):
    assert frame_all(records) == [frame(record) for record in records]


@given(st.lists(st.integers(0, 50_000), max_size=6), st.integers(0, 9))
def test_a_record_in_parts_is_framed_as_the_whole(sizes, seed):
    drawn = np.random.default_rng(seed)
    arrays = [drawn.integers(0, 256, size, np.uint8) for size in sizes]
    parts = [array if number % 2 else array.tobytes() for number, array in enumerate(arrays)]
    assert frame_parts(parts) == frame(b"".join(array.tobytes() for array in arrays))


def test_one_record_too_large_among_many_is_refused(monkeypatch):
    monkeypatch.setattr("readers.format.tfrecord.MAX_RECORD_BYTES", 10)
    assert frame_all([b"x" * 10]) == [frame(b"x" * 10)]
    with pytest.raises(ValueError, match="a record of 11 bytes: expected at most 10"):
        frame_all([b"x", b"x" * 11])


@given(
    st.lists(st.binary(max_size=300), min_size=1, max_size=9)
    | st.tuples(st.integers(1, 40), st.binary(min_size=5, max_size=60)).map(
        lambda t: [t[1]] * t[0]
    ),
    st.data(),
)
def test_many_records_are_checked_the_same_as_one_by_one(records, data):
    framed = [frame(record) for record in records]
    for _ in range(data.draw(st.integers(0, 2))):
        row = data.draw(st.integers(0, len(framed) - 1))
        place = data.draw(st.integers(0, len(framed[row]) - 1))
        flipped = framed[row][place] ^ 1 << data.draw(st.integers(0, 7))
        framed[row] = framed[row][:place] + bytes([flipped]) + framed[row][place + 1 :]

    def is_whole(record):
        try:
            unframe(record, "a", 0)
        except CorruptRecordError:
            return False
        return True

    lengths = np.array([len(record) for record in framed], np.int64)
    found = intact(b"".join(framed) + b"after", lengths)
    assert found.tolist() == [is_whole(record) for record in framed]


def test_of_no_records_none_is_damaged():
    assert intact(b"after", np.array([], np.int64)).tolist() == []
