"""How many files a reader keeps open, and what it does if one of them changes."""

from __future__ import annotations

import mmap
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import readers
from readers.files.mapped import MappedFile
from readers.format.schema import Schema
from readers.shards.opened.local_shard import LocalShard
from tests.support.datasets import NUMBERS, numbers, write_dataset, write_numbers
from tests.support.plain import example, write_plain

READ = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (72, 72))
import readers
schema = readers.Schema({"id": ("int64", ())})
shuffle = sys.argv[1] == "shuffled"
batches = readers.as_numpy(
    sys.argv[2:], schema=schema, batch_size=100, shuffle=shuffle, repeat=2, columns=["id"]
)
ids = [int(i) for batch in batches for i in batch["id"]]
half = len(ids) // 2
if not shuffle:
    assert ids == [*range(half)] * 2, ids
assert sorted(ids[:half]) == sorted(ids[half:]) == list(range(400))
"""


@pytest.mark.parametrize("order", ["shuffled", "in order"])
def test_a_batch_may_span_more_files_than_a_process_may_open(tmp_path, order):
    paths = [
        write_plain(tmp_path / f"{n:03}.tfrecord", [example(id=2 * n), example(id=2 * n + 1)])
        for n in range(200)
    ]
    command = [sys.executable, "-c", READ, order, *paths]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("values", [3, 100_000])
def test_an_open_shard_is_unaffected_by_replacing_or_deleting_it(tmp_path, values):
    schema = Schema({"data": ("uint8", (values,))})
    for name, add in (("a", 0), ("b", 10)):
        records = [{"data": np.full(values, n + add, np.uint8)} for n in range(4)]
        write_dataset(tmp_path / name, schema, {"train": [records]})
    source = readers.RecordSource(tmp_path / "a")
    assert source[3]["data"][0] == 3
    (shard,) = (tmp_path / "a").glob("*.tfrecord")
    (new,) = (tmp_path / "b").glob("*.tfrecord")
    new.replace(shard)
    assert source[0]["data"][0] == 0
    shutil.rmtree(tmp_path / "a")
    assert [record["data"][-1] for record in source.__getitems__([0, 1, 2, 3])] == [0, 1, 2, 3]


CUT = """
import os, sys
import readers
path, shard, way, descriptors, mapped = sys.argv[1:]
if not int(descriptors):
    readers.shards.opened.open_shards._DESCRIPTORS = 0
if not int(mapped):
    readers.shards.opened.local_shard.is_on_local_disk = lambda directory: False
source = readers.RecordSource(path, "train")
assert source[0]["id"] == 0
batches = readers.as_numpy(path, split="train", batch_size=1, repeat=2)
next(batches)
os.truncate(shard, {"empty": 0, "half": 4096}[way])
for read in (lambda: source[60], lambda: source.__getitems__(range(64)), lambda: list(batches)):
    try:
        read()
        raise SystemExit("no error")
    except readers.CorruptRecordError as error:
        assert f"{shard}: record " in str(error), error
        assert "the file was changed or replaced after the dataset was opened" in str(error), error
