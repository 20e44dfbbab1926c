"""Reshard jobs from files of TensorFlow, gzip files and datasets to a dataset."""

from __future__ import annotations

import gzip
import shutil
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf
from sklearn.datasets import load_digits, load_sample_images

import readers
from beam_jobs.jobs.reshard.schema_guess import LEARNED
from readers.format.manifest import Manifest
from readers.format.schema import Feature, Schema
from readers.format.tfrecord import frame
from tests.support.commands import (
    BEAM_WORKERS,
    ONE,
    TWO,
    refused,
    run,
)
from tests.support.datasets import (
    balanced,
    damage,
    files_of,
    folder_of,
    has_moved_records,
    rejects_of,
    write_numbers,
)
from tests.support.plain import example, jpeg, tensor, write_plain

SPLITS = ["--splits", "train=0.8,val=0.2"]


def written(out, split="*"):
    """All records, read with TensorFlow."""
    files = sorted(str(path) for path in folder_of(out).glob(f"{split}-*.tfrecord"))
    return list(tf.data.TFRecordDataset(files).as_numpy_iterator())


# Files of other programs.


def foreign_records():
    """Examples with features of all kinds: images, texts, tensors, lists."""
    rng = np.random.default_rng(5)
    pictures = load_sample_images().images
    digits = load_digits()
    for n in range(180):
        picture, at = pictures[n % 2], 3 * n % 200
        values = {
            "image/encoded": jpeg(picture[at : at + 12, at : at + 9 + n % 4]),
            "image/format": "jpeg",
            "digit": tensor(digits.images[n].astype(np.uint8)),
            "signal": tensor(rng.normal(size=(n % 5 + 1, 2)).astype(np.float32)),
            "pixels": digits.data[n].astype(np.float32),
            "label": int(digits.target[n]),
            "ids": np.arange(n % 4 + 1) * 1000 - n,
            "words": [b"a", b"\xff\xfe"][: n % 3],
        }
        if n % 3 == 0:
            del values["words"]
        if n % 7 == 0:
            values["extra"] = [0.5] * (n % 2 + 1)
        yield example(**values)


FOREIGN = Schema(
    {
        "image/encoded": Feature("uint8", (None, None, 3), "jpeg"),
        "image/format": Feature("string"),
        "digit": Feature("uint8", (8, 8), "tensor"),
        "signal": Feature("float32", (None, 2), "tensor"),
        "pixels": Feature("float32", (64,), "list"),
        "label": Feature("int64"),
        "ids": Feature("int64", (None,), "list"),
        "words": Feature("string", (None,), "list"),
        "extra": Feature("float32", (None,), "list"),
    }
)
PARSED = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string),
    "image/format": tf.io.FixedLenFeature([], tf.string),
    "digit": tf.io.FixedLenFeature([], tf.string),
    "signal": tf.io.FixedLenFeature([], tf.string),
    "pixels": tf.io.FixedLenFeature([64], tf.float32),
    "label": tf.io.FixedLenFeature([], tf.int64),
    "ids": tf.io.RaggedFeature(tf.int64),
    "words": tf.io.RaggedFeature(tf.string),
    "extra": tf.io.RaggedFeature(tf.float32),
}


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """(folder, all records) of plain and compressed files, some of them empty."""
    folder, records = tmp_path_factory.mktemp("foreign"), list(foreign_records())
    write_plain(folder / "old-0.tfrecord", records[:50])
    write_plain(folder / "old-1.tfrecord.gz", records[50:90], "GZIP")
    (folder / "old-2.gz").write_bytes(gzip.compress(b"".join(map(frame, records[90:150]))))
    (folder / "old-3.tfrecords").write_bytes(b"".join(map(frame, records[150:])))
    write_plain(folder / "old-4.tfrecord", [])
    write_plain(folder / "old-5.tfrecord", [], "GZIP")
    (folder / "old-notes.txt").write_text("not a record")
    return folder, records


@pytest.fixture(scope="module")
def resharded(foreign, tmp_path_factory):
    """The flags of a job and its output."""
    out = tmp_path_factory.mktemp("resharded") / "out"
    flags = ["reshard", "--input", foreign[0] / "old-*", *SPLITS, "--num_shards", 4]
    assert run(*flags, *ONE, "--output", out) == 0
    return flags, out


