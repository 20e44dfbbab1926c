"""`readers.open`: what the object says of a dataset, and that it reads it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_class_weight

import beam_jobs
import readers
from readers.describe import describe
from readers.format.manifest import File, Manifest
from readers.format.schema import Schema
from tests.readers import encodings
from tests.support.datasets import write_dataset, write_numbers

LABELS = [0, 0, 0, 2, 2, 1, 0, 0]
NAMES = ["cat", "dog", "bird", "never"]
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&\x1b[31m\u202e"
VOID = {"img", "br", "hr", "input", "meta", "link"}


class Page(HTMLParser):
    """The tags of a page, which are closed in their order, and its visible text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text, self._open = Counter(), [], "", []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attributes):
        self.tags[tag] += 1
        self.attributes += [name for name, _ in attributes]
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.text += data


def counted(labels):
    counts = {str(label): count for label, count in Counter(labels).items()}
    return {"label": {"values": counts}}


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    """A dataset of two splits with named labels, one of which no record has."""
    schema = Schema({"image": ("uint8", (8, 8, 3)), "label": ("int64", ())})
    rng = np.random.default_rng(0)
    records = [
        {"image": rng.integers(0, 256, (8, 8, 3), dtype=np.uint8), "label": label}
        for label in LABELS
    ]
    directory = write_dataset(
        tmp_path_factory.mktemp("labelled"), schema, {"train": [records], "val": [records[:2]]}
    )
    manifest = Manifest.read(directory)
    splits = {
        "train": manifest.splits["train"].__class__(
            manifest.splits["train"].shards, statistics=counted(LABELS)
        ),
        "val": manifest.splits["val"].__class__(
            manifest.splits["val"].shards, statistics=counted(LABELS[:2])
        ),
    }
    whole = Manifest(manifest.schema, splits, tuple(NAMES))
    (directory / "manifest.json").write_bytes(whole.to_bytes())
    return directory


def test_it_prints_as_info_does(labelled):
    dataset = readers.open(labelled)
    assert repr(dataset) == describe(str(labelled), Manifest.read(labelled))
    assert "train  8        1" in str(dataset.manifest)
    assert "image    uint8  [8, 8, 3]  tensor" in str(dataset.manifest)


def test_labels_have_names(labelled):
    assert readers.open(labelled).classes == {"label": tuple(NAMES)}


def test_class_weights_are_those_of_scikit_learn(labelled):
    found = readers.open(labelled).class_weights()
    expected = compute_class_weight("balanced", classes=np.array([0, 1, 2]), y=np.array(LABELS))
    np.testing.assert_allclose(found, [*expected, 0])
    assert sum(found[label] for label in LABELS) == pytest.approx(len(LABELS))
    np.testing.assert_allclose(readers.open(labelled).class_weights("val"), [1, 0, 0, 0])
    with pytest.raises(ValueError, match="unknown split 'test': the dataset has train, val"):
        readers.open(labelled).class_weights("test")
    manifest = Manifest.read(labelled)
    splits = {"train": replace(manifest.splits["train"], statistics=counted([1, 10**15]))}
    dataset = readers.Dataset(str(labelled), replace(manifest, splits=splits))
    with pytest.raises(ValueError, match="but they are as large as 1000000000000000"):
        dataset.class_weights()


def test_shards_and_other_files_have_paths(tmp_path):
    directory = write_numbers(tmp_path / "d", (2, 3))
    manifest = Manifest.read(directory)
    shards = tuple(
        replace(shard, path=f"4f2a9c01/{shard.path}") for shard in manifest.splits["train"].shards
    )
    splits = {**manifest.splits, "train": replace(manifest.splits["train"], shards=shards)}
    files = {"vocabulary.txt": File("4f2a9c01/vocabulary.txt", 0)}
    moved = replace(manifest, splits=splits, vocabulary=4, files=files)
    (directory / "manifest.json").write_bytes(moved.to_bytes())
    train = [f"4f2a9c01/train-0000{number}-of-00002.tfrecord" for number in (0, 1)]
    val = "val-00000-of-00001.tfrecord"
    for path in (directory, f"{directory}/", f"file://{directory}"):
        dataset, start = readers.open(path), str(directory)
        assert dataset.files() == [f"{start}/{name}" for name in (*train, val)]
        assert dataset.files("train") == [f"{start}/{name}" for name in train]
        assert dataset.file("vocabulary.txt") == f"{start}/4f2a9c01/vocabulary.txt"


