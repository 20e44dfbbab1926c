"""Parquet and Feather files whose pages or rows claim much more memory than their bytes."""

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.sources.formats import parquet_pages
from beam_jobs.sources.formats.parquet import read_row_groups
from beam_jobs.sources.formats.parquet_pages import CheckedPages
from beam_jobs.sources.tables import read_rows

TABLE = pa.table(
    {
        "text": [["ab", "abc", None, "b" * 1000][i % 4] for i in range(3000)],
        "number": pa.array(np.arange(3000) % 7),
        "tags": [["x", "yy"][: i % 3] for i in range(3000)],
        "file": [{"bytes": b"\xff\xd8" + bytes(i % 9), "path": f"{i}.jpg"} for i in range(3000)],
        "empty": pa.nulls(3000),
    }
)

OPTIONS = st.fixed_dictionaries(
    {
        "compression": st.sampled_from(["none", "snappy", "gzip", "zstd", "lz4", "brotli"]),
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "use_dictionary": st.sampled_from([True, False, ["text", "number"]]),
        "data_page_size": st.sampled_from([64, 1000, 1 << 20]),
        "dictionary_pagesize_limit": st.sampled_from([1, 100, 1 << 20]),
        "row_group_size": st.sampled_from([1, 700, 1 << 20]),
        "write_batch_size": st.sampled_from([1, 64, 1024]),
        "write_statistics": st.booleans(),
        "write_page_checksum": st.booleans(),
    }
)


def parquet(table: pa.Table, **options) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    return out.getvalue()


@given(OPTIONS, st.integers(0, 3000), st.sampled_from([1, 100, 4096, 1 << 20]))
@settings(max_examples=60, deadline=None)
def test_honest_files_of_all_options_are_read_whole(options, rows, buffer):
    table = TABLE.slice(0, min(rows, 200) if options["row_group_size"] == 1 else rows)
    data = parquet(table, **options)
    footer = pq.ParquetFile(io.BytesIO(data)).metadata
    pages = CheckedPages(io.BytesIO(data))
    file = pq.ParquetFile(pages, pre_buffer=False, buffer_size=buffer)
    for group in range(footer.num_row_groups):
        pages.expect(group, table.column_names)
    assert file.read(use_threads=False) == table
    assert not pages._awaited  # All headers were seen.
    expected = [
        [
            (c.path_in_schema, c.total_uncompressed_size, c.total_compressed_size)
            for c in map(footer.row_group(g).column, range(footer.num_columns))
            if c.num_values
        ]
        for g in range(footer.num_row_groups)
    ]
    found = [[(c.path, c.unpacked, c.end - c.start) for c in g] for g in pages._row_groups]
    assert found == expected


def test_few_pages_of_deltas_are_looked_at(monkeypatch):
    table = pa.table({"text": [f"{i:050}" for i in range(1000)]})
    deltas = {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY", "compression": "none"}
    data = parquet(table, **deltas, data_page_size=64, write_batch_size=10)
    assert 0 < CheckedPages(io.BytesIO(data)).expect(0, ["text"]) < 10_000
    column = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0).column(0)
    start, size = column.data_page_offset, column.total_compressed_size
    # Bytes without pages, and more pages than are looked at: 16 MiB are taken for granted.
    empty = data[:start] + bytes(size) + data[start + size :]
    assert CheckedPages(io.BytesIO(empty)).expect(0, ["text"]) == 16 << 20
    monkeypatch.setattr(parquet_pages, "_MOST_PAGES", 3)
    assert CheckedPages(io.BytesIO(data)).expect(0, ["text"]) == 16 << 20


