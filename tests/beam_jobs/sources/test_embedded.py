"""Files inside Parquet, as Hugging Face's datasets 5.2.0 wrote them (tests/support/hugging_face)."""

import io
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from beam_jobs.errors import UsageError
from beam_jobs.sources import chunks, tables
from beam_jobs.sources.arrow_rows import class_names
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.source import Source
from beam_jobs.sources.table_inputs import EmbeddedInputs, TableInputs
from beam_jobs.sources.tables import stated_classes
from beam_jobs.storage.listing import match

HELD = Path(__file__).parents[2] / "support" / "hugging_face"

FILE = pa.struct({"bytes": pa.binary(), "path": pa.string()})


def inputs_of(*tables, root="", column="", columns=(), key="path") -> EmbeddedInputs:
    inputs = TableInputs.of_tables(list(map(str, tables)), str(root), column, columns, key)
    assert isinstance(inputs, EmbeddedInputs)
    assert inputs.packed
    return inputs


def files_of(inputs: EmbeddedInputs) -> list[tuple[Source, bytes]]:
    found = []
    for pattern in inputs.patterns:
        for source in inputs.sources(pattern):
            assert source.packed or source.error
            found += [(source, b"")] if source.error else inputs.unpacked(source)
    return found


def written(folder: Path, files: list, name: str = "t.parquet", **columns) -> Path:
    table = pa.table({"image": pa.array(files, FILE), **columns})
    pq.write_table(table, folder / name, row_group_size=2)
    return folder / name


def refused(*tables, **options) -> str:
    with pytest.raises(UsageError) as caught:
        inputs_of(*tables, **options)
    return caught.value.message


@pytest.mark.parametrize("chunk", [1, 2 << 20])
@pytest.mark.parametrize(("name", "column"), [("images", "image"), ("audio", "audio")])
def test_every_row_is_a_file_with_its_columns(monkeypatch, name, column, chunk):
    monkeypatch.setattr(chunks, "CHUNK_BYTES", chunk)
    table = HELD / f"{name}.parquet"
    columns = ("label", "meta.age") if name == "images" else ("label", "file")
    rows = pq.read_table(table).flatten().to_pylist()
    expected = []
    for number, row in enumerate(rows, 1):
        path = row[f"{column}.path"]
        key = f"{name}.parquet/{path}" if path else f"{name}.parquet#{number}"
        expected.append((key, {c: row[c] for c in columns}, row[f"{column}.bytes"]))
    inputs = inputs_of(table, columns=columns)
    found = files_of(inputs)
    assert [(source.key, source.row, data) for source, data in found] == expected
    assert [(s.size, s.archive) for s, _ in found] == [(len(d), table.name) for *_, d in expected]
    (pattern,) = inputs.patterns
    groups = pq.ParquetFile(table).num_row_groups
    sources = list(inputs.sources(pattern))
    assert len(sources) == (groups if chunk == 1 else 1)
    assert len({source.key for source in sources}) == len(sources)
    assert [s.key for s, _ in inputs.first(2)] == [key for key, *_ in expected[:2]]


def test_keys_are_rows_or_a_column_and_endings_follow_from_paths_or_bytes(tmp_path):
    files = [
        {"bytes": b"RIFF....", "path": None},
        {"bytes": b"fLaC....", "path": "b/c.flac"},
        {"bytes": b"OggS....", "path": "/home/x.ogg"},
        {"bytes": b"", "path": "../x.wav"},
        {"bytes": b"x", "path": ".hidden"},
    ]
    table = written(tmp_path, files, id=[5, 4, 3, 2, 1])
    by = {key: files_of(inputs_of(table, key=key)) for key in ("path", "row", "column:id")}
    numbers = [f"t.parquet#{n}" for n in (1, 2, 3, 4, 5)]
    assert [s.key for s, _ in by["row"]] == numbers
    assert [s.key for s, _ in by["column:id"]] == ["5", "4", "3", "2", "1"]
    keys = [numbers[0], "t.parquet/b/c.flac", *numbers[2:]]
    assert [s.key for s, _ in by["path"]] == keys
    names = ["t.parquet#1.wav", "t.parquet/b/c.flac", "t.parquet#3.ogg", *numbers[3:]]
    for found in by.values():
        assert [s.file for s, _ in found] == names


def test_a_row_without_bytes_is_an_error_that_says_what_it_has(tmp_path):
    files = [{"bytes": None, "path": "a.png"}, None, {"bytes": b"x", "path": "b.png"}]
    table = written(tmp_path, files, **{"id": ["a", None, "c"]})
    only_path = (
        "column 'image' has no bytes, only the path 'a.png'; if such files exist, name them with "
        "--path_column image.path"
    )
    found = [(source.key, source.error) for source, _ in files_of(inputs_of(table))]
    null = ("t.parquet#2", "column 'image' is null")
    assert found == [("t.parquet#1", only_path), null, ("t.parquet/b.png", "")]
    paths = TableInputs.of_tables([str(table)], "", "image.path", ())
    assert isinstance(paths, TableInputs)
    (pattern,) = paths.patterns
    assert [source.key for source in paths.sources(pattern)] == ["a.png", "t.parquet#2", "b.png"]


