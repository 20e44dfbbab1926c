"""`readers.export_npy`: the files, full disks and memory."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pytest

import readers
from readers import export
from readers.__main__ import main
from readers.format.dtypes import numpy_dtype
from readers.format.schema import Schema
from tests.support.datasets import flip, write_dataset, write_numbers
from tests.support.images import encoded

SCHEMA = Schema(
    {
        "image": ("uint8", (4, 5, 3)),
        "label": ("int64", ()),
        "half": ("float16", (2,), "list"),
        "wide": ("complex64", (3,)),
        "flag": ("bool", (), "list"),
        "raw": ("int16", (2, 2), "raw"),
        "steps": ("float32", (2, 3), "sequence"),
        "icon": ("uint8", (2, 2, 3), "png"),
        "nothing": ("float32", (0, 3)),
        "key": ("string", ()),
    }
)


def pixels(i):
    return np.random.default_rng(i).integers(0, 256, (2, 2, 3)).astype(np.uint8)


def record(i):
    rng = np.random.default_rng(100 + i)
    return {
        "image": rng.integers(0, 256, (4, 5, 3)).astype(np.uint8),
        "label": i - 3,
        "half": rng.normal(size=2).astype(np.float16),
        "wide": rng.normal(size=3).astype(np.complex64),
        "flag": bool(i % 3),
        "raw": rng.integers(-9, 9, (2, 2)).astype(np.int16),
        "steps": list(rng.normal(size=(2, 3)).astype(np.float32)),
        "icon": encoded(pixels(i), "PNG"),
        "nothing": np.empty((0, 3), np.float32),
        "key": f"k{i}",
    }


RECORDS = [record(i) for i in range(11)]


def expected_file(tmp_path, name, records=RECORDS):
    """The bytes of the file that `np.save` writes for a feature."""
    values = [pixels(i) for i in range(len(records))] if name == "icon" else None
    array = np.array(values or [r[name] for r in records], numpy_dtype(SCHEMA[name].dtype))
    path = tmp_path / f"expected-{name}.npy"
    np.save(path, array)
    return path.read_bytes()


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    shards = [RECORDS[:4], [], RECORDS[4:]]
    return write_dataset(tmp_path_factory.mktemp("some"), SCHEMA, {"train": shards, "val": [[]]})


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(export, "records_together", lambda plan: 3)


def test_an_exported_file_equals_one_saved_by_numpy(dataset, tmp_path, small_chunks):
    for name in SCHEMA:
        if name != "key":
            path = readers.export_npy(dataset, feature=name, output=tmp_path / f"{name}.npy")
            assert path == tmp_path / f"{name}.npy"
            assert path.read_bytes() == expected_file(tmp_path, name), name
    assert not list(tmp_path.glob("*.partial"))


def test_several_features_are_written_to_a_directory_in_one_pass(dataset, tmp_path, monkeypatch):
    read = []
    batches = export.Records.batches

    def counted(self, numbers, bounds):
        read.extend(numbers.tolist())
        return batches(self, numbers, bounds)

    monkeypatch.setattr(export.Records, "batches", counted)
    names = ["wide", "image", "label", "wide"]
    paths = readers.export_npy(dataset, feature=names, output=str(tmp_path / "a" / "b"))
    assert paths == [tmp_path / "a" / "b" / f"{name}.npy" for name in names]
    for name, path in zip(names, paths, strict=True):
        assert path.read_bytes() == expected_file(tmp_path, name)
    assert read == list(range(11))
    assert len(list((tmp_path / "a" / "b").iterdir())) == 3


@pytest.mark.parametrize(
    ("feature", "output", "message"),
    [
        ("key", "x.npy", "feature 'key' is text.*readers.as_numpy"),
        ("signal", "x.npy", r"shape \[None, 2\], which varies.*batching='padded'"),
        ("odd", "x.npy", "feature 'odd' is bfloat16"),
        ("imgae", "x.npy", "unknown feature 'imgae': the dataset has "),
        (["label", "a/b"], "x", "feature 'a/b': its name cannot be a file name; export it alone"),
        ([], "x", r"feature=\[\]: expected a list of feature names"),
        (3, "x", "feature=3: expected a list of feature names"),
        ("label", "s3://bucket/x.npy", "output='s3://bucket/x.npy': expected a local path"),
        ("label", ".", "is a directory: expected a file"),
        (["label"], "file", "is a file: several features need a directory"),
    ],
)
def test_an_impossible_export_is_rejected_before_any_file_is_created(
    tmp_path, monkeypatch, feature, output, message
):
    schema = Schema(
        {
            "label": ("int64", ()),
            "key": ("string", ()),
            "signal": ("float32", (None, 2)),
            "odd": ("bfloat16", (2,)),
            "a/b": ("int64", ()),
        }
    )
    write_dataset(tmp_path / "data", schema, {"train": [[]]})
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("mine")
    with pytest.raises(ValueError, match=message):
        readers.export_npy("data", feature, output)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "file"]


def test_existing_files_are_not_replaced(dataset, tmp_path):
    (tmp_path / "label.npy").write_text("mine")
    for feature, output in [("label", tmp_path / "label.npy"), (["image", "label"], tmp_path)]:
        with pytest.raises(FileExistsError, match=r"label\.npy: already exists; delete it"):
            readers.export_npy(dataset, feature, output)
    assert (tmp_path / "label.npy").read_text() == "mine"
    assert list(tmp_path.glob("image*")) == []


def test_a_damaged_record_is_reported_and_leaves_no_file(tmp_path):
    dataset = write_numbers(tmp_path / "numbers")
    flip(dataset / "train-00003-of-00004.tfrecord", -1)
    with pytest.raises(ValueError, match=r"record 3 at byte .*fails its CRC32C"):
        readers.export_npy(dataset, "vector", tmp_path / "v.npy")
    assert list(tmp_path.glob("v*")) == []


def test_an_export_that_fails_leaves_no_file_and_one_that_was_killed_is_named(
    dataset, tmp_path, monkeypatch
):
    output = tmp_path / "label.npy"
    with monkeypatch.context() as patch:

        def interrupted(self, numbers, bounds):
            assert (tmp_path / "label.npy.partial").exists()
            raise KeyboardInterrupt

        patch.setattr(export.Records, "batches", interrupted)
        with pytest.raises(KeyboardInterrupt):
            readers.export_npy(dataset, "label", output)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "label.npy.partial").write_text("of another process")
    with pytest.raises(FileExistsError, match=r"label\.npy\.partial: another export .*delete"):
        readers.export_npy(dataset, "label", output)
    assert (tmp_path / "label.npy.partial").read_text() == "of another process"


def test_a_full_disk_gives_a_one_line_error_and_leaves_no_file(dataset, tmp_path, capsys):
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    arguments = ["export", str(dataset), "--feature", "label", "--feature", "image"]
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, former[1]))
    try:
        assert main([*arguments, "--output", f"{tmp_path}"]) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)
    assert capsys.readouterr().err == (
        f"error: {tmp_path}/image.npy.partial: cannot be written (File too large); free some space, "
        "or choose another output\n"
    )
    assert list(tmp_path.iterdir()) == []


# The command.


def test_the_command_exports_one_feature_or_several(dataset, tmp_path, capsys):
    arguments = ["export", str(dataset), "--output", f"{tmp_path}/one.npy", "--split", "train[2:5]"]
    assert main([*arguments, "--feature", "label"]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/one.npy\n"
    assert np.load(tmp_path / "one.npy").tolist() == [-1, 0, 1]
    several = ["--feature", "label", "--feature", "image"]
    assert main(["export", str(dataset), "--output", f"{tmp_path}/more", *several]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/more/label.npy\n{tmp_path}/more/image.npy\n"


# Memory.
