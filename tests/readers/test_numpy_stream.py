"""`readers.as_numpy`: batches, order, remote files and errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import readers
from readers.order.orders import GlobalOrder
from readers.shards.opened.fetch import fetch, merged_ranges
from readers.shards.opened.local_shard import LocalShard
from tests.readers import encodings
from tests.support.arrays import as_lists, ids
from tests.support.datasets import (
    in_memory,
    index_of,
    write_numbers,
    write_signals,
)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return str(write_numbers(tmp_path_factory.mktemp("numbers")))


def test_shuffled_epochs_are_the_permutations_of_seed_and_epoch(dataset):
    found = ids(readers.as_numpy(dataset, batch_size=8, shuffle=True, seed=5, repeat=2))
    order = GlobalOrder(20, 5)
    places = np.arange(20)
    assert found == [*order(0, places).tolist(), *order(1, places).tolist()]


@pytest.fixture
def remote(tmp_path):
    with in_memory(write_numbers(tmp_path)) as path:
        yield path


@pytest.mark.parametrize("long_run", [1, 1 << 20])
def test_local_and_remote_files_give_the_same_bytes(tmp_path, remote, monkeypatch, long_run):
    monkeypatch.setattr("readers.shards.opened.local_shard.LONG_RUN", long_run)
    name = "train-00000-of-00004.tfrecord"
    index = index_of(tmp_path / name)[[3, 0, 1, 3]]
    data = (tmp_path / name).read_bytes()
    expected = b"".join(data[start : start + length] for start, length in index.tolist())
    with (tmp_path / name).open("rb") as file:
        local = LocalShard(file, str(tmp_path / name), True)
    for read in (local.read, lambda runs, out: fetch([(f"{remote}/{name}", runs)], out)):
        found = bytearray(len(expected))
        ends = np.cumsum(index[:, 1])
        runs = [(0, *row, int(end) - row[1]) for row, end in zip(index.tolist(), ends, strict=True)]
        read(runs, memoryview(found))
        assert found == expected


def test_neighboring_records_share_a_request_and_distant_ones_do_not():
    far = 5 << 20
    assert merged_ranges([(far, 10), (0, 10), (10, 20), (40, 5)]) == [(0, 45), (far, far + 10)]
    assert merged_ranges([]) == []


def test_reading_with_numpy_does_not_need_tensorflow(tmp_path):
    write_signals(tmp_path)
    code = (
        "import sys; sys.modules['tensorflow'] = None; import readers\n"
        f"b = next(readers.as_numpy({str(tmp_path)!r}, batch_size=5, batching=readers.Padded(mask=True)))\n"
        "assert b['signal'].shape == (5, 5, 2) and b['signal_mask'].sum() == 11\n"
        f"assert len(readers.RecordSource({str(tmp_path)!r})[2]['signal']) == 5"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_images_without_pillow_report_how_to_install_it(tmp_path, monkeypatch):
    everything, _ = encodings.write(tmp_path)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(
        ImportError, match=r"feature 'icon' needs Pillow: pip install 'beam-shards\[images\]'"
    ):
        next(readers.as_numpy(everything, batch_size=1, batching="ragged"))


def test_numbers_and_lists_of_numpy_are_accepted(dataset, tmp_path):
    how = {"batch_size": 4, "shuffle": True, "seed": 3, "repeat": 2, "shard": (1, 2)}
    numpys = {"batch_size": np.int64(4), "seed": np.uint32(3), "repeat": np.int16(2)}
    batches = readers.as_numpy(dataset, **how, state=2)
    again = readers.as_numpy(dataset, **{**how, **numpys}, state=np.uint8(2))
    assert ids(again) == ids(batches)
    assert again.state().to_json() == batches.state().to_json()
    signals = str(write_signals(tmp_path, (3, 0, 5, 1, 2, 9, 4)))
    padded = readers.Padded(max_length=8, buckets=[2, 4])
    expected = as_lists(readers.as_numpy(signals, [2, 1, 3], batching=padded))
    state = readers.as_numpy(signals, [2, 1, 3], batching=padded).state()
    for boundaries in (np.array([2, 4]), np.array([2.0, 4.0]), {"signal": np.array([2, 4])}):
        padded = readers.Padded(max_length=np.int64(8), buckets=boundaries)
        found = readers.as_numpy(signals, np.array([2, 1, 3]), batching=padded)
        assert found.state() == state
        assert as_lists(found) == expected
    half, rest = np.float32(0.5), np.float64(1.5)
    found = readers.as_numpy(readers.Mix({dataset: half, Path(dataset): rest}), 4, split="train")
    readers.as_numpy(dataset, batch_size=4, cache=readers.Cache(tmp_path / "c", np.int64(1 << 20)))
    mixed = readers.Mix({dataset: 0.5, Path(dataset): 1.5})
    assert ids(found) == ids(readers.as_numpy(mixed, 4, split="train"))


@pytest.mark.parametrize("weights", [{"a": True}, {"a": "1"}, 3, {"a": 1j}, ["a"], {}, {"a": 0}])
def test_what_is_no_mixture_is_refused(weights):
    with pytest.raises(ValueError, match=r"Mix\(.*\): expected a dict of each dataset's path and"):
        readers.Mix(weights)
