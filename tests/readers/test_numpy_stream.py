"""`readers.as_numpy`: batches, order, remote files and errors."""

from __future__ import annotations

import io
import subprocess
import sys

import fsspec
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import readers
from readers.format.index import parse_index
from readers.format.tfrecord import CorruptRecordError
from readers.order.orders import GlobalOrder
from readers.shards import fetch
from readers.shards.fetch import ShardBytes, merged_ranges
from readers.shards.index import scan_index
from tests.support.datasets import NUMBERS, write_dataset, write_numbers, write_signals


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return str(write_numbers(tmp_path_factory.mktemp("numbers")))


def ids(batches):
    return [i for batch in batches for i in batch["id"].tolist()]


def everything(tmp_path):
    """A dataset with a feature of every encoding and many shapes."""
    rng = np.random.default_rng(3)
    schema = readers.Schema(
        {
            "image": ("uint8", (4, 5, 3)),
            "signal": ("float32", (None, 2)),
            "volume": ("int16", (None, 2, None)),
            "raw": ("float64", (None,), "raw"),
            "tags": ("int64", (None,), "list"),
            "words": ("string", (None,), "list"),
            "label": ("int64", ()),
            "weight": ("float32", ()),
            "text": ("string", ()),
            "photo": ("uint8", (None, None, 3), "png"),
            "events": ("int32", (None, None, 2), "sequence"),
            "steps": ("float32", (None, 3), "sequence"),
        }
    )

    def photo(height, width):
        out = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (height, width, 3)).astype(np.uint8)).save(out, "PNG")
        return out.getvalue()

    def record(i):
        n = int(rng.integers(0, 4))
        return {
            "image": rng.integers(0, 256, (4, 5, 3)).astype(np.uint8),
            "signal": rng.normal(size=(n, 2)).astype(np.float32),
            "volume": rng.integers(1, 9, (n, 2, i % 3)).astype(np.int16),
            "raw": rng.normal(size=n),
            "tags": rng.integers(-9, 9, n),
            "words": [b"w%d" % k for k in range(n)],
            "label": i,
            "weight": i / 2,
            "text": f"text {i}",
            "photo": photo(i % 3 + 1, n + 1),
            "events": [rng.integers(1, 9, (k, 2)).astype(np.int32) for k in range(n)],
            "steps": [rng.normal(size=3).astype(np.float32) for _ in range(n)],
        }

    return write_dataset(
        tmp_path, schema, {"train": [[record(i) for i in range(4)], [record(i) for i in range(3)]]}
    )


def test_padded_batches_equal_those_of_tensorflow(tmp_path):
    path = everything(tmp_path)
    graph = readers.load(path, batch_size=3, batching="padded", mask=True)
    arrays = readers.as_numpy(path, batch_size=3, batching="padded", mask=True)
    for expected, found in zip(graph.as_numpy_iterator(), arrays, strict=True):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value, err_msg=name)
            assert found[name].dtype == value.dtype, name


def test_ragged_batches_equal_those_of_tensorflow(tmp_path):
    path = everything(tmp_path)
    graph = readers.load(path, batch_size=3, batching="ragged")
    for expected, found in zip(
        graph, readers.as_numpy(path, batch_size=3, batching="ragged"), strict=True
    ):
        for name, value in expected.items():
            if isinstance(value, tf.RaggedTensor):
                assert found[name].dtype == object
                assert nested(found[name]) == value.to_list(), name
            else:
                np.testing.assert_array_equal(found[name], value)


def nested(value):
    if isinstance(value, np.ndarray):
        return [nested(item) for item in value] if value.dtype == object else value.tolist()
    return value


def test_records_come_in_the_order_of_the_files(dataset):
    batches = list(readers.as_numpy(dataset, batch_size=8))
    assert [batch["vector"].shape for batch in batches] == [(8, 3), (8, 3), (4, 3)]
    assert ids(batches) == list(range(20))
    assert batches[2]["name"].tolist() == [b"record %d" % i for i in range(16, 20)]
    assert len(list(readers.as_numpy(dataset, batch_size=8, drop_remainder=True))) == 2


