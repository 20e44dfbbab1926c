"""Splits with exact shares, by label and by group, in whole jobs."""

import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.archives import tarred, zipped
from tests.support.commands import ONE, run
from tests.support.datasets import balanced, records_of, rejects_of
from tests.support.images import encoded


def write_recordings(folder, lengths):
    """Files of a label and a person each: `a/p3-0.npy`."""
    for name, length in lengths.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        np.save(folder / f"{name}.npy", np.zeros((length, 1), np.float32))


def counts_of(out):
    """(label, split) -> number of records, and key of a file -> the splits of its records."""
    counts, splits = Counter(), {}
    for key, record in records_of(out).items():
        counts[int(record["label"]), record["split"]] += 1
        splits.setdefault(key.partition("#")[0], set()).add(record["split"])
    return counts, splits


def test_windows_give_every_split_its_share_of_each_label_and_stay_with_their_recording(tmp_path):
    lengths = {f"{label}/{n}": 8 for label in "ab" for n in range(10)}
    write_recordings(tmp_path / "in", lengths | {"c/0": 80, "c/1": 40, "c/2": 40})
    flags = ["--window", 4, "--stratify", "--splits", "train=0.5,val=0.3,test=0.2"]
    arguments = ["sensors", "--input", tmp_path / "in", *flags]
    assert run(*arguments, *ONE, "--output", tmp_path / "o") == 0
    balanced(tmp_path / "o")
    counts, splits = counts_of(tmp_path / "o")
    assert all(len(found) == 1 for found in splits.values())
    assert [counts[0, s] for s in ("train", "val", "test")] == [10, 6, 4]
    assert [counts[1, s] for s in ("train", "val", "test")] == [10, 6, 4]
    assert [counts[2, s] for s in ("train", "val", "test")] == [20, 10, 10]


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    """The flags of a job with folds of people, and its output."""
    folder = tmp_path_factory.mktemp("people")
    names = {f"{'ab'[p % 2]}/p{p}-{n}": 3 for p in range(12) for n in range(1 + p % 3)}
    write_recordings(folder / "in", names)
    flags = ["sensors", "--input", folder / "in", "--group_by", r"p\d+", "--stratify", "--folds", 3]
    assert run(*flags, *ONE, "--output", folder / "o") == 0
    return flags, folder / "o"


def test_people_are_dealt_to_folds_of_equal_shares_of_each_label(people):
    _, out = people
    balanced(out)
    counts, splits = counts_of(out)
    person = {}
    for key, found in splits.items():
        person.setdefault(key.split("-")[0], set()).update(found)
    assert all(len(found) == 1 for found in person.values())
    assert counts == {(label, f"fold{k}"): 4 for label in (0, 1) for k in range(3)}
    options = json.loads((out / "manifest.json").read_text())["options"]
    assert (options["folds"], options["stratify"]) == ("3", True)


@pytest.mark.slow
def test_files_and_existing_records_have_exact_shares_without_labels(tmp_path):
    write_recordings(tmp_path / "in", {f"a/{n}": 8 for n in range(20)})
    flags = ["--exact_splits", "--splits", "train=0.7,val=0.2,test=0.1", *ONE]
    assert run("sensors", "--input", tmp_path / "in", *flags, "--output", tmp_path / "o") == 0
    again = ["reshard", "--input", tmp_path / "o", *flags]
    assert run(*again, "--output", tmp_path / "again") == 0
    for name in ("o", "again"):
        sizes = [split.records for split in balanced(tmp_path / name).splits.values()]
        assert sizes == [14, 4, 2], name


# Keys that hold neither the name of an archive nor that of a table.


def png(number):
    return encoded(np.full((4, 5), number, np.uint8), "PNG")


def bytes_of(out):
    """The bytes of all shards and indexes."""
    names = {file.name: file.read_bytes() for file in out.glob("*.tfrecord*")}
    assert names
    return names


@pytest.mark.slow
def test_a_folder_and_its_archives_give_the_same_bytes(tmp_path):
    files = {f"{'ab'[n % 2]}/{n}.png": png(n) for n in range(30)}
    for name, data in files.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(data)
    for name, data in (
        ("x.zip", zipped(files.items())),
        ("y.tar", tarred(files.items())),
        ("z.tar.gz", tarred(files.items(), "w:gz")),
    ):
        (tmp_path / name).write_bytes(data)
    flags = ["--key", "member", "--splits", "train=0.7,val=0.3", "--num_shards", 2, *ONE]
    found = []
    for name in ("in", "x.zip", "y.tar", "z.tar.gz"):
        out = tmp_path / f"out-{name}"
        assert run("images", "--input", tmp_path / name, *flags, "--output", out) == 0
        found.append(bytes_of(out))
        assert sorted(records_of(out)) == sorted(files)
    assert found[0] == found[1] == found[2] == found[3]


@pytest.mark.slow
def test_tables_of_the_same_texts_give_the_same_bytes(tmp_path):
    rows = [{"id": f"t{n}", "text": f"text {n}", "kind": "ab"[n % 2]} for n in range(40)]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = [",".join(row.values()) for row in rows]
    (tmp_path / "y.csv").write_text("\n".join(["id,text,kind", *lines, ""]))
    pq.write_table(pa.Table.from_pylist(rows[::-1]), tmp_path / "z.parquet")
    flags = ["--key", "column:id", "--label_field", "kind", "--splits", "train=0.7,val=0.3", *ONE]
    found = []
    for flag, name in (("input", "x.jsonl"), ("input", "y.csv"), ("table", "z.parquet")):
        out = tmp_path / f"out-{name}"
        assert run("text", f"--{flag}", tmp_path / name, *flags, "--output", out) == 0
        found.append(bytes_of(out))
    assert sorted(records_of(out)) == sorted(row["id"] for row in rows)
    assert found[0] == found[1] == found[2]


@pytest.mark.slow
def test_the_target_of_a_regression_is_a_number_of_each_record(tmp_path):
    rows = [{"text": f"text {n}", "price": "" if n == 7 else n / 4} for n in range(12)]
    lines = [f"{row['text']},{row['price']}" for row in rows]
    (tmp_path / "t.csv").write_text("\n".join(["text,price", *lines, ""]))
    arguments = ["text", "--input", tmp_path / "t.csv", "--target", "column:price", *ONE]
    assert run(*arguments, "--output", tmp_path / "o") == 0
    found = {r["text"].item().decode(): r["target"] for r in records_of(tmp_path / "o").values()}
    assert found == {row["text"]: np.float32(row["price"]) for row in rows if row["price"] != ""}
    assert rejects_of(tmp_path / "o") == {"t.csv#8": "--target column:price: it is empty or NaN"}
