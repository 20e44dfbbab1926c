import csv
import gzip
import io
import json
import math
import os
import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import holds_lists
from beam_jobs.sources.rows import Dialect, Row
from beam_jobs.sources.source import Source, pack_reference, unpack_reference
from beam_jobs.sources.table_inputs import TableInputs
from beam_jobs.sources.tables import split_names

ROWS = [
    {"path": "a/1.jpg", "label": "cat", "fold": 0},
    {"path": "a/2.jpg", "label": "dog", "fold": 1},
    {"path": "b/3.jpg", "label": "cät", "fold": 2},
]


def delimited(rows, delimiter=",") -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0], delimiter=delimiter, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def lines(rows) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def parquet(rows) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), buffer)
    return buffer.getvalue()


def feather(rows) -> bytes:
    buffer = io.BytesIO()
    pyarrow.feather.write_feather(pa.Table.from_pylist(rows), buffer)
    return buffer.getvalue()


def stream(rows) -> bytes:
    table, buffer = pa.Table.from_pylist(rows), io.BytesIO()
    with pa.ipc.new_stream(buffer, table.schema) as writer:
        writer.write_table(table)
    return buffer.getvalue()


KINDS = {
    "t.json": lambda rows: json.dumps(rows).encode(),
    "t.json.gz": lambda rows: gzip.compress(json.dumps(rows, indent=1).encode()),
    "t.feather": feather,
    "t.arrow": stream,
    "t.csv": delimited,
    "t.tsv": lambda rows: delimited(rows, "\t"),
    "t.jsonl": lines,
    "t.parquet": parquet,
    "t.csv.gz": lambda rows: gzip.compress(delimited(rows)),
    "t.tsv.gz": lambda rows: gzip.compress(delimited(rows, "\t")),
    "T.JSONL.GZ": lambda rows: gzip.compress(lines(rows)),
}


