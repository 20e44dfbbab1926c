"""Tables of text as recordings, compared with what Python and NumPy read in the same bytes."""

import contextlib
import csv
import gzip
import io
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.jobs.sensors.formats import text_tables
from tests.support.arrays import assert_same
from tests.support.recordings import (
    limit_records,
    parquet,
    read,
    rejected,
    signal,
)

FLOATS = st.floats(allow_nan=True, allow_infinity=True)


@given(st.lists(st.tuples(FLOATS, FLOATS, st.integers(-(2**70), 2**70)), max_size=6), st.booleans())
@settings(max_examples=30, deadline=None)
def test_numbers_are_what_python_reads(rows, header):
    text = "a,b,c\n" * header + "".join(f"{a!r}, {b:.3e},{c}\r\n" for a, b, c in rows)
    if not rows:
        return
    expected = [[float(cell) for cell in line.split(",")] for line in text.splitlines()[header:]]
    assert_same(signal("csv", text.encode()), np.array(expected, np.float64).reshape(-1, 3))


MISSING = ("", "na", "n/a", "-", "nan", "null")


def by_python(text: str, header: bool) -> np.ndarray | None:
    """float64 [rows, columns] as Python reads a table of numbers; None if it is not one."""

    def value(cell: str) -> float:
        cell = cell.strip()
        if cell.lower() in MISSING:
            return np.nan
        if "_" in cell or not cell.isascii():
            raise ValueError
        return float(cell)

    def is_value(cell: str) -> bool:
        with contextlib.suppress(ValueError):
            value(cell)
            return True
        return False

    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
        if "\0" in text or len({len(row) for row in rows}) != 1:
            return None
        names = int(header)
        if header and len(rows) > 2:  # the units of the columns
            words = [cell for cell in rows[1] if cell.strip()]
            below = [is_value(cell) for cell in rows[2] if cell]
            names += bool(words) and not any(map(is_value, words)) and any(below)
        cells = [[value(cell) for cell in row] for row in rows[names:]]
        table = np.array(cells, np.float64).reshape(-1, len(rows[0]))
        # A comma at the end of every line makes no channel.
        return (
            table[:, :-1]
            if not header and len(rows[0]) > 1 and np.isnan(table[:, -1]).all()
            else table
        )
    except (csv.Error, ValueError):
        return None


@given(st.text('0123456789.,,,\n\n\r" -+eEnaif_\t\x00\xa0x#\u0661', max_size=40), st.booleans())
@settings(max_examples=60, deadline=None)
def test_any_table_is_what_python_reads_or_rejected(text, header):
    text = "x,y\n" * header + text
    if (not header and text.lstrip().startswith("#")) or text.count('"') % 2:
        return  # a comment, or a quote without end
    expected = by_python(text, header)
    options = {"delimiter": ",", "header": "yes" if header else "no"}
    if expected is not None and len(expected):
        assert_same(signal("csv", text.encode(), **options), expected)
    else:
        rejected("csv", text.encode(), **options)


@pytest.mark.parametrize(
    ("end", "bom", "header"),
    [("\n", "", ""), ("\r\n", "\ufeff", '"time, s",y\n'), ("\r", "\ufeff", "\n\nx,y\n")],
)
def test_csv_rows_are_times_and_columns_are_channels(end, bom, header):
    text = (bom + header + "1,2\n\n-3.5,1e3\n nan , inf").replace("\n", end)
    expected = np.array([[1, 2], [-3.5, 1000], [np.nan, np.inf]])
    assert_same(signal("csv", text.encode()), expected)
    assert_same(signal("csv", (text + end).encode()), expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "the file is empty"),
        (b"x,y,z\n", "the recording has no samples"),
        (b"1,2\n3\n", "row 2 has 1 values, not 2"),
        (b"x,y\n1,2\n\n3,4,5\n", "row 2 has 3 values, not 2"),
        (b"1,2\n3,x\n", "column '1' is not numeric: 'x' in row 2; choose others with --columns"),
        (b"\xff\xfe1\0", "UTF-16 text: convert it to UTF-8, or add --text_encoding utf-16"),
        (b"x\n1\n\xff\n", "its text is not UTF-8: name its encoding with --text_encoding, such"),
        (b"1\n" + b"x" * 200_000, "column '0' is not numeric: 'xxx"),
    ],
)
def test_a_csv_file_that_is_not_a_table_of_numbers_is_rejected(text, message):
    assert rejected("csv", text).startswith(message)


