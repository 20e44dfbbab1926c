import codecs
import csv
import datetime
import decimal
import gzip
import io
import itertools
import json
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.sources import rows
from beam_jobs.sources.arrow_rows import read_row_groups, row_groups
from beam_jobs.sources.rows import Dialect, Row
from beam_jobs.sources.source import value_at
from beam_jobs.sources.tables import column_names, read_rows, table_kind
from tests.support.memory import peak_below

NAME_IT = "; name its --text_encoding, such as cp1252"


def opened(data: bytes | str, gzipped: bool) -> io.BytesIO:
    data = data.encode() if isinstance(data, str) else data
    return io.BytesIO(gzip.compress(data) if gzipped else data)


def read(kind: str, data: bytes | str, gzipped: bool = False, columns=None) -> list[Row]:
    file = opened(data, gzipped)
    rows = list(read_rows(file, kind, gzipped, columns))
    assert not file.closed
    return rows


def names(kind: str, data: bytes | str, gzipped: bool = False) -> tuple[str, ...]:
    file = opened(data, gzipped)
    found = column_names(file, kind, gzipped)
    assert not file.closed
    return found


def parquet(table: pa.Table | dict, **options) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table if isinstance(table, pa.Table) else pa.table(table), buffer, **options)
    return buffer.getvalue()


def values(rows: list[Row]) -> list[dict | None]:
    assert not any(row.error for row in rows)
    return [row.values for row in rows]


def column(array: pa.Array) -> list:
    """The values of a column that went through a file."""
    return [row["x"] for row in values(read("parquet", parquet({"x": array})))]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.csv", ("csv", False)),
        ("a.b.jsonl.gz", ("jsonl", True)),
        ("a.CSV.GZ", ("csv", True)),
        ("gs://b/a.parquet", ("parquet", False)),
        ("a.parquet.gz", None),
        ("a.feather", ("feather", False)),
        ("a.arrow.gz", None),
        ("a.csv.bz2", None),
        ("a.csv/b", None),
        ("a.csv\n", None),
    ],
)
def test_tables_are_recognised_by_their_names(path, expected):
    assert table_kind(path) == expected


TABLE = 'id,text,y\n1,plain,cat\n2,"quoted, with ""quotes""\nand a newline",dog\n\n3,é,\n'


@pytest.mark.parametrize("gzipped", [False, True])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("start", ["", "\ufeff", "\ufeff\n\n"])
def test_rows_of_csv_are_texts_by_the_names_of_the_first_line(gzipped, end, start):
    data = start + TABLE.replace("\n", end)
    assert read("csv", data, gzipped) == [
        Row(1, {"id": "1", "text": "plain", "y": "cat"}),
        Row(2, {"id": "2", "text": f'quoted, with "quotes"{end}and a newline', "y": "dog"}),
        Row(3, {"id": "3", "text": "é", "y": ""}),
    ]
    assert names("csv", data, gzipped) == ("id", "text", "y")


@given(
    st.sampled_from(["csv", "tsv"]),
    st.integers(1, 4).flatmap(
        lambda n: st.lists(st.lists(st.text(max_size=9), min_size=n, max_size=n), max_size=9)
    ),
    st.sampled_from(["\n", "\r\n"]),
)
@settings(max_examples=60, deadline=None)
def test_any_table_is_read_as_it_was_written(kind, rows, end):
    # Before Python 3.11, csv refuses zeros.
    rows = [[text.replace("\0", "") for text in row] for row in rows]
    header = [f"c{i}" for i in range(len(rows[0]) if rows else 1)]
    buffer = io.StringIO(newline="")
    delimiter = {"csv": ",", "tsv": "\t"}[kind]
    writer = csv.writer(buffer, delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_ALL)
    writer.writerows([header, *rows])
    found = read(kind, buffer.getvalue())
    assert values(found) == [dict(zip(header, row, strict=True)) for row in rows]
    assert [row.number for row in found] == list(range(1, len(rows) + 1))
    assert names(kind, buffer.getvalue()) == tuple(header)


