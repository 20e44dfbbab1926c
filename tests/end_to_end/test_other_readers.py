"""Other programs read the shards of a job: TensorFlow, the `tfrecord` package, and NVIDIA DALI."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import apache_beam as beam
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import readers
from beam_jobs import Schema, WriteShards
from readers.format.protobuf.tensor import tensor_header
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
    found = readers.open(path).files()
    assert len(found) == 3
    return found


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


@pytest.fixture(scope="module")
def indexes(shards):
    """The paths of their indexes for other programs."""
    # In a process of its own, because it cannot be imported together with TensorFlow.
    for shard in shards:
        tool = [sys.executable, "-m", "tfrecord.tools.tfrecord2idx", shard, f"{shard}.idx"]
        subprocess.run(tool, check=True)
    return [f"{shard}.idx" for shard in shards]


@pytest.mark.slow
def test_the_tfrecord_package_indexes_all_records(shards, indexes):
    assert sum(len(Path(index).read_text().splitlines()) for index in indexes) == len(KEYS)


def dali_batches(shards, indexes):
    from nvidia import dali
    from nvidia.dali import tfrecord

    @dali.pipeline_def(batch_size=4, num_threads=2, device_id=None)
    def pipeline():
        text = tfrecord.FixedLenFeature([], tfrecord.string, "")
        found = dali.fn.readers.tfrecord(
            name="reader",
            path=shards,
            index_path=indexes,
            features={
                "image": text,
                "photo": text,
                "means": text,
                "key": text,
                "tokens": tfrecord.VarLenFeature([], tfrecord.int64, 0),
                "label": tfrecord.FixedLenFeature([], tfrecord.int64, -1),
                "weight": tfrecord.FixedLenFeature([], tfrecord.float32, 0.0),
            },
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
def test_dali_reads_and_decodes_on_the_cpu(shards, indexes):
    keys = []
    for key, image, photo, means, tokens, label, weight in dali_batches(shards, indexes):
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