def write(root: Path, name: str, data: bytes | str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def inputs_of(*tables: Path | str, root="", column="", columns=(), key="path") -> TableInputs:
    return TableInputs.of_tables(list(map(str, tables)), str(root), column, columns, key)


def sources_of(inputs: TableInputs, limit: int | None = None) -> list[Source]:
    return [s for pattern in inputs.patterns for s in inputs.sources(pattern, limit)]


def refused(*tables, **arguments) -> str:
    with pytest.raises(UsageError) as caught:
        inputs_of(*tables, **arguments)
    return caught.value.message


@pytest.mark.parametrize("name", KINDS)
def test_tables_of_every_kind_name_the_same_files(tmp_path, name):
    for row in ROWS:
        write(tmp_path, row["path"], row["path"] * 3)
    table = write(tmp_path, name, KINDS[name](ROWS))
    found = sources_of(inputs_of(table, columns=("label", "fold")))
    for source, row in zip(found, ROWS, strict=True):
        status = os.stat(tmp_path / row["path"])
        assert (source.key, source.path, source.error) == (row["path"], "", "")
        assert (source.size, source.modified) == (status.st_size, status.st_mtime_ns)
        assert source.row["label"] == row["label"]
        assert str(source.row["fold"]) == str(row["fold"])


def test_a_row_has_only_the_columns_that_are_used(tmp_path):
    table = write(tmp_path, "t.jsonl", lines([{"path": "x", "a": 1, "b": 2}, {"path": "y"}]))
    assert [s.row for s in sources_of(inputs_of(table, columns=("b",)))] == [{"b": 2}, {}]


@pytest.mark.parametrize("name", ["path", "file_name", "image"])
def test_the_column_with_the_paths_is_found_by_its_usual_names(tmp_path, name):
    table = write(tmp_path, "t.csv", f"other,{name}\nx,a.jpg\n")
    assert inputs_of(table).path_column == name
    assert [s.key for s in sources_of(inputs_of(table, column="other"))] == ["x"]


def test_a_file_that_is_missing_is_a_source_with_the_reason(tmp_path):
    write(tmp_path, "here.jpg", "x")
    table = write(tmp_path, "t.csv", "path\nhere.jpg\ngone.jpg\nhere\nhere.jpg/below\n")
    found = {source.key: source.error for source in sources_of(inputs_of(table))}
    looked = "in the folder of the table, or of --input"
    assert found == {
        "here.jpg": "",
        "gone.jpg": f"no file 'gone.jpg' {looked}",
        "here": f"no file 'here' {looked}; names need their ending, such as .jpg",
        "here.jpg/below": "cannot be read: Not a directory",
    }


@pytest.mark.parametrize(
    "spelling",
    [
        *[
            "a/Mu\u0308.jpg",
            "a/M\u00fc.jpg",
            "./a/M\u00fc.jpg",
            "a//M\u00fc.jpg",
            " a/./M\u00fc.jpg ",
        ],
        *["a\\M\u00fc.jpg", "{root}/a/M\u00fc.jpg", "file://{root}/a/M\u00fc.jpg"],
    ],
)
@pytest.mark.parametrize("key", ["path", "row"])
def test_every_spelling_of_a_path_gives_one_key(tmp_path, spelling, key):
    write(tmp_path, "a/Mu\u0308.jpg", "x")
    table = write(tmp_path, "t.csv", f"path\n{spelling.format(root=tmp_path)}\n")
    (source,) = sources_of(inputs_of(table, key=key))
    assert (source.file, source.size, source.error) == ("a/Mu\u0308.jpg", 1, "")
    assert source.key == source.file or key == "row"


def test_paths_are_relative_to_the_folder_of_their_table(tmp_path):
    for split in ("train", "test"):
        write(tmp_path, f"{split}/0.jpg", "x")
        write(tmp_path, f"{split}/metadata.csv", "file_name\n0.jpg\n")
    both = inputs_of(f"{tmp_path}/*/metadata.csv")
    assert {s.key: s.error for s in sources_of(both)} == {"test/0.jpg": "", "train/0.jpg": ""}
    below_root = inputs_of(f"{tmp_path}/*/metadata.csv", root=str(tmp_path))
    assert all("no file '0.jpg'" in s.error for s in sources_of(below_root))


@pytest.mark.parametrize(
    "path",
    [
        "../x",
        "a/../b",
        "/etc/passwd",
        "{root}/../x",
        "{root}",
        "{root}2/x",
        ".",
        "C:\\x",
        "gs://bucket/x",
        "file:///etc/passwd",
    ],
)
def test_a_row_that_points_out_of_the_root_is_a_source_with_an_error(tmp_path, path):
    root = tmp_path / "data"
    path = path.format(root=root)
    table = write(root, "t.jsonl", lines([{"path": path}]))
    (source,) = sources_of(inputs_of(table))
    shown = repr(path.replace("\\", "/"))
    outside = f"it is not below {root}: name a folder above all files with --input"
    error = "expected the path of a file, without .." if path == "." or ".." in path else outside
    assert source == Source("t.jsonl#1", error=f"{shown}: {error}")


@given(st.text(st.sampled_from("./a~\\ :*?[]$")) | st.text())
@settings(max_examples=60)
def test_no_row_leads_out_of_the_root(path):
    inputs = TableInputs(("/data/t.jsonl",), "/data", path_column="path")
    try:
        source = inputs._source(Row(1, {"path": path}))
    except Exception as error:
        assert type(error).__name__ == "RejectError"
        assert "\n" not in str(error)
        return
    assert os.path.normpath(inputs.path_of(source)) == inputs.path_of(source)
    assert inputs.path_of(source).startswith("/data/")
    assert "\0" not in source.key


@pytest.mark.parametrize("value", [None, "", 3, 1.5, True, ["a"], {"a": 1}, "a\0b"])
def test_a_value_that_is_not_a_path_is_an_error(tmp_path, value):
    table = write(tmp_path, "t.jsonl", lines([{"path": value}, {"path": "x"}]))
    (source, _) = sources_of(inputs_of(table))
    assert source.key == "t.jsonl#1"
    assert source.error == f"column 'path' is {value!r}, expected a path"


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "A.TAR.GZ", "a.tgz"])
def test_a_row_cannot_name_an_archive(tmp_path, name):
    table = write(tmp_path, "t.csv", f"path\n{name}\n")
    (source,) = sources_of(inputs_of(table))
    assert source == Source("t.csv#1", error="an archive: name it with --input, without --table")


