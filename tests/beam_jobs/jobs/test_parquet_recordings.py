"""Recordings in Parquet, compared with what PyArrow and NumPy hold."""

import datetime
import decimal
import io
import itertools

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from tests.support.arrays import assert_same
from tests.support.recordings import (
    limit_records,
    parquet,
    read,
    rejected,
    signal,
)

# Parquet.


INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
NUMBERS = [*INTEGERS, "float16", "float32", "float64", "bool"]


@pytest.mark.parametrize("dtype", NUMBERS)
def test_parquet_columns_of_every_dtype_are_read(dtype):
    column = (np.arange(6) % 2).astype(dtype)
    found = read("parquet", parquet({"x": column, "y": ~column if dtype == "bool" else column + 1}))
    expected = np.stack([column, ~column if dtype == "bool" else column + np.ones((), dtype)], 1)
    assert_same(found.arrays["signal"], expected)
    assert (found.rate, found.times) == (None, None)


@pytest.mark.parametrize(("one", "two"), [*itertools.combinations(NUMBERS[:3] + NUMBERS[6:], 2)])
def test_columns_become_the_dtype_that_holds_them(one, two):
    found = signal("parquet", parquet({"x": np.ones(3, one), "y": np.zeros(3, two)}))
    assert_same(found, np.array([[1, 0]] * 3).astype(np.result_type(np.dtype(one), np.dtype(two))))


@pytest.mark.parametrize("kind", ["int8", "uint64", "bool", "float32", "float64"])
def test_nulls_are_nan(kind):
    column = pa.array([1, None, 0], "int8").cast(kind)
    expected = "float32" if kind == "float32" else "float64"
    assert_same(signal("parquet", parquet({"x": column})), np.array([[1], [np.nan], [0]], expected))


def test_parquet_columns_are_chosen_by_name():
    data = parquet({"t": [0, 1], "s": ["a", "b"], "x": [1, 2], "l": [[1], [2]], "y": [3, 4]})
    assert_same(signal("parquet", data), np.array([[1, 3], [2, 4]]))
    assert_same(signal("parquet", data, columns=("y", "x", "y")), np.array([[3, 1, 3], [4, 2, 4]]))
    assert_same(signal("parquet", data, time_column="t"), np.array([[1, 3], [2, 4]]))
    found = read("parquet", data, columns=("t",), time_column="t")
    assert_same(found.arrays["signal"], np.array([[0], [1]]))
    assert_same(found.times, np.array([0.0, 1]))
    assert rejected("parquet", data, columns=("z",)) == "no column 'z': the file has t, s, x, l, y"
    assert rejected("parquet", data, time_column="z").startswith("no column 'z'")


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (["a"], "string"),
        ([["a"]], "list<element: string>"),
        ([{"a": 1}], "struct<a: int64>"),
        ([datetime.date(2024, 1, 1)], "date32[day]"),
    ],
)
def test_columns_other_than_numbers_are_refused_with_the_cure(column, kind):
    data = parquet({"x": [1], "other": column})
    assert rejected("parquet", data, columns=("other",)) == (
        f"column 'other' is not numeric but {kind}: choose others with --columns"
    )
    found = read("parquet", data)
    assert_same(found.arrays["signal"], np.array([[1]]))
    assert found.notes == (f"not a channel, as it does not hold numbers: other ({kind})",)
    alone = rejected("parquet", parquet({"other": column}))
    assert alone == f"none of its columns other ({kind}) is a channel; name channels with --columns"


def test_decimals_are_numbers():
    prices = pa.array([decimal.Decimal("1.25"), None, decimal.Decimal("-3.50")])
    found = read("parquet", parquet({"x": [1.0, 2, 3], "price": prices}))
    assert_same(found.arrays["signal"], np.array([[1, 1.25], [2, np.nan], [3, -3.5]]))
    assert not found.notes


def test_categories_of_numbers_are_numbers():
    table = pa.table({"x": [1.0, 3, 2], "d": pa.array([5, 6, 5]).dictionary_encode()})
    for kind, write in (("parquet", pq.write_table), ("feather", pyarrow.feather.write_feather)):
        buffer = io.BytesIO()
        write(table, buffer)
        assert_same(signal(kind, buffer.getvalue()), np.array([[1.0, 5], [3, 6], [2, 5]]))