def test_damage_is_an_error_of_its_row_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 1)
    files = [{"bytes": bytes([65 + i]) * 500, "path": f"{i}.png"} for i in range(6)]
    options = {"use_dictionary": False, "compression": "none", "write_page_checksum": True}
    options["write_statistics"] = False
    table = pa.table({"image": pa.array(files, FILE)})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=2, **options)
    data = bytearray((tmp_path / "t.parquet").read_bytes())
    data[data.index(b"C" * 500)] ^= 1
    (tmp_path / "t.parquet").write_bytes(data)
    found = files_of(inputs_of(tmp_path / "t.parquet"))
    assert [source.key for source, _ in found if not source.error] == [
        f"t.parquet/{i}.png" for i in (0, 1, 4, 5)
    ]
    (broken,) = [source for source, _ in found if source.error]
    assert broken.key == "t.parquet#3-4"
    assert broken.error.startswith("cannot be read to its end: ")


def test_files_come_before_paths_and_ambiguous_columns_are_refused(tmp_path):
    file = [{"bytes": b"x", "path": "a"}]
    assert inputs_of(written(tmp_path, file, path=["gone.png"])).path_column == "image"
    assert inputs_of(written(tmp_path, file, mask=pa.array(file, FILE))).path_column == "image"
    table = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": pa.array(file, FILE), "b": pa.array(file, FILE)}), table)
    assert refused(table).startswith(f"--table {table}: no column path/file/filename/")
    assert inputs_of(table, column="b").path_column == "b"
    assert refused(table, column="b", root=tmp_path) == (
        f"--input {tmp_path}: the files are in --table itself, in column 'b': drop it"
    )
    pq.write_table(pa.table({"b": ["x.png"]}), tmp_path / "u.parquet")
    assert refused(table, tmp_path / "u.parquet", column="b") == (
        "--table: column 'b' holds files in some tables and paths in others: make a dataset of each"
    )


def test_files_in_other_tables_are_refused(tmp_path):
    table = tmp_path / "t.feather"
    pyarrow.feather.write_feather(pq.read_table(HELD / "images.parquet"), table)
    assert refused(table, columns=("label",)) == (
        f"--table {table}: column 'image' holds files, which are read only from .parquet: convert it"
    )


@pytest.mark.parametrize(
    ("column", "names"),
    [
        ("label", ("zebra", "ant", "cat")),
        ("meta.tags", ("zebra", "ant", "cat")),
        ("meta.age", ()),
        ("meta", ()),
        ("image", ()),
        ("other", ()),
    ],
)
def test_names_of_classes_are_those_that_the_schema_states(column, names):
    with (HELD / "images.parquet").open("rb") as file:
        assert class_names(file, column) == names


@pytest.mark.parametrize(
    "stated",
    [
        b"{",
        b'{"info": {"features": {"label": 3}}}',
        b'{"info": {"features": {"label": {"names": "abc"}}}}',
        b'{"info": {"features": {"label": {"names": ["a", "a"]}}}}',
    ],
)
def test_a_schema_that_states_no_names_has_none(stated):
    table = pa.table({"label": [1]}).replace_schema_metadata({b"huggingface": stated})
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    assert class_names(buffer, "label") == ()


def test_tables_must_agree_on_the_names_of_classes(tmp_path):
    shutil.copy(HELD / "images.parquet", tmp_path / "a.parquet")
    inputs = inputs_of(tmp_path / "*.parquet", column="image", columns=("label",))
    assert stated_classes(inputs, "label") == ("zebra", "ant", "cat")
    assert inputs.first_value("label") == 0
    table = pq.read_table(tmp_path / "a.parquet").replace_schema_metadata(None)
    pq.write_table(table, tmp_path / "b.parquet")
    with pytest.raises(UsageError, match=r"b\.parquet states other classes than .*a\.parquet: "):
        stated_classes(inputs, "label")


def test_one_file_that_is_no_parquet_states_that_there_are_no_classes(tmp_path, monkeypatch):
    """Text jobs have millions of files, which are listed only once."""
    for n in range(5):
        (tmp_path / f"{n}.txt").write_text("x")
    listed = []

    def counted(*arguments, **options):
        for file in match(*arguments, **options):
            listed.append(file)
            yield file

    monkeypatch.setattr(tables, "match", counted)
    assert stated_classes(Inputs.of([f"{tmp_path}/*.txt"]), "y") == ()
    assert len(listed) == 1
