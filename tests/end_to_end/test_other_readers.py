"""Other programs read the shards of a job: TensorFlow, the `tfrecord` package, and NVIDIA DALI."""

from __future__ import annotations

import io
import itertools
import pickle
import subprocess
import sys
from pathlib import Path

import apache_beam as beam
import numpy as np
import pytest
import tensorflow as tf
from apache_beam.testing.util import assert_that, equal_to
from PIL import Image

from beam_jobs import Schema, WriteShards
from readers.format.protobuf.tensor import tensor_header
from tests.support.checkout import ROOT
from tests.support.images import encoded

SCHEMA = Schema(
    {
        "image": ("uint8", (5, 4, 3)),
        "photo": ("uint8", (None, None, 3), "jpeg"),
        "signal": ("float32", (None, 2)),
        "means": ("float32", (3,), "raw"),
        "tokens": ("int64", (None,), "list"),
        "events": ("int16", (None, None), "sequence"),
        "label": ("int64", ()),
        "weight": ("float32", ()),
        "text": ("string", ()),
        "key": ("string", ()),
    }
)


def photo(number):
    """A smooth JPEG, which all decoders decode to nearly the same pixels."""
    y, x = np.mgrid[: 20 + number, :30]
    pixels = np.stack([4 * y, 6 * x, 100 + y + x], axis=2).astype(np.uint8)
    return encoded(pixels, "JPEG", quality=95, subsampling=0)


def record(number):
    rng = np.random.default_rng(number)
    return {
        "image": rng.integers(0, 256, (5, 4, 3)).astype(np.uint8),
        "photo": photo(number),
        "signal": rng.normal(size=(number % 5, 2)).astype(np.float32),
        "means": rng.normal(size=3).astype(np.float32),
        "tokens": rng.integers(-9, 9999, 1 + number % 3),
        "events": [rng.integers(-9, 9, n).astype(np.int16) for n in range(1 + number % 3)],
        "label": number - 3,
        "weight": np.float32(number / 4),
        "text": f"Größe {number}",
    }


KEYS = {f"k{number}".encode(): record(number) for number in range(23)}


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """The paths of the shards of a job."""
    path = tmp_path_factory.mktemp("job") / "shards"
    with beam.Pipeline() as pipeline:
        elements = [(key.decode(), value) for key, value in KEYS.items()]
        _ = pipeline | beam.Create(elements) | WriteShards(str(path), schema=SCHEMA, num_shards=3)
    found = sorted(map(str, path.glob("*.tfrecord")))
    assert len(found) == 3
    return found


def index_of(shard):
    return f"{shard}.idx"


def test_tensorflow_alone_reads_every_feature(shards):
    spec = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "photo": tf.io.FixedLenFeature([], tf.string),
        "signal": tf.io.FixedLenFeature([], tf.string),
        "signal/shape": tf.io.FixedLenFeature([2], tf.int64),
        "means": tf.io.FixedLenFeature([], tf.string),
        "tokens": tf.io.RaggedFeature(tf.int64),
        "events": tf.io.RaggedFeature(tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64),
        "weight": tf.io.FixedLenFeature([], tf.float32),
        "text": tf.io.FixedLenFeature([], tf.string),
        "key": tf.io.FixedLenFeature([], tf.string),
    }

    def parse(serialized):
        found = tf.io.parse_single_example(serialized, spec)
        found["image"] = tf.io.parse_tensor(found["image"], tf.uint8)
        found["signal"] = tf.io.parse_tensor(found["signal"], tf.float32)
        found["means"] = tf.io.decode_raw(found["means"], tf.float32)
        return found

    keys = set()
    for found in tf.data.TFRecordDataset(shards).map(parse).as_numpy_iterator():
        keys.add(found["key"])
        expected = KEYS[found["key"]]
        for name in ("image", "signal", "means", "tokens"):
            assert found[name].dtype == expected[name].dtype
            np.testing.assert_array_equal(found[name], expected[name])
        assert found["signal/shape"].tolist() == list(expected["signal"].shape)
        events = [tf.io.parse_tensor(event, tf.int16).numpy() for event in found["events"]]
        assert [e.tolist() for e in events] == [e.tolist() for e in expected["events"]]
        for name in ("photo", "label", "weight"):
            assert found[name] == expected[name]
        assert found["text"].decode() == expected["text"]
    assert keys == set(KEYS)


