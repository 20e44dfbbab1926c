"""`write`: the bytes of `WriteShards`, from all kinds of objects, and without Beam."""

import os
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import apache_beam as beam
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beam_jobs import DataError, Feature, JobError, Schema, UsageError, WriteShards, write
from beam_jobs.dataset.lease import leased
from beam_jobs.plan.placement import hash64
from examples.samples import make_samples
from readers.format.manifest import Manifest
from tests.support.checkout import ROOT
from tests.support.datasets import folder_of, records_of, rejects_of
from tests.support.images import encoded
from tests.support.pages import blocks

SCHEMA = Schema(
    {
        "x": Feature("float32", (None, 2)),
        "picture": Feature("uint8", (None, None, 1), "png"),
        "name": Feature("string"),
        "label": Feature("int64"),
        "key": Feature("string"),
    }
)

PICTURES = [encoded(np.zeros((2, width), np.uint8), "PNG") for width in (3, 4)]


def record(n):
    """A pair of a key and features, which does not fit the schema if `n` is negative."""
    x = np.full((n % 5, 2), n, np.float32 if n >= 0 else np.float64)
    return f"r{n}", {"x": x, "picture": PICTURES[n % 2], "name": f"n{n}", "label": n % 3}


def contents(directory):
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def of_beam(records, directory, **arguments):
    with beam.Pipeline() as pipeline:
        pairs = pipeline | beam.Create(records, reshuffle=False)
        pairs | WriteShards(directory, SCHEMA, **arguments)
    return contents(directory)


@pytest.mark.parametrize(
    ("records", "arguments"),
    [
        (range(1), {}),
        (range(300), {"num_shards": 4, "label_names": ["a", "b", "c"], "options": {"by": "me"}}),
        (range(-3, 90), {"max_rejects": "all", "splits": {"train": 0.7, "val": 0.3}, "seed": -5}),
        (range(-1, 700), {"max_rejects": 0.1, "shard_size": "4KB", "num_shards": None}),
    ],
)
def test_all_files_are_those_of_write_shards(tmp_path, records, arguments):
    pairs = list(map(record, records))
    expected = of_beam(pairs, tmp_path / "beam", **arguments)
    manifest = write(iter(pairs), tmp_path / "rows", SCHEMA, **arguments)
    assert contents(tmp_path / "rows") == expected
    assert manifest == Manifest.read(str(tmp_path / "rows"))
    write(record, tmp_path / "function", SCHEMA, inputs=records, processes=2, **arguments)
    assert contents(tmp_path / "function") == expected


@given(
    numbers=st.lists(st.integers(-2, 10**6), unique=True, min_size=3, max_size=80),
    shards=st.integers(1, 9),
    seed=st.integers(-(2**63), 2**63 - 1),
    cut=st.integers(1, 40),
)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_the_bytes_depend_on_neither_the_order_nor_the_way_of_the_records(
    tmp_path_factory, numbers, shards, seed, cut
):
    folder = tmp_path_factory.mktemp("data")
    arguments = {"num_shards": shards, "seed": seed, "max_rejects": "all"}
    pairs = list(map(record, numbers))
    write(pairs, folder / "a", SCHEMA, **arguments)
    inputs = [numbers[at : at + cut][::-1] for at in range(0, len(numbers), cut)][::-1]
    function = lambda some: map(record, some)  # noqa: E731
    write(function, folder / "b", SCHEMA, inputs=inputs, processes=1, **arguments)
    rows = [{**features, "key": key} for key, features in reversed(pairs)]
    write(rows, folder / "c", SCHEMA, key="key", **arguments)
    assert contents(folder / "a") == contents(folder / "b") == contents(folder / "c")
    manifest = Manifest.read(str(folder / "a"))
    sizes = [shard.records for shard in manifest.splits["train"].shards]
    assert max(sizes) - min(sizes) <= 1
    found = set(records_of(folder / "a", seed=seed))
    assert found | set(rejects_of(folder / "a")) == {key for key, _ in pairs}