"""


@pytest.mark.slow(base=["empty-1-1"])
@pytest.mark.parametrize("mapped", [1, 0])
@pytest.mark.parametrize("descriptors", [1, 0])
@pytest.mark.parametrize("way", ["empty", "half"])
def test_a_shard_that_is_truncated_while_open_raises_an_error(tmp_path, way, descriptors, mapped):
    schema = Schema({"id": ("int64",), "data": ("uint8", (1000,))})
    records = [{"id": n, "data": np.zeros(1000, np.uint8)} for n in range(64)]
    write_dataset(tmp_path, schema, {"train": [records]})
    (shard,) = tmp_path.glob("*.tfrecord")
    command = [sys.executable, "-c", CUT, tmp_path, shard, way, str(descriptors), str(mapped)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:] or done.returncode


def _read_of_truncated(directory, index):
    source = readers.RecordSource(directory, "train")
    batches = readers.as_numpy(directory, split="train", batch_size=1, repeat=2)
    assert source[0]["id"] == next(batches)["id"][0] == 0
    index.write_bytes(b"")
    for read in (lambda: source[6], lambda: source.__getitems__(range(7)), lambda: list(batches)):
        with pytest.raises(readers.DatasetError, match=rf"^{index}: the file was changed or repl"):
            read()


@pytest.mark.parametrize("descriptors", [1, 0])
def test_an_index_that_is_truncated_while_open_raises_an_error(tmp_path, monkeypatch, descriptors):
    if not descriptors:
        monkeypatch.setattr("readers.shards.opened.open_shards._DESCRIPTORS", 0)
    write_numbers(tmp_path, (7,))
    (index,) = tmp_path.glob("train*.index")
    # A page that is read all the same kills the process.
    child = multiprocessing.get_context("fork").Process(
        target=_read_of_truncated, args=(tmp_path, index)
    )
    child.start()
    child.join(60)
    assert child.exitcode == 0


@pytest.mark.parametrize("way", ["replaced", "written over"])
@pytest.mark.parametrize("read", [lambda s: s[19], lambda s: s.__getitems__([19]), list])
def test_a_dataset_that_is_replaced_before_its_shards_are_opened_is_noticed(tmp_path, way, read):
    source = readers.RecordSource(write_numbers(tmp_path / "old"), "train")
    assert source[0]["id"] == 0
    batches = readers.as_numpy(tmp_path / "old", 1, split="train[19:]")
    pickled = pickle.dumps((source, batches))
    new = write_dataset(tmp_path / "new", NUMBERS, {"train": [[]] * 3 + [numbers(26, 4)]})
    name = "train-00003-of-00004.tfrecord"
    if way == "replaced":
        (new / name).replace(tmp_path / "old" / name)
    else:
        (tmp_path / "old" / name).write_bytes((new / name).read_bytes())
        os.utime(tmp_path / "old" / name, ns=(1, 1))
    with pytest.raises(readers.DatasetError, match=rf"{name}: the file was changed or replaced"):
        read(source)
    # A copy in another process may be on another machine, where files have other inodes.
    copy, (batch,) = pickle.loads(pickled)
    assert copy[19]["id"] == batch["id"] == 29


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("descriptor", [True, False])
def test_file_contents_do_not_stay_in_memory_after_reading(
    tmp_path, descriptor, mapped, monkeypatch
):
    monkeypatch.setattr("readers.shards.opened.local_shard.is_on_local_disk", lambda _: mapped)

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE

    path = tmp_path / "large"
    content = np.random.default_rng(1).bytes(24 << 20)
    path.write_bytes(content)
    with path.open("rb") as file:
        shard = LocalShard(file, str(path), descriptor)
    buffer = memoryview(bytearray(1 << 20))
    before = resident()
    for start in range(100, 23 << 20, 1 << 20):
        shard.read([(0, start, 1 << 20, 0)], buffer)
        assert buffer == content[start : start + (1 << 20)]
    assert resident() - before < 4 << 20


def test_a_memory_map_closes_with_its_last_view_and_needs_no_descriptor(tmp_path):
    path = tmp_path / "mapped"
    path.write_bytes(bytes(range(256)) * 64)

    def maps():
        return Path("/proc/self/maps").read_text().count(str(path))

    with path.open("rb") as file:
        view = MappedFile(file).view
    assert view.readonly
    assert view.format == "B"
    part = np.frombuffer(view, np.uint8)[5:9]
    del view
    assert maps() == 1
    assert part.tolist() == [5, 6, 7, 8]
    del part
    assert maps() == 0


def test_an_empty_file_can_be_mapped_and_an_unmappable_one_is_reported(tmp_path):
    (tmp_path / "empty").touch()
    with (tmp_path / "empty").open("rb") as file:
        assert MappedFile(file).view == b""
    with (tmp_path / "a").open("wb") as file:
        file.write(b"abc")
        file.flush()
        with pytest.raises(PermissionError, match=str(tmp_path / "a")):
            MappedFile(file)