def test_keys_are_paths_or_rows_or_a_column(tmp_path):
    write(tmp_path, "a.npy", "x")
    rows = [{"path": "a.npy", "id": "one"}, {"path": "./a.npy", "id": 2}]
    table = write(tmp_path, "t.jsonl", lines(rows))
    by = {key: sources_of(inputs_of(table, key=key)) for key in ("path", "row", "column:id")}
    assert [s.key for s in by["path"]] == ["a.npy", "a.npy"]
    assert [s.key for s in by["row"]] == ["a.npy#1", "a.npy#2"]
    assert [s.key for s in by["column:id"]] == ["one", "2"]
    for sources in by.values():
        assert [(s.file, s.size) for s in sources] == [("a.npy", 1)] * 2
        assert [inputs_of(table).path_of(s) for s in sources] == [str(tmp_path / "a.npy")] * 2


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({"id": None}, "column 'id' is None, expected text or a whole number"),
        ({"id": ""}, "column 'id' is '', expected text or a whole number"),
        ({"id": 1.5}, "column 'id' is 1.5, expected text or a whole number"),
        ({"id": ["a"]}, "column 'id' is ['a'], expected text or a whole number"),
        (
            {"id": "a\0b"},
            "column 'id' is 'a\\x00b', expected text without the character 0 or a whole number",
        ),
        ({}, "no column 'id'; it has path"),
    ],
)
def test_a_value_that_is_not_a_key_is_an_error(tmp_path, row, error):
    table = write(tmp_path, "t.jsonl", lines([{"path": "x", "id": "x"}, {"path": "x", **row}]))
    assert sources_of(inputs_of(table, key="column:id"))[1] == Source("t.jsonl#2", error=error)


@pytest.mark.parametrize("key", ["", "Path", "id", "column", "row:1"])
def test_an_invalid_key_is_refused(tmp_path, key):
    table = write(tmp_path, "t.csv", "path,id\na,b\n")
    assert refused(table, key=key) == f"--key {key}: expected path, row or column:NAME"


def test_paths_are_relative_to_the_folder_of_the_table_or_to_input(tmp_path):
    table = write(tmp_path, "tables/deep/t.csv", "path\na.npy\n")
    write(tmp_path, "tables/deep/a.npy", "1")
    write(tmp_path, "data/a.npy", "22")
    (near,) = sources_of(inputs_of(table))
    (far,) = sources_of(inputs_of(table, root=tmp_path / "data/"))
    assert (near.size, far.size) == (1, 2)
    assert near.key == far.key == "a.npy"


@pytest.mark.parametrize("name", ["a [1]", "what?", "*", "[!x]", "a]["])
def test_the_folder_of_a_table_may_have_any_name(tmp_path, name):
    write(tmp_path, f"{name}/x.npy", "1")
    table = write(tmp_path, f"{name}/t.csv", "path\nx.npy\n")
    inputs = inputs_of(table)
    assert inputs.root == f"{tmp_path}/{name}"
    assert [(s.key, s.error) for s in sources_of(inputs)] == [("x.npy", "")]


def test_the_root_of_the_filesystem_is_above_all_paths(tmp_path):
    write(tmp_path, "a.npy", "x")
    table = write(tmp_path, "t.csv", f"path\n{tmp_path}/a.npy\n../x\n")
    found = sources_of(inputs_of(table, root="/"))
    assert [(s.key, s.error) for s in found] == [
        (f"{tmp_path}/a.npy"[1:], ""),
        ("t.csv#2", found[1].error),
    ]
    assert found[1].error == "'../x': expected the path of a file, without .."
    assert inputs_of(table, root="/").path_of(found[0]) == f"{tmp_path}/a.npy"


def test_rows_may_name_files_by_their_urls():
    inputs = TableInputs(("/t.csv",), "gs://bucket/data", path_column="path")
    for path in ("a.npy", "gs://bucket/data/a.npy"):
        assert inputs._source(Row(1, {"path": path})) == Source("a.npy")
    assert inputs.path("a.npy") == "gs://bucket/data/a.npy"
    with pytest.raises(RejectError, match=r"it is not below gs://bucket/data"):
        inputs._source(Row(1, {"path": "gs://bucket/database/a.npy"}))


