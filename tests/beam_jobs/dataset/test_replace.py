"""A dataset that replaces another: whatever is interrupted, one of the two is whole."""

import pytest

from beam_jobs.dataset import replace, reservation
from beam_jobs.dataset.directory import NEXT
from beam_jobs.dataset.output import Output
from beam_jobs.errors import UsageError
from beam_jobs.plan.placement import Placement
from beam_jobs.plan.splits import Splits
from beam_jobs.storage import atomic
from readers.format.manifest import Manifest
from readers.format.schema import Schema
from readers.format.splits import Shard, Split

OLD = {
    "manifest.json": b"old",
    "vocabulary.txt": b"old",
    "tokenizer.json": b"old",
    "train-00000-of-00002.tfrecord": b"old 0",
    "train-00001-of-00002.tfrecord": b"old 1",
    "rejects/train-00000-of-00002.jsonl": b"old",
}
SHARDS = {
    "train": ("train-00000-of-00002.tfrecord", "train-00001-of-00002.tfrecord"),
    "val": ("val-00000-of-00001.tfrecord",),
}
NEW_MANIFEST = Manifest(
    Schema({"x": ("int64",)}),
    {
        split: Split(tuple(Shard(name, 1, 5, 0, 7, 0) for name in names))
        for split, names in SHARDS.items()
    },
).to_bytes()
NEW = {
    name: f"new {name}".encode()
    for names in SHARDS.values()
    for shard in names
    for name in (shard, f"{shard}.index")
} | {"manifest.json": NEW_MANIFEST, "vocabulary.txt": b"new words"}


def write(directory, files):
    for name, data in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)


def files_of(directory):
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def output(directory, overwrite=True):
    return Output(
        str(directory), Schema({"x": ("int64",)}), Placement(0, Splits()), (1,), overwrite=overwrite
    )


class Crash(BaseException):
    """The end of a process."""


@pytest.fixture
def crash_at(monkeypatch):
    """A function that makes the n-th change of the disk the last; it returns how many there were."""
    changes = []

    def set_last(last):
        changes.clear()
        for module, name in (
            (replace, "write_file"),
            (replace, "delete_files"),
            (atomic, "_rename"),
            (replace, "clear_staging"),
        ):
            monkeypatch.setattr(module, name, counted(getattr(module, name), last))
        return changes

    def counted(function, last):
        def call(*arguments):
            if len(changes) == last:
                raise Crash
            changes.append(function.__name__)
            return function(*arguments)

        return call

    yield set_last
    monkeypatch.undo()


def test_a_complete_dataset_moves_to_the_place_of_the_old_one(tmp_path):
    write(tmp_path, OLD)
    write(tmp_path / NEXT, NEW)
    replace.replace_dataset(str(tmp_path))
    assert files_of(tmp_path) == NEW
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(NEW)  # no empty folder
    replace.replace_dataset(str(tmp_path))
    assert files_of(tmp_path) == NEW


def test_an_unfinished_dataset_replaces_nothing(tmp_path):
    write(tmp_path, OLD)
    write(tmp_path / NEXT, {name: data for name, data in NEW.items() if name != "manifest.json"})
    before = files_of(tmp_path)
    replace.replace_dataset(str(tmp_path))
    replace.finish_replacement(str(tmp_path))
    assert files_of(tmp_path) == before


@pytest.mark.parametrize("last", range(13))
def test_an_interrupted_move_leaves_one_dataset_whole_and_is_finished_later(
    tmp_path, crash_at, monkeypatch, last
):
    write(tmp_path, OLD)
    write(tmp_path / NEXT, NEW)
    crash_at(last)
    with pytest.raises(Crash):
        replace.replace_dataset(str(tmp_path))
    monkeypatch.undo()
    left = files_of(tmp_path)
    if left.get("manifest.json") == b"old":
        assert OLD.items() <= left.items()
        replace.replace_dataset(str(tmp_path))  # the job's own next attempt
    elif left.get("manifest.json") == NEW_MANIFEST:
        assert NEW.items() <= left.items()
    replace.finish_replacement(str(tmp_path))
    assert files_of(tmp_path) == NEW


def test_the_cases_above_are_all_changes_of_the_disk(tmp_path, crash_at):
    write(tmp_path, OLD)
    write(tmp_path / NEXT, NEW)
    changes = crash_at(99)
    replace.replace_dataset(str(tmp_path))
    assert len(changes) == 13
    assert changes.count("_rename") == len(NEW) + 1  # and that of the journal


def test_a_job_writes_beside_a_complete_dataset_only(tmp_path):
    assert replace.placed(output(tmp_path / "new")).directory == f"{tmp_path}/new"
    write(tmp_path / "half", {".staging/UNFINISHED": b""})
    assert replace.placed(output(tmp_path / "half")).directory == f"{tmp_path}/half"
    write(tmp_path / "out", OLD)
    found = replace.placed(output(tmp_path / "out"))
    assert found.directory == f"{tmp_path}/out/{NEXT}"
    assert found.replaces == found.destination == f"{tmp_path}/out"
    with pytest.raises(UsageError, match="a dataset is here already"):
        replace.placed(output(tmp_path / "out", overwrite=False))


def test_a_foreign_file_in_the_new_dataset_is_refused(tmp_path):
    write(tmp_path, OLD)
    write(tmp_path / NEXT, {"notes.txt": b""})
    with pytest.raises(UsageError, match=r"it holds '\.staging/next/notes\.txt'"):
        replace.placed(output(tmp_path))


def test_a_failed_move_is_reported_in_one_line(tmp_path, monkeypatch):
    write(tmp_path, OLD)
    write(tmp_path / NEXT, NEW)

    def refuse(_):
        raise PermissionError("not permitted")

    monkeypatch.setattr(replace, "move_files", refuse)
    with pytest.raises(PermissionError):
        replace.replace_dataset(str(tmp_path))
    with pytest.raises(
        UsageError, match=r"left a complete dataset in \.staging/next, which cannot"
    ):
        replace.finish_replacement(str(tmp_path))


@pytest.mark.parametrize("journal", [b"", b'[["a"]]', b"[" * 100_000])
def test_a_damaged_journal_is_made_anew(tmp_path, journal):
    write(tmp_path, OLD)
    write(tmp_path / NEXT, NEW)
    write(tmp_path, {replace.JOURNAL: journal})
    replace.finish_replacement(str(tmp_path))
    assert files_of(tmp_path) == NEW


def test_one_of_two_jobs_finishes_an_interrupted_move(tmp_path):
    write(tmp_path, OLD)
    write(tmp_path / NEXT, NEW)
    with (
        reservation.reserved(str(tmp_path), "images"),
        pytest.raises(UsageError, match="another job is writing here: images"),
    ):
        replace.finish_replacement(str(tmp_path))
    assert OLD.items() <= files_of(tmp_path).items()
