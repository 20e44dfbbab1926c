"""How many files a reader has open, and what it does when one is changed meanwhile."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import readers
from readers.format.schema import Schema
from readers.mapped import mapped
from tests.datasets import NUMBERS, numbers, write_dataset
from tests.plain import example, write_plain

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


@pytest.mark.parametrize(
    ("order", "packed"), [("in order", ""), ("shuffled", ""), ("in order", "GZIP")]
)
def test_a_batch_of_more_files_than_a_process_may_open(tmp_path, order, packed):
    paths = [
        write_plain(
            tmp_path / f"{n:03}.tfrecord", [example(id=2 * n), example(id=2 * n + 1)], packed
        )
        for n in range(200)
    ]
    command = [sys.executable, "-c", READ, order, *paths]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_shard_that_is_replaced_is_not_mixed_with_the_one_that_was_opened(tmp_path):
    schema = Schema({"data": ("uint8", (100_000,))})
    records = [{"data": np.full(100_000, n, np.uint8)} for n in range(4)]
    path = write_dataset(tmp_path / "a", schema, {"train": [records]})
    source = readers.RecordSource(path)
    assert source[3]["data"][0] == 3
    (shard,) = path.glob("*.tfrecord")
    shutil.copy(shard, tmp_path / "new")
    (tmp_path / "new").replace(shard)
    with pytest.raises(OSError, match="tfrecord: it was replaced while it was read"):
        source[0]
    assert readers.RecordSource(path)[0]["data"][0] == 0


def test_a_map_goes_with_its_last_view_and_needs_no_descriptor(tmp_path):
    path = tmp_path / "mapped"
    path.write_bytes(bytes(range(256)) * 64)

    def maps():
        return Path("/proc/self/maps").read_text().count(str(path))

    with path.open("rb") as file:
        view = mapped(file.fileno())
    assert view.readonly
    assert view.format == "B"
    part = np.frombuffer(view, np.uint8)[5:9]
    del view
    assert maps() == 1
    assert part.tolist() == [5, 6, 7, 8]
    del part
    assert maps() == 0


def test_an_empty_file_is_mapped_and_what_cannot_be_is_told(tmp_path):
    (tmp_path / "empty").touch()
    with (tmp_path / "empty").open("rb") as file:
        assert mapped(file.fileno()) == b""
    with (tmp_path / "a").open("wb") as file:
        file.write(b"abc")
        file.flush()
        with pytest.raises(PermissionError):
            mapped(file.fileno())


def test_short_records_are_read_on_from_a_shard_that_is_gone(tmp_path):
    path = write_dataset(tmp_path / "a", NUMBERS, {"train": [numbers(0, 9)]})
    source = readers.RecordSource(path)
    assert source[0]["id"] == 0
    shutil.rmtree(path)
    assert source[8]["id"] == 8
