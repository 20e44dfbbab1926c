"""`readers.export_npy`: the files, resuming, full disks and memory."""

from __future__ import annotations

import contextlib
import json
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import readers
from readers import export
from readers.__main__ import main
from readers.export_file import PartialNpy
from readers.format.dtypes import numpy_dtype
from readers.format.schema import Schema
from tests.support.datasets import NUMBERS, flip, numbers, write_dataset, write_numbers
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
    monkeypatch.setattr(export, "_CHUNK_RECORDS", 3)


@pytest.mark.parametrize("name", [name for name in SCHEMA if name != "key"])
def test_an_exported_file_equals_one_saved_by_numpy(dataset, tmp_path, small_chunks, name):
    path = readers.export_npy(dataset, feature=name, output=tmp_path / "out.npy")
    assert path == tmp_path / "out.npy"
    assert path.read_bytes() == expected_file(tmp_path, name)
    assert list(tmp_path.glob("out*")) == [path]


def test_several_features_are_written_to_a_directory_in_one_pass(dataset, tmp_path, monkeypatch):
    read = []
    columns = export.Records.columns

    def counted(self, numbers):
        read.extend(numbers.tolist())
        return columns(self, numbers)

    monkeypatch.setattr(export.Records, "columns", counted)
    names = ["wide", "image", "label", "wide"]
    paths = readers.export_npy(dataset, feature=names, output=str(tmp_path / "a" / "b"))
    assert paths == [tmp_path / "a" / "b" / f"{name}.npy" for name in names]
    for name, path in zip(names, paths, strict=True):
        assert path.read_bytes() == expected_file(tmp_path, name)
    assert read == list(range(11))
    assert len(list((tmp_path / "a" / "b").iterdir())) == 3


def test_rows_are_the_records_of_a_slice_in_their_order(tmp_path, small_chunks):
    dataset = write_numbers(tmp_path / "numbers")
    path = readers.export_npy(dataset, "vector", tmp_path / "v.npy", split="train[3:12]")
    found = np.load(path, mmap_mode="r")
    assert found.tolist() == [[i] * 3 for i in range(3, 12)]


def test_files_without_a_manifest_can_be_exported(tmp_path):
    files = sorted(write_numbers(tmp_path / "numbers").glob("train*.tfrecord"))
    path = readers.export_npy(files, "id", tmp_path / "id.npy", schema=NUMBERS)
    assert np.load(path).tolist() == list(range(20))


def test_an_empty_split_becomes_an_array_without_rows(dataset, tmp_path):
    path = readers.export_npy(dataset, "image", tmp_path / "image.npy", split="val")
    found = np.load(path, mmap_mode="r")
    assert (found.shape, found.dtype) == ((0, 4, 5, 3), np.uint8)