@given(st.text(alphabet='ab,"\n\r\t é', max_size=40))
@settings(max_examples=80, deadline=None)
def test_rows_are_those_of_the_standard_reader(text):
    data = "a,b\n" + text
    reader, expected, end = csv.reader(io.StringIO(data, newline=""), strict=True), [], None
    while end is None:
        try:
            expected += (row for row in reader if row)
            end = ""
        except csv.Error as error:
            expected.append([])
            end = "it ends within quotes" if "unexpected end" in str(error) else None
    found = read("csv", data)
    assert [[*row.values.values()] for row in found if row.values is not None] == [
        row for row in expected[1:] if len(row) == 2 and row != ["a", "b"]
    ]
    assert len(found) == len(expected) - 1
    assert not end or end in found[-1].error


def test_rows_with_broken_quotes_and_headers_in_the_middle_are_rejects():
    data = 'text,y\n"He said \\"hi\\" ok",1\na,2\ntext,y\nb,3\n'
    found = read("csv", data)
    assert [row.values and row.values["y"] for row in found] == [None, "2", None, "3"]
    assert found[0].error == (
        'text follows the end of a cell in quotes: double the quotes in it, as in "a ""b"" c"'
    )
    assert found[2].error == "it repeats the header"
    found = read("tsv", 'a\tb\n1\t"open\nmore\n\n2\tx\n')
    assert [(row.values or {}).get("b") for row in found] == [None, "x"]
    assert read("csv", "text\ntext\n") == [Row(1, {"text": "text"})]


@pytest.mark.parametrize(("row", "count"), [("1", 1), ("1,2,3,4", 4), ('"1,2,3"', 1), (",", 2)])
def test_only_rows_of_another_length_are_reported(row, count):
    found = read("csv", f"a,b,c\n{row}\n1,2,3\n")
    assert found == [
        Row(1, None, f"{count} columns, the first line has 3"),
        Row(2, {"a": "1", "b": "2", "c": "3"}),
    ]


def test_only_rows_that_are_not_utf8_are_reported():
    lines = b"".join(b"%d\n" % i for i in range(5000))
    found = read("csv", b"a\n" + lines + b"\xff\n" + lines)
    assert len(found) == 10_001
    assert [row for row in found if row.error] == [Row(5001, None, f"not UTF-8{NAME_IT}")]


@pytest.mark.parametrize("data", ["", "\n\n", "\ufeff", "a,b", "a,b\r\n\r\n"])
def test_a_table_without_rows_has_none(data):
    assert read("csv", data) == []
    assert names("csv", data) == (("a", "b") if "a" in data else ())


def test_a_first_line_must_be_utf8():
    data = "ä,b\n1,2\n".encode("latin-1")
    error = f"not a table that can be read to its end: its first line is not UTF-8{NAME_IT}"
    assert read("csv", data) == [Row(0, None, error)]
    with pytest.raises(RejectError, match=error):
        names("csv", data)


@pytest.mark.parametrize("data", ['a,b\n1,2\n3,"x\n4,y\n5,z\n', 'a,b\n1,2\n3,"', 'a,b\n1,2\n3,"""'])
def test_a_quote_that_is_never_closed_ends_the_table(data):
    assert read("csv", data) == [
        Row(1, {"a": "1", "b": "2"}),
        Row(0, None, "not a table that can be read to its end: it ends within quotes"),
    ]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_two_columns_of_one_name_are_the_users_mistake(kind):
    data = "a,b,a\n1,2,3\n"
    if kind == "parquet":
        data = parquet(pa.table([[1], [2], [3]], names=["a", "b", "a"]))
    message = "two columns are called 'a': give each a unique name"
    for function in (read, names):
        with pytest.raises(UsageError, match=message):
            function(kind, data)


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "cp1252"])
def test_a_table_may_be_in_another_encoding(kind, encoding):
    text = '{"ä": "ö"}\n{"ä": "ß"}\n' if kind == "jsonl" else "ä\nö\nß\n"
    dialect = Dialect.parse(encoding, "")
    file = io.BytesIO(text.encode(encoding))
    assert values(list(read_rows(file, kind, False, dialect=dialect))) == [{"ä": "ö"}, {"ä": "ß"}]
    file.seek(0)
    assert column_names(file, kind, False, dialect) == ("ä",)
    with pytest.raises(RejectError, match="byte order mark of UTF-8: drop --text_encoding"):
        column_names(io.BytesIO(codecs.BOM_UTF8 + b"a\n"), kind, False, dialect)
    if encoding.startswith("utf"):
        error = f"UTF-16 text: convert it to UTF-8, or add --text_encoding {encoding}"
        assert read(kind, text.encode(encoding)) == [Row(0, None, error)]


