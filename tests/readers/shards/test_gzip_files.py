"""GZIP files, compared with the same records in plain files and with TensorFlow's own reader."""

from __future__ import annotations

import gzip
import os
import random
import struct
import time
import tracemalloc

import fsspec
import numpy as np
import pytest
import tensorflow as tf

import readers
from readers.format.tfrecord import MAX_RECORD_BYTES, CorruptRecordError, frame, masked_crc32c
from readers.shards.opened import gzip_files
from readers.shards.opened.gzip_files import GzippedShard, decompressed_extent, is_gzipped
from tests.support.arrays import ids
from tests.support.plain import example, write_plain

SCHEMA = readers.Schema({"id": ("int64", ()), "data": ("string", ())})


LISTS = readers.Schema({"x": ("int64", (None,), "list")})


def records(first, count):
    return [example(id=n, data=b"x" * (n % 7) * 100) for n in range(first, first + count)]


@pytest.fixture
def files(tmp_path):
    """Two GZIP files with 13 and 7 records."""
    return [
        write_plain(tmp_path / "a.tfrecord.gz", records(0, 13), "GZIP"),
        write_plain(tmp_path / "b.tfrecord.gz", records(13, 7), "GZIP"),
    ]


def load(paths, **arguments):
    return readers.load(paths, schema=SCHEMA, **{"batch_size": 4, **arguments})


def as_numpy(paths, **arguments):
    return readers.as_numpy(paths, schema=SCHEMA, **{"batch_size": 4, **arguments})


BOTH = pytest.mark.parametrize("read", [load, as_numpy])


@BOTH
def test_every_epoch_reads_the_records_in_order_with_their_values(tmp_path, files, read):
    for paths in (files, f"{tmp_path}/*.tfrecord.gz"):
        batches = list(read(paths, repeat=3))
        assert ids(batches) == [*range(20)] * 3
        lengths = [len(data) for batch in batches for data in np.asarray(batch["data"])]
        assert lengths == [n % 7 * 100 for n in range(20)] * 3


@BOTH
def test_compression_is_detected_by_content_and_not_by_name(tmp_path, read):
    paths = [
        write_plain(tmp_path / "a.tfrecord", records(0, 5), "GZIP"),
        write_plain(tmp_path / "b.tfrecord.gz", records(5, 5)),
        write_plain(tmp_path / "c.gz", [], "GZIP"),
        write_plain(tmp_path / "d.gz", []),
    ]
    assert [is_gzipped(path) for path in paths] == [True, False, True, False]
    assert ids(read(paths)) == list(range(10))


# With the second size the file begins with 1f 8b 08 00, exactly like a GZIP file.
@pytest.mark.parametrize("size", [0x8B1F, 0x088B1F])
def test_a_plain_file_that_begins_like_gzip_is_read_as_plain(tmp_path, size):
    data = example(id=7, data=b"x" * size)
    data = example(id=7, data=b"x" * (2 * size - len(data)))
    assert len(data) == size
    path = write_plain(tmp_path / "a.tfrecord.gz", [data])
    assert (tmp_path / "a.tfrecord.gz").read_bytes()[:2] == b"\x1f\x8b"
    assert ids(load(path)) == ids(as_numpy(path)) == [7]
    assert readers.RecordSource(path, schema=SCHEMA)[0]["id"] == 7


def test_concatenated_gzip_members_are_one_file(tmp_path):
    path = tmp_path / "a.tfrecord.gz"
    parts = [b"".join(map(frame, records(*part))) for part in ((0, 3), (3, 4))]
    path.write_bytes(b"".join(map(gzip.compress, parts)))
    assert ids(load(path)) == ids(as_numpy(path)) == list(range(7))


@BOTH
def test_a_slice_of_gzip_files_holds_exactly_its_records(files, read):
    assert ids(read(files, split="all[11:15]")) == [11, 12, 13, 14]


@pytest.mark.parametrize(
    "read",
    [
        lambda files: readers.RecordSource(files, schema=SCHEMA),
        lambda files: as_numpy(files, shuffle=True),
        lambda files: as_numpy(files, shuffle=readers.Order(by="interleave")),
        lambda files: load(files, shuffle=readers.Order(by="global")),
        lambda files: load(files, shuffle=True, on_corrupt="skip"),
        lambda files: readers.load(
            files, schema=LISTS, batch_size=2, shuffle=True, batching=readers.Packed(8)
        ),
    ],
)
def test_random_access_is_refused_in_one_line_with_the_cure(files, read):
    with pytest.raises(ValueError, match="compressed with GZIP") as caught:
        read(files)
    assert str(caught.value).startswith(f"{files[0]}: ")
    cure = "with python -m beam_jobs reshard --input FILES --output DIR"
    assert str(caught.value).endswith(cure)
    assert "\n" not in str(caught.value)


def test_zlib_is_refused(tmp_path):
    path = write_plain(tmp_path / "a.tfrecord", records(0, 3), "ZLIB")
    with pytest.raises(ValueError, match=r"a.tfrecord: compressed with ZLIB, expected GZIP"):
        as_numpy(path)


