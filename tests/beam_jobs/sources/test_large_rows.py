"""Parquet and Feather files whose pages or rows claim much more memory than their bytes."""

import io
import itertools

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.sources import arrow_rows
from beam_jobs.sources.arrow_rows import read_row_groups
from beam_jobs.sources.tables import read_rows


def parquet(table: pa.Table, **options) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    return out.getvalue()


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


def test_a_page_that_states_two_gibibytes_is_rejected(monkeypatch):
    monkeypatch.setattr(arrow_rows, "_BATCH_BYTES", 64 << 20)
    (row,) = read_row_groups(io.BytesIO(forged(100, packed=2**31 - 1)), most_bytes=1000)
    assert row.error == "cannot be read to its end: malloc of size 2147483648 failed"
    (row,) = read_row_groups(io.BytesIO(forged(2**31 - 1)), most_bytes=1000)
    assert row.error.startswith("cannot be read to its end: ")


@pytest.mark.parametrize(
    "options", [{}, {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"}]
)
def test_a_large_text_that_each_row_repeats_is_read_in_memory_for_a_few(options, monkeypatch):
    monkeypatch.setattr(arrow_rows, "_BATCH_BYTES", 16 << 20)
    rows = [f"{i:03}" + "x" * 1_000_000 for i in (7, 8)] * 30
    data = parquet(pa.table({"text": rows}), **options, compression="zstd")
    assert len(data) < 100_000
    found = read_row_groups(io.BytesIO(data), most_bytes=2 << 20)
    assert [row.values["text"][:3] for row in found] == ["007", "008"] * 30


def test_a_large_text_of_a_dictionary_is_unpacked_for_a_few_rows_in_feather():
    text = pa.DictionaryArray.from_arrays([0] * 1000, ["x" * 1_000_000])
    batch = pa.record_batch({"text": text})
    rows = arrow_rows.batch_rows(batch, 256 << 20)
    before = pa.total_allocated_bytes()
    assert [len(values["text"]) for values, _ in itertools.islice(rows, 100)] == [1_000_000] * 100
    assert pa.total_allocated_bytes() - before < 100 << 20


TEXTS = st.lists(st.one_of(st.none(), st.text(max_size=40)), min_size=1, max_size=30)


@given(TEXTS, st.sampled_from(["parquet", "feather"]), st.booleans(), st.integers(1, 120))
@settings(max_examples=40, deadline=None)
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