NO_BEAM = """
import sys
from beam_jobs import Feature, Schema, write

def two(n):
    yield {"n": n}
    yield {"n": -n}

if __name__ == "__main__":
    schema = Schema({"n": Feature("int64")})
    write([{"n": 1}], sys.argv[1] + "/rows", schema)
    write(two, sys.argv[1] + "/function", schema, inputs=range(9), processes=2)
    loaded = {name.partition(".")[0] for name in sys.modules}
    print(sorted(loaded & {"apache_beam", "tensorflow", "PIL", "h5py", "torch", "jinja2"}))
"""


def test_no_beam_and_no_framework_is_imported(tmp_path):
    (tmp_path / "program.py").write_text(NO_BEAM)
    program = [sys.executable, "program.py", str(tmp_path)]
    done = subprocess.run(
        program, cwd=tmp_path, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)}
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")
    assert sum(shard.records for shard in Manifest.read(str(tmp_path / "function")).shards) == 18


def test_a_store_needs_no_beam_either(tmp_path, s3):
    (tmp_path / "program.py").write_text(NO_BEAM)
    (tmp_path / "there").mkdir()
    for place in (s3.url, str(tmp_path / "there")):
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        program = [sys.executable, "program.py", place]
        done = subprocess.run(
            program, cwd=tmp_path, capture_output=True, text=True, env=environment
        )
        assert (done.stdout, done.stderr) == ("[]\n", "")
    for name, data in contents(tmp_path / "there").items():
        assert s3.get(f"{s3.url}/{name}") == data


UNGUARDED = """
from beam_jobs import Feature, Schema, write
def function(n):
    return {"n": n}
write(function, "out", Schema({"n": Feature("int64")}), inputs=[1], processes=2)
"""


def test_a_program_without_a_guard_is_told_what_is_missing(tmp_path):
    (tmp_path / "program.py").write_text(UNGUARDED)
    environment = {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.stderr.endswith("program begin its work below if __name__ == '__main__'?\n")


SMALL = Schema({"n": Feature("int64"), "key": Feature("string")})


class Rows:
    """A DataFrame of pandas, as far as `write` uses it."""

    def __init__(self, rows):
        self.rows, self.iloc = rows, self

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, rows):
        return Rows(self.rows[rows])

    def to_dict(self, orient):
        assert orient == "records"
        return self.rows


class Builder:
    """A builder of TensorFlow Datasets and its `tf.data.Dataset`s, as far as `write` uses them."""

    info = SimpleNamespace(splits={"train": None, "test": None})

    def as_dataset(self, split):
        rows = [{"n": np.int64(n)} for n in range({"train": 5, "test": 2}[split])]
        return SimpleNamespace(as_numpy_iterator=rows.__iter__)


def test_rows_of_other_libraries_are_records(tmp_path):
    rows = [{"n": n} for n in range(2500)]
    write(rows, tmp_path / "list", SMALL, num_shards=2)
    write(Rows(rows), tmp_path / "frame", SMALL, num_shards=2)
    assert contents(tmp_path / "list") == contents(tmp_path / "frame")
    assert {int(r["n"]) for k, r in records_of(tmp_path / "list").items() if int(k) == r["n"]} == {
        *range(2500)
    }
    by_split = write(Builder(), tmp_path / "builder", SMALL, seed=3)
    assert {n: split.records for n, split in by_split.splits.items()} == {"train": 5, "test": 2}
    same = {"train": [{"n": n} for n in range(5)], "test": [{"n": n} for n in range(2)]}
    write(same, tmp_path / "dict", SMALL, seed=3)
    assert contents(tmp_path / "builder") == contents(tmp_path / "dict")
    keys = {f"train-{n:08d}" for n in range(5)} | {"test-00000000", "test-00000001"}
    assert records_of(tmp_path / "dict", seed=3).keys() == keys


