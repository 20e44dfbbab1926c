"""`readers.RecordSource`: indexing, batches, threads, processes and pickling."""

from __future__ import annotations

import multiprocessing
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor

import fsspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import readers
from readers.format.decode.images import with_pixels
from readers.format.schema import Schema
from tests.readers import encodings
from tests.support.arrays import assert_same
from tests.support.datasets import NUMBERS, flip, in_memory, numbers, write_dataset, write_numbers
from tests.support.images import EPS, mark_of_ghostscript


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """A dataset of every encoding, and the records in it."""
    return encodings.write(tmp_path_factory.mktemp("everything"))


def arrays_of(value):
    """The arrays of a value of a record."""
    if isinstance(value, list):
        return [array for item in value for array in arrays_of(item)]
    return [value] if isinstance(value, np.ndarray) else []


def arrays_in(record):
    return [array for value in record.values() for array in arrays_of(value)]


def assert_same_value(found, expected):
    assert type(found) is type(expected)
    if isinstance(expected, list):
        assert len(found) == len(expected)
        for one, two in zip(found, expected, strict=True):
            assert_same_value(one, two)
    elif isinstance(expected, bytes):
        assert found == expected
    else:
        assert_same(found, expected)


def assert_same_record(found, expected):
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert_same_value(found[name], value)


def ids_of(records):
    return [int(record["id"]) for record in records]


@pytest.fixture
def dataset(tmp_path):
    return write_numbers(tmp_path / "numbers")


def test_indexes_count_from_both_ends(dataset):
    source = readers.RecordSource(dataset)
    assert len(source) == 20
    for i in range(20):
        for record in (source[i], source[i - 20], source[np.int64(i)]):
            assert record["id"] == i
            assert record["vector"].tolist() == [i] * 3
            assert record["name"] == b"record %d" % i
    assert ids_of(source) == list(range(20))


def test_every_encoding_round_trips(everything):
    path, written = everything
    source = readers.RecordSource(path)
    for i, record in enumerate(source):
        expected = with_pixels({name: written[i][name] for name in source.schema}, source.schema)
        for name, value in expected.items():
            if isinstance(value, list) and encodings.SCHEMA[name].encoding == "sequence":
                assert [a.tolist() for a in record[name]] == [a.tolist() for a in value]
            else:
                as_bytes = (
                    np.char.encode(value).tolist() if name in ("names", "text", "story") else value
                )
                assert np.asarray(record[name]).tolist() == np.asarray(as_bytes).tolist(), name


@pytest.mark.parametrize("times", [1, 40])
def test_numbers_and_strings_of_no_shape_are_scalars_and_bytes(tmp_path, times):
    schema = Schema(
        {
            "label": ("int64",),
            "small": ("uint8", (), "raw"),
            "score": ("float32",),
            "half": ("float16", (), "tensor"),
            "is_cat": ("bool",),
            "key": ("string",),
            "tags": ("string", (None,)),
            "grid": ("string", (2, 1)),
        }
    )
    record = {"label": 3, "small": 7, "score": 0.5, "half": 1.5, "is_cat": True, "key": "a\0"}
    record |= {"tags": ["x", "yz"], "grid": [["p"], ["q"]]}
    source = readers.RecordSource(write_dataset(tmp_path, schema, {"train": [[record] * 2]}))
    for found in (source[0], source.__getitems__([0, 1] * times)[0]):
        assert found == {
            **record,
            "key": b"a\0",
            "tags": [b"x", b"yz"],
            "grid": [[b"p"], [b"q"]],
        }
        kinds = {name: type(value) for name, value in found.items()}
        assert kinds == {
            "label": np.int64,
            "small": np.uint8,
            "score": np.float32,
            "half": np.float16,
            "is_cat": np.bool_,
            "key": bytes,
            "tags": list,
            "grid": list,
        }
        assert {found["key"]: found["key"].decode()} == {b"a\0": "a\0"}


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
def test_a_batch_holds_the_same_records_as_reading_them_one_by_one(everything, data):
    path, _ = everything
    columns = data.draw(st.sets(st.sampled_from(list(encodings.SCHEMA)), min_size=1))
    source = readers.RecordSource(path, columns=sorted(columns))
    several = st.lists(st.integers(-len(source), len(source) - 1), max_size=5)
    numbers = data.draw(several) * data.draw(st.sampled_from([1, 20]))
    for found, number in zip(source.__getitems__(numbers), numbers, strict=True):
        assert_same_record(found, source[number])


@pytest.mark.parametrize("times", [1, 10])
def test_arrays_of_a_batch_are_independent_writable_and_outlive_the_source(everything, times):
    path, _ = everything
    source = readers.RecordSource(path)
    held = source.__getitems__([1, 2, 3, 2] * times)
    expected = pickle.loads(pickle.dumps(held))
    for record in held[3:]:
        for array in arrays_in(record):
            array[...] = 0
    source.__getitems__(range(len(source)))
    del source
    for found, wanted in zip(held[:3], expected, strict=False):
        assert_same_record(found, wanted)
        # Not a view of a much larger array, which any record of the batch would keep in memory.
        bases = [(array, array if array.base is None else array.base) for array in arrays_in(found)]
        assert all(base.nbytes <= 4 * array.nbytes for array, base in bases)