def test_a_file_of_a_store_is_decompressed_once_in_a_pass(tmp_path, monkeypatch):
    path = write_plain(tmp_path / "a.tfrecord.gz", records(0, 60), "GZIP")
    filesystem = fsspec.filesystem("memory")
    filesystem.put(str(path), "/packed/a.gz")
    monkeypatch.setattr("readers.batches.read_sizes._AHEAD_RECORDS", 3)
    opened, read_all = [], gzip_files._records_of

    def read_from_the_beginning(path):
        opened.append(path)
        return read_all(path)

    def at_random_times(shard, rows):
        time.sleep(random.uniform(0, 0.01))
        return getitem(shard, rows)

    getitem = GzippedShard.__getitem__
    monkeypatch.setattr(GzippedShard, "__getitem__", at_random_times)
    monkeypatch.setattr(gzip_files, "_records_of", read_from_the_beginning)
    assert ids(as_numpy("memory://packed/a.gz")) == list(range(60))
    assert len(opened) == 1
    filesystem.rm("/packed", recursive=True)


@pytest.mark.parametrize("left", [5, 17, 60, -1, -9])
def test_the_error_for_a_truncated_file_names_it(tmp_path, left):
    path = tmp_path / "a.tfrecord.gz"
    write_plain(path, records(0, 50), "GZIP")
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(CorruptRecordError, match=r"a\.tfrecord\.gz: damaged or cut off"):
        as_numpy(path)
    with pytest.raises(CorruptRecordError, match=r"a\.tfrecord\.gz: damaged or cut off"):
        GzippedShard(str(path))[np.array([49, 50])]


def test_every_changed_byte_raises_an_error_or_changes_nothing(tmp_path):
    path = tmp_path / "a.tfrecord.gz"
    data = gzip.compress(b"".join(map(frame, records(0, 9))), mtime=0)
    whole = [row["data"] for row in as_numpy(write_plain(tmp_path / "b", records(0, 9)))]
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :])
        try:
            found = [row["data"] for row in as_numpy(path)]
        except ValueError:
            continue
        # The byte belongs to the header (time, system), or holds the unused bits at the end.
        assert [row.tolist() for row in found] == [row.tolist() for row in whole]


def test_the_errors_for_other_content_and_truncated_records_name_the_file(tmp_path):
    path = tmp_path / "a.gz"
    framed = b"".join(map(frame, records(0, 3)))
    for content, message in [
        (b"no TFRecord at all, but text", "no TFRecord starts at byte 0"),
        (framed[:-1], "the record at byte .* is cut off"),
        (framed + b"\0\0", "the record at byte .* is cut off"),
    ]:
        path.write_bytes(gzip.compress(content))
        with pytest.raises(CorruptRecordError, match=f"a.gz: {message}"):
            as_numpy(path)


def damaged(path, count):
    """Writes a GZIP file of `count` records, the second of which was damaged before compression."""
    framed = [frame(record) for record in records(0, count)]
    framed[1] = framed[1][:20] + b"!" + framed[1][21:]
    path.write_bytes(gzip.compress(b"".join(framed)))
    return len(framed[0])


def test_only_a_damaged_record_is_reported_or_replaced(tmp_path):
    path = tmp_path / "a.gz"
    offset = damaged(path, 5)
    with pytest.raises(
        CorruptRecordError, match=f"a.gz: record 1.* byte {offset} fails its CRC32C"
    ):
        list(as_numpy(path))
    batches = as_numpy(path, on_corrupt="skip")
    assert ids(batches) == [0, 2, 2, 3, 4]
    assert batches.skipped == 1
    assert ids(load(path, on_corrupt="skip")) == [0, 2, 2, 3, 4]
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"record 1 at byte {offset} fails"):
        list(load(path))


def test_a_file_that_shrinks_while_it_is_read_raises_an_error(tmp_path):
    path = tmp_path / "a.gz"
    write_plain(path, records(0, 9), "GZIP")
    batches = as_numpy(path, batch_size=3)
    write_plain(path, records(0, 4), "GZIP")
    with pytest.raises(readers.DatasetError, match=r"a\.gz: the file was changed or replaced"):
        list(batches)
    batches = as_numpy(path, batch_size=1, repeat=2)
    assert len(next(batches)["id"]) == 1
    os.truncate(path, path.stat().st_size // 2)  # for the second epoch
    with pytest.raises(CorruptRecordError, match=r"a\.gz: (damaged or cut off|the file ends)"):
        list(batches)


def peak(function):
    tracemalloc.start()
    result = function()
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return result, held


def head_of(length):
    header = struct.pack("<Q", length)
    return header + struct.pack("<I", masked_crc32c(header))


@pytest.mark.slow
def test_counting_records_takes_little_memory_whatever_the_decompressed_size(tmp_path):
    path, size, count = tmp_path / "a.gz", 64 << 20, 200_000
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(head_of(size) + bytes(size) + bytes(4))
        file.write(frame(b"") * count)
    assert path.stat().st_size < 2 << 20
    found, held = peak(lambda: decompressed_extent(str(path)))
    assert found == (count + 1, size + 16 * (count + 1))
    assert held < 1 << 20


def test_a_record_length_above_the_limit_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(head_of(MAX_RECORD_BYTES + 1) + bytes(1 << 20)))
    with pytest.raises(CorruptRecordError, match=r"a\.gz: no TFRecord starts at byte 0"):
        decompressed_extent(str(path))
