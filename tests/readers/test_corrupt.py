"""Reading damaged records: each is reported, or can be skipped alone."""

from __future__ import annotations

import logging
import pickle

import pytest
import tensorflow as tf

import readers
from readers.format.tfrecord import CorruptRecordError
from tests.support.arrays import ids
from tests.support.datasets import SIGNALS, damage, index_of, signals, write_dataset, write_numbers

SHARD = "train-00001-of-00004.tfrecord"


def test_a_damaged_record_is_reported_by_file_number_and_byte(tmp_path):
    dataset = write_numbers(tmp_path)
    (offset,) = damage(dataset / SHARD, 2)
    message = rf"{SHARD}: record 2 at byte {offset} fails its CRC32C: write or copy"
    batches = readers.as_numpy(dataset, batch_size=1)
    assert ids(next(batches) for _ in range(7)) == list(range(7))
    with pytest.raises(CorruptRecordError, match=message):
        next(batches)
    with pytest.raises(CorruptRecordError, match=message):
        readers.RecordSource(dataset, split="train")[7]
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        list(readers.load(dataset, batch_size=4))


def replaced(numbers, damaged):
    """An epoch with each damaged record replaced by the next good one, as plain Python finds it."""
    return [
        next(n for n in numbers[place:] + numbers[:place] if n not in damaged)
        for place in range(len(numbers))
    ]


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_damaged_record_is_replaced_by_the_next_good_one_and_counted(tmp_path, caplog, shuffle):
    dataset, size = write_numbers(tmp_path), 3
    how = {"batch_size": size, "shuffle": shuffle, "repeat": 2}
    intact = ids(readers.as_numpy(dataset, **how))
    damage(dataset / SHARD, 0, 1)
    damage(dataset / "train-00003-of-00004.tfrecord", 3)
    how["on_corrupt"] = "skip"
    batches = readers.as_numpy(dataset, **how)
    with caplog.at_level(logging.WARNING, "readers"):
        batches_found = list(batches)
    found, damaged = ids(batches_found), {5, 6, 19}
    assert found == replaced(intact[:20], damaged) + replaced(intact[20:], damaged)
    assert {len(batch["id"]) for batch in batches_found} == {size, 20 % size or size}
    assert batches.skipped == 3
    assert len(caplog.messages) == 3
    assert "record 1 at byte" in caplog.text
    assert ids(readers.load(dataset, **how)) == found


@pytest.mark.parametrize("order", ["global", "interleave"])
def test_hosts_make_the_same_steps_whatever_is_damaged(tmp_path, order):
    dataset = write_numbers(tmp_path)
    how = {"batch_size": 3, "shuffle": readers.Order(by=order), "split": "train"}
    hosts = [{**how, "shard": (host, 2)} for host in (0, 1)]
    intact = [readers.as_numpy(dataset, **host) for host in hosts]
    sizes = [[len(batch["id"]) for batch in batches] for batches in intact]
    for shard in (0, 1, 2, 3):
        damage(dataset / f"train-0000{shard}-of-00004.tfrecord", 0, 2, 3)
    found = [list(readers.as_numpy(dataset, **host, on_corrupt="skip")) for host in hosts]
    assert [[len(batch["id"]) for batch in batches] for batches in found] == sizes
    damaged = {0, 2, 3, 5, 7, 8, 9, 11, 12, 16, 18, 19}
    assert not damaged & {int(i) for batches in found for batch in batches for i in batch["id"]}


def test_batches_by_length_have_the_next_good_record_that_fits(tmp_path):
    dataset = write_dataset(tmp_path, SIGNALS, {"train": [signals([1, 1, 9, 1, 9, 9])]})
    damage(dataset / "train-00000-of-00001.tfrecord", 0, 4)
    how = {"batch_size": 2, "batching": readers.Padded(buckets=[5]), "on_corrupt": "skip"}
    batches = readers.as_numpy(dataset, **how)
    assert [batch["label"].tolist() for batch in batches] == [[1, 1], [2, 5], [3], [5]]
    assert batches.skipped == 2


def test_a_dataset_of_damaged_records_alone_is_an_error(tmp_path):
    dataset = write_dataset(tmp_path, SIGNALS, {"train": [signals([1, 1, 1])]})
    damage(dataset / "train-00000-of-00001.tfrecord", 0, 1, 2)
    message = "record 0 at byte 0 is damaged, and so are all 2 records after it"
    how = {"batching": "padded", "repeat": None, "on_corrupt": "skip"}
    with pytest.raises(CorruptRecordError, match=message):
        next(readers.as_numpy(dataset, batch_size=2, **how))
    with pytest.raises(CorruptRecordError, match=message):
        next(readers.as_numpy(dataset, 2, **how | {"batching": readers.Padded(buckets=[5])}))
    source = readers.RecordSource(dataset, on_corrupt="skip")
    for read in (lambda: source[0], lambda: source.__getitems__([0] * 40)):
        with pytest.raises(CorruptRecordError, match=message):
            read()


def test_the_search_for_a_good_record_ends(tmp_path, monkeypatch):
    monkeypatch.setattr("readers.shards.records._MOST_DAMAGED_IN_A_ROW", 6)
    dataset = write_numbers(tmp_path)
    damage(dataset / "train-00002-of-00004.tfrecord", *range(7))
    source = readers.RecordSource(dataset, "train", on_corrupt="skip")
    assert source[10]["id"] == 16
    damage(dataset / SHARD, 3)
    source = readers.RecordSource(dataset, "train", on_corrupt="skip")
    with pytest.raises(CorruptRecordError, match="all 6 records after it"):
        source[8]


@pytest.mark.parametrize("times", [1, 5])
def test_a_source_gives_the_next_good_record(tmp_path, caplog, times):
    dataset = write_numbers(tmp_path)
    damage(dataset / SHARD, 0, 1)
    damage(dataset / "train-00003-of-00004.tfrecord", 3)
    source = readers.RecordSource(dataset, "train", on_corrupt="skip")
    expected = replaced(list(range(20)), {5, 6, 19})
    assert [record["id"] for record in source.__getitems__(range(20))] == expected
    assert [
        record["id"] for record in source.__getitems__([*range(20)] * times)
    ] == expected * times
    assert [record["id"] for record in source] == expected
    assert [record["id"] for record in pickle.loads(pickle.dumps(source))] == expected
    with pytest.raises(ValueError, match="on_corrupt='ignore': expected one of raise, skip"):
        readers.RecordSource(dataset, on_corrupt="ignore")
    with pytest.raises(ValueError, match="verify_crc=True"):
        readers.RecordSource(dataset, on_corrupt="skip", verify_crc=False)


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
    left = replaced(list(range(20)), {7, 8})
    assert ids(readers.as_numpy(dataset, batch_size=4, on_corrupt="skip")) == left
    assert ids(readers.load(dataset, batch_size=4, on_corrupt="skip")) == left