def test_columns_are_taken_by_name_in_the_order_that_is_asked_for():
    data = b"t, x ,y,activity\n0,1,2,walking\n1,3,4,\n"
    assert_same(signal("csv", data, columns=("y", "x")), np.array([[2.0, 1], [4, 3]]))
    found = read("csv", data, columns=("y",), time_column="t")
    assert_same(found.arrays["signal"], np.array([[2.0], [4]]))
    assert_same(found.times, np.array([0.0, 1]))
    assert found.rate is None
    assert rejected("csv", data, columns=("z",)) == "no column 'z': the file has t, x, y, activity"
    assert rejected("csv", data, time_column="z").startswith("no column 'z'")


def test_all_columns_but_the_time_are_channels():
    found = read("csv", b"x,t,y\n5,0.5,6\n7,0.75,8\n", time_column="t")
    assert_same(found.arrays["signal"], np.array([[5.0, 6], [7, 8]]))
    assert_same(found.times, np.array([0.5, 0.75]))
    message = "none of its columns t is a channel; name channels with --columns"
    assert rejected("csv", b"t\n1\n2\n", time_column="t") == message


UNORDERED = [3.0, 1, 1, 2, 3, 0]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_rows_out_of_order_are_rejected_dropped_or_sorted(kind):
    def table(times, rows=None):
        rows = np.arange(1.0, 1 + len(times)) if rows is None else rows
        if kind == "parquet":
            return parquet({"t": times, "x": rows})
        return ("t,x\n" + "".join(f"{t},{x}\n" for t, x in zip(times, rows, strict=True))).encode()

    def kept(times, policy):
        found = read(kind, table(times), time_column="t", times=policy)
        repeats = [note for note in found.notes if "repeat a time" in note]
        assert len(repeats) == (len(found.times) < len(times))
        return list(zip(found.times.tolist(), found.arrays["signal"][:, 0].tolist(), strict=True))

    assert kept(UNORDERED, "sort") == [(0, 6), (1, 2), (2, 4), (3, 1)]
    assert kept([0.0, 1, 1, 1, 2], "drop_duplicates") == [(0, 1), (1, 2), (2, 5)]
    assert kept([0.0, 1], "strict") == kept([0.0, 1], "sort") == [(0, 1), (1, 2)]
    message = "row 2: time 1.0 s does not come after 3.0 s; --times sort sorts"
    for policy in ("strict", "drop_duplicates"):
        assert rejected(kind, table(UNORDERED), time_column="t", times=policy).startswith(message)
    message = "row 3: time 1.0 s does not come after 1.0 s; --times drop_duplicates drops"
    assert rejected(kind, table([0.0, 1, 1]), time_column="t").startswith(message)
    summer = rejected(kind, table([3590.0, 3600, 1]), time_column="t", times="strict")
    assert summer.endswith("write times in UTC if this is the end of summer time")
    for policy in ("strict", "drop_duplicates", "sort"):
        found = rejected(kind, table([2.0, np.nan, 1]), time_column="t", times=policy)
        assert found == "row 2: time nan is not finite"


TIME_NAMES = ["time", "t", "Time (s)", "time_ms", "Unix Time"]
ROW_NUMBERS = ["", "Unnamed: 0"]


@pytest.mark.parametrize("name", TIME_NAMES + ROW_NUMBERS)
def test_times_and_row_numbers_are_channels_only_if_they_are_named(name):
    tables = {"csv": f"x,{name},y\n5,0,6\n7,1,8\n".encode()}
    tables["parquet"] = parquet({"x": [5.0, 7], name: [0.0, 1], "y": [6.0, 8]})
    for kind, data in tables.items():
        found = read(kind, data)
        assert_same(found.arrays["signal"], np.array([[5.0, 6], [7, 8]]))
        (note,) = found.notes
        assert f"times or row numbers: {name or '(no name)'}; use times with" in note
        if name:
            named = read(kind, data, columns=("y", name))
            assert_same(named.arrays["signal"], np.array([[6.0, 0], [8, 1]]))
            assert named.notes == ()


@pytest.mark.parametrize("name", ["time_to_peak", "tx", "update", "index"])
def test_other_names_are_channels(name):
    found = read("csv", f"x,{name}\n5,0\n".encode())
    assert_same(found.arrays["signal"], np.array([[5.0, 0]]))
    assert found.notes == ()


