"""Reshard jobs from files of TensorFlow, gzip files and datasets to a dataset."""

from __future__ import annotations

import gzip
import re
import shutil
import zlib
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
    interrupted,
    refused,
    resumed,
    run,
    without_progress,
)
from tests.support.datasets import (
    balanced,
    damage,
    files_of,
    parse_tfrecord,
    rejects_of,
    write_numbers,
)
from tests.support.plain import example, jpeg, sequence_example, tensor, write_plain

SPLITS = ["--splits", "train=0.8,val=0.2"]


def written(out, split="*"):
    """All records, read with TensorFlow."""
    files = sorted(str(path) for path in out.glob(f"{split}-*.tfrecord"))
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
    assert run(*flags, *TWO, "--output", out) == 0
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
@pytest.mark.parametrize("workers", [ONE, BEAM_WORKERS], ids=["one", "beam"])
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
    for row in range(len(source)):
        record = source[row]
        for name in ("pixels", "label", "ids", "extra", "words", "image/format"):
            np.testing.assert_array_equal(record[name], expected[name][row].numpy())
        for name, dtype in (("digit", tf.uint8), ("signal", tf.float32)):
            values = tf.io.parse_tensor(expected[name][row], dtype).numpy()
            np.testing.assert_array_equal(record[name], values)
        pixels = tf.io.decode_jpeg(expected["image/encoded"][row]).numpy()
        assert record["image/encoded"].shape == pixels.shape


def test_the_statistics_of_each_split_are_those_of_its_records(resharded):
    _, out = resharded
    for split, found in Manifest.read(str(out)).splits.items():
        parsed = tf.io.parse_example(written(out, split), PARSED)
        figures = found.statistics
        for name in ("pixels", "label", "ids", "extra"):
            values = getattr(parsed[name], "flat_values", parsed[name]).numpy().astype(np.float64)
            assert figures[name]["count"] == values.size
            np.testing.assert_allclose(figures[name]["mean"], values.mean(), rtol=1e-12)
            np.testing.assert_allclose(figures[name]["std"], values.std(), rtol=1e-12)
        labels, counts = np.unique(parsed["label"], return_counts=True)
        texts = map(str, labels.tolist())
        assert figures["label"]["values"] == dict(zip(texts, counts.tolist(), strict=True))


def test_a_plan_matches_the_job_and_writes_nothing(resharded, tmp_path, capsys):
    flags, out = resharded
    assert run("plan", *flags, "--output", tmp_path / "out") == 0
    printed = capsys.readouterr().out
    for name, split in Manifest.read(str(out)).splits.items():
        assert re.search(rf"^{name} +{split.records} +4 ", printed, re.M), printed
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_an_interrupted_run_resumes_and_other_flags_start_afresh(resharded, tmp_path, capsys):
    flags, expected = resharded
    out = tmp_path / "out"
    interrupted(*flags, "--output", out)
    with pytest.raises(readers.DatasetError, match="not a finished dataset"):
        readers.RecordSource(out, "train")
    shutil.copytree(out, tmp_path / "other")
    (out / "train-00001-of-00004.tfrecord").write_bytes(b"half")
    assert resumed(capsys, *flags, "--output", out) == 7
    assert files_of(out) == files_of(expected)
    assert resumed(capsys, *flags, "--output", tmp_path / "other", "--drop", "digit") == 0
    assert "digit" not in balanced(tmp_path / "other").schema


# Selected features.


def test_records_that_contradict_each_other_end_the_job_before_a_dataset_is_replaced(
    resharded, tmp_path, capsys
):
    flags, out = resharded
    shutil.copytree(out, tmp_path / "out")
    before = files_of(tmp_path / "out")
    write_plain(tmp_path / "other", [example(label="text")])
    flags = [*flags, "--output", tmp_path / "out", "--overwrite", "--input", tmp_path / "other"]
    refused(
        capsys, 2, "feature 'label': a list of bytes in 1, int64 in 180 records or steps", *flags
    )
    assert files_of(tmp_path / "out") == before


def test_a_folder_that_holds_only_the_output_is_not_an_input(resharded, tmp_path, capsys):
    shutil.copytree(resharded[1], tmp_path / "out")
    before = files_of(tmp_path / "out")
    flags = ["reshard", "--input", tmp_path / "out", "--output", tmp_path / "out", "--overwrite"]
    refused(capsys, 2, "no TFRecord files among these", *flags)
    assert files_of(tmp_path / "out") == before


# Splits.


def test_a_feature_decides_the_split_and_others_are_dropped(tmp_path):
    sites = ["train", "val", "train", "train"]
    records = [example(id=n, site=sites[n % 4], user=n % 10) for n in range(200)]
    write_plain(tmp_path / "a.tfrecord", records[:100])
    write_plain(tmp_path / "b.tfrecord", records[100:])
    flags = ["reshard", "--input", tmp_path / "*.tfrecord", "--num_shards", 2, "--keep", "id,site"]
    flags += ["--split_column", "site", "--splits", "train,val", "--output", tmp_path / "out"]
    assert run(*flags) == 0
    assert balanced(tmp_path / "out").schema == Schema(
        {"id": Feature("int64"), "site": Feature("string")}
    )
    found = list(readers.RecordSource(tmp_path / "out", "val"))
    assert sorted(int(record["id"]) for record in found) == [*range(1, 200, 4)]
    assert all(record.keys() == {"id", "site"} for record in found)