@pytest.mark.parametrize("split", ["train[:3]", "train[3:12]", "train[5:9]", "train[-1:]", "val"])
def test_slices_hold_the_records_that_load_reads(dataset, split):
    expected = readers.load(dataset, split=split, batch_size=4)
    expected = [i for batch in expected for i in batch["id"].numpy().tolist()]
    assert ids(readers.as_numpy(dataset, split=split, batch_size=4)) == expected


def test_shuffled_epochs_are_the_permutations_of_seed_and_epoch(dataset):
    found = ids(readers.as_numpy(dataset, batch_size=8, shuffle=True, seed=5, repeat=2))
    order = GlobalOrder(20, 5)
    places = np.arange(20)
    assert found == [*order(0, places).tolist(), *order(1, places).tolist()]


def test_endless_repetition_continues_but_an_empty_split_ends(dataset, tmp_path):
    batches = readers.as_numpy(dataset, batch_size=20, repeat=None)
    assert all(ids([next(batches)]) == list(range(20)) for _ in range(3))
    write_dataset(tmp_path, NUMBERS, {"train": [[]]})
    assert list(readers.as_numpy(tmp_path, batch_size=2, repeat=None)) == []


def test_tuples_and_columns_match_the_arguments(dataset):
    vector, number = next(readers.as_numpy(dataset, batch_size=2, as_supervised=("vector", "id")))
    assert vector.tolist() == [[0, 0, 0], [1, 1, 1]]
    assert number.tolist() == [0, 1]
    assert list(next(readers.as_numpy(dataset, batch_size=2, columns=["id"]))) == ["id"]


def test_a_damaged_record_is_reported_by_file_and_byte(tmp_path):
    write_numbers(tmp_path)
    shard = tmp_path / "train-00001-of-00004.tfrecord"
    data = bytearray(shard.read_bytes())
    index = parse_index((tmp_path / f"{shard.name}.idx").read_bytes(), "idx")
    data[index[2, 0] + 20] ^= 1
    shard.write_bytes(data)
    batches = readers.as_numpy(tmp_path, batch_size=1)
    assert ids(next(batches) for _ in range(7)) == list(range(7))
    with pytest.raises(CorruptRecordError, match=rf"{shard.name}: .* byte {index[2, 0]} fails its"):
        next(batches)


def test_a_record_that_does_not_fit_the_schema_is_reported_by_feature(dataset):
    files = [f"{dataset}/train-00000-of-00004.tfrecord"]
    schema = readers.Schema({"vector": ("float32", (4,))})
    with pytest.raises(ValueError, match=r"byte 0: feature 'vector' .*expected \[4\], found \[3\]"):
        next(readers.as_numpy(files, schema=schema, batch_size=1))


def test_files_without_an_index_are_scanned(tmp_path):
    write_numbers(tmp_path)
    for index in tmp_path.glob("*.idx"):
        index.unlink()
    assert ids(readers.as_numpy(tmp_path, batch_size=6)) == list(range(20))
    files = sorted(tmp_path.glob("train*.tfrecord"))
    found = ids(readers.as_numpy(files, schema=NUMBERS, batch_size=6, shuffle=True))
    assert sorted(found) == list(range(20))
    assert ids(readers.as_numpy(files, schema=NUMBERS, batch_size=6, split="all[-2:]")) == [18, 19]


def test_scanning_a_damaged_file_reports_where_it_breaks(tmp_path):
    write_numbers(tmp_path)
    shard = tmp_path / "train-00000-of-00004.tfrecord"
    data = shard.read_bytes()
    index = parse_index((tmp_path / f"{shard.name}.idx").read_bytes(), "idx")
    np.testing.assert_array_equal(scan_index(str(shard)), index)
    for missing in (1, int(index[-1, 1]) - 5):
        shard.write_bytes(data[:-missing])
        with pytest.raises(CorruptRecordError, match=f"at byte {index[-1, 0]} is cut off"):
            scan_index(str(shard))