@pytest.mark.parametrize(
    ("kind", "data"), [("csv", b"a\n\x81\nx\n"), ("jsonl", b'{"a": "\x81"}\n{"a": "x"}\n')]
)
def test_a_row_that_the_encoding_does_not_have_is_reported_alone(kind, data):
    rows = list(read_rows(io.BytesIO(data), kind, False, dialect=Dialect("cp1252")))
    assert rows == [Row(1, None, "not CP1252"), Row(2, {"a": "x"})]


@pytest.mark.parametrize("kind", ["csv", "tsv"])
@pytest.mark.parametrize(("typed", "mark"), [(";", ";"), ("|", "|"), (r"\t", "\t"), ("\t", "\t")])
def test_columns_may_have_another_delimiter(kind, typed, mark):
    file = io.BytesIO(f'a{mark}b\n"1{mark}2"{mark}3,4\n'.encode())
    rows = list(read_rows(file, kind, False, dialect=Dialect.parse("utf-8", typed)))
    assert values(rows) == [{"a": f"1{mark}2", "b": "3,4"}]


@pytest.mark.parametrize("typed", [";;", '"', "\n", "\r", "tab"])
def test_a_delimiter_is_one_character(typed):
    with pytest.raises(UsageError, match="expected one character other than a quote"):
        Dialect.parse("utf-8", typed)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("text;y\na, b;1\n", [{"text": "a, b", "y": "1"}]),
        ("text\ty\na, b\t1\n", [{"text": "a, b", "y": "1"}]),
        ("text|y\na, b|1\n", [{"text": "a, b", "y": "1"}]),
        ("a;b,y\n1;2,3\n", [{"a;b": "1;2", "y": "3"}]),
        ("sep=;\r\na,b;y\r\n1;2\r\n", [{"a,b": "1", "y": "2"}]),
        ('\ufeff"sep=,"\na,b\n1,2\n', [{"a": "1", "b": "2"}]),
        ("# made by a logger\n\n# of us\nid,text\n1,# x\n", [{"id": "1", "text": "# x"}]),
        ('#id,text\n1,"a, b"\n2,c\n', [{"id": "1", "text": "a, b"}, {"id": "2", "text": "c"}]),
        ('id, text\n1, "a, b"\n2,c\n', [{"id": "1", "text": "a, b"}, {"id": "2", "text": "c"}]),
        ('id, text,y\n1, "a",b\n', [{"id": "1", " text": ' "a"', "y": "b"}]),
    ],
)
def test_the_first_lines_show_how_a_table_is_written(data, expected):
    assert values(read("csv", data)) == expected
    assert names("csv", data) == tuple(expected[0])


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (['1\t"One "x" y', "2\ttwo", '3\tthree"'], ['"One "x" y', "two", 'three"']),
        (['1\t"One', "2\ttwo", '3\tthree"'], ['"One', "two", 'three"']),
        (['1\t"One', '2\t"two"'], ['"One', "two"]),
        (['1\t"One"', '2\t"two ""x"" y"', '3\t"x\ty"'], ["One", 'two "x" y', "x\ty"]),
        (['1\t"He said "hi""', '2\t"hi", he said'], ['"He said "hi""', '"hi", he said']),
        (['1\t"One\n\ntwo ""x""\nthree"', "2\tfour"], ['One\n\ntwo "x"\nthree', "four"]),
        (['1\t"', '2\t""', '3\t"open'], ['"', "", '"open']),
    ],
)
def test_quotes_between_tabs_count_only_around_whole_cells(rows, expected):
    data = "\n".join(["id\ttext", *rows])
    assert [row["text"] for row in values(read("tsv", data))] == expected
    file = io.BytesIO(data.encode())
    named = read_rows(file, "csv", False, dialect=Dialect.parse("utf-8", r"\t"))
    assert [row["text"] for row in values(list(named))] == expected


