"""Programs as tutorials of `tf.data` write them, and `readers`, read the same from the same shards.

The functions `plain_…` are such programs: they describe features, parse one Example after another, decode
and batch. Both kinds of program read a file of `tf.io.TFRecordWriter`, and the dataset that `reshard` makes
of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

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
    stated: dict[str, readers.Feature | tuple]

    def load(self, *names, read=readers.load, **arguments):
        """Tuples of the features of some names, in the order of the shards."""
        schema = self.stated
        if Path(self.path).is_dir():
            schema = {**readers.Manifest.read(self.path).schema, **schema}
        schema = readers.Schema(schema).select([n for n in names if not n.endswith("_mask")])
        return read(self.path, schema=schema, as_supervised=names, **arguments)


def written(number):
    """One record with the features of all programs."""
    # Smooth like a photo: resizers and decoders differ by more than a rounding on noise.
    slopes = np.add.outer(*(np.linspace(0, 100, n) for n in (20 + 3 * number, 44 - 3 * number)))
    pixels = (slopes[..., None] + [5 * number, 20, 10]).astype(np.uint8)
    array = np.arange(2 * (number + 1), dtype=np.float32).reshape(number + 1, 2) + number
    return example(
        my_array=tensor(array),
        image_raw=jpeg(pixels),
        label=number,
        bounding_boxes=np.linspace(0, 1, 4 * (number % 3 + 1), dtype=np.float32),
        sequence=[number + 1] * (number + 1),
        data=(np.arange(16 * 8, dtype=np.float32) * (number + 1)).tobytes(),
    )


RAW = ("float32", (16, 8), "raw")
IN_A_FILE = {
    "my_array": ("float32", (None, None)),
    "image_raw": AS_BYTES,
    "label": ("int64",),
    "bounding_boxes": ("float32", (None, 4), "list"),
    "sequence": ("int64", (None,), "list"),
    "data": RAW,
}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    directory = tmp_path_factory.mktemp("file")
    path = write_plain(directory / "data_0.tfrecord", map(written, range(COUNT)))
    return Source([path], path, IN_A_FILE)


@pytest.fixture(scope="module")
def resharded(tmp_path_factory, file):
    directory = tmp_path_factory.mktemp("resharded")
    flags = ["--output", directory, "--num_shards", 2, "--overwrite"]
    assert run("reshard", "--input", file.path, *flags) == 0
    manifest = readers.Manifest.read(directory)
    assert (manifest.splits["train"].records, manifest.rejected) == (COUNT, 0)
    assert manifest.schema["my_array"] == readers.Feature("float32", (None, 2))
    assert manifest.schema["image_raw"] == readers.Feature("uint8", (None, None, 3), "jpeg")
    files = readers.open(directory).files("train")
    assert len(files) == 2
    return Source(files, str(directory), {"data": RAW, "image_raw": AS_BYTES})


@pytest.fixture(params=["file", pytest.param("resharded", marks=pytest.mark.slow)])
def source(request):
    return request.getfixturevalue(request.param)


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


def test_tensors_in_ragged_batches(source):
    shaped = plain_tensors(source.files).map(lambda array: tf.ensure_shape(array, [None, None]))
    found = source.load("my_array", batch_size=2, batching="ragged")
    assert_alike(found, shaped.ragged_batch(2).map(lambda batch: (batch,)))


def test_tensors_in_padded_batches_with_a_mask(source):
    pairs = plain_tensors(source.files).map(lambda array: (array, tf.ones_like(array)))
    names = ("my_array", "my_array_mask")
    found = source.load(*names, batch_size=2, batching=readers.Padded(mask=True))

    def as_floats(values, mask):
        # Ours covers the dimensions up to the last unknown one, theirs has a float for each value.
        mask = mask if mask.shape.rank == 3 else tf.repeat(mask[..., None], 2, axis=2)
        return values, tf.cast(mask, tf.float32)

    assert_alike(found.map(as_floats), pairs.padded_batch(2, ([None, None], [None, None])))


# Pictures.


def plain_pictures(files):
    boxes = tf.io.VarLenFeature(tf.float32)

    def decoded(record):
        image = tf.io.decode_jpeg(record["image_raw"], channels=3)
        image = tf.image.convert_image_dtype(image, tf.float32)
        boxes = tf.reshape(tf.sparse.to_dense(record["bounding_boxes"]), [-1, 4])
        return tf.image.resize(image, [64, 64]), record["label"], boxes

    return parsed(files, image_raw=BYTES, label=NUMBER, bounding_boxes=boxes).map(decoded)


def test_pictures_of_their_own_sizes_are_resized_and_come_with_boxes(source):
    names = ("image_raw", "label", "bounding_boxes")
    resized = {"image_raw": readers.decoders.Resize((64, 64))}
    found = source.load(*names, batch_size=3, batching="padded", decoders=resized)

    def scaled(image, label, boxes):
        # Resharding has learned a flat list.
        boxes = tf.reshape(boxes, [tf.shape(label)[0], -1, 4])
        return transforms.to_float(image), label, boxes

    assert_alike(found.map(scaled), plain_pictures(source.files).padded_batch(3), 0.03)
    assert found.element_spec[0].shape.as_list() == [None, 64, 64, 3]


# Lists of tokens.


def plain_lists(files):
    lists = parsed(files, sequence=tf.io.VarLenFeature(tf.int64), label=NUMBER)
    return lists.map(lambda record: (tf.sparse.to_dense(record["sequence"]), record["label"]))


def test_lists_of_tokens_are_padded_to_one_length(source):
    expected = plain_lists(source.files).padded_batch(2, padded_shapes=([9], []))
    how = {"batch_size": 2, "batching": readers.Padded(max_length=9, to="max_length")}
    found = source.load("sequence", "label", **how)
    assert found.element_spec == expected.element_spec
    assert_alike(found, expected)
    assert_alike(source.load("sequence", "label", read=readers.as_numpy, **how), expected)


# Raw floats as NumPy arrays.


def plain_raw(files):
    dataset = parsed(files, data=BYTES)
    return dataset.map(
        lambda record: (tf.reshape(tf.io.decode_raw(record["data"], tf.float32), [16, 8]),)
    )


def test_raw_floats_become_arrays_batch_by_batch(source):
    expected = plain_raw(source.files).batch(3)
    assert_alike(source.load("data", read=readers.as_numpy, batch_size=3), expected)