def test_whole_numbers_that_floats_round_are_a_remark():
    for column in ([2**53 + 1, None], [-(2**53) - 1, 1]):
        table = {"id": pa.array(column, "int64"), "x": [0.5, 1]}
        (note,) = read("parquet", parquet(table)).notes
        assert note.startswith("whole numbers above 2**53 were rounded")
    assert not read("parquet", parquet({"id": [2**53 + 1, 1]})).notes
    assert not read("parquet", parquet({"id": pa.array([2**53, None]), "x": [0.5, 1]})).notes


def test_a_dot_in_the_name_of_a_column_is_not_a_path():
    data = parquet({"a": [1], "a.b": [2], "s": [{"b": 3}], "s.b": [4]})
    assert_same(signal("parquet", data, columns=("s.b", "a.b")), np.array([[4, 2]]))
    assert_same(signal("parquet", data), np.array([[1, 2, 4]]))


def test_a_name_of_two_parquet_columns_is_rejected():
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"]), buffer)
    assert rejected("parquet", buffer.getvalue()) == "two columns 'x': the file has x, x"


def test_recordings_of_many_row_groups_or_of_none_are_read():
    x = np.arange(1000)
    assert_same(signal("parquet", parquet({"x": x}, row_group_size=7)), x[:, None])
    empty = parquet({"x": x[:0], "t": x[:0]})
    assert rejected("parquet", empty, time_column="t") == "the recording has no samples"


def test_other_columns_are_never_read():
    columns = {"x": np.arange(100), "s": [f"text {i}" for i in range(100)]}
    data = bytearray(parquet(columns, compression="none"))
    chunk = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0).column(1)
    begin = chunk.dictionary_page_offset
    data[begin : begin + chunk.total_compressed_size] = bytes(chunk.total_compressed_size)
    with pytest.raises(OSError):
        pq.read_table(io.BytesIO(data))
    assert_same(signal("parquet", bytes(data)), np.arange(100)[:, None])


def test_the_size_of_a_parquet_file_is_checked_before_it_is_read(monkeypatch):
    data = parquet({"x": np.zeros(10, np.int8), "y": np.zeros(10), "s": ["long text"] * 10})
    limit_records(monkeypatch, 159)
    assert rejected("parquet", data).startswith("it unpacks to 160 bytes, more than 159")
    assert signal("parquet", data, columns=("x",)).shape == (10, 1)


SECONDS = [1_700_000_000, 1_700_000_001, 1_800_000_000]


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
@pytest.mark.parametrize(("unit", "scale"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
def test_times_of_a_parquet_file_are_timestamps_or_numbers(unit, scale, zone):
    ticks = [second * scale + scale // 4 for second in SECONDS]
    stamps = pa.array(ticks, pa.timestamp(unit, zone))
    expected = np.array([second + scale // 4 / scale for second in SECONDS])
    found = read("parquet", parquet({"t": stamps, "x": [1, 2, 3]}), time_column="t")
    assert_same(found.times, expected)
    assert found.arrays["signal"].shape == (3, 1)
    for kind in ("int64", "uint64", "float64"):
        data = parquet({"t": pa.array(ticks).cast(kind, safe=False), "x": [1, 2, 3]})
        found = read("parquet", data, time_column="t", time_unit=unit)
        np.testing.assert_allclose(found.times, expected, rtol=0, atol=2.5e-7)


def test_times_may_be_dates():
    days = [datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)]
    for kind in ("date32", "date64"):
        data = parquet({"t": pa.array(days).cast(kind), "x": [1, 2]})
        assert_same(
            read("parquet", data, time_column="t").times, np.array([1704067200.0, 1704153600])
        )


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (["a", "b"], "column 't' is string: expected numbers, timestamps or dates as times"),
        (pa.array([1, 2], pa.time64("us")), "column 't' is time64[us]: expected numbers"),
        (pa.array([1, None]), "row 2: time nan is not finite"),
        (pa.array([1, None], pa.timestamp("ms")), "row 2: time nan is not finite"),
        (pa.array([2.5, 2.5]), "row 2: time 2.5 s does not come after 2.5 s"),
        (pa.array([2, 1], pa.timestamp("s")), "row 2: time 1.0 s does not come after 2.0 s"),
    ],
)
def test_parquet_times_that_are_missing_or_not_increasing_are_rejected(times, message):
    found = rejected("parquet", parquet({"t": times, "x": [1, 2]}), time_column="t")
    assert found.startswith(message)