@given(st.lists(st.tuples(st.text(), st.text()), max_size=6))
@settings(max_examples=60, deadline=None)
def test_texts_between_tabs_are_what_pandas_and_csv_write_or_what_lines_hold(rows):
    def plain(text):
        return "".join(text.split()).replace("\0", "")

    texts = [(plain(a), plain(b)) for a, b in rows]
    buffer = io.StringIO(newline="")
    csv.writer(buffer, "excel-tab").writerows([("a", "b"), *texts])
    expected = [{"a": a, "b": b} for a, b in texts]
    assert values(read("tsv", buffer.getvalue())) == expected
    unquoted = [(a.replace('"', ""), b) for a, b in texts if a or b]
    lines = "".join(f"{a}\t{b}x\n" for a, b in unquoted)
    assert [row["b"] for row in values(read("tsv", f"a\tb\n{lines}"))] == [
        f"{b}x" for _, b in unquoted
    ]


def test_several_columns_may_have_no_name():
    assert read("csv", ",a,\n1,2,\n")[0].values["a"] == "2"
    assert names("csv", ",a,\n") == ("", "a", "")
    with pytest.raises(UsageError, match="two columns are called 'a'"):
        names("csv", ",,a,a\n")


@pytest.mark.parametrize(
    "row", ["x" * 2000, '"' + "x\n" * 1000 + '"', '"\n",' * 500, "," * 1001, '"' + "x" * 2000]
)
def test_a_row_that_is_too_long_ends_a_table(row, monkeypatch):
    monkeypatch.setattr(rows, "MAX_LINE_BYTES", 1000)
    short = "1,2\n" * 1000
    found = read("csv", f"a,b\n{short}{row}\n3,4\n")
    assert len(found) == 1001
    assert found[-1].number == 0
    assert found[-1].error.startswith("not a table that can be read to its end: a row is longer")


@pytest.mark.parametrize("gzipped", [False, True])
def test_rows_of_jsonl_are_objects_by_the_number_of_their_line(gzipped):
    lines = [
        '\ufeff{"a": "x\\ny", "n": 1}',
        "",
        ' {"a": [1, {"b": null}], "a": true} ',
        "\t",
        '{"a": NaN, "é": 1.5}',
    ]
    found = read("jsonl", "\r\n".join(lines), gzipped)
    assert [row.number for row in found] == [1, 3, 5]
    assert values(found[:2]) == [{"a": "x\ny", "n": 1}, {"a": True}]
    assert str(found[2].values) == "{'a': nan, 'é': 1.5}"
    assert names("jsonl", "\r\n".join(lines), gzipped) == ("a", "n")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.text(), JSON, max_size=3), max_size=5))
@settings(max_examples=60, deadline=None)
def test_objects_are_those_of_the_standard_reader(objects):
    lines = [json.dumps(fields) for fields in objects]
    found = values(read("jsonl", "".join(f"{line}\n" for line in lines)))
    assert repr(found) == repr([json.loads(line) for line in lines])


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"[1]", "expected a JSON object, got list"),
        (b"{", "not JSON: Expecting property name"),
        (b'{"a": 1} {"a": 2}', "not JSON: Extra data"),
        (b'{"a": "\xff"}', "not UTF-8: 'utf-8' codec can't decode byte 0xff"),
        (rb'{"a": "\ud800"}', "not UTF-8: 'utf-8' codec can't encode character '\\ud800'"),
        (b'{"a": ' + b"[" * 100_000, "not JSON: maximum recursion depth exceeded"),
        (b'{"a": ' + b"1" * 5000 + b"e", "not JSON: "),
    ],
)
def test_only_lines_that_are_not_objects_are_reported(line, error):
    found = read("jsonl", b'{"a": 1}\n' + line + b'\n{"a": 3}\n')
    assert [found[0], found[2]] == [Row(1, {"a": 1}), Row(3, {"a": 3})]
    assert (found[1].number, found[1].values) == (2, None)
    assert found[1].error.startswith(error)
    assert names("jsonl", line + b'\n{"b": 3}\n') == ("b",)


