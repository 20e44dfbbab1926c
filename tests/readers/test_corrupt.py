"""Reading damaged records: each is reported, or can be skipped alone."""

from __future__ import annotations

import logging

import fsspec
import numpy as np
import pytest
import tensorflow as tf
from fsspec.implementations.memory import MemoryFileSystem

import readers
from readers.format.index import parse_index
from readers.format.tfrecord import CorruptRecordError
from tests.support.arrays import ids
from tests.support.datasets import SIGNALS, damage, index_of, write_dataset, write_numbers

SHARD = "train-00001-of-00004.tfrecord"


def test_a_damaged_record_is_reported_by_file_number_and_byte(tmp_path):
    dataset = write_numbers(tmp_path)
    (offset,) = damage(dataset / SHARD, 2)
    message = rf"{SHARD}: record 2: the record at byte {offset} fails its CRC32C"
    batches = readers.as_numpy(dataset, batch_size=1)
    assert ids(next(batches) for _ in range(7)) == list(range(7))
    with pytest.raises(CorruptRecordError, match=message):
        next(batches)
    with pytest.raises(CorruptRecordError, match=message):
        readers.RecordSource(dataset, split="train")[7]
    for shuffle in (False, True):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            list(readers.load(dataset, batch_size=4, shuffle=shuffle))
    with pytest.raises(tf.errors.DataLossError):
        list(readers.load(dataset, batch_size=4, order="interleave"))


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("size", [1, 3, 20])
def test_skipping_drops_only_the_damaged_records_and_counts_them(tmp_path, caplog, shuffle, size):
    dataset = write_numbers(tmp_path)
    damage(dataset / SHARD, 0, 2)
    left = [i for i in range(20) if i not in (5, 7)]
    how = {"batch_size": size, "shuffle": shuffle, "on_corrupt": "skip", "repeat": 2}
    batches = readers.as_numpy(dataset, **how)
    with caplog.at_level(logging.WARNING, "readers"):
        found = ids(batches)
    assert sorted(found) == sorted(2 * left)
    assert shuffle or found == 2 * left
    assert batches.skipped == 2
    assert len(caplog.messages) == 2
    assert "record 2 at byte" in caplog.text
    assert ids(readers.load(dataset, **how)) == found


def test_a_truncated_shard_loses_only_the_missing_records(tmp_path):
    dataset = write_numbers(tmp_path)
    path = dataset / SHARD
    index = index_of(path)
    path.write_bytes(path.read_bytes()[: index[2, 0] + 9])
    message = (
        rf"{SHARD}: the manifest states .* record 2, at byte {index[2, 0]}, is cut off or missing"
    )
    with pytest.raises(readers.DatasetError, match=message):
        readers.as_numpy(dataset, batch_size=4)
    left = [i for i in range(20) if i not in (7, 8)]
    assert ids(readers.as_numpy(dataset, batch_size=4, on_corrupt="skip")) == left
    assert ids(readers.load(dataset, batch_size=4, on_corrupt="skip")) == left


@pytest.mark.parametrize("batching", ["padded", "ragged"])
def test_a_batch_of_only_damaged_records_is_empty(tmp_path, batching):
    records = [{"signal": np.ones((n, 2), "f4"), "label": n} for n in (1, 2, 3, 4)]
    dataset = write_dataset(tmp_path, SIGNALS, {"train": [records]})
    damage(dataset / "train-00000-of-00001.tfrecord", 2, 3)
    how = {"batch_size": 2, "batching": batching, "on_corrupt": "skip"}
    assert [len(batch["label"]) for batch in readers.as_numpy(dataset, **how)] == [2, 0]
    found = [batch["label"].shape[0] for batch in readers.load(dataset, **how)]
    assert found == [2, 0]


def test_invalid_arguments_are_rejected(tmp_path):
    dataset = write_numbers(tmp_path)
    for read in (readers.load, readers.as_numpy):
        with pytest.raises(ValueError, match="on_corrupt='ignore': expected one of raise, skip"):
            read(dataset, batch_size=1, on_corrupt="ignore")
    with pytest.raises(ValueError, match="it needs order='global'"):
        readers.load(dataset, batch_size=1, on_corrupt="skip", order="interleave")


class Store(MemoryFileSystem):
    """Like an object store, it rejects a range that starts after the end of a file."""

    protocol = "store"

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.replace("store://", "memory://"))

    def cat_file(self, path, start=None, end=None, **kwargs):
        if start and start >= self.size(path):
            raise OSError("416: the requested range is not satisfiable")
        return super().cat_file(path, start, end, **kwargs)


def test_a_truncated_shard_in_a_store_loses_only_the_missing_records(tmp_path, monkeypatch):
    monkeypatch.setattr("readers.shards.fetch._GAP_BYTES", -1)
    fsspec.register_implementation("store", Store, clobber=True)
    store = fsspec.filesystem("store")
    for file in write_numbers(tmp_path).iterdir():
        store.pipe(f"/cut/{file.name}", file.read_bytes())
    index = parse_index(store.cat(f"/cut/{SHARD}.idx"), SHARD)
    store.pipe(f"/cut/{SHARD}", store.cat(f"/cut/{SHARD}")[: index[1, 0] + 9])
    left = [i for i in range(20) if i not in (6, 7, 8)]
    how = {"batch_size": 1, "split": "train"}
    assert ids(readers.as_numpy("store://cut", **how, on_corrupt="skip")) == left
    with pytest.raises(CorruptRecordError, match=f"{SHARD}: record 1: "):
        list(readers.as_numpy("store://cut", **how))