@pytest.mark.slow
def test_the_documented_pattern_matches_shards_and_no_indexes(shards):
    pattern = str(Path(shards[0]).parent / "train-*.tfrecord")
    assert pattern.rpartition("/")[2] in (ROOT / "docs/reading.md").read_text()
    batches = tf.data.experimental.make_batched_features_dataset(
        pattern,
        batch_size=4,
        features={"key": tf.io.FixedLenFeature([], tf.string)},
        num_epochs=1,
    )
    found = [key for batch in batches.as_numpy_iterator() for key in batch["key"].tolist()]
    assert sorted(found) == sorted(KEYS)


@pytest.mark.slow
def test_beam_reads_the_documented_pattern(shards):
    pattern = str(Path(shards[0]).parent / "train-*.tfrecord")
    with beam.Pipeline() as pipeline:
        records = pipeline | beam.io.ReadFromTFRecord(pattern)
        keys = records | beam.Map(_key_of)
        assert_that(keys, equal_to(list(KEYS)))


def _key_of(serialized):
    return tf.train.Example.FromString(serialized).features.feature["key"].bytes_list.value[0]


NAMES = {
    "image": "byte",
    "means": "byte",
    "tokens": "int",
    "label": "int",
    "weight": "float",
    "signal": "byte",
    "signal/shape": "int",
    "text": "byte",
    "key": "byte",
}
READ = """if True:
    import pickle, sys
    from tfrecord.reader import tfrecord_loader
    from tfrecord.tools.tfrecord2idx import create_index
    shards, names, index = pickle.load(sys.stdin.buffer)

    def read(shard, names, worker=None):
        return list(tfrecord_loader(shard, shard + ".idx", names, worker))

    def index_of(shard):
        create_index(shard, index)
        return open(index, "rb").read()

    found = {
        "indices": [index_of(shard) for shard in shards],
        "workers": [read(shards[0], names, (worker, 2)) for worker in range(2)],
        "others": [read(shard, names, (0, 1)) for shard in shards[1:]],
        "in order": read(shards[0], ["key"], (0, 1)),
        "anywhere": [read(shards[0], ["key"]) for _ in range(4)],
    }
    pickle.dump(found, sys.stdout.buffer)
"""


@pytest.fixture(scope="module")
def by_tfrecord(shards, tmp_path_factory):
    """What the `tfrecord` package makes of the shards.

    In a process of its own, because it cannot be imported together with TensorFlow, and in one,
    because it imports PyTorch.
    """
    given = pickle.dumps((shards, NAMES, str(tmp_path_factory.mktemp("made") / "idx")))
    command = [sys.executable, "-c", READ]
    done = subprocess.run(command, check=True, input=given, stdout=subprocess.PIPE)
    return pickle.loads(done.stdout)


@pytest.mark.slow
def test_an_index_equals_the_one_of_the_tfrecord_package(shards, by_tfrecord):
    assert [Path(index_of(shard)).read_bytes() for shard in shards] == by_tfrecord["indices"]