@pytest.mark.parametrize("length", [1001, 1999, 2000, 2001, 5000])
def test_a_line_that_is_too_long_is_reported_as_one_row(length, monkeypatch):
    monkeypatch.setattr(rows, "MAX_LINE_BYTES", 1000)
    assert read("jsonl", "{}\n" + "x" * length + "\n{}") == [
        Row(1, {}),
        Row(2, None, "longer than 0 MiB"),
        Row(3, {}),
    ]
    fits = '{"a": "' + "x" * 990 + '"}'
    assert values(read("jsonl", f"{fits}\n{fits}")) == [{"a": "x" * 990}] * 2


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "garbage", "empty"])
def test_a_damaged_gzip_file_ends_with_one_error(kind, damage):
    rng = np.random.default_rng(0)
    lines = [f'{{"a": "{rng.integers(1 << 60)}"}}' for _ in range(5000)]
    if kind != "jsonl":
        lines = ["a", *(str(rng.integers(1 << 60)) for _ in range(5000))]
    whole = gzip.compress("\n".join(lines).encode())
    broken = {
        "cut": whole[: len(whole) // 2],
        "flipped": whole[:2000] + bytes(50) + whole[2050:],
        "garbage": b"no gzip",
        "empty": whole[:3],
    }[damage]
    found = list(read_rows(io.BytesIO(broken), kind, True))
    assert (found[-1].number, found[-1].values) == (0, None)
    assert "to its end: " in found[-1].error
    assert all(row.number for row in found[:-1])
    assert found == list(read_rows(io.BytesIO(broken), kind, True))
    if damage == "cut":
        assert len(found) > 1000
    if damage in ("garbage", "empty"):
        with pytest.raises(RejectError, match="cannot be read to its end: "):
            column_names(io.BytesIO(broken), kind, True)


D = datetime.datetime
BERLIN = datetime.timezone(datetime.timedelta(hours=2))
STRUCT = [{"a": 1, "b": [None, D(2020, 1, 1)]}, None, {"a": None, "b": None}]


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([2**64 - 1], pa.uint64()), [2**64 - 1]),
        (pa.array([True, None, False]), [True, None, False]),
        (pa.array([np.float16(0.5)], pa.float16()), [0.5]),
        (pa.array(["a", None], pa.large_string()), ["a", None]),
        (pa.array([b"ab"], pa.binary(2)), [b"ab"]),
        (pa.array(["x", "y", None, "x"]).dictionary_encode(), ["x", "y", None, "x"]),
        (pa.array([[["a"], None], []]), [[["a"], None], []]),
        (pa.array([[1, 2], [3, 4]], pa.list_(pa.int8(), 2)), [[1, 2], [3, 4]]),
        (
            pa.array(STRUCT),
            [{"a": 1, "b": [None, "2020-01-01T00:00:00"]}, None, {"a": None, "b": None}],
        ),
        (pa.array([decimal.Decimal("1.50"), None]), ["1.50", None]),
        (pa.array([datetime.date(2020, 2, 29), None]), ["2020-02-29", None]),
        (pa.array([D(2020, 1, 2, 3, 4, 5), None]), ["2020-01-02T03:04:05", None]),
        (pa.array([D(2020, 1, 2, 0, 0, 0, 70)]), ["2020-01-02T00:00:00.000070"]),
        (pa.array([1_000_000_001], pa.timestamp("ns")), ["1970-01-01T00:00:01.000000001"]),
        (
            pa.array([D(2020, 1, 2, 3, tzinfo=BERLIN)], pa.timestamp("us", "Europe/Berlin")),
            ["2020-01-02T01:00:00+00:00"],
        ),
        # After the last of Python's years, in a zone that is in no database.
        (pa.array([10**18], pa.timestamp("us", "Foo/Bar")), ["33658-09-27T01:46:40+00:00"]),
        (pa.array([datetime.time(1, 2, 3)]), ["01:02:03.000000"]),
        (pa.array([b"\xff" * 16, None], pa.uuid()), [b"\xff" * 16, None]),
        (
            pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(4.0).reshape(2, 2)),
            [[0.0, 1.0], [2.0, 3.0]],
        ),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array | pa.ExtensionArray) else "",
)
def test_values_of_parquet_are_pythons_own(array, expected):
    found = column(array)
    assert found == expected
    assert list(map(type, found)) == list(map(type, expected))