def test_a_generator_may_use_its_arrays_again(tmp_path):
    def refilled(x, parts):
        objects = np.empty(2, object)
        objects[:] = parts
        for n in range(700):
            x[:], parts[1][:] = n, -n
            yield {"x": x, "parts": parts, "objects": objects}

    def fresh():
        for row in refilled(np.zeros(3, np.float32), [np.ones(1), np.ones(2)]):
            parts = [part.copy() for part in row["parts"]]
            yield {"x": row["x"].copy(), "parts": parts, "objects": parts}

    parts = Feature("float64", (None, None), "sequence")
    schema = Schema({"x": Feature("float32", (3,)), "parts": parts, "objects": parts})
    again = refilled(np.zeros(3, np.float32), [np.ones(1), np.ones(2)])
    write(again, tmp_path / "a", schema)
    write(fresh(), tmp_path / "b", schema)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_keys_and_groups_are_features_or_functions(tmp_path):
    people = [{"n": n, "person": np.bytes_(f"p{n % 7}"), "id": n * 10} for n in range(200)]
    arguments = {"splits": {"a": 0.5, "b": 0.5}, "key": "id", "num_shards": 1}
    write(people, tmp_path / "a", SMALL, group_by="person", **arguments)
    found = {}
    for name in "ab":
        for key, row in records_of(tmp_path / "a", split=name).items():
            assert key == str(10 * row["n"])
            found.setdefault(int(row["n"]) % 7, set()).add(name)
    # The hash of a group below the middle is in the first split.
    below = {n: {"ab"[hash64(0, b"split", f"p{n}") >> 63]} for n in range(7)}
    assert found == below

    def without(row):
        return {"n": row["n"]}

    rules = {"key": lambda row: row["n"] * 10, "group_by": lambda row: f"p{row['n'] % 7}"}
    write(map(without, people), tmp_path / "b", SMALL, **{**arguments, **rules})
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def named(n):
    if n == 3:
        raise ValueError("no such picture")
    return {"n": n} if n < 3 else iter([{"n": n}, {"n": n + 100}])


def test_inputs_give_keys_and_their_failures_are_rejects(tmp_path):
    write(named, tmp_path / "a", SMALL, inputs=range(6), max_rejects=1, processes=1)
    expected = ["00000000", "00000001", "00000002"]
    expected += [f"0000000{n}#{k}" for n in (4, 5) for k in (0, 1)]
    assert sorted(records_of(tmp_path / "a")) == expected
    assert rejects_of(tmp_path / "a") == {"00000003": "ValueError: no such picture"}
    for name, processes in (("b", 1), ("c", 2)):
        with pytest.raises(DataError, match=r"^input 00000003: ValueError: no such picture; fix"):
            write(named, tmp_path / name, SMALL, inputs=range(6), processes=processes)
        assert not list((tmp_path / name).rglob("*.json"))
    paths = [tmp_path / "x", "y"]
    write(lambda path: {"n": len(str(path))}, tmp_path / "d", SMALL, inputs=paths, processes=1)
    assert sorted(records_of(tmp_path / "d")) == sorted([str(tmp_path / "x"), "y"])