@pytest.mark.parametrize("root", ["nope", "t.csv", "*"])
def test_a_root_that_is_not_a_folder_is_refused(tmp_path, root):
    table = write(tmp_path, "t.csv", "path\na\n")
    assert refused(table, root=tmp_path / root) == (
        f"--input {tmp_path / root}: no such folder; with --table, --input is the folder that contains "
        "all files"
    )


def test_several_tables_and_patterns_give_all_their_rows(tmp_path):
    for name in ("a/1.csv", "a/2.csv", "b/3.csv"):
        write(tmp_path, name, f"path\n{name[2:]}.npy\n")
    inputs = inputs_of(f"{tmp_path}/a/*.csv", tmp_path / "b/3.csv")
    assert inputs.root == str(tmp_path)
    found = sorted(s.key for s in sources_of(inputs))
    assert found == ["a/1.csv.npy", "a/2.csv.npy", "b/3.csv.npy"]


@pytest.mark.parametrize("limit", range(5))
def test_a_few_sources_are_the_first_of_all(tmp_path, limit):
    for name in ("1", "2", "3"):
        write(tmp_path, f"{name}.csv", f"path\n{name}a\n{name}b\n")
    inputs = inputs_of(f"{tmp_path}/*.csv")
    assert [s.key for s in sources_of(inputs, limit)] == ["1a", "1b", "2a", "2b", "3a"][:limit]


def test_every_table_is_checked_at_the_start(tmp_path):
    write(tmp_path, "1.csv", "path,label\na,b\n")
    write(tmp_path, "2.csv", "path,lable\na,b\n")
    assert refused(f"{tmp_path}/*.csv", columns=("label",)) == (
        f"--table {tmp_path}/2.csv: no column 'label', it has path, lable; did you mean lable?"
    )
    write(tmp_path, "2.csv", "file,label\na,b\n")
    assert refused(f"{tmp_path}/*.csv") == (
        f"--table {tmp_path}/2.csv: no column 'path', it has file, label"
    )


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        (
            "t.csv",
            "",
            "no column path/file/filename/file_name/key/image/name, it has none; name the one",
        ),
        ("t.csv", "x,y\n", "it has x, y; name the one with the paths: --path_column"),
        ("t.csv", "path,a,a\n", "two columns are called 'a': give each a unique name"),
        ("t.csv", b"path,\xff\n", "cannot be read: not a table that can be read to its end"),
        ("t.csv.gz", "path\n", "cannot be read: cannot be read to its end: Not a gzipped file"),
        ("t.parquet", "path\n", "cannot be read: not a Parquet file that can be read"),
        (
            "t.txt",
            "path\n",
            "expected .csv, .tsv, .jsonl, .json (each also .gz), .parquet, .feather, .arrow; convert",
        ),
        (
            "t.parquet.gz",
            "path\n",
            "expected .csv, .tsv, .jsonl, .json (each also .gz), .parquet, .feather, .arrow; convert",
        ),
        ("nope", None, "no file matches; check it with ls"),
    ],
)
def test_an_unusable_table_is_refused(tmp_path, name, data, message):
    if data is not None:
        write(tmp_path, name, data)
    found = refused(tmp_path / name)
    assert found.startswith(f"--table {tmp_path / name}: ")
    assert message in found
    assert "\n" not in found


