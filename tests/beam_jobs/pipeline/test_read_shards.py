"""ReadShards: the records that were written, and the errors of what cannot be read."""

import os
import re
import shutil

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.test_pipeline import TestPipeline
from apache_beam.testing.util import assert_that

import readers
from beam_jobs import DataError, Feature, ReadShards, Schema, UsageError, WriteShards
from beam_jobs.pipeline import read_shards
from readers.format.dtypes import TENSORFLOW_DTYPES, numpy_dtype
from readers.format.manifest import Manifest
from readers.format.splits import Split
from tests.support.checkout import ROOT
from tests.support.datasets import (
    NUMBERS,
    damage,
    files_of,
    flip,
    write_dataset,
    write_numbers,
    write_shard,
)
from tests.support.images import encoded
from tests.support.plain import sequence_example

_LISTED = ("int64", "int32", "bool", "float32", "float16", "bfloat16")
_NUMBERS = [name for name in TENSORFLOW_DTYPES if name != "string"]

SCHEMA = Schema(
    {
        "key": Feature("string"),
        **{f"tensor_{name}": Feature(name, (2, None), "tensor") for name in _NUMBERS},
        **{f"list_{name}": Feature(name, (2,), "list") for name in _LISTED},
        "number": Feature("int64"),
        "ragged": Feature("float32", (None, None), "list"),
        "raw": Feature("int16", (None, 2), "raw"),
        "parts": Feature("int16", (None, None), "sequence"),
        "bytes": Feature("string", (), "list"),
        "texts": Feature("string", (None,)),
        "image": Feature("uint8", (None, None, 3), "jpeg"),
    }
)


def pixels(n):
    return np.full((4, 5 + n % 3, 3), n, np.uint8)


def record(n):
    rows = np.arange(2 * (n % 3 + 1)).reshape(2, -1)
    return f"r{n}", {
        "key": f"r{n}".encode(),
        **{f"tensor_{name}": rows.astype(numpy_dtype(name)) for name in _NUMBERS},
        **{f"list_{name}": np.array([0, n % 2], numpy_dtype(name)) for name in _LISTED},
        "number": np.int64(n),
        "ragged": np.full((n % 4, n % 3 + 1), n, np.float32),
        "raw": np.full((n % 3, 2), n, np.int16),
        "parts": [np.arange(k, dtype=np.int16) for k in range(n % 4)],
        "bytes": b"\xff" * (n % 3),
        "texts": [b"a", f"ü{n}".encode()][: n % 3],
        "image": encoded(pixels(n), "JPEG"),
    }


def plain(value):
    """A value with its types, in a form that compares."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    return type(value), value


def read(directory, check, **arguments):
    def compare(found):
        check([{name: plain(value) for name, value in one.items()} for one in found])

    with TestPipeline() as pipeline:
        assert_that(pipeline | ReadShards(directory, **arguments), compare)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Two splits of records of all forms."""
    directory = tmp_path_factory.mktemp("read") / "dataset"
    with TestPipeline() as pipeline:
        pairs = pipeline | beam.Create(map(record, range(60)), reshuffle=False)
        pairs | WriteShards(directory, SCHEMA, num_shards=2, splits={"train": 0.8, "val": 0.2})
    return directory


def written(directory, split):
    source = readers.RecordSource(directory, split, columns=["number"])
    return sorted(int(one["number"]) for one in source)


@pytest.mark.parametrize("range_bytes", [1, 5000, 16 << 20])
def test_the_records_of_a_split_are_those_that_were_written(dataset, monkeypatch, range_bytes):
    monkeypatch.setattr(read_shards, "RANGE_BYTES", range_bytes)

    def check(found):
        expected = {n: record(n)[1] for n in written(dataset, "val")}
        assert sorted(one["number"][1] for one in found) == sorted(expected)
        for one in found:
            values = expected[int(one["number"][1])]
            assert one == {name: plain(value) for name, value in values.items()}
            assert list(one) == list(SCHEMA)

    read(dataset, check, split="val")


def test_the_forms_of_values_are_those_of_a_record_source(dataset):
    expected = [
        {name: plain(value) for name, value in one.items()}
        for one in readers.RecordSource(dataset, "train", columns=["number", "texts", "parts"])
    ]

    def check(found):
        assert sorted(found, key=str) == sorted(expected, key=str)

    read(str(dataset), check, columns=["number", "texts", "parts"])