TYPES = [
    pa.int8(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.bool_(),
    pa.list_(pa.string()),
    pa.struct([("a", pa.int64()), ("b", pa.list_(pa.float64()))]),
    pa.dictionary(pa.int32(), pa.string()),
]
CELLS = {
    "int8": st.integers(-128, 127),
    "double": st.floats(allow_nan=False),
    "string": st.text(),
    "binary": st.binary(),
    "bool": st.booleans(),
}


def cells(kind: pa.DataType) -> st.SearchStrategy:
    """Values that an Arrow type holds."""
    if pa.types.is_list(kind):
        return st.none() | st.lists(cells(kind.value_type), max_size=3)
    if pa.types.is_struct(kind):
        return st.none() | st.fixed_dictionaries({field.name: cells(field.type) for field in kind})
    if pa.types.is_dictionary(kind):
        return cells(kind.value_type)
    return st.none() | CELLS.get(str(kind), st.integers(-(2**63), 2**63 - 1))


@given(st.lists(st.sampled_from(TYPES), min_size=1, max_size=3), st.data())
@settings(max_examples=40, deadline=None)
def test_any_parquet_file_is_read_as_it_was_written(types, data):
    count = data.draw(st.integers(0, 7))
    arrays = [
        pa.array(data.draw(st.lists(cells(kind), min_size=count, max_size=count)), kind)
        for kind in types
    ]
    table = pa.table(arrays, names=[f"c{i}" for i in range(len(types))])
    stored = parquet(table, row_group_size=data.draw(st.integers(1, 4)))
    assert values(read("parquet", stored)) == table.to_pylist()
    flat = table.flatten()  # Arrow's own names of fields.
    assert set(names("parquet", stored)) == {*table.column_names, *flat.column_names}
    for name in flat.column_names:
        found = values(read("parquet", stored, columns=[name]))
        assert [value_at(row, name) for row in found] == flat[name].to_pylist()


NUMBERS = {"n": list(range(2500)), "t": [f"text {i}" for i in range(2500)], "u": [0.5] * 2500}


@pytest.mark.parametrize("row_group_size", [1, 999, 2500])
def test_row_groups_of_one_file_are_read_apart(row_group_size):
    stored = parquet(NUMBERS, row_group_size=row_group_size)
    if row_group_size == 1:
        stored = parquet({name: values[:5] for name, values in NUMBERS.items()}, row_group_size=1)
    sizes = row_groups(io.BytesIO(stored))
    assert sizes == {1: [1] * 5, 999: [999, 999, 502], 2500: [2500]}[row_group_size]
    whole = read("parquet", stored, columns=["t", "n"])
    assert [row.number for row in whole] == list(range(1, sum(sizes) + 1))
    assert whole[0] == Row(1, {"n": 0, "t": "text 0"})
    firsts = itertools.accumulate(sizes, initial=1)
    parts = [
        list(read_row_groups(io.BytesIO(stored), [i], {"t", "n"}, first))
        for i, first in zip(range(len(sizes)), firsts, strict=False)
    ]
    assert [row for part in parts for row in part] == whole
    assert list(read_row_groups(io.BytesIO(stored), range(len(sizes)), {"t", "n"})) == whole
    assert next(read_row_groups(io.BytesIO(stored), [len(sizes) - 1])).number == 1


def test_a_text_of_parquet_that_is_not_utf8_costs_only_its_row():
    texts = [b"fine"] * 3000
    texts[1500] = b"\xff"
    stored = parquet({"n": list(range(3000)), "t": pa.array(texts).view(pa.string())})
    found = read("parquet", stored)
    assert len(found) == 3000
    assert [row.number for row in found if row.error] == [1501]
    assert found[1500].error.startswith("cannot be read: ")
    assert "Invalid UTF8" in found[1500].error
    assert found[1501] == Row(1502, {"n": 1501, "t": "fine"})


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" * 10, b"garbage" * 100])
def test_a_file_that_is_not_parquet_is_rejected(data):
    message = "not a Parquet file that can be read: "
    (row,) = read("parquet", data)
    assert (row.number, row.values) == (0, None)
    assert row.error.startswith(message)
    with pytest.raises(RejectError, match=message):
        names("parquet", data)
    with pytest.raises(RejectError, match=message):
        row_groups(io.BytesIO(data))
    with pytest.raises(RejectError, match=message):
        list(read_row_groups(io.BytesIO(data), [0]))


def test_a_damaged_page_ends_the_file():
    def damaged(**options) -> bytes:
        stored = parquet(NUMBERS, row_group_size=1000, compression="none", **options)
        return stored.replace(b"text 1500", b"text 2500", 1)

    whole = pq.read_table(io.BytesIO(damaged()))
    assert whole["t"][1500].as_py() == "text 2500"  # Only a checksum reveals it.
    stored = damaged(write_page_checksum=True)
    found = read("parquet", stored)
    assert [row.number for row in found] == [*range(1, 1001), 0]
    assert found[-1].error.startswith("cannot be read to its end: could not verify page integrity")
    apart = list(read_row_groups(io.BytesIO(stored), range(3)))
    assert apart[:1001] == found
    assert [row.number for row in apart[1001:]] == list(range(2001, 2501))


def test_rows_that_only_the_footer_has_are_reported():
    stored = bytearray(parquet({"a": list(range(100))}, store_schema=False))
    # The third number of the row group, in Thrift's compact protocol: 100 becomes 101.
    at = stored.rindex(b"\x16\xc8\x01")
    stored[at : at + 3] = b"\x16\xca\x01"
    assert row_groups(io.BytesIO(stored)) == [101]
    found = read("parquet", bytes(stored))
    assert found[99] == Row(100, {"a": 99})
    error = "cannot be read to its end: row group 0 should have 101 rows, it has 100"
    assert found[100:] == [Row(0, None, error)]


def test_parquet_without_pyarrow_is_the_users_mistake(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(UsageError, match=r"\.parquet files need pyarrow .*beam-shards\[beam\]"):
        read("parquet", b"")


class Counting(io.BytesIO):
    """A file that counts the bytes that are read from it."""

    count = 0

    def read(self, size=-1):
        data = super().read(size)
        self.count += len(data)
        return data


def test_of_an_object_in_parquet_only_the_field_is_read():
    rng = np.random.default_rng(0)
    rows = [{"meta": {"cls": i % 3, "noise": rng.bytes(1000)}} for i in range(1000)]
    stored = parquet(pa.Table.from_pylist(rows))
    file = Counting(stored)
    found = values(list(read_rows(file, "parquet", False, {"meta.cls"})))
    assert found == [{"meta": {"cls": row["meta"]["cls"]}} for row in rows]
    assert file.count < len(stored) / 10


def test_a_column_whose_own_name_has_a_dot_comes_before_a_field():
    table = pa.table({"a.b": [1, 2], "a": [{"b": 3}, {"b": 4}]})
    found = values(read("parquet", parquet(table), columns=["a.b"]))
    assert [value_at(row, "a.b") for row in found] == [1, 2]
    assert [value_at(row, "a.b") for row in values(read("jsonl", '{"a": {"b": 3}, "a.b": 1}'))] == [
        1
    ]


# Objects of .json, and Arrow's own files.

OBJECTS = st.dictionaries(
    st.text(max_size=3), st.none() | st.integers(-(2**60), 2**60) | st.text(max_size=9), max_size=3
)


@given(st.lists(OBJECTS, max_size=6), st.booleans(), st.sampled_from([None, 2]), st.integers(1, 40))
@settings(max_examples=40, deadline=None)
def test_objects_of_json_are_those_of_the_library(objects, ascii_only, indent, block):
    written = json.dumps(objects, ensure_ascii=ascii_only, indent=indent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "_BLOCK_BYTES", block)
        assert values(read("json", written)) == json.loads(written)
        one_by_one = "\n".join(json.dumps(value, indent=indent) for value in objects)
        assert values(read("json", one_by_one)) == objects
    first = names("json", written)
    assert set(first) == set(objects[0] if objects else ())


@pytest.mark.parametrize(
    ("data", "numbers", "error"),
    [
        ("", [], ""),
        (" [ ] ", [], ""),
        ("[1, 23]", [1, 2], "expected a JSON object, got int"),
        ('[{"a": 1}', [1, 0], "not JSON that can be read to its end: its array has no end"),
        ('[{"a": 1}, {"a"', [1, 0], "not JSON that can be read to its end: Expecting ':'"),
        ('[{"a": 1}] \n', [1], ""),
        (
            '[{"a": 1}] {"a": 2}',
            [1, 0],
            "not JSON that can be read to its end: data follows its array",
        ),
        ('[{"a": 1}]' + " " * 3_000_000 + "[", [1, 0], "read to its end: data follows its array"),
        ("[" * 100_000, [0], "not JSON that can be read to its end: "),
        ('[{"a": "\udcff"}, {"a": 1}]', [1, 2], "not UTF-8"),
        ('{"a": "' + "x" * 400, [0], "not JSON, or an object is longer than 0 MiB"),
    ],
)
def test_damaged_json_is_an_error_after_the_objects_before_it(monkeypatch, data, numbers, error):
    if len(data) == 407:
        monkeypatch.setattr(rows, "MAX_LINE_BYTES", 300)
    found = read("json", data.encode("utf-8", "surrogateescape"))
    assert [row.number for row in found] == numbers
    assert error in "".join(row.error for row in found)


def test_a_large_file_of_json_is_read_in_constant_memory():
    data = b"[" + b",".join([b'{"text": "%s"}' % (b"x" * 1000)] * 30_000) + b"]"
    with peak_below(16 << 20):
        assert sum(1 for _ in read_rows(io.BytesIO(data), "json", False)) == 30_000


def feather(table: pa.Table, is_stream: bool, compression: str | None = None) -> bytes:
    buffer = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    new = pa.ipc.new_stream if is_stream else pa.ipc.new_file
    with new(buffer, table.schema, options=options) as writer:
        writer.write_table(table, 700)
    return buffer.getvalue()


ARROW = pa.table(
    {"n": range(2000), "a": [{"b": i, "c": str(i)} for i in range(2000)], "t": ["x"] * 2000}
)


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("is_stream", [False, True])
def test_rows_of_arrow_files_are_those_of_the_library(is_stream, compression):
    data = feather(ARROW, is_stream, compression)
    found = read("arrow", data)
    assert values(found) == ARROW.to_pylist()
    assert [row.number for row in found] == list(range(1, 2001))
    assert names("feather", data) == ("n", "a", "a.b", "a.c", "t")
    some = values(read("arrow", data, columns=["a.b", "t"]))
    assert some == ARROW.drop_columns(["n"]).to_pylist()
    assert len(read("arrow", data, columns=["no"])) == 2000


def test_categories_of_string_views_are_texts():
    texts = pa.array(["a", "b", "a", None]).dictionary_encode()
    views = pa.DictionaryArray.from_arrays(texts.indices, texts.dictionary.cast(pa.string_view()))
    found = values(read("arrow", feather(pa.table({"x": views}), False)))
    assert [row["x"] for row in found] == ["a", "b", "a", None]


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_cut_arrow_file_is_an_error(is_stream):
    data = feather(ARROW, is_stream)
    for end in (0, 5, 100, len(data) // 2, len(data) - 8, len(data) - 1):
        *_, last = read("arrow", data[:end])
        assert (last.number, last.values) == (0, None)
        assert last.error.startswith(
            ("not an Arrow file that can be read", "cannot be read to its")
        )


@pytest.mark.parametrize("kind", ["parquet", "arrow", "feather"])
@pytest.mark.parametrize("columns", [{"known": [1]}, {"a": [{"known": 1}]}])
def test_a_column_whose_name_is_not_utf_8_makes_the_file_an_error(kind, columns):
    table = pa.table(columns)
    data = feather(table, kind == "arrow")
    if kind == "parquet":
        data = parquet(table, store_schema=False)
    assert b"known" in data
    data = data.replace(b"known", b"kno\xf3n")
    (row,) = read(kind, data)
    assert (row.number, row.values) == (0, None)
    assert row.error.startswith(("not an Arrow file that can be", "not a Parquet file that can be"))
    with pytest.raises(RejectError, match=r"file that can be read: .*codec can't decode"):
        names(kind, data)
