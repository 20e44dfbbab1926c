"""Paths -> plans: in which forms a path may be given, and how many questions a plan asks."""

from __future__ import annotations

import threading
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import readers
from readers.format.manifest import CHANNELS, UNITS
from readers.format.schema import Feature, Schema
from readers.format.splits import File
from readers.shards.resolve import resolve
from tests.support.arrays import ids
from tests.support.datasets import NUMBERS, numbers, write_dataset, write_numbers, write_signals


@pytest.mark.parametrize("form", [Path, str])
def test_every_path_may_begin_with_the_home_directory(tmp_path, monkeypatch, form):
    monkeypatch.setenv("HOME", str(tmp_path))
    write_numbers(tmp_path / "data")
    path, files = form("~/data"), [form(f"~/data/train-0000{n}-of-00004.tfrecord") for n in (0, 3)]
    assert readers.verify(path).ok
    assert readers.Manifest.read(path).splits["train"].records == 20
    assert ids(readers.as_numpy(path, batch_size=4, split="train")) == list(range(20))
    found = readers.as_numpy(
        files, batch_size=4, schema=NUMBERS, cache=readers.Cache(form("~/cache"))
    )
    assert ids(found) == [0, 1, 2, 3, 4, 16, 17, 18, 19]
    assert (tmp_path / "cache").is_dir()
    assert len(readers.RecordSource(path, "train")) == 20
    assert not Path("~").exists()


def test_a_list_of_datasets_is_read_one_after_another(tmp_path):
    one, two = write_numbers(tmp_path / "a"), write_numbers(tmp_path / "b", (3, 2))
    empty = write_dataset(tmp_path / "c", NUMBERS, {"train": []})
    paths, expected = [one, str(empty), two], [*range(20), *range(5)]
    assert ids(readers.as_numpy(paths, batch_size=8)) == expected
    assert ids(readers.load(paths, batch_size=8)) == expected
    assert (
        ids(readers.load(paths, batch_size=8, shuffle=readers.Order(False, by="interleave")))
        == expected
    )
    shuffled = ids(readers.as_numpy(paths, batch_size=8, shuffle=True))
    assert shuffled != expected
    assert sorted(shuffled) == sorted(expected)
    source = readers.RecordSource([one, two], "train[:2]")
    assert [record["id"] for record in source] == [0, 1, 0, 1]
    assert len(readers.RecordSource([empty, str(empty)])) == 0
    assert ids(readers.as_numpy([two], batch_size=8)) == list(range(5))
    chosen = readers.Schema({"id": ("int64",)})
    assert ids(readers.as_numpy(paths, batch_size=8, schema=chosen)) == expected
    with pytest.raises(
        ValueError,
        match=r"signals has other features than .*a; the first that differs is .*choose feature",
    ):
        readers.as_numpy([one, write_signals(tmp_path / "signals")], batch_size=8)
    (shard,) = one.glob("val*.tfrecord")
    with pytest.raises(readers.DatasetError, match="set schema= to read TFRecord files without"):
        readers.as_numpy([shard], batch_size=8)


LABELS = {"label_names": ("a", "b")}, {"label_names": ("b", "a")}
LABELLED = Schema(
    {
        "signal": Feature("float32", (None, 2)),
        "label": Feature("int64"),
        "box_labels": Feature("int64", (None,), "list"),
        "boxes": Feature("float32", (None, 4)),
        "tokens": Feature("int64", (None,), "list"),
    }
)
FILES = [{"vocabulary.txt": File("vocabulary.txt", crc)} for crc in (1, 2)]


@pytest.mark.parametrize(
    ("name", "ours", "theirs"),
    [
        ("label", *LABELS),
        ("box_labels", {}, {"class_names": {"box_labels": ("a",)}}),
        ("tokens", *({"files": files, "vocabulary": 3} for files in FILES)),
        ("tokens", {"options": {"tokens": "bytes"}}, {"options": {"tokens": "bpe"}}),
        ("signal", *({"options": {CHANNELS: {"signal": [*c]}}} for c in ("xy", "yx"))),
        ("signal", {}, {"options": {UNITS: {"signal": ["g", ""]}}}),
        ("signal", {"options": {"rate": "50Hz"}}, {"options": {"resample": "60Hz"}}),
        ("boxes", {}, {"options": {"box_order": "xyxy"}}),
    ],
)
def test_datasets_whose_numbers_mean_something_else_are_not_read_as_one(
    tmp_path, name, ours, theirs
):
    for folder, manifest in (("a", ours), ("b", theirs)):
        write_dataset(tmp_path / folder, LABELLED, {"train": []}, **manifest)
    paths = [tmp_path / "a", tmp_path / "b"]
    for columns in (None, [name]):
        with pytest.raises(ValueError, match=r"b and .*a differ in the meaning of '"):
            readers.RecordSource(paths, columns=columns)
    other = "boxes" if name == "label" else "label"
    assert len(readers.RecordSource(paths, columns=[other])) == 0


def test_vocabularies_may_be_in_other_folders(tmp_path):
    for folder in "ab":
        files = {"vocabulary.txt": File(f"{folder}/vocabulary.txt", 1)}
        write_dataset(tmp_path / folder, LABELLED, {"train": []}, files=files, vocabulary=3)
    assert len(readers.RecordSource([tmp_path / "a", tmp_path / "b"])) == 0


class Waiting(MemoryFileSystem):
    """A store each of whose answers waits until another question has been asked."""

    protocol = "waiting"
    asked = threading.Barrier(2)

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.replace("waiting://", "memory://"))

    def size(self, path):
        self.asked.wait(timeout=20)
        return super().size(path)


def test_files_of_a_store_are_asked_about_side_by_side(tmp_path):
    fsspec.register_implementation("waiting", Waiting, clobber=True)
    store = fsspec.filesystem("waiting")
    for file in sorted(write_numbers(tmp_path).glob("train*")):
        store.pipe(f"/files/{file.name}", file.read_bytes())
    files = [f"waiting://files/train-0000{n}-of-00004.tfrecord" for n in range(4)]
    assert resolve(files, None, NUMBERS, None).records == 20


def test_many_local_shards_are_found_in_order_and_the_first_fault_is_named(tmp_path):
    shards = [numbers(n, 1) for n in range(200)]
    dataset = write_dataset(tmp_path, NUMBERS, {"train": shards})
    assert ids(readers.as_numpy(dataset, batch_size=64)) == list(range(200))
    for number in (7, 150):
        (dataset / f"train-{number:05d}-of-00200.tfrecord").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"train-00007.*lists this shard, but it is missing"
    ):
        readers.as_numpy(dataset, batch_size=64)
