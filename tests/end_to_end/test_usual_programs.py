"""Programs as tutorials of `tf.data` write them, and `readers`, read the same from the same shards.

The functions `plain_…` are such programs: they describe features, parse one Example after another, decode
and batch. Both kinds of program read a file of `tf.io.TFRecordWriter`, the dataset that `reshard` makes of
it, and the shards of jobs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import readers
from readers import transforms
from tests.support.commands import run
from tests.support.plain import example, jpeg, tensor, write_plain

BYTES = tf.io.FixedLenFeature([], tf.string)
NUMBER = tf.io.FixedLenFeature([], tf.int64)
AS_BYTES = readers.Feature("string")
COUNT = 7


@dataclass(frozen=True)
class Source:
    """Shards, and how `readers` find them.

    Attributes:
        files: The paths of the shards.
        path: What `readers` get.
        stated: The features that a schema has to state; the others are in the manifest.
    """

    files: list[str]
    path: str
    stated: dict[str, readers.Feature | tuple] = field(default_factory=dict)

    def load(self, *names, read=readers.load, **arguments):
        """Tuples of the features of some names, in the order of the shards."""
        schema = self.stated
        if Path(self.path).is_dir():
            schema = {**readers.Manifest.read(self.path).schema, **schema}
        schema = readers.Schema(schema).select([n for n in names if not n.endswith("_mask")])
        return read(self.path, schema=schema, as_supervised=names, **arguments)


def pixels_of(number):
    """Smooth like a photo: resizers and decoders differ by more than a rounding on noise."""
    slopes = np.add.outer(*(np.linspace(0, 100, n) for n in (20 + 3 * number, 44 - 3 * number)))
    return (slopes[..., None] + [5 * number, 20, 10]).astype(np.uint8)


def array_of(number):
    return np.arange(2 * (number + 1), dtype=np.float32).reshape(number + 1, 2) + number


def plane_of(number):
    return np.arange(16 * 8, dtype=np.float32).reshape(16, 8) * (number + 1)


TEXTS = ["the cat sat", "the dog", "a cat", "a dog and the cat", "grün", "the end", "cat cat"]


def written(number):
    """One record with the features of all programs."""
    pixels, boxes = pixels_of(number), np.linspace(0, 1, 4 * (number % 3 + 1), dtype=np.float32)
    return example(
        my_array=tensor(array_of(number)),
        image_raw=jpeg(pixels),
        label=number,
        labels=number,
        height=pixels.shape[0],
        width=pixels.shape[1],
        caption=f"picture {number}",
        sequence=[number + 1] * (number + 1),
        bounding_boxes=boxes,
        text=TEXTS[number],
        data=plane_of(number).tobytes(),
        image=np.full((16, 8, 3), number, np.float32).tobytes(),
    )


RAW = {"data": ("float32", (16, 8), "raw"), "image": ("float32", (16, 8, 3), "raw")}
IN_A_FILE = {
    **RAW,
    "my_array": ("float32", (None, None)),
    "image_raw": AS_BYTES,
    "sequence": ("int64", (None,), "list"),
    "bounding_boxes": ("float32", (None, 4), "list"),
    "text": AS_BYTES,
    "caption": AS_BYTES,
    **dict.fromkeys(("label", "labels", "height", "width"), ("int64",)),
}


def made_by(directory, *arguments, **stated):
    """The source that a job makes, in two shards."""
    assert run(*arguments, "--output", directory, "--num_shards", 2, "--overwrite") == 0
    files = [str(file) for file in sorted(directory.glob("train-*.tfrecord"))]
    assert len(files) == 2
    return Source(files, str(directory), stated)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    directory = tmp_path_factory.mktemp("file")
    path = write_plain(directory / "data_0.tfrecord", map(written, range(COUNT)))
    return Source([path], path, IN_A_FILE)


@pytest.fixture(scope="module")
def resharded(tmp_path_factory, file):
    made = made_by(
        tmp_path_factory.mktemp("resharded"),
        *("reshard", "--input", file.path),
        **RAW,
        image_raw=AS_BYTES,
    )
    manifest = readers.Manifest.read(made.path)
    assert (manifest.splits["train"].records, manifest.rejected) == (COUNT, 0)
    assert manifest.schema["my_array"] == readers.Feature("float32", (None, 2))
    assert manifest.schema["image_raw"] == readers.Feature("uint8", (None, None, 3), "jpeg")
    return made


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """JPEGs of their own sizes, with the columns of a table."""
    directory = tmp_path_factory.mktemp("pictures")
    rows = ["path,label,caption"]
    for number in range(COUNT):
        (directory / f"{number}.jpg").write_bytes(jpeg(pixels_of(number)))
        rows.append(f"{number}.jpg,{number},picture {number}")
    (directory / "table.csv").write_text("\n".join(rows))
    return made_by(
        directory / "out",
        *("images", "--table", directory / "table.csv", "--encoding", "source"),
        *("--names", "image=image_raw", "--label", "column:label"),
        *("--image_info", "--extra_features", "caption:string"),
        image_raw=AS_BYTES,
    )


@pytest.fixture(scope="module")
def sized_pictures(tmp_path_factory, pictures):
    source = Path(pictures.path).parent / "table.csv"
    return made_by(
        tmp_path_factory.mktemp("sized"),
        *("images", "--table", source, "--encoding", "jpeg", "--image_size", "32x48"),
        *("--label", "column:label"),
    )


@pytest.fixture(scope="module")
def float_pictures(tmp_path_factory, pictures):
    return made_by(
        tmp_path_factory.mktemp("floats"),
        *("images", "--table", Path(pictures.path).parent / "table.csv", "--image_size", "16x8"),
        *("--dtype", "float32", "--encoding", "raw", "--label", "column:label"),
    )


@pytest.fixture(scope="module")
def opinions(tmp_path_factory):
    directory = tmp_path_factory.mktemp("opinions")
    rows = [json.dumps({"text": text, "label": n}) + "\n" for n, text in enumerate(TEXTS)]
    (directory / "in.jsonl").write_text("".join(rows))
    return made_by(
        directory / "out",
        *("text", "--input", directory / "in.jsonl", "--label_field", "label"),
        *("--tokens", "words", "--names", "tokens=sequence"),
    )


def recordings(directory, values, *flags):
    for number, array in enumerate(values):
        np.save(directory / f"{number}.npy", array)
    source = directory / "*.npy"
    return made_by(directory / "out", "sensors", "--input", source, "--label", "none", *flags)


@pytest.fixture(scope="module")
def arrays(tmp_path_factory):
    values = map(array_of, range(COUNT))
    return recordings(tmp_path_factory.mktemp("arrays"), values, "--names", "signal=my_array")


@pytest.fixture(scope="module")
def planes(tmp_path_factory):
    values, flags = map(plane_of, range(COUNT)), ("--names", "signal=data", "--encoding", "raw")
    return recordings(tmp_path_factory.mktemp("planes"), values, *flags)


@pytest.fixture
def source(request):
    return request.getfixturevalue(request.param)


def on(*names):
    """Runs a test on several sources, of which those that jobs make are slow."""
    params = [
        pytest.param(name, marks=[] if name == "file" else pytest.mark.slow) for name in names
    ]
    return pytest.mark.parametrize("source", params, indirect=True)


def parsed(files, **spec):
    dataset = tf.data.TFRecordDataset(files)
    return dataset.map(lambda data: tf.io.parse_single_example(data, spec))


def assert_alike(found, expected, tolerance=0.0):
    """Asserts that two datasets of tuples have equal batches."""
    found, expected = list(found), list(expected)
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        for mine, theirs in zip(one, other, strict=True):
            if isinstance(theirs, tf.RaggedTensor):
                assert mine.to_list() == theirs.to_list()
                continue
            mine, theirs = np.asarray(mine), np.asarray(theirs)
            assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
            if tolerance and mine.dtype == np.float32:
                assert np.abs(mine - theirs).max() < tolerance
            else:
                np.testing.assert_array_equal(mine, theirs)


# Arrays of several shapes, each a serialized tensor.


def plain_tensors(files):
    dataset = parsed(files, my_array=BYTES)
    return dataset.map(lambda record: tf.io.parse_tensor(record["my_array"], tf.float32))


@on("file", "resharded", "arrays")
def test_tensors_one_by_one(source):
    found = source.load("my_array", read=readers.as_numpy, batch_size=1, batching="padded")
    expected = [tensor.numpy() for tensor in plain_tensors(source.files)]
    assert_alike(found, [(array[None],) for array in expected])
    assert sorted(len(array) for array in expected) == list(range(1, COUNT + 1))


@on("file", "resharded", "arrays")
def test_tensors_in_ragged_batches(source):
    shaped = plain_tensors(source.files).map(lambda array: tf.ensure_shape(array, [None, None]))
    found = source.load("my_array", batch_size=2, batching="ragged")
    assert_alike(found, shaped.ragged_batch(2).map(lambda batch: (batch,)))


@on("file", "resharded", "arrays")
def test_tensors_in_padded_batches_with_a_mask(source):
    pairs = plain_tensors(source.files).map(lambda array: (array, tf.ones_like(array)))
    names = ("my_array", "my_array_mask")
    found = source.load(*names, batch_size=2, batching="padded", mask=True)

    def as_floats(values, mask):
        # Ours covers the dimensions up to the last unknown one, theirs has a float for each value.
        mask = mask if mask.shape.rank == 3 else tf.repeat(mask[..., None], 2, axis=2)
        return values, tf.cast(mask, tf.float32)

    assert_alike(found.map(as_floats), pairs.padded_batch(2, ([None, None], [None, None])))


# Pictures.


def plain_pictures(files, name, label="label", size=None):
    def decoded(record):
        image = tf.io.decode_jpeg(record[name], channels=3)
        image = tf.image.convert_image_dtype(image, tf.float32)
        return (tf.image.resize(image, size) if size else image), record[label]

    return parsed(files, **{name: BYTES, label: NUMBER}).map(decoded)


def scaled(image, *others):
    return transforms.to_float(image), *others


def sized(*size):
    return {"image_raw": readers.decoders.Resize(size)}


@on("file", "resharded", "pictures")
def test_pictures_of_their_own_sizes_are_resized_and_batched(source):
    expected = plain_pictures(source.files, "image_raw", size=[256, 256]).batch(3)
    found = source.load("image_raw", "label", batch_size=3, decoders=sized(256, 256)).map(scaled)
    assert_alike(found, expected, 0.03)
    assert found.element_spec[0].shape.as_list() == [None, 256, 256, 3]


@on("sized_pictures")
def test_pictures_of_one_size_are_batched(source):
    dataset = plain_pictures(source.files, "image")
    found = source.load("image", "label", batch_size=3, drop_remainder=True)
    assert found.element_spec[0] == tf.TensorSpec([3, 32, 48, 3], tf.uint8)
    assert_alike(found.map(scaled), dataset.batch(3, drop_remainder=True), 0.03)


@on("file", "resharded")
def test_pictures_come_with_boxes(source):
    spec = {"image_raw": BYTES, "labels": NUMBER, "bounding_boxes": tf.io.VarLenFeature(tf.float32)}

    def decoded(record):
        image = tf.image.convert_image_dtype(
            tf.io.decode_jpeg(record["image_raw"], channels=3), tf.float32
        )
        boxes = tf.reshape(tf.sparse.to_dense(record["bounding_boxes"]), [-1, 4])
        return tf.image.resize(image, [64, 64]), record["labels"], boxes

    expected = parsed(source.files, **spec).map(decoded).padded_batch(3)
    names = ("image_raw", "labels", "bounding_boxes")
    how = {"batch_size": 3, "batching": "padded", "decoders": sized(64, 64)}
    found = source.load(*names, **how).map(scaled)
    if Path(source.path).is_dir():  # Resharding has learned a flat list.
        found = found.map(lambda i, n, boxes: (i, n, tf.reshape(boxes, [tf.shape(n)[0], -1, 4])))
    assert_alike(found, expected, 0.03)


@on("file", "resharded", "pictures")
def test_files_of_a_pattern_are_interleaved(source):
    spec = {"image_raw": BYTES, "caption": BYTES}
    spec |= dict.fromkeys(("label", "height", "width"), NUMBER)
    shards = Path(source.files[0]).parent
    pattern = "data_*.tfrecord" if source.path == source.files[0] else "train-*.tfrecord"
    files = tf.data.Dataset.list_files(str(shards / pattern))
    dataset = files.interleave(tf.data.TFRecordDataset, cycle_length=tf.data.AUTOTUNE)
    dataset = dataset.shuffle(1000).map(lambda data: tf.io.parse_single_example(data, spec))
    names = ("label", "height", "width", "caption")
    theirs = {int(record["label"]): [record[name].numpy() for name in names] for record in dataset}
    (mine,) = source.load(*names, batch_size=COUNT)
    assert theirs == {
        int(row[0]): list(row) for row in zip(*(m.numpy() for m in mine), strict=True)
    }
    sizes = {number: pixels_of(number).shape[:2] for number in range(COUNT)}
    assert {number: tuple(row[1:3]) for number, row in theirs.items()} == sizes


# Texts and their tokens.


@on("file", "resharded", "opinions")
def test_lists_of_tokens_are_padded_to_one_length(source):
    def dense(record):
        return tf.sparse.to_dense(record["sequence"]), record["label"]

    lists = parsed(source.files, sequence=tf.io.VarLenFeature(tf.int64), label=NUMBER).map(dense)
    padding = (tf.constant(0, tf.int64), tf.constant(0, tf.int64))
    expected = lists.padded_batch(2, padded_shapes=([9], []), padding_values=padding)
    how = {"batching": "padded", "max_length": 9, "pad_to": "max_length"}
    found = source.load("sequence", "label", batch_size=2, **how)
    assert found.element_spec == expected.element_spec
    assert_alike(found, expected)
    assert_alike(
        source.load("sequence", "label", read=readers.as_numpy, batch_size=2, **how), expected
    )


@on("opinions")
def test_texts_become_tokens_of_a_layer(source):
    layer = keras.layers.TextVectorization(max_tokens=50, output_sequence_length=6)
    texts = parsed(source.files, text=BYTES, label=NUMBER)
    layer.adapt(texts.map(lambda record: record["text"]))
    expected = texts.map(lambda record: (layer(record["text"]), record["label"]))
    expected = expected.padded_batch(3, padded_shapes=([6], []))
    found = source.load("text", "label", batch_size=3)
    assert_alike(found.map(lambda text, label: (layer(text), label)), expected)


# Raw floats as NumPy arrays.


def plain_raw(files, name, shape):
    dataset = parsed(files, **{name: BYTES})
    return dataset.map(
        lambda record: (tf.reshape(tf.io.decode_raw(record[name], tf.float32), shape),)
    )


@on("file", "resharded", "planes")
def test_raw_floats_become_arrays_batch_by_batch(source, tmp_path):
    expected = list(plain_raw(source.files, "data", [16, 8]).batch(3))
    assert_alike(source.load("data", read=readers.as_numpy, batch_size=3), expected)
    schema = readers.Schema({"data": RAW["data"]})
    path = readers.export_npy(source.path, "data", tmp_path / "data.npy", schema=schema)
    np.testing.assert_array_equal(np.load(path), np.concatenate([batch for (batch,) in expected]))


@on("file", "resharded", "float_pictures")
def test_raw_pictures_come_with_labels(source):
    def decoded(record):
        image = tf.io.decode_raw(record["image"], tf.float32)
        return tf.reshape(image, [16, 8, 3]), record["label"]

    expected = parsed(source.files, image=BYTES, label=NUMBER).map(decoded).batch(3)
    found = source.load("image", "label", read=readers.as_numpy, batch_size=3)
    assert_alike(found, expected)
