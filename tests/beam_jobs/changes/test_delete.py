"""Deleted records are gone for every reader, and nothing else changes; the oracle is a dataset without them."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

import readers
from beam_jobs.changes import delete as delete_command
from beam_jobs.dataset import changes, generations
from beam_jobs.errors import DataError, UsageError
from readers.format.lookup.stored import StoredSplit
from readers.format.manifest import Manifest
from tests.support.living import batches, command, files_of, living, record, write_living

ALL = range(40)


def by_key(directory, numbers):
    file = directory.parent / "keys"
    lines = [f"k{n}" if n % 2 else json.dumps({"key": f"k{n}", "error": "x"}) for n in numbers]
    file.write_text("\r\n".join(lines))
    return ["--keys", file]


def by_row(directory, numbers):
    """The rows of one split."""
    file = directory.parent / "rows"
    seen = living(directory)["train"]
    file.write_text("\n".join(str(row) for row, n in enumerate(seen) if n in numbers))
    return ["--rows", file, "--split", "train"]


def by_label(directory, numbers):
    labels = [9, *(n % 4 for n in [*numbers][:2])]
    return ["--where", f"label in {labels}"]


STEPS = st.lists(
    st.tuples(
        st.sampled_from([by_key, by_row, by_label]), st.sets(st.sampled_from(ALL), max_size=12)
    ),
    min_size=1,
    max_size=3,
)


def fits(how, number, split, numbers):
    if how is by_label:
        return number % 4 in [n % 4 for n in [*numbers][:2]]
    return number in numbers and (how is by_key or split == "train")


@settings(max_examples=10, deadline=None)
@given(STEPS)
@example([(by_label, {1, 2}), (by_label, {0, 3})])
def test_a_history_of_deletions_is_as_if_the_records_had_not_been_written(steps):
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder, "photos")
        write_living(directory, ALL)
        model, stored = living(directory), files_of(directory)
        was = {"photos@1": batches(directory, "train")}
        for how, numbers in steps:
            flags = how(directory, numbers)
            before = Manifest.read(directory)
            if how is by_row and before.operation.get("rows") and not numbers:
                continue
            command("delete", directory, *flags, "--missing", "ok")
            rest = {s: [n for n in ns if not fits(how, n, s, numbers)] for s, ns in model.items()}
            assert Manifest.read(directory).generation == before.generation + (rest != model)
            assert living(directory) == rest
            model = rest
            name = f"photos@{Manifest.read(directory).generation}"
            if model["train"]:
                was[name] = batches(directory, "train")
        assert readers.verify(directory).ok
        # No file has changed, and older generations read the same.
        assert (
            stored.items() - {("manifest.json", stored["manifest.json"])}
            <= files_of(directory).items()
        )
        for name, expected in was.items():
            assert batches(Path(folder, name), "train") == expected
        whole = [str(path) for path in directory.rglob("*.tfrecord")]
        assert sum(1 for _ in tf.data.TFRecordDataset(whole)) == len(ALL)
        left = sorted(n for numbers in model.values() for n in numbers)
        if not left:  # A dataset cannot be written without records.
            assert {s.records for s in Manifest.read(directory).splits.values()} == {0}
            return
        plain = Path(folder, "plain")
        write_living(plain, left)
        expected = Manifest.read(plain).splits
        for split, found in Manifest.read(directory).splits.items():
            assert found.records == expected[split].records
            for feature, figures in found.statistics.items():
                exact(figures, expected[split].statistics[feature])


def exact(found, expected):
    """Compares statistics, of which the extremes may be bounds."""
    for name in {*found, *expected}:
        if name in ("min", "max"):
            assert found["min"] <= expected["min"] <= expected["max"] <= found["max"]
        elif name == "lengths":
            for axis in {*found[name], *expected[name]}:
                exact(found[name][axis], expected[name][axis])
        else:
            assert found[name] == expected[name]


def test_every_reader_and_command_reads_what_is_left(tmp_path):
    directory, plain = tmp_path / "photos", tmp_path / "plain"
    write_living(directory, ALL)
    command("delete", directory, "--key", "k1", "--key", "k4", "--key", "k21")
    write_living(plain, [n for n in ALL if n not in (1, 4, 21)])
    found, expected = readers.open(directory), readers.open(plain)
    np.testing.assert_array_equal(found.class_weights("train"), expected.class_weights("train"))
    of = readers.transforms.Moments.of
    assert of(found.manifest, "train", "levels") == of(expected.manifest, "train", "levels")
    one, two = readers.check(directory), readers.check(plain)
    assert [str(f) for f in one.findings] == [str(f) for f in two.findings]
    assert str(one) == str(two)
    assert not [f for f in readers.check(directory, against=plain).findings if f.check == "drift"]
    assert "min at least" in str(found)
    page = readers.report(directory, tmp_path / "page.html").read_text()
    assert "≥ 0" in page and "≤ 39" in page


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--key", "k1", "--key", "zz", "--key", "yy"],
            "2 of the keys not found: yy, zz; nothing was",
        ),
        (["--key", "k1", "--split", "test"], "unknown split 'test': the dataset has train, val"),
        (["--where", "lable == 1"], "lable"),
        (["--rows", "ROWS"], "--rows: add --split, because there are train, val"),
        (["--rows", "ROWS", "--split", "val"], "numbers from 3 to 99, but there are"),
        (["--rows", "WORDS", "--split", "val"], "expected a number on each line"),
        (["--rows", "ROWS", "--key", "k1"], "not allowed with"),
        ([], "one of the arguments --where --rows --keys --key is required"),
    ],
)
def test_mistakes_change_nothing(tmp_path, monkeypatch, flags, message):
    write_living(tmp_path / "photos", ALL)
    before = files_of(tmp_path / "photos")
    monkeypatch.chdir(tmp_path)
    Path("ROWS").write_text("3\n99\n")
    Path("WORDS").write_text("cat")
    with pytest.raises((UsageError, ValueError), match=message):
        command("delete", "photos", *flags)
    assert files_of(tmp_path / "photos") == before


def test_the_same_rows_are_not_deleted_twice(tmp_path):
    write_living(tmp_path / "photos", ALL)
    (tmp_path / "rows").write_text("0\n")
    how = "delete", tmp_path / "photos", "--rows", tmp_path / "rows", "--split", "train"
    command(*how)
    with pytest.raises(UsageError, match="generation 2 has deleted these rows"):
        command(*how)


def test_a_split_may_lose_all_records(tmp_path):
    write_living(tmp_path / "photos", ALL)
    command("delete", tmp_path / "photos", "--where", "label >= 0", "--split", "val")
    found = Manifest.read(tmp_path / "photos").splits["val"]
    assert (found.records, {*map(str, found.statistics.values())}) == (0, {"{}"})
    assert living(tmp_path / "photos")["val"] == []
    assert "stays generation 2" in command("delete", tmp_path / "photos", "--where", "label > 8")


NAMED = [(changes, "write_file"), (delete_command, "without"), (generations, "write_file")]
NAMED += [(generations, name) for name in ("sync_names", "delete_files", "drop_uploads")]


@pytest.mark.parametrize("step", range(14))
def test_a_killed_deletion_leaves_a_whole_dataset_and_is_repeated_to_the_same_bytes(
    tmp_path, monkeypatch, step
):
    how = "--key", "k3", "--key", "k7", "--key", "k11"
    for name in ("photos", "plain"):
        write_living(tmp_path / name, ALL)
    command("delete", tmp_path / "plain", *how)
    left = step

    def counted(original):
        def call(*arguments, **named):
            nonlocal left
            if not left:
                raise KeyboardInterrupt
            left -= 1
            return original(*arguments, **named)

        return call

    for module, name in NAMED:
        monkeypatch.setattr(module, name, counted(getattr(module, name)))
    try:
        command("delete", tmp_path / "photos", *how)
    except KeyboardInterrupt:
        pass
    else:
        assert step > 9
    monkeypatch.undo()
    whole = Manifest.read(tmp_path / "photos")
    assert sum(map(len, living(tmp_path / "photos").values())) == len(ALL) - 3 * (
        whole.generation - 1
    )
    if whole.generation == 1:
        command("delete", tmp_path / "photos", *how)
    else:
        with pytest.raises(UsageError, match="3 of the keys not found"):
            command("delete", tmp_path / "photos", *how)
        command("delete", tmp_path / "photos", *how, "--missing", "ok")
    expected = files_of(tmp_path / "plain")
    assert files_of(tmp_path / "photos").items() >= expected.items()


def test_of_two_deletions_at_once_one_commits(tmp_path, monkeypatch):
    write_living(tmp_path / "photos", ALL)
    seen = StoredSplit.flags

    def overtaken(*arguments):
        monkeypatch.undo()
        with pytest.raises(UsageError, match="another job is writing here: delete"):
            command("delete", tmp_path / "photos", "--key", "k2")
        monkeypatch.setattr("beam_jobs.dataset.lease.refuse_if_busy", lambda _: None)
        monkeypatch.setattr("beam_jobs.dataset.lease._runs", lambda *_: {})
        command("delete", tmp_path / "photos", "--key", "k2")
        return seen(*arguments)

    monkeypatch.setattr(StoredSplit, "flags", overtaken)
    with pytest.raises(
        DataError, match=r"another job completed a dataset here while .* run it again"
    ):
        command("delete", tmp_path / "photos", "--key", "k1")
    left = {number for numbers in living(tmp_path / "photos").values() for number in numbers}
    assert left == {*ALL} - {2}


def test_records_are_as_written(tmp_path):
    write_living(tmp_path, ALL)
    command("delete", tmp_path, "--key", "k0")
    source = readers.RecordSource(tmp_path, "train")
    for found in source:
        expected = record(int(found["key"][1:]))
        np.testing.assert_array_equal(found["levels"], expected["levels"])