def test_columns_may_be_left_out_by_name():
    tables = {
        "csv": b"x,y,who\n5,6,me\n",
        "parquet": parquet({"x": [5.0], "y": [6.0], "who": ["me"]}),
    }
    for kind, data in tables.items():
        found = read(kind, data, drop_columns=("y", "who"))
        assert_same(found.arrays["signal"], np.array([[5.0]]))
        assert found.notes == ()
        message = "no column 'z': the file has x, y, who"
        assert rejected(kind, data, drop_columns=("z",)) == message
        # Metadata of the record need not be in the file.
        found = read(kind, data, metadata_columns=("who", "z"))
        assert_same(found.arrays["signal"], np.array([[5.0, 6]]))
        assert_same(
            signal(kind, data, columns=("y",), metadata_columns=("y", "who")), np.array([[6.0]])
        )


def test_a_column_of_text_is_refused_with_the_cure():
    data = b"x,activity\n1,2\n\n1,walking\n"
    assert rejected("csv", data) == (
        "column 'activity' is not numeric: 'walking' in row 2; choose others with --columns, or leave it "
        "out with --drop_columns activity"
    )
    assert_same(signal("csv", data, columns=("x",)), np.array([[1.0], [1]]))


def test_columns_without_names_are_called_by_their_numbers():
    data = b"2024-05-07 16:29:38.25,1,0.2,walk\n2024-05-07 16:29:38.5,3,0.4,\n"
    found = read("csv", data, time_column="0", columns=("2", "1"), own_columns=("3",))
    assert_same(found.arrays["signal"], np.array([[0.2, 1], [0.4, 3]]))
    assert_same(np.diff(found.times), np.array([0.25]))
    assert found.columns["3"].of_rows() == ["walk", ""]
    assert not found.channels
    assert_same(signal("csv", b"1,2\n3,4\n", drop_columns=("0",)), np.array([[2.0], [4]]))
    assert rejected("csv", b"1,2\n", columns=("2",)) == "no column '2': the file has 0, 1"


def test_a_name_of_two_columns_cannot_be_chosen():
    data = b"t,x,x\n0,1,2\n"
    assert rejected("csv", data, columns=("x",)) == "two columns 'x': the file has t, x, x"
    assert_same(signal("csv", data), np.array([[1.0, 2]]))


def test_tables_of_several_blocks_are_read_and_their_rows_counted(monkeypatch):
    monkeypatch.setattr(text_tables, "_BLOCK_BYTES", 1000)
    lines = [f"{i},{i * 2},\n" for i in range(8000)]
    found = read("csv", "".join(["t,x,y\n", *lines]).encode(), time_column="t")
    assert_same(found.times, np.arange(8000.0))
    assert_same(found.arrays["signal"][:, 0], np.arange(8000.0) * 2)
    lines[5000] = "5000,oops,\n"
    assert "'oops' in row 5001;" in rejected("csv", "".join(["t,x,y\n", *lines]).encode())
    for row, count in (("4999,1\n", 2), ("4999,1,2,3\n", 4)):
        lines[4999] = row
        found = rejected("csv", "".join(["t,x,y\n", *lines]).encode())
        assert found.startswith(f"row 5000 has {count} values, not 3")


def test_a_row_may_be_longer_than_a_block(monkeypatch):
    monkeypatch.setattr(text_tables, "_BLOCK_BYTES", 1000)
    values = np.arange(2000.0).reshape(2, 1000)
    text = "\n".join(",".join(map(repr, row)) for row in values.tolist())
    assert_same(signal("csv", text.encode()), values)