@pytest.fixture
def remote(tmp_path):
    """The dataset on a filesystem that is not local."""
    filesystem = fsspec.filesystem("memory")
    for file in write_numbers(tmp_path).iterdir():
        filesystem.pipe(f"/numbers/{file.name}", file.read_bytes())
    yield "memory://numbers"
    filesystem.rm("/numbers", recursive=True)


def test_remote_filesystems_can_be_read(remote):
    assert ids(readers.as_numpy(remote, batch_size=8)) == list(range(20))
    found = ids(readers.as_numpy(remote, batch_size=8, shuffle=True, seed=2))
    assert found == GlobalOrder(20, 2)(0, np.arange(20)).tolist()
    found = readers.as_numpy(f"{remote}/val*.tfrecord", schema=NUMBERS, batch_size=8)
    assert ids(found) == [1000, 1001, 1002]


@pytest.mark.parametrize("long_run", [1, 1 << 20])
def test_local_and_remote_files_give_the_same_bytes(tmp_path, remote, monkeypatch, long_run):
    monkeypatch.setattr(fetch, "_LONG_RUN", long_run)
    name = "train-00000-of-00004.tfrecord"
    index = parse_index((tmp_path / f"{name}.idx").read_bytes(), "idx")[[3, 0, 1, 3]]
    data = (tmp_path / name).read_bytes()
    expected = b"".join(data[start : start + length] for start, length in index.tolist())
    for path in (str(tmp_path / name), f"{remote}/{name}"):
        found = bytearray(len(expected))
        ends = np.cumsum(index[:, 1])
        runs = [(0, *row, int(end) - row[1]) for row, end in zip(index.tolist(), ends, strict=True)]
        ShardBytes(path).read(runs, memoryview(found))
        assert found == expected


def test_neighboring_records_share_a_request_and_distant_ones_do_not():
    far = 5 << 20
    assert merged_ranges([(far, 10), (0, 10), (10, 20), (40, 5)]) == [(0, 45), (far, far + 10)]
    assert merged_ranges([]) == []


def test_reading_with_numpy_does_not_need_tensorflow(tmp_path):
    write_signals(tmp_path)
    code = (
        "import sys; sys.modules['tensorflow'] = None; import readers\n"
        f"b = next(readers.as_numpy({str(tmp_path)!r}, batch_size=5, batching='padded', mask=True))\n"
        "assert b['signal'].shape == (5, 5, 2) and b['signal_mask'].sum() == 11\n"
        f"assert len(readers.RecordSource({str(tmp_path)!r})[2]['signal']) == 5"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_images_without_pillow_report_how_to_install_it(tmp_path, monkeypatch):
    path = everything(tmp_path)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match="feature 'photo' needs Pillow: pip install pillow"):
        next(readers.as_numpy(path, batch_size=1, batching="ragged"))


def test_a_broken_image_is_reported_by_feature_and_byte(tmp_path):
    schema = readers.Schema({"photo": ("uint8", (4, 4, 3), "png")})
    out = io.BytesIO()
    Image.new("RGB", (4, 5)).save(out, "PNG")
    for name, data, message in [
        ("a", b"junk", "cannot identify"),
        ("b", out.getvalue(), r"expected \[4, 4, 3\], found \[5, 4, 3\]"),
        ("c", out.getvalue()[:-28], "truncated|broken"),
    ]:
        path = write_dataset(tmp_path / name, schema, {"train": [[{"photo": data}]]})
        with pytest.raises(ValueError, match=f"byte 0: feature 'photo' .*({message})"):
            next(readers.as_numpy(path, batch_size=1))
