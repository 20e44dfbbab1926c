from __future__ import annotations

import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import readers
from readers.format.schema import Schema
from tests.datasets import NUMBERS, numbers, write_dataset, write_numbers


@pytest.fixture
def dataset(tmp_path):
    return write_numbers(tmp_path / "numbers")


def test_every_record_is_at_its_number_from_both_ends(dataset):
    source = readers.RecordSource(dataset)
    assert len(source) == 20
    for i in range(20):
        for record in (source[i], source[i - 20], source[np.int64(i)]):
            assert record["id"] == i
            assert record["vector"].tolist() == [i] * 3
            assert record["name"].item() == b"record %d" % i
    assert [int(record["id"]) for record in source] == list(range(20))


def test_many_at_once_come_in_the_order_asked_for(dataset):
    source = readers.RecordSource(dataset, columns=["id"])
    wanted = [19, 0, 7, 7, -1, 5]
    assert [int(r["id"]) for r in source.__getitems__(wanted)] == [19, 0, 7, 7, 19, 5]
    assert source.__getitems__([]) == []
    assert list(source[0]) == ["id"]


@pytest.mark.parametrize("index", [20, -21, 10**9])
def test_a_number_outside_is_an_index_error(dataset, index):
    with pytest.raises(IndexError, match=f"record {index} of 20"):
        readers.RecordSource(dataset)[index]


def test_a_number_that_is_none_is_a_type_error(dataset):
    with pytest.raises(TypeError):
        readers.RecordSource(dataset)[1.5]


def test_a_slice_of_a_split_is_numbered_from_0(dataset):
    source = readers.RecordSource(dataset, split="train[4:12]")
    assert [int(source[i]["id"]) for i in range(len(source))] == list(range(4, 12))


def test_empty_shards_and_splits_are_passed_over(tmp_path):
    write_dataset(tmp_path, NUMBERS, {"train": [[], numbers(0, 2), [], numbers(2, 1)], "val": []})
    assert [int(r["id"]) for r in readers.RecordSource(tmp_path, "train")] == [0, 1, 2]
    assert len(readers.RecordSource(tmp_path, "val")) == 0


def test_arrays_are_writable_and_of_their_own(dataset):
    source = readers.RecordSource(dataset)
    source[3]["vector"][:] = 99
    assert source[3]["vector"].tolist() == [3, 3, 3]


def test_threads_share_one_source(dataset):
    source = readers.RecordSource(dataset)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda i: int(source[i % 20]["id"]), range(400)))
    assert found == [i % 20 for i in range(400)]


def test_more_shards_than_may_stay_open(dataset, monkeypatch):
    monkeypatch.setattr("readers.records._OPEN_SHARDS", 2)
    source = readers.RecordSource(dataset)
    records = [source[i] for i in (0, 19, 6, 10, 0, 19, 6)]
    assert [int(r["id"]) for r in records] == [0, 19, 6, 10, 0, 19, 6]
    assert len(source._records._shards) == 2


def test_a_pickled_copy_opens_the_files_again(dataset):
    source = readers.RecordSource(dataset, "train[2:]", ["id"], verify_crc=False)
    assert source[0]["id"] == 2
    data = pickle.dumps(source)
    copy = pickle.loads(data)
    assert (repr(copy), len(copy), copy[1]["id"]) == (repr(source), 18, 3)
    assert len(data) < 5000


def test_the_text_of_a_source_follows_from_its_content(dataset, tmp_path):
    def text(path, *arguments):
        return repr(readers.RecordSource(path, *arguments))

    moved = shutil.copytree(dataset, tmp_path / "moved")
    assert text(dataset) == text(moved)
    assert text(dataset).startswith("RecordSource(train: 20 records of id, name, vector; crc32c ")
    other = write_dataset(tmp_path / "other", NUMBERS, {"train": [numbers(1, 20)]})
    texts = [text(dataset), text(dataset, "val"), text(dataset, "train[1:]"), text(other)]
    texts.append(text(dataset, "train", ["id"]))
    assert len(set(texts)) == 5


def test_the_checksum_is_verified_unless_asked_otherwise(dataset):
    shard = dataset / "train-00000-of-00004.tfrecord"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    with pytest.raises(ValueError, match="fails its CRC32C"):
        readers.RecordSource(dataset)[4]
    assert readers.RecordSource(dataset)[3]["id"] == 3
    assert readers.RecordSource(dataset, verify_crc=False)[4]["id"] == 4


def test_an_index_of_another_length_is_named(dataset):
    write_numbers(dataset.parent / "b", counts=(5, 4, 7, 4))
    manifest = dataset / "manifest.json"
    text = manifest.read_text().replace('"records": 20', '"records": 21')
    manifest.write_text(text.replace('"records": 7', '"records": 8'))
    with pytest.raises(readers.DatasetError, match="says 8 records, the index has 7"):
        readers.RecordSource(dataset)[12]


def test_sequences_are_lists_of_arrays(tmp_path):
    schema = Schema({"events": ("int32", (None, None, 2), "sequence")})
    record = {"events": [np.ones((n, 2), np.int32) for n in (1, 3)]}
    write_dataset(tmp_path, schema, {"train": [[record]]})
    found = readers.RecordSource(tmp_path)[0]["events"]
    assert [array.shape for array in found] == [(1, 2), (3, 2)]
    found[0][:] = 5


def test_files_of_other_writers_are_a_source_too(dataset):
    files = sorted(dataset.glob("train*.tfrecord"))
    source = readers.RecordSource(files, schema=NUMBERS)
    assert source[19]["id"] == 19
    assert source.schema == NUMBERS


def test_pytorch_takes_it_as_a_dataset(dataset):
    data = pytest.importorskip("torch.utils.data")
    loader = data.DataLoader(readers.RecordSource(dataset, columns=["id", "vector"]), batch_size=8)
    assert [i for batch in loader for i in batch["id"].tolist()] == list(range(20))