def test_every_record_is_written_once_with_its_bytes(foreign, resharded):
    _, out = resharded
    manifest = balanced(out)
    assert Counter(written(out)) == Counter(foreign[1])
    assert manifest.rejected == 0
    assert [len(split.shards) for split in manifest.splits.values()] == [4, 4]
    shares = [split.records for split in manifest.splits.values()]
    assert sum(shares) == 180 and 120 <= shares[0] <= 165
    order = [foreign[1].index(record) for record in written(out, "train")]
    assert order != sorted(order)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [TWO, BEAM_WORKERS], ids=["two", "beam"])
def test_other_workers_write_the_same_bytes(resharded, tmp_path, workers):
    flags, out = resharded
    assert run(*flags, *workers, "--output", tmp_path / "out") == 0
    assert files_of(tmp_path / "out") == files_of(out)


def test_the_inferred_schema_reads_the_values_that_tensorflow_parses(resharded):
    _, out = resharded
    assert Manifest.read(str(out)).schema == FOREIGN
    source = readers.RecordSource(out, "train")
    expected = tf.io.parse_example(written(out, "train"), PARSED)
    assert len(source) == len(expected["label"])
    for row in range(0, len(source), 3):
        record = source[row]
        for name in ("pixels", "label", "ids", "extra", "words", "image/format"):
            np.testing.assert_array_equal(record[name], expected[name][row].numpy())
        for name, dtype in (("digit", tf.uint8), ("signal", tf.float32)):
            values = tf.io.parse_tensor(expected[name][row], dtype).numpy()
            np.testing.assert_array_equal(record[name], values)
        pixels = tf.io.decode_jpeg(expected["image/encoded"][row]).numpy()
        assert record["image/encoded"].shape == pixels.shape


def test_a_folder_that_holds_only_the_output_is_not_an_input(resharded, tmp_path, capsys):
    shutil.copytree(resharded[1], tmp_path / "out")
    before = files_of(tmp_path / "out")
    flags = ["reshard", "--input", tmp_path / "out", "--output", tmp_path / "out", "--overwrite"]
    refused(capsys, 2, "no TFRecord files among these", *flags)
    assert files_of(tmp_path / "out") == before


def test_records_that_do_not_fit_the_first_ones_are_rejected_and_shards_stay_balanced(tmp_path):
    rng = np.random.default_rng(2)
    bad = set(rng.choice([*range(LEARNED, 700)], 90, replace=False).tolist())
    records = [example(id=[n, n] if n in bad else n) for n in range(700)]
    framed = [frame(record) for record in records]
    framed[5] = frame(b"no Example")
    (tmp_path / "a").write_bytes(b"".join(framed))
    out = tmp_path / "out"
    flags = ["reshard", "--input", tmp_path / "a", *SPLITS, "--num_shards", "train=7,val=2"]
    flags += ["--max_rejects", "all"]
    assert run(*flags, *ONE, "--output", out) == 0
    manifest = balanced(out)
    assert has_moved_records(out, lambda record: f"a#{record['id'] + 1}")
    whole = [record for n, record in enumerate(records) if n not in bad | {5}]
    assert Counter(written(out)) == Counter(whole)
    listed = rejects_of(out)
    assert listed.keys() == {f"a#{n + 1}" for n in bad | {5}}
    assert "not an Example" in listed.pop("a#6")
    cure = 'give a --schema with {"id": {"dtype": "int64", "shape": [null], "encoding": "list"}}'
    for error in listed.values():
        assert "feature 'id'" in error and error.endswith(cure)
    counts = [split.statistics["id"]["count"] for split in manifest.splits.values()]
    assert counts == [split.records for split in manifest.splits.values()]


# SequenceExamples.


# Datasets of this package.


def test_a_dataset_keeps_its_splits_and_class_names(tmp_path):
    old, new = write_numbers(tmp_path / "old", val=7), tmp_path / "new"
    damage(old / "val-00000-of-00001.tfrecord", 2)
    flags = ["reshard", "--input", old, "--num_shards", "train=3,val=2", "--drop", "vector"]
    assert run(*flags, *ONE, "--output", new) == 0
    found = balanced(new)
    assert "splits" not in found.options
    assert {n: (len(s.shards), s.records, s.rejected) for n, s in found.splits.items()} == {
        "train": (3, 20, 0),
        "val": (2, 6, 1),
    }
    assert "vector" in Manifest.read(str(old)).schema and "vector" not in found.schema
    assert found.label_names == Manifest.read(str(old)).label_names == ("cat", "dog")