@pytest.mark.parametrize(("unit", "scale"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
def test_times_are_numbers_of_a_unit(unit, scale):
    moments = [0, 0.25, 3.5]
    text = "t,x\n" + "".join(f"{moment * scale!r},1\n" for moment in moments)
    found = read("csv", text.encode(), time_column="t", time_unit=unit)
    assert_same(found.times, np.array(moments))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["2024-01-01", "2024-01-02"], [1704067200, 1704153600]),
        (["2024-01-01T00:00Z", "2024-01-01T00:00:00.5Z"], [1704067200, 1704067200.5]),
        (["2024-01-01 05:30+05:30", "2024-01-01 01:00:01-01:00"], [1704067200, 1704074401]),
        (["1970-01-01 00:00:00.000000001", "1970-01-01 00:00:01"], [1e-9, 1]),
        (["1969-12-31T23:59:59.75", "1970-01-01"], [-0.25, 0]),
    ],
)
def test_times_may_be_written_short_or_long(cells, expected):
    text = "t,x\n" + "".join(f"{cell},1\n" for cell in cells)
    assert_same(read("csv", text.encode(), time_column="t").times, np.array(expected, np.float64))


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ("now", "row 1: time 'now': expected numbers, or dates of ISO 8601 such as"),
        ("2024-01-01,today", "row 2: time 'today': expected"),
        ("2024-01-01,5", "row 2: time '5': expected"),
        ("5,2024-01-01", "row 1: time '5': expected"),
        ("2024-01-01,", "row 2: time '': expected"),
        ("0001-01-01", "row 1: time '0001-01-01': expected"),
        ("2024-13-01", "row 1: time '2024-13-01': expected"),
        ("2016-12-31T23:59:59,2016-12-31T23:59:60", "row 2: time '2016-12-31T23:59:60': expected"),
        ("2021-01-01T24:00:00", "row 1: time '2021-01-01T24:00:00': expected"),
        (
            "1600000000000,1600000000001",
            "its times, such as 1600000000001, are too large for seconds: add --time_unit ms",
        ),
        (
            "1.6e15",
            "its times, such as 1600000000000000, are too large for seconds: add --time_unit us",
        ),
        (
            "1600000000000000000",
            "its times, such as 1600000000000000000, are too large for seconds: add --time_unit ns",
        ),
        ("1,,3", "row 2: time nan is not finite"),
        ("1,inf", "row 2: time inf is not finite"),
        ("1,2,2", "row 3: time 2.0 s does not come after 2.0 s"),
        ("2024-01-02,2024-01-01", "row 2: time 1704067200.0 s does not come after 1704153600.0 s"),
    ],
)
def test_times_that_are_malformed_missing_or_not_increasing_are_rejected(cells, message):
    text = "t,x\n" + "".join(f"{cell},1\n" for cell in cells.split(","))
    assert rejected("csv", text.encode(), time_column="t").startswith(message)


TABLE = np.array([[0.5, -1], [np.nan, 2e-3], [7, 8]])


@pytest.mark.parametrize("kind", ["csv.gz", "tsv", "txt"])
@pytest.mark.parametrize("header", [False, True])
def test_tables_are_what_numpy_reads(kind, header):
    mark = "," if kind.startswith("csv") else "\t"
    buffer = io.BytesIO()
    np.savetxt(buffer, TABLE, delimiter=mark, header=f"x{mark}y" * header, comments="")
    text = buffer.getvalue().replace(b"nan", b"NA")
    data = gzip.compress(text) if kind.endswith(".gz") else text
    assert_same(
        signal(kind, data), np.genfromtxt(buffer.getvalue().splitlines()[header:], delimiter=mark)
    )
    assert read(kind, data).dtype == "float32"
    if header:
        assert_same(signal(kind, data, columns=("y",)), TABLE[:, 1:])


@pytest.mark.parametrize("mark", [",", ";", "\t"])
@pytest.mark.parametrize("header", ['"x (a,b;c)"{}y\n', ""])
def test_the_delimiter_is_recognised(mark, header):
    text = header.format(mark) + f"1{mark}2\n3{mark}4\n"
    for kind in ("csv", "txt"):
        assert_same(signal(kind, text.encode()), np.array([[1.0, 2], [3, 4]]))
    assert_same(signal("txt", b" t  x\n 0   1\n10 -2 \n", columns=("x",)), np.array([[1.0], [-2]]))


def test_the_delimiter_may_be_named():
    assert_same(signal("csv", b"x|y\n1|2\n", delimiter="|"), np.array([[1.0, 2]]))
    assert_same(signal("tsv", b"x y\n1 2\n", delimiter=" "), np.array([[1.0, 2]]))


def test_commas_are_decimal_points_between_semicolons():
    expected = np.array([[0.5, -1000], [np.nan, 2]])
    for header in ("Zeit (h, min);Wert\n", ""):
        text = header + "0,5;-1e3\nNA;2,0\n"
        assert_same(signal("csv", text.encode()), expected)
    assert_same(signal("csv", b"x;y\n0.5;-1000\n;2\n"), expected)
    assert "column 'x' is not numeric: '1.234.5'" in rejected("csv", b"x;y\n1.234,5;1\n")
    for text in (b"y;x\n1,5;1\n2.5;1\n", b"y;x\n1,234;2.5\n"):
        assert "some of its numbers have decimal commas" in rejected("csv", text)
    for kind, mark in (("tsv", "\t"), ("txt", " "), ("csv", "|"), ("csv", "\t")):
        for header in ("x{}y\n", ""):
            text = (header + "0,500{}-1e3\nNA{}2,0\n").replace("{}", mark)
            found = read(kind, text.encode())
            assert_same(found.arrays["signal"], expected)
            assert "commas are read as decimal points" in found.notes