def forged(unpacked: int, packed: int | None = None) -> bytes:
    """A file whose only page states these sizes, as two numbers of five bytes each."""
    data = parquet(pa.table({"text": ["a" * 100] * 50}), use_dictionary=False, compression="none")
    column = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0).column(0)
    start = column.data_page_offset
    # Fields 1, 2 and 3: the type of page, and its sizes.
    assert data[start : start + 3] == b"\x15\x00\x15"
    _, end = number(data, start + 3)
    assert data[end : end + 1] == b"\x15"
    size, rest = number(data, end + 1)
    stop = start + column.total_compressed_size
    # The page makes room for its longer header, so no offset changes.
    wider = len(zigzag(unpacked)) + (start + 3 - end)
    stated = zigzag(unpacked) + b"\x15" + zigzag(size - wider if packed is None else packed)
    return (data[: start + 3] + stated + data[rest:stop])[:stop] + data[stop:]


def number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value >> 1 ^ -(value & 1), at


def zigzag(value: int) -> bytes:
    value, found = value << 1 ^ value >> 63, b""
    while value > 127:
        found, value = found + bytes([value & 127 | 128]), value >> 7
    return found + bytes([value])


def test_a_page_that_states_more_bytes_than_its_column_is_refused():
    (row,) = read_row_groups(io.BytesIO(forged(2**31 - 1)))
    assert "a page states 2147483647 bytes, its column has 5" in row.error
    (row,) = read_row_groups(io.BytesIO(forged(5200, packed=2**31 - 1)))
    assert "a page states 2147483647 bytes, 5" in row.error


def test_a_page_below_16_mib_is_not_held_to_the_footer():
    rows = list(read_row_groups(io.BytesIO(forged(16 << 20))))
    assert "a page states" not in rows[-1].error
    (row,) = read_row_groups(io.BytesIO(forged((16 << 20) + 1)))
    assert "a page states" in row.error


READ = """
import resource, sys
from beam_jobs.sources.tables import read_rows
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = peak()
with open(sys.argv[1], "rb") as file:
    assert [len(row.values["text"]) for row in read_rows(file, sys.argv[2], False)] == [1_000_000] * 1000
print((peak() - before) // 1024)
"""


def growth(path: Path, kind: str) -> int:
    """How many MiB a process grows by while it reads the rows."""
    assert path.stat().st_size < 1_030_000
    done = subprocess.run([sys.executable, "-c", READ, path, kind], stdout=-1, check=True)
    return int(done.stdout)


@pytest.mark.parametrize(
    "options", [{}, {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"}]
)
def test_a_large_text_that_each_row_repeats_takes_memory_for_a_few(options, tmp_path):
    path = tmp_path / "bomb.parquet"
    pq.write_table(pa.table({"text": ["x" * 1_000_000] * 1000}), path, **options)
    assert growth(path, "parquet") < 250  # Batches of 1,024 rows take 2,000.


def test_a_large_text_of_a_dictionary_takes_memory_for_a_few_rows_in_feather(tmp_path):
    path = tmp_path / "bomb.feather"
    text = pa.DictionaryArray.from_arrays([0] * 1000, ["x" * 1_000_000])
    pyarrow.feather.write_feather(pa.table({"text": text}), path, compression="uncompressed")
    assert growth(path, "feather") < 250


TEXTS = st.lists(st.one_of(st.none(), st.text(max_size=40)), min_size=1, max_size=30)


@given(TEXTS, st.sampled_from(["parquet", "feather"]), st.booleans(), st.integers(1, 120))
@settings(max_examples=100, deadline=None)
def test_rows_above_a_limit_are_rejects_and_all_others_are_kept(texts, kind, dictionary, most):
    column = pa.array(texts, pa.string())
    table = pa.table({"text": column.dictionary_encode() if dictionary else column})
    out = io.BytesIO()
    if kind == "parquet":
        pq.write_table(table, out)
    else:
        pyarrow.feather.write_feather(table, out)
    rows = list(read_rows(out, kind, False, most_bytes=most))
    assert [row.number for row in rows] == [*range(1, len(texts) + 1)]
    for text, row in zip(texts, rows, strict=True):
        if row.values is not None:
            assert row.values == {"text": text}
        else:
            assert row.error.endswith(f"more than {most}: raise --max_record_bytes to keep it")
        # An Arrow array of one text takes eight bytes for its place, and one if it may be missing.
        size = len((text or "").encode())
        assert (row.values is None) or size <= most
        assert (row.values is not None) or size + 9 > most
