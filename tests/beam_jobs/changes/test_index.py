"""TFRecord files of TensorFlow's own writer become a dataset where they are."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
from pathlib import Path

import grain
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import readers
from beam_jobs.changes import index
from beam_jobs.storage import atomic
from readers.format.manifest import DatasetError, Manifest
from tests.support.commands import IN_MEMORY, refused, run
from tests.support.datasets import flip
from tests.support.images import encoded
from tests.support.plain import example, sequence_example, tensor, write_plain

RNG = np.random.default_rng(7)


def picture(n):
    return encoded(Image.fromarray(RNG.integers(0, 255, (8 + n % 3, 9, 3), np.uint8)), "JPEG")


FORMS = {
    "plain": lambda n: example(key=f"k{n}", label=n % 5, x=[n / 3, -n / 7], big=n << 40),
    "ragged": lambda n: example(
        ids=np.arange(n % 4), words=np.array(["a"] * (n % 3), object), y=np.full(n % 2, n / 3)
    ),
    "images": lambda n: example(
        image=picture(n), label=n % 3, boxes=np.ones((n % 3, 4), np.float32)
    ),
    "tensors": lambda n: example(
        t=tensor(np.full((n % 2, 3), n, np.int16)), channels=[1.5 * n] * 4
    ),
    "steps": lambda n: sequence_example({"id": n}, frames=[[n, 1]] * (n % 3), names=[["x"]] * 2),
}


def write(folder, form="plain", counts=(5, 0, 7), names="toy-train.tfrecord-{:05d}-of-{:05d}"):
    """Files of the form, each with some records; returns all records."""
    folder.mkdir(parents=True, exist_ok=True)
    records = [FORMS[form](n) for n in range(sum(counts))]
    first = 0
    for number, count in enumerate(counts):
        path = folder / names.format(number, len(counts))
        write_plain(path, records[first : first + count])
        first += count
    return records


def stored(folder):
    return {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.iterdir() if p.is_file()}


@pytest.mark.parametrize("form", FORMS)
def test_a_dataset_in_place_is_what_reshard_would_make_of_the_files(form, tmp_path, capsys):
    files, out = tmp_path / "files", tmp_path / "out"
    records = write(files, form)
    before = stored(files)
    assert run("index", files, "--output", out) == 0
    assert "out is complete: 3 files" in capsys.readouterr().out
    assert stored(files) == before and readers.verify(out).ok
    whole = Manifest.read(out)
    again = ["reshard", "--input", files, "--output", tmp_path / "new", "--splits", "train=1"]
    assert run(*again, *IN_MEMORY) == 0
    resharded = Manifest.read(tmp_path / "new")
    assert whole.schema == resharded.schema
    assert whole.splits["train"].statistics == resharded.splits["train"].statistics
    source, bare = readers.RecordSource(out), readers.RecordSource(str(files), schema=whole.schema)
    assert len(source) == len(records) == len(bare)
    for number in range(len(records)):
        for name, value in source[number].items():
            np.testing.assert_equal(value, bare[number][name])
    paths = sorted(str(path) for path in files.iterdir())
    assert [r.numpy() for r in tf.data.TFRecordDataset(paths)] == records
    if form == "plain":
        labels = [int(label) for batch in readers.as_numpy(out, 4) for label in batch["label"]]
        assert sorted(labels) == sorted(n % 5 for n in range(len(records)))


def test_sections_of_the_index_are_the_numbers_of_the_records(tmp_path):
    write(tmp_path / "files", "ragged")
    run("index", tmp_path / "files", "--output", tmp_path / "out")
    long = readers.RecordSource(readers.Rows(tmp_path / "out", where="len(ids) == 3"))
    assert [len(record["ids"]) for record in map(long.__getitem__, range(len(long)))] == [3] * 3
    write(tmp_path / "plain")
    run("index", tmp_path / "plain", "--output", tmp_path / "out2")
    some = readers.RecordSource(readers.Rows(tmp_path / "out2", where="label == 2"))
    assert [some[n]["key"] for n in range(len(some))] == [b"k2", b"k7"]


@pytest.mark.parametrize("place", ["files", "files/index", "out", "far/away/out"])
def test_the_dataset_may_be_anywhere(place, tmp_path, monkeypatch, capsys):
    files, out = tmp_path / "files", tmp_path / place
    records = write(files)
    (files / "features.json").write_text("{}")
    before = stored(files)
    monkeypatch.chdir(tmp_path)
    assert run("index", "files", "--output", place) == 0
    if place.startswith("far"):
        assert capsys.readouterr().out.endswith(f"to read it, set BEAM_SHARDS_BASES={files}\n")
        with pytest.raises(DatasetError, match=f"set BEAM_SHARDS_BASES={files}"):
            readers.verify(out)
        monkeypatch.setenv("BEAM_SHARDS_BASES", str(files))
    assert readers.verify(out).ok and len(readers.RecordSource(out)) == len(records)
    assert stored(files).items() >= before.items()
    assert run("tag", out, "paper") == 0
    assert run("index", "files", "--output", place) == 0
    assert readers.open(f"{out}@paper").manifest.generation == 1


@pytest.mark.parametrize(
    ("path", "split"),
    [
        ("d/mnist-train.tfrecord-00000-of-00010", "train"),
        ("d/some_set-unlabelled.array-00000-of-00010", "unlabelled"),
        ("d/validation-00000-of-00128", "validation"),
        ("d/train-00000-of-00010.tfrecord", "train"),
        ("d/coco_val.record-00000-of-00010", "val"),
        ("d/train_01.tfrecords", "train"),
        ("test/part-00000-of-00002.tfrecord", "test"),
        ("trainer/a.tfrecord", "all"),
        ("d/contest.tfrecord", "all"),
    ],
)
def test_names_state_splits(path, split):
    assert index._split_of(f"/x/{path}") == split


def test_splits_are_given_by_patterns(tmp_path, capsys):
    write(tmp_path / "files", names="part{:02d}{:d}.tfrecord")
    flags = ["--split", f"fit={tmp_path}/files/part0[01]*", "--split", f"rest={tmp_path}/files/*"]
    assert run("index", *flags, "--output", tmp_path / "out") == 0
    splits = Manifest.read(tmp_path / "out").splits
    assert {name: split.records for name, split in splits.items()} == {"fit": 5, "rest": 7}
    write_plain(tmp_path / "files" / "val.tfrecord", [])
    refused(
        capsys,
        2,
        "part013.* states no split",
        "index",
        tmp_path / "files",
        "--output",
        tmp_path / "b",
    )
    refused(
        capsys, 2, "no TFRecord files in", "index", tmp_path / "out", "--output", tmp_path / "b"
    )


def cut(path, size):
    path.write_bytes(path.read_bytes()[:size])


def keyed(key):
    return example(key=key, label=0, x=[0.5, 1.0], big=1)


GRAIN = Path(grain.__file__).parent / "_src/python/testdata/morris_sequence_first_5.tfrecord"
SIZES = [len(FORMS["plain"](n)) + 16 for n in range(12)]
FIRST = SIZES[5]

DAMAGES = {
    "data": (lambda p: flip(p, FIRST + 30), rf"record 1 at byte {FIRST}: its checksum"),
    "length": (
        lambda p: flip(p, FIRST + 1),
        rf"record 1 at byte {FIRST}: the checksum of its length",
    ),
    "cut": (lambda p: cut(p, FIRST + 20), rf"record 1 at byte {FIRST}: cut off"),
    "GZIP": (lambda p: write_plain(p, [example(a=1)], "GZIP"), "compressed with GZIP"),
    "ZLIB": (lambda p: write_plain(p, [example(a=1)], "ZLIB"), "compressed with ZLIB"),
    "foreign": (lambda p: shutil.copy(GRAIN, p), "record 0 at byte 0: not an Example"),
    "empty": (lambda p: write_plain(p, [b""]), "record 0 at byte 0: "),
    "kind": (
        lambda p: write_plain(p, [FORMS["plain"](5)] * 600 + [example(key="a", label=1.5)]),
        rf"record 600 at byte {600 * FIRST:,}: feature 'big' is missing.*schema.*reshard",
    ),
    "a letter in two texts": (
        lambda p: write_plain(p, [FORMS["plain"](5)] * 600 + [keyed(b"\xc3"), keyed(b"\xa9")]),
        rf"record 600 at byte {600 * FIRST:,}: feature 'key' .*expected UTF-8",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_does_not_fit_is_named_and_nothing_is_committed(damage, tmp_path, capsys):
    write(tmp_path / "files")
    make, message = DAMAGES[damage]
    path = tmp_path / "files" / "toy-train.tfrecord-00002-of-00003"
    make(path)
    line = refused(
        capsys,
        1,
        f"{path.name}: {message}",
        "index",
        tmp_path / "files",
        "--output",
        tmp_path / "out",
    )
    assert "reshard" in line or "write it again" in line
    assert not (tmp_path / "out" / "manifest.json").exists()
    write(tmp_path / "files")
    assert run("index", tmp_path / "files", "--output", tmp_path / "out") == 0
    assert readers.verify(tmp_path / "out").ok
    assert {p.name for p in (tmp_path / "out").iterdir()} >= {"generations", "manifest.json"}


def test_verify_names_the_record_whose_byte_has_changed(tmp_path):
    write(tmp_path / "files")
    run("index", tmp_path / "files", "--output", tmp_path / "out")
    path = tmp_path / "files" / "toy-train.tfrecord-00000-of-00003"
    flip(path, SIZES[0] + 30)
    (problem,) = readers.verify(tmp_path / "out").problems
    assert (problem.record, problem.offset, os.path.basename(problem.file)) == (
        1,
        SIZES[0],
        path.name,
    )
    index_file = next((tmp_path / "out").glob("*/*-00001-*.index"))
    index_file.unlink()
    missing, _ = sorted(readers.verify(tmp_path / "out").problems, key=str, reverse=True)
    assert {missing.file, _.file} == {str(index_file), str(path)}


def test_the_same_command_is_complete_and_another_one_is_refused(tmp_path, capsys):
    write(tmp_path / "files")
    command = ["index", tmp_path / "files", "--output", tmp_path / "out"]
    assert run(*command) == 0
    files = {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*") if p.is_file()}
    assert run(*command) == 0
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*") if p.is_file()} == files
    write_plain(tmp_path / "files" / "toy-train.tfrecord-00003-of-00004", [])
    refused(capsys, 2, "a dataset of other files or flags is here already", *command)
    in_place = ["index", tmp_path / "files", "--output", tmp_path / "files"]
    assert run(*in_place) == 0
    texts = tmp_path / "a.txt"
    texts.write_text("a\n")
    job = ["text", "--input", texts, "--output", tmp_path / "files", "--overwrite", *IN_MEMORY]
    refused(capsys, 2, "it describes files of another writer", *job)


class Killed(BaseException):
    """The end of the process."""


def test_a_killed_command_ends_with_the_same_files_when_it_runs_again(tmp_path, monkeypatch):
    monkeypatch.setattr(index, "processors", lambda: 1)
    write(tmp_path / "files")
    assert run("index", tmp_path / "files", "--output", tmp_path / "whole") == 0
    whole = {
        p.relative_to(tmp_path / "whole"): p.read_bytes()
        for p in (tmp_path / "whole").rglob("*")
        if p.is_file()
    }
    publish = atomic.NewFile.publish
    for step in range(30):
        out, left = tmp_path / f"out{step}", [step]

        def dies(left=left):
            left[0] -= 1
            if left[0] < 0:
                raise Killed

        monkeypatch.setattr(atomic.NewFile, "publish", lambda *a, **k: (dies(), publish(*a, **k)))
        try:
            run("index", tmp_path / "files", "--output", out)
        except Killed:
            assert not (out / "manifest.json").exists()
        monkeypatch.setattr(atomic.NewFile, "publish", publish)
        assert run("index", tmp_path / "files", "--output", out) == 0
        found = {p.relative_to(out): p.read_bytes() for p in out.rglob("*") if p.is_file()}
        assert {p: d for p, d in found.items() if p.suffix != ".done"} == whole, step
        if left[0] >= 0:
            break
    assert step > 5


def test_records_are_found_and_deleted_by_their_keys_if_they_have_some(tmp_path, capsys):
    records, keys = write(tmp_path / "files"), tmp_path / "keys.txt"
    keys.write_text("k3\nk11\n")
    in_place = tmp_path / "files"
    before = stored(in_place)
    run("index", in_place, "--output", in_place)
    source = readers.RecordSource(in_place)
    assert [source.find(f"k{number}") for number in range(12)] == list(range(12))
    assert run("delete", in_place, "--keys", keys) == 0
    assert run("delete", in_place, "--where", "label == 2") == 0
    left = readers.RecordSource(in_place)
    expected = [b"k%d" % n for n in range(len(records)) if n not in (3, 11) and n % 5 != 2]
    assert [left[number]["key"] for number in range(len(left))] == expected
    assert readers.verify(in_place).ok and run("expire", in_place, "--keep", 1) == 0
    assert stored(in_place).items() >= before.items()
    write(tmp_path / "others", "ragged")
    run("index", tmp_path / "others", "--output", tmp_path / "out")
    refused(
        capsys,
        2,
        "no feature 'key', so they cannot be looked",
        "delete",
        tmp_path / "out",
        "--keys",
        keys,
    )
    with pytest.raises(DatasetError, match="its records have no keys"):
        readers.RecordSource(tmp_path / "out").find("k3")


def test_no_file_of_another_writer_is_deleted_with_the_generations_that_name_it(tmp_path):
    write(tmp_path / "files")
    before = stored(tmp_path / "files")
    run("index", tmp_path / "files", "--output", tmp_path / "files")
    manifest, path = (
        Manifest.read(tmp_path / "files"),
        tmp_path / "files" / "generations" / "2.json",
    )
    sha256 = hashlib.sha256(manifest.to_bytes()).hexdigest()
    alone = dataclasses.replace(manifest, splits={}, base=(), generation=2, ancestors=(sha256,))
    path.write_bytes(alone.to_bytes())
    assert run("expire", tmp_path / "files", "--keep", 1) == 0
    assert stored(tmp_path / "files").items() >= before.items()
    assert not list((tmp_path / "files").glob("*/*.index"))


def test_a_given_schema_and_its_names_are_used(tmp_path):
    write(tmp_path / "files")
    schema = {"label": {"dtype": "int64", "shape": [], "encoding": "list"}}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    flags = ["--schema", tmp_path / "schema.json", "--output", tmp_path / "out"]
    assert run("index", tmp_path / "files", *flags) == 0
    assert list(readers.RecordSource(tmp_path / "out")[0]) == ["label"]
    assert Manifest.read(tmp_path / "out").counts_of("label") == {0: 3, 1: 3, 2: 2, 3: 2, 4: 2}


def test_files_in_a_store_stay_there(s3, tmp_path, monkeypatch):
    records = write(tmp_path / "files")
    url = s3.upload(tmp_path / "files")
    assert run("index", url, "--output", f"{s3.url}/out") == 0
    assert readers.verify(f"{s3.url}/out").ok and len(readers.RecordSource(f"{s3.url}/out")) == len(
        records
    )
    assert run("index", url, "--output", tmp_path / "here") == 0
    monkeypatch.setenv("BEAM_SHARDS_BASES", s3.url)
    assert readers.verify(tmp_path / "here").ok
    assert readers.RecordSource(tmp_path / "here")[11]["key"] == b"k11"