def test_names_and_labels_between_semicolons_keep_their_commas():
    data = b"acc, g;how,ever\n1,5;fast, slow\n2,5;3,5\n"
    options = {"delimiter": ";", "own_columns": ("how,ever",), "metadata_columns": ("how,ever",)}
    found = read("csv", data, **options)
    assert_same(found.arrays["signal"], np.array([[1.5], [2.5]]))
    assert found.columns["how,ever"].of_rows() == ["fast, slow", "3,5"]
    assert "the file has acc, g, how,ever" in rejected("csv", data, delimiter=";", columns=("x",))


def test_words_for_missing_values_are_nan_and_booleans_are_numbers():
    words = ["NA", "n/a", "N/A", "-", "NaN", "null", "NULL", "", " "]
    text = "x,y\n" + "".join(f"{word},1\n" for word in words) + "True,FALSE\n"
    found = signal("csv", text.encode())
    assert np.isnan(found[:-1, 0]).all() and (found[:-1, 1] == 1).all()
    assert_same(found[-1], np.array([1.0, 0]))
    assert_same(signal("csv", b"NA,true\n1,2\n"), np.array([[np.nan, 1], [1, 2]]))
    for word in ("none", "missing", "--", "yes"):
        assert f"not numeric: '{word}'" in rejected("csv", f"x\n1\n{word}\n".encode())


def test_a_row_of_units_below_the_header_is_left_out_with_a_remark():
    text = b"time,x,y\ns,m/s,\n0,1,2\n1,oops,4\n"
    found = read("csv", text.replace(b"oops", b"3"))
    assert_same(found.arrays["signal"], np.array([[1.0, 2], [3, 4]]))
    note = "its second line has no number and was taken for the units of the columns"
    assert note in found.notes
    assert found.units == {"signal": ("m/s", "")}
    assert "'oops' in row 3" in rejected("csv", text)
    assert_same(read("csv", text, columns=("y",), time_column="time").times, np.array([0.0, 1]))
    assert read("csv", b"x\nNA\n1\n").notes == ()
    assert "'a' in row 1" in rejected("csv", b"t,x\n2024-01-31,a\n2024-02-01,1\n", time_column="t")
    assert "'a' in row 1" in rejected("csv", b"x\na\nb\n1\n")


def test_tables_of_text_may_be_in_another_encoding():
    text = "Zeit;Kraft µN\n0;1\n"
    for encoding in ("cp1252", "utf-16", "utf-16-le"):
        data = text.encode(encoding)
        assert_same(signal("csv", data, encoding=encoding), np.array([[0.0, 1]]))
        rejected("csv", data)
    assert "add --text_encoding utf-16" in rejected("csv", text.encode("utf-16"))


@given(
    st.lists(st.tuples(FLOATS, st.one_of(st.none(), st.integers(-(2**60), 2**60)), st.booleans()))
)
@settings(max_examples=20, deadline=None)
def test_lines_of_json_are_arrays_or_objects_of_numbers(rows):
    if not rows:
        return
    rows = json.loads(json.dumps(rows))  # which knows one NaN
    expected = np.array([[np.nan if v is None else v for v in row] for row in rows], np.float64)
    for lines in (rows, [dict(zip("xyz", row, strict=True)) for row in rows]):
        data = "\n".join(map(json.dumps, lines)).encode()
        assert_same(signal("jsonl", data), expected)
        assert_same(signal("jsonl.gz", gzip.compress(data)), expected)
    assert_same(signal("jsonl", data, columns=("z", "x")), expected[:, [2, 0]])