def test_writing_what_was_read_makes_the_same_shards(dataset, tmp_path):
    with TestPipeline() as pipeline:
        pairs = [record(n) for n in written(dataset, "val")]
        pipeline | beam.Create(pairs) | WriteShards(tmp_path / "a", SCHEMA, num_shards=3)
    with TestPipeline() as pipeline:
        records = pipeline | ReadShards(dataset, "val")
        pairs = records | beam.Map(lambda one: (one["key"].decode(), one))
        pairs | WriteShards(tmp_path / "b", SCHEMA, num_shards=3)
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")


def test_ranges_cover_a_shard_and_begin_where_its_index_says(dataset, monkeypatch):
    (shard, *_) = Manifest.read(dataset).splits["train"].shards
    path = f"{dataset}/{shard.path}"
    assert read_shards.shard_ranges(str(dataset), shard, b"") == [(path, 0, shard.bytes, 0, b"")]
    for size in (1, 3000, 7000, shard.bytes // 2):
        monkeypatch.setattr(read_shards, "RANGE_BYTES", size)
        ranges = read_shards.shard_ranges(str(dataset), shard, b"")
        largest = shard.bytes // shard.records * 2
        assert len(ranges) > 1
        assert all(0 < part.stop - part.start <= size + largest for part in ranges)
        assert [part.start for part in ranges[1:]] == [part.stop for part in ranges[:-1]]
        assert (ranges[0].start, ranges[0].first, ranges[-1].stop) == (0, 0, shard.bytes)
        assert len(ranges) == shard.records if size == 1 else True


def test_feature_lists_of_resharded_records_are_read(tmp_path):
    pictures = [encoded(pixels(n), "PNG") for n in range(3)]
    examples = [
        sequence_example({"id": n}, images=pictures[:n], steps=[[n, n]] * n) for n in range(4)
    ]
    schema = Schema(
        {
            "id": Feature("int64"),
            "images": Feature("uint8", (None, None, None, 3), "png steps"),
            "steps": Feature("int64", (None, 2), "list steps"),
        }
    )
    split = Split((write_shard(tmp_path / "train-00000-of-00001.tfrecord", examples),))
    (tmp_path / "manifest.json").write_bytes(Manifest(schema, {"train": split}).to_bytes())

    def check(found):
        assert found == [
            {
                "id": plain(np.int64(n)),
                "images": [plain(picture) for picture in pictures[:n]],
                "steps": plain(np.full((n, 2), n)),
            }
            for n in range(4)
        ]

    read(tmp_path, check)


def test_shards_that_need_no_ranges_are_read_without_a_shuffle(dataset, monkeypatch):
    def shuffles():
        pipeline = beam.Pipeline()
        pipeline | ReadShards(dataset, columns=["number"])
        labels = [part.full_label for part in pipeline.transforms_stack[0].parts[0].parts]
        return [label for label in labels if "Spread" in label]

    assert shuffles() == []
    monkeypatch.setattr(read_shards, "RANGE_BYTES", 1000)
    assert len(shuffles()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "vall"}, "split 'vall': the dataset has train, val; did you mean 'val'?"),
        ({"split": "x"}, "split 'x': the dataset has train, val"),
        (
            {"columns": ["id", "nam"]},
            "column 'nam': the dataset has id, name, vector; did you mean 'name'?",
        ),
        ({"columns": "id"}, "columns='id': expected a list of features, such as ['image']"),
        ({"columns": []}, "columns=[]: expected a list of features, such as ['image']"),
    ],
)
def test_what_is_not_there_is_refused_when_the_pipeline_is_built(tmp_path, arguments, message):
    write_numbers(tmp_path / "in")
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        beam.Pipeline() | ReadShards(tmp_path / "in", **arguments)


def test_a_directory_without_a_dataset_is_refused_when_the_pipeline_is_built(tmp_path):
    message = f"^directory {tmp_path}: no dataset: it has no manifest.json$"
    with pytest.raises(UsageError, match=message):
        beam.Pipeline() | ReadShards(tmp_path)
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(UsageError, match=r"manifest\.json: format version None"):
        beam.Pipeline() | ReadShards(tmp_path)