def test_the_error_for_files_that_a_dataset_has_not_names_those_that_it_has(tmp_path):
    directory = write_numbers(tmp_path)
    dataset = readers.open(directory)
    with pytest.raises(ValueError, match="unknown split 'test': the dataset has train, val"):
        dataset.files("test")
    with pytest.raises(ValueError, match=r"'tokenizer.json': .*no files besides its shards"):
        dataset.file("tokenizer.json")
    files = {"vocabulary.txt": File("vocabulary.txt", 0)}
    dataset.manifest = replace(dataset.manifest, vocabulary=4, files=files)
    with pytest.raises(ValueError, match=r"'tokenizer.json': the dataset has vocabulary.txt$"):
        dataset.file("tokenizer.json")


def test_a_notebook_shows_ten_records(tmp_path):
    encodings.write(tmp_path / "d")
    page = Page(readers.open(tmp_path / "d")._repr_html_())
    assert page.tags["figure"] == 10
    assert str(readers.open(tmp_path / "d")) in page.text
    assert page.tags["img"] == 30
    assert "10 of 37 records of train" in page.text


def test_a_hostile_dataset_is_shown_as_text(tmp_path):
    schema = Schema({HOSTILE.replace("\x1b", ""): ("string", ()), "label": ("int64", ())})
    records = [{name: HOSTILE if name != "label" else 0 for name in schema} for _ in range(2)]
    directory = write_dataset(
        tmp_path / "<b>", schema, {"train": [records]}, label_names=(HOSTILE,)
    )
    html = readers.open(directory)._repr_html_()
    page = Page(html)
    assert not page.tags["script"] and not page.tags["img"] and not page.tags["b"] - 2
    assert set(page.attributes) <= {"style", "class", "dir"}
    assert page.text.count("<script>alert(1)</script>") >= 4
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", html)


@pytest.mark.parametrize("damage", ["missing", "flipped"])
def test_records_that_cannot_be_read_are_a_line(tmp_path, damage):
    directory, _ = encodings.write(tmp_path / "d")
    (shard, *_) = sorted(directory.glob("*.tfrecord"))
    data = bytearray(shard.read_bytes())
    shard.unlink()
    if damage == "flipped":
        shard.write_bytes(bytes(byte ^ 1 for byte in data))
    page = Page(readers.open(directory)._repr_html_())
    words = {"missing": "the records of train cannot be shown", "flipped": "cannot be read: "}
    assert words[damage] in page.text
    assert str(readers.open(directory)) in page.text


def test_a_split_without_records_is_shown(tmp_path):
    directory = write_dataset(tmp_path / "d", Schema({"x": ("int64", ())}), {"test": [[]]})
    assert "0 of 0 records of test" in Page(readers.open(directory)._repr_html_()).text


def test_a_notebook_shows_the_records_that_are_left(tmp_path):
    schema, rows = Schema({"x": ("int64", ())}), [{"x": n} for n in range(40)]
    beam_jobs.write(rows, tmp_path / "d", schema)
    dataset = readers.open(tmp_path / "d")
    beam_jobs.write(rows[:5], tmp_path / "d", schema, overwrite=True)
    page = Page(dataset._repr_html_())
    assert page.tags["figure"] == 5
    assert "5 of 5 records of train" in page.text


def test_a_store_that_fails_is_asked_once(tmp_path, monkeypatch):
    encodings.write(tmp_path / "d")
    asked = []

    def fails(source, number):
        asked.append(number)
        raise readers.StoreError("the store keeps failing")

    monkeypatch.setattr(readers.RecordSource, "__getitem__", fails)
    page = Page(readers.open(tmp_path / "d")._repr_html_())
    assert "cannot be shown: the store keeps failing" in page.text
    assert len(asked) == 1


def test_a_directory_without_a_dataset_is_refused(tmp_path):
    with pytest.raises(readers.DatasetError, match="no such directory"):
        readers.open(tmp_path / "none")