@pytest.mark.parametrize(
    ("feature", "output", "message"),
    [
        ("key", "x.npy", "feature 'key' is text.*readers.as_numpy"),
        ("signal", "x.npy", r"shape \[None, 2\]: None is a size that.*batching='padded'"),
        ("odd", "x.npy", "feature 'odd' is bfloat16"),
        ("imgae", "x.npy", "unknown feature 'imgae': the dataset has "),
        (["label", "a/b"], "x", "feature 'a/b': its name cannot be a file name; export it alone"),
        ([], "x", r"feature=\[\]: expected a list of feature names"),
        (3, "x", "feature=3: expected a list of feature names"),
        ("label", "s3://bucket/x.npy", "output='s3://bucket/x.npy': expected a local path"),
        ("label", ".", "is a directory: expected a file"),
        (["label"], "file", "is a file: a list of features needs a directory"),
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


def test_a_feature_with_a_slash_in_its_name_can_be_exported_alone(tmp_path):
    schema = Schema({"a/b": ("int64", ())})
    write_dataset(tmp_path / "data", schema, {"train": [[{"a/b": 4}]]})
    assert np.load(readers.export_npy(tmp_path / "data", "a/b", tmp_path / "ab.npy")) == [4]


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


# Resuming.


def unfinished(dataset, feature, output, chunks, monkeypatch, **arguments):
    """An export that is interrupted after some chunks of three records, each of them saved."""
    with monkeypatch.context() as patch:
        patch.setattr(export, "_CHUNK_RECORDS", 3)
        patch.setattr(export, "_SECONDS_BETWEEN_SAVES", -1)
        columns, calls = export.Records.columns, []

        def ending(self, numbers):
            calls.append(numbers)
            if len(calls) > chunks:
                raise KeyboardInterrupt
            return columns(self, numbers)

        patch.setattr(export.Records, "columns", ending)
        with pytest.raises(KeyboardInterrupt):
            readers.export_npy(dataset, feature, output, **arguments)


def test_a_run_resumes_after_the_rows_that_another_saved(dataset, tmp_path, monkeypatch):
    output = tmp_path / "label.npy"
    unfinished(dataset, "label", output, 2, monkeypatch)
    note = json.loads((tmp_path / "label.npy.partial.json").read_text())
    assert (note["rows"], note["shape"], note["dtype"]) == (6, [11], "<i8")
    size = (tmp_path / "label.npy.partial").stat().st_size
    assert size == len(expected_file(tmp_path, "label"))
    (tmp_path / "expected-label.npy").unlink()
    flip(tmp_path / "label.npy.partial", -11 * 8)  # Row 0, which must not be written again.
    found = np.load(readers.export_npy(dataset, "label", output)).tolist()
    assert found[0] != RECORDS[0]["label"]
    assert found[1:] == [record["label"] for record in RECORDS[1:]]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["label.npy"]


@pytest.mark.parametrize("change", ["dataset", "feature", "split", "schema", "note", "cut", "head"])
def test_a_run_does_not_resume_with_rows_of_other_data(tmp_path, monkeypatch, change):
    schema = Schema({"a": ("int64", ()), "b": ("int64", ())})

    def write(name, sign):
        records = [{"a": sign * i, "b": sign * 100 * i} for i in range(20)]
        return write_dataset(tmp_path / name, schema, {"train": [records]})

    dataset, output = write("one", 1), tmp_path / "x.npy"
    unfinished(dataset, "a", output, 3, monkeypatch, split="train[:10]")
    partial, note = tmp_path / "x.npy.partial", tmp_path / "x.npy.partial.json"
    feature, split, sign, factor, first = "a", "train[:10]", 1, 1, 0
    if change == "dataset":
        dataset, sign = write("two", -1), -1
    elif change == "feature":
        feature, factor = "b", 100
    elif change == "split":
        split, first = "train[10:]", 10
    elif change == "schema":
        shutil.rmtree(dataset)
        write_dataset(dataset, schema, {"train": [[{"a": 7, "b": 8}] * 10]})
        factor = 0
    elif change == "note":
        note.write_bytes(note.read_bytes()[:-5])
    elif change == "cut":
        partial.write_bytes(partial.read_bytes()[: 128 + 2 * 8])
    else:
        flip(partial, 20)
    found = np.load(readers.export_npy(dataset, feature, output, split=split)).tolist()
    assert found == [sign * factor * i or 7 * (factor == 0) for i in range(first, first + 10)]


def test_an_export_of_rewritten_files_starts_over(tmp_path, monkeypatch):
    output, schema = tmp_path / "id.npy", {"schema": NUMBERS}
    write_dataset(tmp_path, NUMBERS, {"train": [numbers(0, 9)]})
    (file,) = tmp_path.glob("*.tfrecord")
    unfinished([file], "id", output, 2, monkeypatch, **schema)
    write_dataset(tmp_path, NUMBERS, {"train": [numbers(1, 9)]})
    assert np.load(readers.export_npy([file], "id", output, **schema)).tolist() == [*range(1, 10)]


def test_a_run_does_not_resume_with_rows_that_another_began_to_replace(
    dataset, tmp_path, monkeypatch
):
    other = write_dataset(tmp_path / "other", SCHEMA, {"train": [RECORDS[::-1]]})
    output = tmp_path / "label.npy"
    unfinished(dataset, "label", output, 3, monkeypatch)
    unfinished(other, "label", output, 0, monkeypatch)
    path = readers.export_npy(dataset, "label", output)
    assert path.read_bytes() == expected_file(tmp_path, "label")


def test_a_file_that_another_run_has_just_finished_is_not_touched(dataset, tmp_path, monkeypatch):
    output = tmp_path / "label.npy"
    lock, other = PartialNpy._lock, PartialNpy(output, "other", np.dtype("<i8"), (11,))
    opened = contextlib.ExitStack()
    opened.enter_context(other.opened())
    other.write(0, np.arange(11))

    def ended(self):
        other.commit()
        opened.close()
        lock(self)

    monkeypatch.setattr(PartialNpy, "_lock", ended)
    with pytest.raises(FileExistsError, match="already exists"):
        readers.export_npy(dataset, "label", output)
    assert np.load(output).tolist() == list(range(11))


def test_two_runs_cannot_write_the_same_file(dataset, tmp_path):
    output = tmp_path / "label.npy"
    other = PartialNpy(output, "other", np.dtype("<i8"), (11,))
    with other.opened():
        other.save(0)
        with pytest.raises(BlockingIOError, match="another process is writing it"):
            readers.export_npy(dataset, "label", output)
    readers.export_npy(dataset, "label", output)


def python(*arguments, **options):
    line = [sys.executable, *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, **options)


KILLED_AT_EVERY_STEP = """
import os, pathlib, shutil, signal, sys
import readers
from readers import export

dataset, work, names = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
export._CHUNK_RECORDS, export._SECONDS_BETWEEN_SAVES = 4, -1
steps = {"open", "os.rename", "os.remove", "os.mkdir", "os.truncate", "mmap.__new__", "fcntl.flock"}
readers.export_npy(dataset, names, work / "expected")
expected = {path.name: path.read_bytes() for path in (work / "expected").iterdir()}
kept = []
for step in range(1, 1000):
    out = work / "out"
    child = os.fork()
    if not child:
        left = [step]
        def count(event, arguments):
            if event in steps and str(out) in str(arguments) or event == "mmap.__new__":
                left[0] -= 1
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(count)
        readers.export_npy(dataset, names, out)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    for path in out.glob("*.npy"):
        assert path.read_bytes() == expected[path.name], (step, path)
    if not status:
        break
    assert os.WTERMSIG(status) == signal.SIGKILL, step
    rows = []
    columns = export.Records.columns
    export.Records.columns = lambda self, numbers: (rows.extend(numbers), columns(self, numbers))[1]
    readers.export_npy(dataset, names, out)
    export.Records.columns = columns
    kept.append(11 - len(rows))
    assert {path.name: path.read_bytes() for path in out.iterdir()} == expected, step
    shutil.rmtree(out)
print(step, sorted(set(kept)))
"""


def test_a_run_killed_at_any_step_is_completed_by_the_next(dataset, tmp_path):
    done = python("-c", KILLED_AT_EVERY_STEP, dataset, tmp_path, "image", "label")
    assert done.returncode == 0, done.stderr
    steps, kept = done.stdout.split(maxsplit=1)
    assert int(steps) > 30
    assert json.loads(kept) == [0, 4, 8, 11]


# Disks.


def test_a_file_over_the_size_limit_gives_a_one_line_error_and_leaves_no_file(dataset, tmp_path):
    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))

    arguments = ["export", dataset, "--feature", "image", "--output", tmp_path / "x.npy"]
    done = python("-m", "readers", *arguments, preexec_fn=limited)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"error: {tmp_path}/x.npy: cannot reserve 788 bytes (File too large); free some space, or "
        "choose another output\n"
    )
    assert list(tmp_path.iterdir()) == []
    # Nor does it leave an earlier file, for which there is space.
    arguments = ["export", dataset, "--feature", "icon", "--feature", "image", "--output", tmp_path]
    done = python("-m", "readers", *arguments, preexec_fn=limited)
    assert f"{tmp_path}/image.npy: cannot reserve 788 bytes" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def disk(tmp_path):
    """A disk of 64 KiB."""
    path = tmp_path / "disk"
    path.mkdir()
    arguments = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(path)]
    subprocess.run(arguments, check=True)  # as root
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.mark.disks
def test_a_full_disk_gives_a_one_line_error_and_is_left_unchanged(tmp_path, disk):
    schema = Schema({"x": ("uint8", (1000,))})
    records = [{"x": np.full(1000, i, np.uint8)} for i in range(100)]
    dataset = write_dataset(tmp_path / "data", schema, {"train": [records]})
    arguments = ["export", dataset, "--feature", "x", "--output", disk / "x.npy"]
    done = python("-m", "readers", *arguments)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "x.npy: cannot reserve 100,128 bytes (No space left on device)" in done.stderr
    assert list(disk.iterdir()) == []
    subprocess.run(["mount", "-o", "remount,size=1m", str(disk)], check=True)
    assert python("-m", "readers", *arguments).returncode == 0
    assert (np.load(disk / "x.npy") == np.arange(100)[:, None]).all()