@pytest.mark.slow
def test_the_tfrecord_package_divides_a_shard_by_its_index(by_tfrecord):
    workers = by_tfrecord["workers"]
    assert [len(records) for records in workers] == [3, 4]
    keys = []
    for found in itertools.chain(*workers, *by_tfrecord["others"]):
        keys.append(found["key"])
        expected = KEYS[found["key"]]
        # A TensorProto ends with its values.
        pixels = np.frombuffer(found["image"][-60:], np.uint8).reshape(5, 4, 3)
        np.testing.assert_array_equal(pixels, expected["image"])
        size = 4 * np.prod(found["signal/shape"])
        signal = np.frombuffer(found["signal"][len(found["signal"]) - size :], np.float32)
        signal = signal.reshape(found["signal/shape"])
        np.testing.assert_array_equal(signal, expected["signal"])
        means = np.frombuffer(found["means"], np.float32)
        np.testing.assert_array_equal(means, expected["means"])
        assert found["tokens"].tolist() == expected["tokens"].tolist()
        assert found["label"].tolist() == [expected["label"]]
        assert found["weight"].tolist() == [expected["weight"]]
        assert found["text"].decode() == expected["text"]
    assert sorted(keys) == sorted(KEYS)


@pytest.mark.slow
def test_the_tfrecord_package_starts_anywhere_by_the_index(by_tfrecord):
    expected = [record["key"] for record in by_tfrecord["in order"]]
    for records in by_tfrecord["anywhere"]:
        order = [record["key"] for record in records]
        begin = expected.index(order[0])
        assert order == expected[begin:] + expected[:begin]


def dali_batches(shards, shard_id, num_shards):
    from nvidia import dali
    from nvidia.dali import tfrecord

    @dali.pipeline_def(batch_size=4, num_threads=2, device_id=None)
    def pipeline():
        text = tfrecord.FixedLenFeature([], tfrecord.string, "")
        found = dali.fn.readers.tfrecord(
            name="reader",
            path=shards,
            index_path=[index_of(shard) for shard in shards],
            features={
                "image": text,
                "photo": text,
                "means": text,
                "key": text,
                "tokens": tfrecord.VarLenFeature([], tfrecord.int64, 0),
                "label": tfrecord.FixedLenFeature([], tfrecord.int64, -1),
                "weight": tfrecord.FixedLenFeature([], tfrecord.float32, 0.0),
            },
            shard_id=shard_id,
            num_shards=num_shards,
        )
        header = len(tensor_header("uint8", (5, 4, 3)))
        image = dali.fn.slice(found["image"], header, 60, axes=[0])
        return (
            found["key"],
            dali.fn.reshape(image, shape=[5, 4, 3]),
            dali.fn.decoders.image(found["photo"], device="cpu"),
            dali.fn.reinterpret(found["means"], dtype=dali.types.FLOAT),
            found["tokens"],
            found["label"],
            found["weight"],
        )

    built = pipeline()
    built.build()
    assert built.reader_meta("reader")["epoch_size"] == len(KEYS)
    for _ in range(-(-len(KEYS) // 4)):
        columns = built.run()
        for row in range(4):
            yield [np.array(column[row]) for column in columns]


@pytest.mark.frameworks
def test_dali_reads_and_decodes_on_the_cpu(shards):
    keys = []
    for key, image, photo, means, tokens, label, weight in dali_batches(shards, 0, 1):
        keys.append(bytes(key))
        expected = KEYS[keys[-1]]
        np.testing.assert_array_equal(image, expected["image"])
        np.testing.assert_array_equal(means, expected["means"])
        assert tokens.tolist() == expected["tokens"].tolist()
        assert label == expected["label"]
        assert weight == expected["weight"]
        pixels = np.array(Image.open(io.BytesIO(expected["photo"])))
        assert photo.shape == pixels.shape
        assert np.abs(photo.astype(int) - pixels).max() <= 3
    # The last batch is filled up with records of the next epoch.
    assert sorted(keys[: len(KEYS)]) == sorted(KEYS)


@pytest.mark.frameworks
def test_dali_divides_an_epoch_by_the_index(shards):
    counts = [len(KEYS) * (host + 1) // 2 - len(KEYS) * host // 2 for host in range(2)]
    found = [[bytes(row[0]) for row in dali_batches(shards, host, 2)] for host in range(2)]
    seen = [key for keys, count in zip(found, counts, strict=True) for key in keys[:count]]
    assert sorted(seen) == sorted(KEYS)