def test_columns_and_times_of_json_lines_are_chosen_as_those_of_other_tables():
    lines = [
        {"time": "2024-01-31", "x": 1, "who": "me", "y": None},
        {"x": 2.5, "time": "2024-01-31T00:00:02", "who": 3},
    ]
    data = "\n\n".join(map(json.dumps, lines)).encode()
    found = read("jsonl", data)
    assert_same(found.arrays["signal"], np.array([[1, np.nan], [2.5, np.nan]]))
    assert found.dtype == "float32"
    assert found.notes == ("not a channel, as it does not hold numbers: time (text), who (text)",)
    (note,) = read("jsonl", b'{"t":1,"x":2}').notes
    assert "is that of times or row numbers: t;" in note
    found = read("jsonl", data, time_column="time", drop_columns=("y",))
    assert_same(found.arrays["signal"], np.array([[1.0], [2.5]]))
    assert_same(np.diff(found.times), np.array([2.0]))
    assert_same(
        read("jsonl", b'{"t":1,"x":2}\n{"t":3,"x":4}', time_column="t", time_unit="ms").times,
        np.array([0.001, 0.003]),
    )
    assert_same(signal("jsonl", b"1\n2\n"), np.array([[1.0], [2]]))


def test_values_of_several_types_in_json_lines_are_labels_each():
    lines = [{"x": i, "y": value} for i, value in enumerate([1, "1", True, None, 1.0, "a"] * 2)]
    data = "\n".join(map(json.dumps, lines)).encode()
    for block in (1, 5, 4096):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(text_tables, "_BLOCK_LINES", block)
            found = read("jsonl", data, own_columns=("y",), metadata_columns=("y",))
        assert_same(found.arrays["signal"], np.arange(12.0)[:, None])
        column = found.columns["y"].of_rows()
        assert column == [1, "1", True, None, 1, "a"] * 2
        assert [type(value) for value in column[:5]] == [int, str, bool, type(None), int]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (b"", {}, "the file is empty"),
        (b"\n[1]\n{}", {}, "line 3 has other columns than the first"),
        (b'{"x":1}\n{"x":"a"}', {}, "line 2: 'a' of 'x' is not a number"),
        (b"[1]\n[[1]]", {}, "line 2: [1] is not a number"),
        (b'{"x":1,"s":"a"}', {"columns": ("s",)}, "line 1: 'a' of 's' is not a number"),
        (b"[1]", {"columns": ("s",)}, "no column 's': the file has 0"),
        (
            b'{"x": [1, 2], "y": [3, 4]}',
            {},
            "none of its columns x (a list, but a line is a sample), y",
        ),
        (
            b'{"s":"a"}',
            {},
            "none of its columns s (text) is a channel; name channels with --columns",
        ),
        (
            b"[1]",
            {"own_columns": ("y",)},
            "no column 'y' in its metadata: the file has 0",
        ),
        (
            b'{"x":1,"y":"a"}\n{"x":1,"y":[2]}',
            {"own_columns": ("y",)},
            "line 2: [2] of 'y' is not text or",
        ),
        (b"[1]\n[2", {}, "not a whole .jsonl file: line 2 is not JSON"),
        (b"[" * 100_000, {}, "not a whole .jsonl file: line 1 is not JSON"),
        (b'{"t":"a","x":1}', {"time_column": "t"}, "row 1: time 'a': expected"),
    ],
)
def test_json_lines_of_anything_else_are_rejected(text, options, message):
    assert rejected("jsonl", text, **options).startswith(message)


def test_a_packed_table_that_is_damaged_or_too_large_is_rejected(monkeypatch):
    data = gzip.compress(b"x\n" + b"1\n" * 5000)
    assert len(signal("csv.gz", data)) == 5000
    for damaged in (data[:-1], data[:-9] + bytes(9), data[:20]):
        assert rejected("csv.gz", damaged).startswith("not a whole .csv.gz file: ")
    limit_records(monkeypatch, 1000)
    assert rejected("csv.gz", data).startswith("it unpacks to 10002 bytes, more than")


def test_the_size_of_a_table_is_checked_before_it_is_read(monkeypatch):
    limit_records(monkeypatch, 63)
    for end in ("\n", "\r\n", "\r"):
        assert signal("csv", end.join(["1,2", "3,4", "5,6"]).encode()).nbytes == 48
        found = rejected("csv", end.join(["1,2,3", "3,4,5", "5,6"]).encode())
        assert found.startswith("it unpacks to 64 bytes, more than 63")


def test_wide_rows_are_rejected_before_they_are_objects(monkeypatch):
    limit_records(monkeypatch, 1 << 20)
    assert "its 105 columns take 1050000 bytes" in rejected("csv", b",".join([b"0"] * 105))
    assert len(signal("csv", b",".join([b"0"] * 104))[0]) == 104
    row = b'"' + b"\n" * 5000 + b'",' + b"0" * 4000 + b"\n"
    assert "a row of its table takes 1152" in rejected("csv", row)