@pytest.mark.disks
def test_a_disk_that_fills_up_during_an_export_keeps_the_saved_rows(tmp_path, disk, monkeypatch):
    schema = Schema({"x": ("uint8", (4000,))})
    records = [{"x": np.full(4000, i, np.uint8)} for i in range(9)]
    dataset = write_dataset(tmp_path / "data", schema, {"train": [records]})
    unfinished(dataset, "x", disk / "x.npy", 2, monkeypatch)
    with (disk / "other").open("wb", buffering=0) as other, pytest.raises(OSError):
        while True:
            other.write(bytes(1000))
    with pytest.raises(OSError, match=r"cannot save row 9 \(No space left on device\); free"):
        readers.export_npy(dataset, "x", disk / "x.npy")
    assert json.loads((disk / "x.npy.partial.json").read_text())["rows"] == 6
    (disk / "other").unlink()
    found = np.load(readers.export_npy(dataset, "x", disk / "x.npy"))
    assert (found == np.arange(9)[:, None]).all()


# The command.


def test_the_command_exports_one_feature_or_several(dataset, tmp_path, capsys):
    arguments = ["export", str(dataset), "--output", f"{tmp_path}/one.npy", "--split", "train[2:5]"]
    assert main([*arguments, "--feature", "label"]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/one.npy\n"
    assert np.load(tmp_path / "one.npy").tolist() == [-1, 0, 1]
    several = ["--feature", "label", "--feature", "image"]
    assert main(["export", str(dataset), "--output", f"{tmp_path}/more", *several]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/more/label.npy\n{tmp_path}/more/image.npy\n"


def test_the_exit_code_distinguishes_mistakes_from_damage(dataset, tmp_path, capsys):
    arguments = ["export", str(dataset), "--feature", "label", "--output", f"{tmp_path}/l.npy"]
    assert main([*arguments, "--split", "test"]) == 2
    assert "unknown split 'test'" in capsys.readouterr().err
    broken = shutil.copytree(dataset, tmp_path / "broken")
    flip(broken / "train-00000-of-00003.tfrecord", 40)
    arguments[1] = str(broken)
    assert main(arguments) == 1
    assert capsys.readouterr().err.count("\n") == 1


# Memory.

BIG = Schema({"x": ("float32", (224, 224, 3)), "label": ("int64", ())})

PEAK = """
import pathlib, sys
sys.modules["tensorflow"] = None
import readers

def peak():
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10

dataset, how, output = sys.argv[1:]
before = peak()
if how == "export":
    readers.export_npy(dataset, ["x", "label"], output)
else:
    for batch in readers.as_numpy(dataset, batch_size=16, shuffle=how == "shuffled"):
        batch["x"].sum()
print(before, peak())
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A dataset of 0.6 GB."""
    path = tmp_path_factory.mktemp("large")
    record = {"x": np.ones((224, 224, 3), np.float32), "label": 1}
    write_dataset(path / "data", BIG, {"train": [[record] * 128] * 8})
    yield path / "data"
    shutil.rmtree(path)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("how", ["in order", "shuffled", "export"])
def test_memory_stays_within_four_batches(large, tmp_path, how):
    batch = 16 * 224 * 224 * 3 * 4
    size = sum(path.stat().st_size for path in large.iterdir())
    assert size > 10 * (4 * batch + (20 << 20))
    done = python("-c", PEAK, large, how, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    before, peak = map(int, done.stdout.split())
    assert peak - before < 4 * batch + (20 << 20)
    assert peak < 4 * batch + (200 << 20)
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