# Damage.


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """(folder, intact records, key -> pattern of the reason of each reject)."""
    folder = tmp_path_factory.mktemp("damaged")
    records = [example(id=n, name=f"record {n}") for n in range(140)]
    framed = [frame(record) for record in records]
    size = len(framed[10])
    assert all(len(each) == size for each in framed[10:100])

    def write(name, data):
        (folder / name).write_bytes(data)

    whole, reasons = [], {}

    def flipped(name, rows, number, at):
        parts = [bytearray(framed[row]) for row in rows]
        parts[number][at] ^= 4
        write(name, b"".join(parts))

    flipped("data", range(10, 20), 4, 20)
    reasons["data#5"] = f"byte {4 * size}: its checksum does not match its data"
    flipped("footer", range(20, 30), 9, -1)
    reasons["footer#10"] = f"byte {9 * size}: its checksum does not match its data"
    whole += [*records[10:14], *records[15:20], *records[20:29]]
    flipped("length", range(30, 40), 3, 1)
    flipped("length_crc", range(40, 50), 2, 9)
    for name, number in (("length", 3), ("length_crc", 2)):
        reasons[f"{name}#{number + 1}"] = f"byte {number * size}: the checksum of its length"
    whole += [*records[30:33], *records[40:42]]
    write("cut", b"".join(framed[50:60])[:-7])
    reasons["cut#10"] = f"byte {9 * size}: cut off after {size - 7} bytes"
    write("between", b"".join([*framed[60:65], b"garbage", *framed[65:70]]))
    reasons["between#6"] = f"byte {5 * size}: the checksum of its length"
    whole += [*records[50:59], *records[60:65]]
    write("others", b"".join([framed[70], frame(b"no Example"), frame(b""), framed[71]]))
    reasons["others#2"] = f"byte {size}: not an Example: "
    reasons["others#3"] = f"byte {size + 26}: not an Example: it is empty"
    whole += records[70:72]
    huge = frame(bytes(100_000))[:12]
    write("huge", framed[72] + huge)
    reasons["huge#2"] = f"byte {size}: cut off after 12 bytes"
    packed = gzip.compress(b"".join(framed[80:140]), 0)
    write("packed.gz", packed[: len(packed) - 1000])
    unpacked = len(zlib.decompressobj(31).decompress(packed[:-1000]))
    there = sum(end <= unpacked for end in np.cumsum([len(each) for each in framed[80:]]))
    at = sum(map(len, framed[80 : 80 + there]))
    reasons[f"packed.gz#{there + 1}"] = (
        f"byte {at:,}: the rest cannot be read: Compressed file ended"
    )
    whole += [records[72], *records[80 : 80 + there]]
    (folder / "link").symlink_to(folder / "nothing")
    reasons["link"] = "cannot be read: .*No such file"
    return folder, whole, reasons


def test_damaged_records_are_rejected_and_all_others_are_written(damaged, tmp_path, capsys):
    folder, whole, reasons = damaged
    out = tmp_path / "out"
    flags = ["reshard", "--input", folder, *SPLITS, "--num_shards", 5, "--output", out]
    assert run(*flags) == 0
    head, *lines = without_progress(capsys.readouterr().err)
    assert head == f"{len(reasons)} rejected, listed in {out}/rejects/"
    assert "  2: byte …: its checksum does not match its data, such as footer#10" in lines
    assert len(lines) == 5
    assert sum(int(line.partition(":")[0]) for line in lines) == len(reasons)
    manifest = balanced(out)
    assert Counter(written(out)) == Counter(whole)
    listed = rejects_of(out)
    assert listed.keys() == reasons.keys()
    for key, pattern in reasons.items():
        assert re.match(pattern, listed[key]), (key, listed[key])
    assert manifest.schema == Schema({"id": Feature("int64"), "name": Feature("string")})


@pytest.mark.slow
def test_all_workers_reject_the_same_records(damaged, tmp_path):
    flags = ["reshard", "--input", damaged[0], *SPLITS, "--num_shards", 5]
    for name, workers in (("one", ONE), ("two", TWO)):
        assert run(*flags, "--output", tmp_path / name, *workers) == 0
        assert files_of(tmp_path / name) == files_of(tmp_path / "one")