def test_too_many_rejects_fail(tmp_path):
    bad = [{"n": "one"}, {"n": 1}, {"n": 2}]
    pattern = "1 of 3 inputs are rejected, more than max_rejects 0.1: .* or add max_rejects 0.34"
    with pytest.raises(DataError, match=pattern):
        write(bad, tmp_path, SMALL, max_rejects=0.1)
    with pytest.raises(DataError, match=r"^00000000: feature 'n': .*; fix it, or pass max_rejects"):
        write(bad, tmp_path, SMALL)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"records": []}, "the inputs have no records: no dataset was written"),
        (
            {"records": [record(1), record(1)]},
            "(duplicate key 'r1'|two records have the same key): ",
        ),
        (
            {"records": [record(n) for n in (1, 2, 1)], "num_shards": 2},
            ".*every record needs a unique",
        ),
        ({"records": 7}, r"expected records, or a function with inputs=\[...\], got 7"),
        ({"records": [5]}, r"expected \(key, features\) .*, got .*00000000', 5"),
        ({"records": [(5, {})]}, r"expected \(key, features\) .*, got '\(5, {}\)'"),
        ({"records": [{}], "key": "id"}, "key or group 'id': expected a text .* got None; it has"),
        ({"records": record}, "inputs: expected with a function"),
        ({"inputs": [1]}, "inputs: expected with a function"),
        ({"records": {"a": []}, "splits": {"b": 1}}, "splits, group_by: expected None"),
        ({"records": {"a b": []}}, "splits names: "),
        ({"splits": {"train": 0.5}}, "splits train=0.5: the shares add up to 0.5, not 1"),
        ({"max_rejects": "few"}, "max_rejects few: expected a number"),
        ({"records": record, "inputs": [lambda: 1]}, "input <function.* cannot be pickled"),
        (
            {"records": lambda n: record(n), "inputs": [1], "processes": 2},
            "processes: the function must be one of a module",
        ),
    ],
)
def test_wrong_arguments_are_reported_in_words_of_python(tmp_path, arguments, message):
    with pytest.raises(UsageError, match=f"^{message}") as caught:
        write(
            **{"records": [record(1)], "directory": tmp_path / "out", "schema": SCHEMA, **arguments}
        )
    assert "--" not in str(caught.value)
    assert not list(tmp_path.rglob("*.json"))


def test_a_directory_that_is_not_free_is_an_error_and_may_be_replaced(tmp_path):
    write([record(1)], tmp_path, SCHEMA)
    before = contents(tmp_path)
    with pytest.raises(UsageError, match="a dataset is here already; add overwrite=True"):
        write([record(2)], tmp_path, SCHEMA)
    output = replace(WriteShards(tmp_path, SCHEMA, overwrite=True)._output, run="other")
    with leased(output, "images", keeps=False), pytest.raises(UsageError, match="another job is"):
        write([record(2)], tmp_path, SCHEMA, overwrite=True)
    assert contents(tmp_path) == before
    assert write([record(2)], tmp_path, SCHEMA, overwrite=True).generation == 2
    assert records_of(tmp_path).keys() == {"r2"}
    assert folder_of(tmp_path) != next(name for name in before if "/" in name).split("/")[0]


def test_an_error_of_the_iterable_is_raised_and_leaves_nothing(tmp_path):
    def failing():
        yield from map(record, range(1000))
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        write(failing(), tmp_path / "out", SCHEMA)
    assert not (tmp_path / "out").exists()


def test_the_next_call_keeps_the_shards_of_one_that_failed(tmp_path, monkeypatch):
    def fails(*_):
        raise DataError("the disk is gone")

    pairs = list(map(record, range(40)))
    with monkeypatch.context() as patch, pytest.raises(JobError, match="the disk is gone"):
        patch.setattr("beam_jobs.writing.commit.commit", fails)
        write(pairs, tmp_path, SCHEMA, num_shards=2)
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.tfrecord")}
    assert len(written) == 2
    write(reversed(pairs), tmp_path, SCHEMA, num_shards=2)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.tfrecord")} == written


def test_the_program_of_the_docs_runs(tmp_path):
    make_samples(tmp_path / "sample_data" / "inputs")
    (text,) = [
        block.text
        for block in blocks(ROOT / "docs/write/python.md")
        if block.language == "python" and "import Feature, Schema, write\n" in block.text
    ]
    (tmp_path / "program.py").write_text(text)
    environment = {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    splits = Manifest.read(str(tmp_path / "shards/signals")).splits
    assert done.stdout == f"{ {name: split.records for name, split in splits.items()} }\n"
    assert sum(split.records for split in splits.values()) == 120
