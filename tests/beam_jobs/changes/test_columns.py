"""`beam-shards columns`: each dataset is compared with one that was written with all features."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import readers
from beam_jobs import Feature, Schema, write
from beam_jobs.__main__ import main
from beam_jobs.changes import columns
from beam_jobs.dataset import changes, family
from readers.format.manifest import Manifest
from tests.beam_jobs.writing.test_write import contents
from tests.support.datasets import flip, sections_of

BASE = Schema({"key": Feature("string"), "x": Feature("float32", (None,)), "n": Feature("int64")})
NEW = {
    "clip": Feature("float32", (3,), "list"),
    "tags": Feature("string", (None,), "list"),
    "score": Feature("float64"),
    "even": Feature("bool"),
}
STATED = "clip:float32[3],tags:string[],score:float64,even:bool"
MAPPED = "clip=float32[3]:list,tags=string[None]:list,score=float64,even=bool"
DEFAULT = {"clip": np.zeros(3, np.float32), "tags": [], "score": 0.0, "even": False}
SPLITS = {"train": 0.7, "val": 0.3}


def base(n):
    return f"k{n}", {"x": np.full(n % 4, n, np.float32), "n": n}


def new(n):
    """The new features of a record; the module of this test is what `--map` names."""
    clip = np.array([n, n / 3, -n], np.float32)
    return {"clip": clip, "tags": [f"t{n}"] * (n % 3), "score": n / 7, "even": n % 2 == 0}


def of_record(record, info):
    assert info.key == f"k{record['n']}"
    return new(record["n"])


def fails(record, info):
    raise ValueError(f"no {info.key}")


HERE = f"{__name__}:"


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    monkeypatch.setattr(columns, "processors", lambda: 1)


def write_table(path, numbers):
    rows = [
        {"id": f"k{n}", **{k: np.array(v).tolist() for k, v in new(n).items()}} for n in numbers
    ]
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        lines = [[row["id"], *(json.dumps(row[name]) for name in NEW)] for row in rows]
        cells = [
            '"' + cell.replace('"', '""') + '"' for line in [["id", *NEW], *lines] for cell in line
        ]
        width = len(NEW) + 1
        path.write_text(
            "\n".join(",".join(cells[i : i + width]) for i in range(0, len(cells), width))
        )
    return path


def add(directory, *arguments):
    return main(["columns", str(directory), *map(str, arguments)])


def add_table(directory, table, *more):
    flags = ["--key", "id", "--extra_features", STATED]
    return add(directory, "--name", "more", "--table", table, *flags, *more)


def without(directory, gone):
    """Marks the rows of `train` with some numbers as gone."""
    with changes.changing(str(directory), {"name": "delete"}) as change:
        splits = dict(change.parent.splits)
        folder = change.folder(sorted(gone))
        change.begin(folder)
        seen = ~np.isin(np.arange(splits["train"].stored), sorted(gone))
        splits["train"] = changes.with_rows(change, f"{folder}/train", splits["train"], seen, False)
        change.commit(splits=splits)


def values_of(directory, split):
    source = readers.RecordSource(str(directory), split)
    return [{n: np.asarray(v).tolist() for n, v in source[i].items()} for i in range(len(source))]


@settings(max_examples=12, deadline=None, suppress_health_check=[*HealthCheck])
@given(
    st.sets(st.integers(0, 999), min_size=12, max_size=60),
    st.integers(1, 4),
    st.sampled_from(["parquet", "jsonl", "csv", "map"]),
    st.sets(st.integers(0, 6), max_size=3),
    st.booleans(),
)
@example({1, 2, 3, 4, 133, 6, 5, 40, 8, 113, 18, 116}, 1, "parquet", set(), False)  # None in val.
def test_readers_see_a_dataset_that_was_written_with_all_features(
    tmp_path_factory, numbers, shards, kind, gone, drops
):
    folder = tmp_path_factory.mktemp("data")
    how = {"num_shards": shards, "splits": SPLITS}
    write(map(base, numbers), folder / "part", BASE, **how)
    both = ((key, {**features, **new(features["n"])}) for key, features in map(base, numbers))
    write(both, folder / "whole", Schema({**BASE, **NEW}), **how)
    if gone := {row for row in gone if row < Manifest.read(folder / "part").splits["train"].stored}:
        without(folder / "part", gone)
        without(folder / "whole", gone)
    before = contents(folder / "part")
    if kind == "map":
        flags = "--name", "more", "--map", f"{HERE}of_record", "--map_schema", MAPPED
        assert add(folder / "part", *flags) == 0
    else:
        table = write_table(folder / f"t.{kind}", [*numbers, 1001])
        assert add_table(folder / "part", table) == 0
    after = contents(folder / "part")
    assert {name: after[name] for name in before if name != "manifest.json"} == {
        name: data for name, data in before.items() if name != "manifest.json"
    }
    part, whole = (Manifest.read(folder / name) for name in ("part", "whole"))
    assert readers.verify(folder / "part").ok
    assert part.schema == whole.schema
    for split in SPLITS:
        assert values_of(folder / "part", split) == values_of(folder / "whole", split)
        if not gone:
            found, expected = part.splits[split].statistics, whole.splits[split].statistics
            assert found == {name: expected[name] for name in found} and len(found) == len(expected)
        # Files of both are as long, and TensorFlow reads them.
        pairs = zip(part.splits[split].shards, part.splits[split].families["more"], strict=True)
        for shard, more in pairs:
            ours = [tf.data.TFRecordDataset(str(folder / "part" / s.path)) for s in (shard, more)]
            spec = {"clip": tf.io.FixedLenFeature([3], tf.float32)}
            for key, features in tf.data.Dataset.zip(*ours):
                tf.io.parse_single_example(features, spec)
                assert tf.train.Example.FromString(key.numpy()).features.feature["n"]
            hashes = [sections_of(folder / "part" / s.path)["hash"] for s in (shard, more)]
            assert hashes[0].tolist() == hashes[1].tolist()
    if drops:
        assert add(folder / "part", "--drop", "more") == 0
        assert Manifest.read(folder / "part").schema == BASE
        assert Manifest.read(folder / "part").splits.keys() == part.splits.keys()
        assert len(readers.RecordSource(folder / "part", "val")) == part.splits["val"].records


def small(directory, count=20):
    write(map(base, range(count)), directory, BASE, num_shards=2, splits=SPLITS)
    return directory


def test_statistics_count_only_what_readers_see(tmp_path):
    small(tmp_path / "d")
    first = readers.RecordSource(tmp_path / "d", "train")[0]["n"]
    without(tmp_path / "d", {0})
    table = write_table(tmp_path / "t.parquet", [n for n in range(20) if n % 3])
    assert add_table(tmp_path / "d", table, "--missing", "default") == 0
    for split in SPLITS:
        seen = readers.RecordSource(tmp_path / "d", split)
        assert first not in [record["n"] for record in seen]
        for record in seen:
            n = int(record["n"])
            expected = new(n) if n % 3 else DEFAULT
            assert record["clip"].tolist() == expected["clip"].tolist()
            assert record["score"] == expected["score"]
        statistics = Manifest.read(tmp_path / "d").splits[split].statistics["score"]
        scores = [float(record["score"]) for record in seen]
        assert (statistics["count"], statistics["max"]) == (len(seen), max(scores))
        assert statistics["mean"] == pytest.approx(np.mean(scores))


def test_rows_that_are_deleted_later_have_no_features(tmp_path):
    small(tmp_path / "d")
    flags = "--name", "more", "--map", f"{HERE}of_record", "--map_schema", MAPPED
    assert add(tmp_path / "d", *flags) == 0
    without(tmp_path / "d", {1, 4})
    for record in readers.RecordSource(tmp_path / "d", "train"):
        assert record["score"] == new(int(record["n"]))["score"]
    assert (
        add(tmp_path / "d", "--name", "again", "--map", f"{HERE}other", "--map_schema", "y=int64")
        == 0
    )
    assert [r["y"] for r in readers.RecordSource(tmp_path / "d", "train")] == [
        2 * r["n"] for r in readers.RecordSource(tmp_path / "d", "train")
    ]


def test_deletions_and_subsets_choose_by_the_new_features(tmp_path):
    small(tmp_path / "d")
    assert add_table(tmp_path / "d", write_table(tmp_path / "t.parquet", range(20))) == 0
    where = "score > 1 and n % 3 == 1 and len(tags) == 1"
    assert (
        main(["select", str(tmp_path / "d"), "--where", where, "--output", str(tmp_path / "s")])
        == 0
    )
    assert main(["delete", str(tmp_path / "d"), "--where", where]) == 0
    chosen = {n for n in range(20) if n / 7 > 1 and n % 3 == 1}
    for directory, expected in (("s", chosen), ("d", {*range(20)} - chosen)):
        assert readers.verify(tmp_path / directory).ok
        records = [r for split in SPLITS for r in readers.RecordSource(tmp_path / directory, split)]
        assert {int(record["n"]) for record in records} == expected
        for record in records:
            assert record["clip"].tolist() == new(int(record["n"]))["clip"].tolist()
    statistics = [s.statistics["score"] for s in Manifest.read(tmp_path / "d").splits.values()]
    scores = [n / 7 for n in range(20) if n not in chosen]
    assert sum(s["count"] for s in statistics) == len(scores)
    assert (
        add(tmp_path / "s", "--name", "y", "--map", f"{HERE}other", "--map_schema", "y=int64") == 0
    )
    for split in SPLITS:
        assert all(r["y"] == 2 * r["n"] for r in readers.RecordSource(tmp_path / "s", split))


def other(record, info):
    return {"y": 2 * record["n"]}


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--name", "a/b", "--map", f"{HERE}new", "--map_schema", "y=int64"], "expected letters"),
        (
            ["--name", "more", "--map", f"{HERE}new", "--map_schema", "x=int64"],
            "feature 'x': the dataset has",
        ),
        (["--name", "more", "--map", f"{HERE}new"], "--map needs --map_schema"),
        (
            ["--name", "more", "--map", "nothing:new", "--map_schema", "y=int64"],
            "nothing cannot be imported",
        ),
        (["--name", "more", "--table", "T"], "--table needs --key"),
        (["--name", "more"], "one of the arguments --table --map --drop is required"),
        (["--drop", "more"], "under this name; those that were: none"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, capsys, flags, words):
    before = contents(small(tmp_path / "d"))
    assert add(tmp_path / "d", *flags) == 2
    assert words in capsys.readouterr().err
    assert contents(tmp_path / "d") == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: rows[:-2], "records of"),
        (lambda rows: [*rows, rows[3]], "two rows have the key 'k3'"),
        (lambda rows: [*rows[:-1], {**rows[-1], "score": "x"}], "column 'score' holds 'x'"),
        (lambda rows: [*rows[:-1], {**rows[-1], "clip": [1, 2]}], "2 values, expected 3"),
        (
            lambda rows: [{k: v for k, v in row.items() if k != "id"} for row in rows],
            "no column 'id'",
        ),
        (
            lambda rows: [{k: v for k, v in row.items() if k != "even"} for row in rows],
            "no column 'even'",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_one_line(tmp_path, capsys, change, words):
    before = contents(small(tmp_path / "d"))
    table = write_table(tmp_path / "t.jsonl", range(20))
    rows = change([json.loads(line) for line in table.read_text().splitlines()])
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert add_table(tmp_path / "d", table) == 2
    assert words in capsys.readouterr().err
    assert contents(tmp_path / "d") == before


def test_a_function_that_fails_names_the_record(tmp_path, capsys):
    small(tmp_path / "d")
    flags = "--name", "more", "--map", f"{HERE}fails", "--map_schema", MAPPED
    assert add(tmp_path / "d", *flags) == 1
    assert "00000-of-00002.tfrecord: record 0: --map" in capsys.readouterr().err
    assert "more" not in Manifest.read(tmp_path / "d").families


class KilledError(BaseException):
    """Stands for the end of the process."""


STEPS = [
    (changes.Change, "begin"),
    (family.Note, "write"),
    (family.ShardFile, "finish"),
    (family.ShardFile, "commit"),
    (changes.Change, "commit"),
    (changes, "commit"),
    (changes, "state_of"),
]


@pytest.mark.parametrize(("owner", "name"), STEPS)
@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_killed_command_continues_with_the_same_bytes(tmp_path, monkeypatch, owner, name, after):
    small(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    table = write_table(tmp_path / "t.parquet", range(20))
    assert add_table(tmp_path / "a", table) == 0
    called, step = [], getattr(owner, name)

    def killed(*arguments, **others):
        called.append(1)
        if len(called) > after:
            raise KilledError
        return step(*arguments, **others)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, killed)
        with pytest.raises(KilledError):
            add_table(tmp_path / "b", table)
            raise KilledError  # The step is not reached as often.
    assert len(readers.RecordSource(tmp_path / "b", "train")) == 15
    assert readers.verify(tmp_path / "b").ok
    assert add_table(tmp_path / "b", table) == 0
    expected, found = contents(tmp_path / "a"), contents(tmp_path / "b")
    # Notes that a killed commit has not deleted are left for the next one, and readers ask for newer generations.
    left = {path for path in found if path.endswith(".done") or "staging" in path}
    assert {path: data for path, data in found.items() if path not in left | {"manifest.json"}} == {
        path: data for path, data in expected.items() if path != "manifest.json"
    }
    assert Manifest.read(tmp_path / "b") == Manifest.read(tmp_path / "a")


def test_shards_that_are_done_are_kept(tmp_path, monkeypatch):
    small(tmp_path / "d")
    flags = "--name", "more", "--map", f"{HERE}counts", "--map_schema", "y=int64"
    with monkeypatch.context() as patch:
        patch.setattr(changes.Change, "commit", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            add(tmp_path / "d", *flags)
    CALLS.clear()
    assert add(tmp_path / "d", *flags) == 0
    assert not CALLS
    assert readers.verify(tmp_path / "d").ok


CALLS = []


def counts(record, info):
    CALLS.append(info.key)
    return {"y": 1}


def test_the_same_command_twice_is_one_line(tmp_path, capsys):
    small(tmp_path / "d")
    table = write_table(tmp_path / "t.parquet", range(20))
    assert add_table(tmp_path / "d", table) == 0
    before = contents(tmp_path / "d")
    assert add_table(tmp_path / "d", table) == 0
    assert "generation 2 is this one already" in capsys.readouterr().out
    assert add_table(tmp_path / "d", table, "--missing", "default") == 2
    assert "names in use: more" in capsys.readouterr().err
    assert contents(tmp_path / "d") == before


def test_a_changed_byte_of_a_family_is_found(tmp_path):
    small(tmp_path / "d")
    add_table(tmp_path / "d", write_table(tmp_path / "t.parquet", range(20)))
    shard = Manifest.read(tmp_path / "d").splits["train"].families["more"][1]
    flip(tmp_path / "d" / shard.path, 40)
    (problem,) = readers.verify(tmp_path / "d").problems
    assert (problem.file, problem.record) == (str(tmp_path / "d" / shard.path), 0)
    with pytest.raises(readers.CorruptRecordError, match=f"{shard.path}: record 0"):
        values_of(tmp_path / "d", "train")
    assert len(list(readers.RecordSource(tmp_path / "d", "train", ["n"]))) == 15


def test_processes_write_the_same_bytes(tmp_path, monkeypatch):
    small(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    table = write_table(tmp_path / "t.parquet", range(20))
    add_table(tmp_path / "a", table)
    monkeypatch.setattr(columns, "processors", lambda: 2)
    add_table(tmp_path / "b", table)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
