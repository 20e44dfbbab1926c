"""Compressed files, which readers refuse with what to do."""

from __future__ import annotations

import gzip

import pytest

import readers
from tests.support.arrays import ids
from tests.support.plain import example, write_plain

SCHEMA = readers.Schema({"id": ("int64", ()), "data": ("string", ())})
READERS = pytest.mark.parametrize("read", [readers.load, readers.as_numpy, readers.RecordSource])


def records(count):
    return [example(id=n, data=b"x" * 100) for n in range(count)]


@READERS
def test_gzip_is_refused_in_one_line_with_the_cure_whatever_the_name(tmp_path, read):
    plain = write_plain(tmp_path / "a.tfrecord.gz", records(3))
    packed = write_plain(tmp_path / "b.tfrecord", records(3), "GZIP")
    options = {} if read is readers.RecordSource else {"batch_size": 2}
    with pytest.raises(ValueError, match="compressed with GZIP") as caught:
        read([plain, packed], schema=SCHEMA, **options)
    message = str(caught.value)
    assert message.startswith(f"{packed}: ")
    assert "beam-shards reshard --input FILES --output DIR" in message
    assert "\n" not in message


def test_zlib_is_refused_too(tmp_path):
    path = write_plain(tmp_path / "a.tfrecord", records(3), "ZLIB")
    with pytest.raises(ValueError, match=r"a.tfrecord: compressed with ZLIB, expected no"):
        readers.RecordSource(path, schema=SCHEMA)


@pytest.mark.parametrize("left", [1, 2, 11, 12, 40])
def test_what_is_left_of_a_compressed_file_is_no_file_of_records(tmp_path, left):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(gzip.compress(b"".join(records(3)))[:left])
    with pytest.raises(ValueError, match=r"a.tfrecord: (compressed|no TFRecord|the record)"):
        readers.RecordSource(path, schema=SCHEMA)


# With the second size the file begins with 1f 8b 08 00, exactly like a GZIP file.
@pytest.mark.parametrize("size", [0x8B1F, 0x088B1F])
def test_a_plain_file_that_begins_like_gzip_is_read(tmp_path, size):
    data = example(id=7, data=b"x" * size)
    data = example(id=7, data=b"x" * (2 * size - len(data)))
    assert len(data) == size
    path = write_plain(tmp_path / "a.tfrecord.gz", [data])
    assert (tmp_path / "a.tfrecord.gz").read_bytes()[:2] == b"\x1f\x8b"
    assert ids(readers.as_numpy(path, schema=SCHEMA, batch_size=4)) == [7]