@pytest.mark.parametrize("name", ["t.jsonl", "T.JSONL.GZ", "t.parquet"])
def test_columns_may_be_fields_of_objects(tmp_path, name):
    rows = [
        {"file": {"path": "1.jpg"}, "meta": {"cls": "cat", "at": {"x": 1.5}}, "split": {"n": "b"}},
        {"file": {"path": "2.jpg"}, "meta": None, "split": {"n": "train"}},
    ]
    table = write(tmp_path, name, KINDS[name](rows))
    columns = ("meta.cls", "meta.at.x", "split.n")
    inputs = inputs_of(table, column="file.path", columns=columns, key="column:file.path")
    first, second = sources_of(inputs)
    assert (first.key, first.file) == ("1.jpg", "1.jpg")
    row = {"meta.cls": "cat", "meta.at.x": 1.5, "split.n": "b", "file.path": "1.jpg"}
    assert first.row == row
    assert second.row == {**dict.fromkeys(row), "split.n": "train", "file.path": "2.jpg"}
    assert split_names(inputs, "split.n") == ["train", "b"]
    known = "file, file.path, meta, meta.cls, meta.at, meta.at.x, split, split.n"
    expected = f"--table {table}: no column 'meta.at.y', it has {known}; did you mean meta.at.x?"
    assert refused(table, column="file.path", columns=("meta.at.y",)) == expected


def test_a_line_of_json_may_lack_columns_of_others(tmp_path):
    rows = [{"path": "a"}, {"path": "b", "age": 3}]
    table = write(tmp_path, "t.jsonl", b"no json\n" + lines(rows))
    inputs = inputs_of(table, columns=("age",))
    assert [dict(s.row) for s in sources_of(inputs)[1:]] == [{}, {"age": 3}]
    assert refused(table, columns=("sex",)) == f"--table {table}: no column 'sex', it has path, age"


def test_values_of_parquet_that_json_lacks_become_text(tmp_path):
    from datetime import datetime, timedelta
    from decimal import Decimal

    rows = [
        {
            "path": "a",
            "bytes": b"ab\xff",
            "nan": float("nan"),
            "nested": [{"inf": float("inf"), "raw": b"x"}],
            "decimal": Decimal("1.50"),
            "time": datetime(2024, 1, 2, 3, 4, 5),
            "long": timedelta(seconds=5),
        }
    ]
    table = write(tmp_path, "t.parquet", parquet(rows))
    (source,) = sources_of(inputs_of(table, columns=tuple(rows[0])[1:]))
    row = unpack_reference(pack_reference(source)).row
    assert row["bytes"] == "ab\udcff"
    assert row["nan"] == "nan"
    assert row["nested"] == [{"inf": "inf", "raw": "x"}]
    assert (row["decimal"], row["time"]) == ("1.50", "2024-01-02T03:04:05")
    assert isinstance(row["long"], str)


def test_the_first_value_is_that_of_the_first_row_that_has_one(tmp_path):
    rows = [{"path": "a"}, {"path": "b", "y": None}, {"path": "c", "y": ""}, {"path": "d", "y": []}]
    table = write(tmp_path, "t.jsonl", lines([*rows, {"path": "e", "y": "x"}]))
    assert inputs_of(table, columns=("y",)).first_value("y") == []
    table = write(tmp_path, "t.jsonl", lines([{"path": "a", "y": ""}]))
    assert inputs_of(table, columns=("y",)).first_value("y") is None


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_names_of_splits_are_those_in_the_column_train_first(tmp_path, name):
    rows = [{"path": "x", "split": s} for s in ("val", "train", "dev", "val")]
    table = write(tmp_path, name, KINDS[name](rows))
    assert split_names(Inputs((str(table),), ""), "split") == ["train", "dev", "val"]


def test_a_table_may_have_another_encoding_and_delimiter(tmp_path):
    for name in ("ä.jpg", "b.jpg"):
        write(tmp_path, name, "x")
    table = write(tmp_path, "t.csv", "path;split\nä.jpg;test\nb.jpg;train\n".encode("utf-16"))
    dialect = Dialect("utf-16", ";")
    inputs = TableInputs.of_tables([str(table)], "", "", ("split",), dialect=dialect)
    assert [(s.key, s.row, s.error) for s in sources_of(inputs)] == [
        ("ä.jpg", {"split": "test"}, ""),
        ("b.jpg", {"split": "train"}, ""),
    ]
    assert split_names(inputs, "split") == ["train", "test"]


@pytest.mark.parametrize(
    ("value", "lists"),
    [(None, False), ("1.5", False), (2, False), (3.0, False), (math.nan, False), (["a"], True)],
)
def test_a_column_of_labels_holds_lists_if_its_first_value_is_one(value, lists):
    assert holds_lists("y", value) == lists