@pytest.mark.parametrize("index", [20, -21, 10**9])
def test_an_index_out_of_range_raises_index_error(dataset, index):
    with pytest.raises(IndexError, match=f"no record {index}: the source has 20"):
        readers.RecordSource(dataset)[index]


def test_threads_can_share_a_source(everything):
    path, written = everything
    source = readers.RecordSource(path, columns=["image", "label", "signal"])
    expected = [source[i] for i in range(len(source))]

    def read(turn):
        if turn % 3:
            return [source[turn % len(written)]], [turn % len(written)]
        numbers = np.random.default_rng(turn).integers(0, len(written), 50).tolist()
        return source.__getitems__(numbers), numbers

    with ThreadPoolExecutor(8) as pool:
        for found, numbers in pool.map(read, range(90)):
            for record, number in zip(found, numbers, strict=True):
                assert_same_record(record, expected[number])


def send_ids(source, numbers, queue):
    queue.put([int(source[number]["id"]) for number in numbers])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_can_share_a_source(dataset, method):
    source = readers.RecordSource(dataset)
    assert source[19]["id"] == 19
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    processes = [
        context.Process(target=send_ids, args=(source, range(first, 20, 2), queue), daemon=True)
        for first in (0, 1)
    ]
    # As if another thread of this process held the lock at that moment.
    with source._records.files[0].shards._lock:
        for process in processes:
            process.start()
    found = [queue.get(timeout=60), queue.get(timeout=60)]
    assert sorted(found) == [list(range(0, 20, 2)), list(range(1, 20, 2))]
    for process in processes:
        process.join()
    assert source[0]["id"] == 0


def test_a_batch_from_a_remote_filesystem_takes_one_request_per_shard(dataset, monkeypatch):
    kind = fsspec.get_filesystem_class("memory")
    fetch, requests = kind.cat_file, []

    def counted(self, path, *arguments, **keywords):
        requests.extend([] if path.endswith(".index") else [path])
        return fetch(self, path, *arguments, **keywords)

    with in_memory(dataset) as path:
        source = readers.RecordSource(path)
        monkeypatch.setattr(kind, "cat_file", counted)
        assert ids_of(source.__getitems__([19, 0, 4, 18])) == [19, 0, 4, 18]
        assert len(requests) == len(set(requests)) == 2
        requests.clear()
        assert ids_of(source) == list(range(20))  # 4 shards, all in one window.
        assert len(requests) == len(set(requests)) == 4
        assert source.__getitems__([]) == []
        assert source[7]["id"] == 7


def test_a_pickled_copy_reopens_the_files(dataset):
    source = readers.RecordSource(dataset, "train[2:]", ["id"], verify_crc=False)
    assert source[0]["id"] == 2
    data = pickle.dumps(source)
    copy = pickle.loads(data)
    assert (repr(copy), len(copy), copy[1]["id"]) == (repr(source), 18, 3)
    assert len(data) < 5000


def test_the_repr_of_a_source_depends_only_on_its_content(dataset, tmp_path):
    def text(path, *arguments):
        return repr(readers.RecordSource(path, *arguments))

    moved = shutil.copytree(dataset, tmp_path / "moved")
    assert text(dataset) == text(moved)
    assert text(dataset).startswith("RecordSource(train: 20 records of id, name, vector; crc32c ")
    other = write_dataset(tmp_path / "other", NUMBERS, {"train": [numbers(1, 20)]})
    texts = [text(dataset), text(dataset, "val"), text(dataset, "train[1:]"), text(other)]
    texts.append(text(dataset, "train", ["id"]))
    assert len(set(texts)) == 5


def test_checksums_are_verified_unless_disabled(dataset):
    flip(dataset / "train-00000-of-00004.tfrecord", -1)
    with pytest.raises(ValueError, match="fails its CRC32C"):
        readers.RecordSource(dataset)[4]
    assert readers.RecordSource(dataset)[3]["id"] == 3
    assert readers.RecordSource(dataset, verify_crc=False)[4]["id"] == 4


@pytest.mark.parametrize("encoding", ["jpeg", "png", "source"])
def test_no_shard_starts_ghostscript(encoding, tmp_path, monkeypatch):
    mark = mark_of_ghostscript(tmp_path, monkeypatch)
    schema = readers.Schema({"image": readers.Feature("uint8", (None, None, 3), encoding)})
    dataset = write_dataset(tmp_path / "eps", schema, {"train": [[{"image": EPS}]]})
    with pytest.raises(ValueError, match=r"'image'.*cannot identify its format"):
        readers.RecordSource(dataset)[0]
    with pytest.raises(ValueError, match=r"'image'.*cannot identify its format"):
        list(readers.as_numpy(dataset, batch_size=1, batching="ragged"))
    assert not mark.exists()


def test_a_slice_is_a_list_of_its_records(tmp_path):
    source = readers.RecordSource(write_numbers(tmp_path), "train")
    for chosen in (slice(2, 7), slice(-3, None), slice(None, None, -6), slice(30, 40)):
        assert [int(row["id"]) for row in source[chosen]] == [*range(20)][chosen]