def test_inputs_without_an_example_end_the_job_with_a_reason(tmp_path, capsys):
    (tmp_path / "a").write_bytes(frame(b"no Example") + frame(b"another"))
    flags = ["--input", tmp_path / "a", "--output", tmp_path / "out"]
    pattern = "no record to learn the schema from: a#1: not an Example: "
    refused(capsys, 1, pattern, "reshard", *flags)
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_records_that_do_not_fit_the_first_ones_are_rejected_and_shards_stay_balanced(tmp_path):
    rng = np.random.default_rng(2)
    bad = set(rng.choice([*range(LEARNED, 700)], 90, replace=False).tolist())
    records = [example(id=[n, n] if n in bad else n) for n in range(700)]
    framed = [frame(record) for record in records]
    framed[5] = frame(b"no Example")
    (tmp_path / "a").write_bytes(b"".join(framed))
    out = tmp_path / "out"
    flags = ["reshard", "--input", tmp_path / "a", *SPLITS, "--num_shards", "train=7,val=2"]
    assert run(*flags, "--output", out) == 0
    manifest = balanced(out)
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


def test_sequence_examples_keep_their_bytes_and_are_read(tmp_path):
    records = [
        sequence_example(
            {"id": n, "text": f"record {n}"},
            tokens=[[i, i + 1] for i in range(n % 4)],
            words=[f"word {i}" for i in range(n % 3)],
        )
        for n in range(60)
    ]
    write_plain(tmp_path / "a", records)
    out = tmp_path / "out"
    assert run("reshard", "--input", tmp_path / "a", "--output", out, "--num_shards", 4) == 0
    manifest = balanced(out)
    assert Counter(written(out)) == Counter(records)
    assert manifest.schema == Schema(
        {
            "id": Feature("int64"),
            "text": Feature("string"),
            "tokens": Feature("int64", (None, 2), "list steps"),
            "words": Feature("string", (None,), "text steps"),
        }
    )
    found = {int(record["id"]): record for record in readers.RecordSource(out, "train")}
    for n in range(60):
        tokens = np.array([[i, i + 1] for i in range(n % 4)], np.int64).reshape(-1, 2)
        np.testing.assert_array_equal(found[n]["tokens"], tokens)
        assert found[n]["words"] == [f"word {i}".encode() for i in range(n % 3)]
    assert manifest.splits["train"].statistics["id"]["count"] == 60


# Datasets of this package.


@pytest.mark.slow
def test_a_text_dataset_keeps_its_vocabulary_unless_the_tokens_are_dropped(tmp_path):
    (tmp_path / "a.txt").write_text("one two two\nthree two one\n" * 30)
    flags = ["--input", tmp_path / "a.txt", "--tokens", "words", "--output", tmp_path / "old"]
    assert run("text", *flags) == 0
    assert run("reshard", "--input", tmp_path / "old", "--output", tmp_path / "new") == 0
    words = (tmp_path / "old" / "vocabulary.txt").read_bytes()
    assert (tmp_path / "new" / "vocabulary.txt").read_bytes() == words == b"two\none\nthree\n"
    old, new = Manifest.read(str(tmp_path / "old")), balanced(tmp_path / "new")
    assert new.vocabulary == old.vocabulary == 5
    assert new.splits["train"].statistics == old.splits["train"].statistics
    flags = ["--drop", "tokens", "--output", tmp_path / "dropped"]
    assert run("reshard", "--input", tmp_path / "old", *flags) == 0
    assert balanced(tmp_path / "dropped").vocabulary == 0
    for record in written(tmp_path / "dropped"):
        assert set(tf.train.Example.FromString(record).features.feature) == {"key", "text"}
    assert not (tmp_path / "dropped" / "vocabulary.txt").exists()


def test_a_dataset_keeps_its_splits_and_class_names(tmp_path):
    old, new = write_numbers(tmp_path / "old", val=7), tmp_path / "new"
    damage(old / "val-00000-of-00001.tfrecord", 2)
    flags = ["reshard", "--input", old, "--num_shards", "train=3,val=2"]
    assert run(*flags, "--output", new) == 0
    found = balanced(new)
    assert "splits" not in found.options
    assert {n: (len(s.shards), s.records, s.rejected) for n, s in found.splits.items()} == {
        "train": (3, 20, 0),
        "val": (2, 6, 1),
    }
    assert Counter(written(new, "train")) == Counter(written(old, "train"))
    assert found.label_names == Manifest.read(str(old)).label_names == ("cat", "dog")


def test_a_single_record_makes_a_single_shard_and_a_split_without_records(tmp_path, capsys):
    record = example(id=1)
    write_plain(tmp_path / "a", [record])
    out = tmp_path / "out"
    flags = ["--input", tmp_path / "a", "--output", out, "--num_shards", 8, *SPLITS]
    assert run("reshard", *flags) == 0
    (warning,) = without_progress(capsys.readouterr().err)
    assert warning.startswith("warning: split train is empty: no record fell into it; give it mo")
    balanced(out)
    (shard,) = out.glob("*.tfrecord")
    assert parse_tfrecord(shard.read_bytes()) == [record]


def test_a_file_that_two_patterns_match_is_refused(tmp_path, capsys):
    write_plain(tmp_path / "a", [example(id=1), example(id=2)])
    flags = ["--input", tmp_path / "a", "--input", tmp_path / "*", "--output", tmp_path / "out"]
    refused(capsys, 2, "duplicate key 'a#[12]': .*do two --input patterns match", "reshard", *flags)
    assert not (tmp_path / "out" / "manifest.json").exists()