def test_a_column_of_fractions_holds_no_labels():
    with pytest.raises(UsageError, match=r"'y' holds 0.5, .*: keep numbers with --target column:y"):
        holds_lists("y", 0.5)


def test_names_of_splits_may_be_numbers_in_several_tables(tmp_path):
    folds = [{"fold": fold} for fold in (1, 0, None, "", 1.5, [2])]
    write(tmp_path, "1.jsonl", lines([*folds, {}]) + b"no JSON\n")
    write(tmp_path, "2.csv", "fold\n2\n1\n\n")
    assert split_names(Inputs((f"{tmp_path}/*",), ""), "fold") == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("t.csv", "split\n\n", "no row has a name in it; is it the right column?"),
        ("t.jsonl", lines([{"split": 1.5}]), "no row has a name in it"),
        (
            "t.csv",
            "split\n" + "".join(f"{n}\n" for n in range(300)),
            "{path}: it has more than 256 different values, too many for splits; name another column",
        ),
        ("t.csv", "split,a,a\nx,1,2\n", "{path}: two columns are called 'a'"),
        (
            "t.txt",
            "x\n",
            "{path} is not a table, so the names in the column are not known before its records are "
            "read: add --splits train,val",
        ),
    ],
)
def test_a_column_that_names_no_splits_is_refused(tmp_path, name, data, message):
    path = write(tmp_path, name, data)
    message = re.escape(f"--split_column split: {message.format(path=path)}")
    with pytest.raises(UsageError, match=message):
        split_names(Inputs((str(path),), ""), "split")


def test_files_in_a_store_have_their_size_and_time_and_may_be_missing(store, tmp_path):
    for n in range(40):
        store.put(f"{store.url}/in/{n:02}.npy", bytes(n + 1))
    rows = [{"path": f"{n:02}.npy", "n": n} for n in (*range(5, 45), 5)]
    table = write(tmp_path, "t.csv", delimited(rows))
    inputs = inputs_of(table, root=f"{store.url}/in", columns=("n",), key="row")
    store.proxy.forget()
    found = sources_of(inputs)
    assert [s.path for s in found] == [row["path"] for row in rows]
    good, lost = [s for s in found if not s.error], [s for s in found if s.error]
    assert [s.size for s in good] == [*range(6, 41), 6]
    if not store.url.startswith("az"):
        assert len(store.proxy.seen(method=None)) <= 2  # Google's first asks for the bucket.
    listed = {
        s.key: s.modified for s in Inputs.of([f"{store.url}/in/*"]).files(f"{store.url}/in/*")
    }
    assert all(0 <= listed[s.path] - s.modified < 10**9 and s.modified > 0 for s in good)
    assert [s.path for s in lost] == [f"{n}.npy" for n in range(40, 45)]
    assert all(s.error.startswith(f"no file '{s.path}' in the folder") for s in lost)
    with pytest.raises(
        RejectError, match="it has 40 bytes, more than 39: raise --max_record_bytes"
    ):
        replace(inputs, max_bytes=39).read(good[34])
    assert len(replace(inputs, max_bytes=40).read(good[34])) == 40


def test_the_reference_of_a_row_changes_with_its_object(s3, tmp_path):
    s3.put(f"{s3.url}/in/a.npy", bytes(10))
    table = write(tmp_path, "t.csv", "path\na.npy\n")
    inputs = inputs_of(table, root=f"{s3.url}/in")
    (before,) = map(pack_reference, sources_of(inputs))
    assert [pack_reference(s) for s in sources_of(inputs)] == [before]
    s3.put(f"{s3.url}/in/a.npy", bytes(11))
    assert [pack_reference(s) for s in sources_of(inputs)] != [before]


def test_a_bucket_that_does_not_exist_is_the_users_mistake(s3, tmp_path):
    table = write(tmp_path, "t.csv", "path\na.npy\n")
    inputs = inputs_of(table, root="s3://no-such-bucket/in")
    with pytest.raises(UsageError, match="there is no bucket 'no-such-bucket'"):
        sources_of(inputs)
