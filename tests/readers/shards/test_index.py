import os
import tempfile

import numpy as np
import pytest

import readers
from readers.format.manifest import DatasetError
from readers.shards import index
from readers.shards.index import RecordOffsets
from readers.shards.plan import Part
from readers.shards.resolve import resolve
from tests.support.datasets import NUMBERS, in_memory, index_of, write_numbers

SHARD = "train-00001-of-00004.tfrecord"


@pytest.fixture(autouse=True)
def folder(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("shared")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(index, "_SHARED_FROM", 1)
    return folder


@pytest.fixture
def parsed(monkeypatch):
    """The paths of the files whose indexes were parsed or scanned."""
    paths = []

    def read(path, *arguments):
        paths.append(os.path.basename(path))
        return read_index(path, *arguments)

    read_index = index.read_index
    monkeypatch.setattr(index, "read_index", read)
    return paths


def ids(path, **options):
    batches = readers.as_numpy(path, batch_size=3, shuffle=True, seed=0, **options)
    return np.concatenate([batch["id"] for batch in batches]).tolist()


def offsets_of(plan):
    """The (offset, length) of all records of a plan."""
    offsets = RecordOffsets(plan.parts)
    for part in offsets.missing(range(len(plan.parts))):
        offsets.load(part)
    parts = np.repeat(np.arange(len(plan.parts)), [part.take for part in plan.parts])
    numbers = np.arange(plan.records)
    found = offsets.of(numbers, parts)
    one_by_one = [offsets.of_one(*each) for each in zip(numbers, parts, strict=True)]
    assert found.tolist() == [list(each) for each in one_by_one]
    return found


@pytest.mark.parametrize("split", ["train", "train[2:11]", "train[5:9]", "train[9:10]"])
@pytest.mark.parametrize("again", [False, True])
def test_records_are_where_the_index_says(tmp_path, split, again):
    write_numbers(tmp_path)
    plan = resolve(str(tmp_path), split, None, None)
    rows = [index_of(tmp_path / part.path)[part.skip :][: part.take] for part in plan.parts]
    for _ in range(1 + again):
        assert offsets_of(plan).tolist() == np.concatenate(rows).tolist()


def test_the_next_reader_parses_no_index(tmp_path, parsed):
    write_numbers(tmp_path)
    found = ids(tmp_path, split="train")
    assert len(parsed) == 4
    assert ids(tmp_path, split="train") == found
    assert len(parsed) == 4
    assert sorted(found) == list(range(20))


@pytest.mark.parametrize("suffix", ["", ".idx"])
def test_an_index_is_parsed_again_once_its_files_have_changed(tmp_path, parsed, suffix):
    write_numbers(tmp_path)
    found = ids(tmp_path, split="train")
    file = tmp_path / f"{SHARD}{suffix}"
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 1))
    assert ids(tmp_path, split="train") == found
    assert len(parsed) == 8


def test_a_wrong_index_is_an_error_after_a_right_one_was_read(tmp_path):
    write_numbers(tmp_path)
    ids(tmp_path, split="train")
    (tmp_path / f"{SHARD}.idx").write_text("0 16\n")
    with pytest.raises(ValueError, match=rf"{SHARD}\.idx: the records end at byte 16"):
        ids(tmp_path, split="train")


@pytest.mark.parametrize("shared", [True, False])
def test_records_with_a_gap_between_them_are_an_error(tmp_path, monkeypatch, shared):
    monkeypatch.setattr(index, "_SHARED_FROM", 1 if shared else 1000)
    write_numbers(tmp_path)
    rows = index_of(tmp_path / SHARD)
    rows[1, 1] -= 1
    (tmp_path / f"{SHARD}.idx").write_text("".join(f"{o} {n}\n" for o, n in rows.tolist()))
    message = rf"{SHARD}\.idx: a record ends at byte {rows[2, 0] - 1}, and .* byte {rows[2, 0]};"
    with pytest.raises(DatasetError, match=message):
        ids(tmp_path, split="train")


def test_files_without_an_index_are_scanned_once(tmp_path, parsed):
    write_numbers(tmp_path)
    file = tmp_path / SHARD
    (tmp_path / f"{SHARD}.idx").unlink()
    for _ in range(2):
        assert sorted(ids(str(file), schema=NUMBERS)) == [5, 6, 7, 8]
    assert parsed == [SHARD]


def test_an_index_that_changes_while_it_is_read_is_an_error(tmp_path, monkeypatch):
    write_numbers(tmp_path)
    plan = resolve(str(tmp_path), "train", None, None)
    offsets = RecordOffsets(plan.parts)
    os.utime(tmp_path / f"{SHARD}.idx", ns=(0, 0))
    with pytest.raises(DatasetError, match=f"{SHARD}: the file was changed or replaced after"):
        offsets.load(1)


def test_datasets_in_stores_and_small_ones_share_nothing(tmp_path, folder, monkeypatch):
    write_numbers(tmp_path)
    with in_memory(tmp_path) as path:
        assert sorted(ids(path, split="train")) == list(range(20))
    monkeypatch.setattr(index, "_SHARED_FROM", 21)
    assert sorted(ids(tmp_path, split="train")) == list(range(20))
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("size", [None, (1 << 32) - 1, 1 << 32, 1 << 40])
def test_shards_of_any_size_fit(monkeypatch, size):
    end = size or 1 << 50
    monkeypatch.setattr(index, "read_index", lambda *_: np.array([[0, 16], [16, end - 16]]))
    offsets = RecordOffsets([Part("missing", 0, 2, 2, size)])
    offsets.load(0)
    assert offsets.of_one(1, 0) == (16, end - 16)