def failure(directory):
    """The error of the step that divides the shards of `train`, or of the one that reads the ranges."""
    manifest = Manifest.read(directory)
    reader = read_shards._ReadRanges(manifest.schema)
    reader.setup()
    with pytest.raises(DataError) as caught:
        for shard in manifest.splits["train"].shards:
            for part in read_shards.shard_ranges(str(directory), shard, b""):
                list(reader.process(part))
    return caught.value.message


@pytest.mark.parametrize("range_bytes", [1, 16 << 20])
def test_an_error_names_the_file_and_the_record_that_is_damaged(tmp_path, monkeypatch, range_bytes):
    monkeypatch.setattr(read_shards, "RANGE_BYTES", range_bytes)
    shard = write_numbers(tmp_path) / "train-00002-of-00004.tfrecord"
    (at,) = damage(shard, 3)
    place = f"{shard}: record 3 at byte {at}: "
    assert failure(tmp_path) == f"{place}it fails its CRC32C"
    flip(shard, at)
    assert failure(tmp_path).startswith(f"{place}the checksum of its length does not match")
    os.truncate(shard, at + 20)
    found = failure(tmp_path)
    assert found.startswith(place) and ("cut off" in found or "length does not match" in found)
    os.truncate(shard, at)
    assert failure(tmp_path) == f"{place}it is cut off"
    flip(shard, 0)
    assert failure(tmp_path).startswith(f"{shard}: record 0 at byte 0: the checksum of its length")


def test_an_error_names_the_file_and_the_record_that_does_not_fit_the_schema(tmp_path):
    write_numbers(tmp_path)
    other = Schema({**NUMBERS, "vector": Feature("int64", (3,), "list")})
    (tmp_path / "manifest.json").write_bytes(
        Manifest(other, Manifest.read(tmp_path).splits).to_bytes()
    )
    assert re.fullmatch(
        r".*/train-0000\d-of-00004.tfrecord: record 0 at byte 0: feature 'vector' .*: the Example holds a list "
        r"of bytes, not of integers",
        failure(tmp_path),
    )


def test_a_dataset_that_is_replaced_after_the_pipeline_was_built_is_an_error(tmp_path):
    write_numbers(tmp_path / "in", (20,))
    pipeline = TestPipeline()
    pipeline | ReadShards(tmp_path / "in")
    shutil.rmtree(tmp_path / "in")
    with pytest.raises(DataError) as caught:
        pipeline.run()
    assert caught.value.message == (
        f"{tmp_path}/in/train-00000-of-00001.tfrecord: No such file or directory; build the pipeline again "
        "if a job has replaced the dataset in the meantime"
    )


def test_an_index_that_is_damaged_or_of_another_shard_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(read_shards, "RANGE_BYTES", 100)
    write_numbers(tmp_path / "in", (20,))
    write_numbers(tmp_path / "other", (9, 20))
    index = tmp_path / "in" / "train-00000-of-00001.tfrecord.index"
    shutil.copy(tmp_path / "other" / "train-00001-of-00002.tfrecord.index", index)
    assert failure(tmp_path / "in").startswith(f"{index}: not the index that manifest.json lists")
    flip(index, 300)
    assert failure(tmp_path / "in").startswith(f"{index}: ")


def test_a_split_without_records_has_none(tmp_path):
    write_dataset(tmp_path, NUMBERS, {"train": [[], []]})
    read(tmp_path, lambda found: found == [] or pytest.fail(str(found)))


def test_a_dataset_in_a_store_is_read_by_ranges(s3, tmp_path, monkeypatch):
    monkeypatch.setattr(read_shards, "RANGE_BYTES", 300)
    for path in write_numbers(tmp_path, (9, 8)).iterdir():
        s3.put(f"{s3.url}/in/{path.name}", path.read_bytes())

    def check(found):
        assert sorted(one["id"][1] for one in found) == list(range(17))

    read(f"{s3.url}/in/", check, split="train", columns=["id"])


def test_the_examples_of_the_page_run_in_order(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/write/python.md").read_text(encoding="utf-8")
    section = page[page.index("## From a Beam pipeline") :]
    blocks = re.findall(r"```python\n(.*?)```", section, re.S)
    assert "WriteShards(" in blocks[0] and "ReadShards(" in blocks[1]
    for block in blocks[:2]:
        exec(block, {"__name__": "__main__"})
    assert capsys.readouterr().out == "5050\n"
