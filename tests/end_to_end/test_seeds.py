"""The programs people write against TFRecord files, and the same through `readers`.

Each pair of functions is one such program. `plain_…` is what it does in TensorFlow alone, without
its faults: tensors of several shapes stacked by `batch`, a vocabulary learned anew from each record,
all of a dataset in one list. `ours_…` is the same through `readers`.
"""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
import tracemalloc

import apache_beam as beam
import keras
import numpy as np
import pytest
import tensorflow as tf

import readers
from beam_jobs import WriteShards
from beam_jobs.__main__ import main
from readers.format.decode.images import decode_image
from readers.transforms import random_brightness, random_flip, resize, to_float
from tests.support.plain import example, jpeg, tensor, write_plain

RNG = np.random.default_rng(11)

BYTES = tf.io.FixedLenFeature([], tf.string)
NUMBER = tf.io.FixedLenFeature([], tf.int64)

PICTURE = readers.Feature("uint8", (None, None, 3), "jpeg")
LABEL = readers.Feature("int64")


def records_of(path, **spec):
    """The parsed records of a file, one by one, as each of the programs begins."""
    for serialized in tf.data.TFRecordDataset(path):
        yield tf.io.parse_single_example(serialized, spec)


def picture_of(data):
    # The default method is up to 18 levels off what the encoder was given.
    return tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE")


def batches_of(items, size):
    items = list(items)
    return [items[start : start + size] for start in range(0, len(items), size)]


def statements_of(function):
    """How many statements the body of a function has, whatever lines a formatter breaks them into."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return sum(isinstance(node, ast.stmt) for node in ast.walk(tree)) - 1


def assert_shorter(ours, plain):
    assert statements_of(ours) < statements_of(plain)


def assert_same(found, expected):
    """Nested lists, tuples and arrays that are equal, pictures to within a rounding of float32."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        if isinstance(other, (list, tuple)):
            assert_same(one, other)
        else:
            one, other = np.asarray(one), np.asarray(other)
            assert one.shape == other.shape
            assert one.dtype == other.dtype
            np.testing.assert_allclose(one, other, atol=1e-5 if one.dtype == np.float32 else 0)


# Arrays of several shapes, stored as serialized tensors.


@pytest.fixture
def arrays(tmp_path):
    shapes = [(3, 2), (1, 4), (2, 5), (4, 1), (2, 2)]
    values = [RNG.normal(size=shape).astype(np.float32) for shape in shapes]
    return write_plain(tmp_path / "a.tfrecord", [example(my_array=tensor(a)) for a in values])


ARRAYS = readers.Schema({"my_array": ("float32", (None, None))})


def plain_tensors(path):
    found = []
    for record in records_of(path, my_array=BYTES):
        found.append(tf.io.parse_tensor(record["my_array"], tf.float32).numpy())
    return found


def ours_tensors(path):
    return [record["my_array"] for record in readers.RecordSource(path, schema=ARRAYS)]


def test_arrays_are_read_one_by_one(arrays):
    assert_same(ours_tensors(arrays), plain_tensors(arrays))
    assert_shorter(ours_tensors, plain_tensors)


def plain_ragged(path):
    found = []
    for batch in batches_of(plain_tensors(path), 2):
        rows = [tf.RaggedTensor.from_tensor(array) for array in batch]
        found.append(tf.ragged.stack(rows).to_list())
    return found


def ours_ragged(path):
    batches = readers.load(path, schema=ARRAYS, batch_size=2, batching="ragged")
    return [batch["my_array"].to_list() for batch in batches]


def test_arrays_of_several_shapes_are_batched_as_ragged_tensors(arrays):
    assert ours_ragged(arrays) == plain_ragged(arrays)
    assert_shorter(ours_ragged, plain_ragged)


def plain_padded(path):
    found = []
    for batch in batches_of(plain_tensors(path), 2):
        height, width = np.max([array.shape for array in batch], axis=0)
        room = [[[0, height - h], [0, width - w]] for h, w in (array.shape for array in batch)]
        values = [np.pad(a, pads) for a, pads in zip(batch, room, strict=True)]
        masks = [np.pad(np.ones_like(a, bool), p) for a, p in zip(batch, room, strict=True)]
        found.append((np.stack(values), np.stack(masks)))
    return found


def ours_padded(path):
    names = ("my_array", "my_array_mask")
    return list(
        readers.load(
            path, schema=ARRAYS, batch_size=2, batching="padded", mask=True, as_supervised=names
        )
    )


def test_arrays_of_several_shapes_are_padded_in_both_dimensions_and_masked(arrays):
    assert_same(ours_padded(arrays), plain_padded(arrays))
    assert_shorter(ours_padded, plain_padded)


# Pictures.


def write_pictures(path, sizes, **names):
    """Writes JPEGs of some sizes with labels 0, 1, 2, ...; `names` says what features are called."""
    records = []
    for label, size in enumerate(sizes):
        # Smooth, as photos are: noise tells two resizers apart by more than a rounding.
        slopes = np.add.outer(*(np.linspace(0, 120, n) for n in size))
        pixels = (slopes[..., None] + [label, 20, 10]).astype(np.uint8)
        values = {names.get("image", "image"): jpeg(pixels), names.get("label", "label"): label}
        records.append(example(**values))
    return write_plain(path, records)


def floats(images):
    """Ragged pictures as float32 from 0 to 1."""
    return tf.cast(images, tf.float32) / 255


SIZES = [(40, 30), (25, 60), (33, 33), (60, 20), (48, 48)]
RAW_AND_LABEL = readers.Schema({"image_raw": PICTURE, "label": LABEL})


def plain_resized(path):
    found = []
    for batch in batches_of(records_of(path, image_raw=BYTES, label=NUMBER), 2):
        images = []
        for record in batch:
            pixels = tf.image.convert_image_dtype(picture_of(record["image_raw"]), tf.float32)
            images.append(tf.image.resize(pixels, [256, 256]))
        found.append((tf.stack(images), tf.stack([record["label"] for record in batch])))
    return found


def ours_resized(path):
    names = ("image_raw", "label")
    ds = readers.load(
        path, schema=RAW_AND_LABEL, batch_size=2, batching="ragged", as_supervised=names
    )
    return list(ds.map(lambda image, label: (resize(floats(image), [256, 256]), label)))


def test_pictures_of_several_sizes_are_decoded_and_resized(tmp_path):
    path = write_pictures(tmp_path / "a.tfrecord", SIZES, image="image_raw")
    assert_same(ours_resized(path), plain_resized(path))
    assert_shorter(ours_resized, plain_resized)


def plain_one_record(path):
    (record,) = records_of(path, image_raw=BYTES, label=NUMBER)
    image = picture_of(record["image_raw"])
    return image, record["label"]


def ours_one_record(path):
    return list(readers.RecordSource(path, schema=RAW_AND_LABEL)[0].values())


def test_a_single_picture_is_read_back_after_it_was_written(tmp_path):
    path = write_pictures(tmp_path / "data.tfrecord", [(64, 64)], image="image_raw")
    assert_same(ours_one_record(path), plain_one_record(path))
    assert_shorter(ours_one_record, plain_one_record)


def plain_scaled(path):
    found = []
    for record in records_of(path, image_raw=BYTES, label=NUMBER):
        image = tf.image.resize(picture_of(record["image_raw"]), [128, 128])
        image = tf.cast(image, tf.float32) / 255.0
        found.append((image, record["label"]))
    return found


def ours_scaled(path):
    for record in readers.RecordSource(path, schema=RAW_AND_LABEL):
        yield tf.image.resize(record["image_raw"], [128, 128]) / 255, record["label"]


def test_pictures_are_resized_and_scaled_record_by_record(tmp_path):
    path = write_pictures(tmp_path / "data.tfrecord", SIZES, image="image_raw")
    assert_same(list(ours_scaled(path)), plain_scaled(path))
    assert_shorter(ours_scaled, plain_scaled)


def plain_mixed(pattern):
    files = tf.data.Dataset.list_files(pattern, seed=1)
    found = files.interleave(tf.data.TFRecordDataset, cycle_length=3)
    found = found.shuffle(10000, seed=1)
    found = found.map(lambda data: tf.io.parse_single_example(data, {"label": NUMBER})["label"])
    return [batch.numpy() for batch in found.batch(4).prefetch(1)]


def ours_mixed(pattern):
    ds = readers.load(pattern, schema=RAW_AND_LABEL, batch_size=4, columns=["label"], shuffle=True)
    return [batch["label"].numpy() for batch in ds]


def test_files_of_a_pattern_are_interleaved_and_shuffled(tmp_path):
    for number in range(3):
        labels = range(5 * number, 5 * number + 5)
        write_plain(
            tmp_path / f"data_{number}.tfrecord",
            [example(image_raw=b"", label=label) for label in labels],
        )
    found, expected = (f(str(tmp_path / "data_*.tfrecord")) for f in (ours_mixed, plain_mixed))
    assert [len(batch) for batch in found] == [len(batch) for batch in expected] == [4, 4, 4, 3]
    found, expected = np.concatenate(found).tolist(), np.concatenate(expected).tolist()
    assert sorted(found) == sorted(expected) == list(range(15))
    assert found != list(range(15))
    assert_shorter(ours_mixed, plain_mixed)


IMAGE_AND_LABEL = readers.Schema({"image": PICTURE, "label": LABEL})


def plain_padded_pictures(path):
    found = []
    for batch in batches_of(records_of(path, image=BYTES, label=NUMBER), 2):
        images = [picture_of(record["image"]) for record in batch]
        height, width = np.max([image.shape for image in images], axis=0)[:2]
        images = [tf.image.pad_to_bounding_box(image, 0, 0, height, width) for image in images]
        images = tf.image.convert_image_dtype(tf.stack(images), tf.float32)
        found.append((images, tf.stack([record["label"] for record in batch])))
    return found


def ours_padded_pictures(path):
    names = ("image", "label")
    ds = readers.load(
        path, schema=IMAGE_AND_LABEL, batch_size=2, batching="padded", as_supervised=names
    )
    return list(ds.map(lambda image, label: (tf.cast(image, tf.float32) / 255, label)))


def test_pictures_of_several_sizes_which_batch_cannot_stack_are_padded(tmp_path):
    path = write_pictures(tmp_path / "a.tfrecord", SIZES)
    stacked = tf.data.TFRecordDataset(path).map(
        lambda data: picture_of(tf.io.parse_single_example(data, {"image": BYTES})["image"])
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match="Cannot add tensor to the batch"):
        list(stacked.batch(2))
    assert_same(ours_padded_pictures(path), plain_padded_pictures(path))
    assert_shorter(ours_padded_pictures, plain_padded_pictures)


def test_an_endless_shuffle_gives_every_picture_once_an_epoch(tmp_path):
    paths = [
        write_pictures(tmp_path / "a.tfrecord", [(8, 8)] * 5),
        write_plain(
            tmp_path / "b.tfrecord",
            [example(image=jpeg(np.zeros((8, 8, 3), np.uint8)), label=n) for n in range(5, 12)],
        ),
    ]
    schema = readers.Schema({"image": ("uint8", (8, 8, 3), "jpeg"), "label": LABEL})
    ds = readers.load(paths, schema=schema, batch_size=4, shuffle=True, repeat=None)
    batches = list(ds.take(6))
    assert all(batch["image"].shape == (4, 8, 8, 3) for batch in batches)
    for epoch in (batches[:3], batches[3:]):
        assert sorted(n for batch in epoch for n in batch["label"].numpy()) == list(range(12))


def test_a_batch_of_pictures_is_flipped_and_brightened_picture_by_picture(tmp_path):
    path = write_pictures(tmp_path / "a.tfrecord", [(8, 8)] * 16)
    schema = readers.Schema({"image": ("uint8", (8, 8, 3), "jpeg"), "label": LABEL})

    def augment(batch, keys):
        images = random_flip(to_float(batch["image"]), keys)
        return {**batch, "image": random_brightness(images, keys, 0.2)}

    (plain,) = readers.load(path, schema=schema, batch_size=16)
    (batch,) = readers.load(path, schema=schema, batch_size=16, transform=augment)
    plain, images = to_float(plain["image"]).numpy(), batch["image"].numpy()
    assert batch["label"].numpy().tolist() == list(range(16))
    found = set()
    for before, after in zip(plain, images, strict=True):
        flips = {False: before, True: before[:, ::-1]}
        (flipped,) = (f for f, image in flips.items() if abs(after - image).max() < 0.2 + 1e-5)
        delta = np.median(after - flips[flipped])
        np.testing.assert_allclose(after, np.clip(flips[flipped] + delta, 0, 1), atol=1e-5)
        found.add((flipped, round(float(delta), 4)))
    assert {flipped for flipped, _ in found} == {False, True}
    assert len(found) == 16


# Texts and tokens.

SEQUENCE = readers.Schema({"sequence": ("int64", (None,), "list"), "label": LABEL})


def write_sequences(path, lengths):
    records = [example(sequence=[i + 1] * n, label=i) for i, n in enumerate(lengths)]
    return write_plain(path, records)


def plain_sequences(path, width):
    found = []
    spec = {"sequence": tf.io.VarLenFeature(tf.int64), "label": NUMBER}
    for batch in batches_of(records_of(path, **spec), 2):
        rows = [record["sequence"].values[:width] for record in batch]
        longest = width or max(len(row) for row in rows)
        rows = [tf.pad(row, [[0, longest - len(row)]]) for row in rows]
        found.append((tf.stack(rows), tf.stack([record["label"] for record in batch])))
    return found


def ours_sequences(path):
    names = ("sequence", "label")
    return list(
        readers.load(path, schema=SEQUENCE, batch_size=2, batching="padded", as_supervised=names)
    )


def ours_cut_sequences(path, width):
    names = ("sequence", "label")
    ds = readers.load(path, schema=SEQUENCE, batch_size=2, batching="ragged", as_supervised=names)
    return list(ds.map(lambda tokens, label: (tokens.to_tensor(shape=[None, width]), label)))


def test_tokens_are_padded_to_the_longest_of_their_batch(tmp_path):
    path = write_sequences(tmp_path / "a.tfrecord", [3, 0, 200, 1, 5])
    assert_same(ours_sequences(path), plain_sequences(path, None))
    assert_shorter(ours_sequences, plain_sequences)


def test_tokens_are_cut_and_padded_to_one_length(tmp_path):
    path = write_sequences(tmp_path / "a.tfrecord", [3, 0, 200, 1, 5])
    assert_same(ours_cut_sequences(path, 128), plain_sequences(path, 128))
    assert_shorter(ours_cut_sequences, plain_sequences)


BOXED = readers.Schema(
    {"image_raw": PICTURE, "labels": LABEL, "bounding_boxes": ("float32", (None, 4), "list")}
)


def plain_boxes(path):
    spec = {
        "image_raw": BYTES,
        "labels": NUMBER,
        "bounding_boxes": tf.io.VarLenFeature(tf.float32),
    }
    found = []
    for batch in batches_of(records_of(path, **spec), 2):
        images, boxes = [], []
        for record in batch:
            pixels = tf.image.convert_image_dtype(picture_of(record["image_raw"]), tf.float32)
            images.append(tf.image.resize(pixels, [256, 256]))
            boxes.append(tf.reshape(tf.sparse.to_dense(record["bounding_boxes"]), [-1, 4]))
        most = max(len(box) for box in boxes)
        boxes = tf.stack([tf.pad(box, [[0, most - len(box)], [0, 0]]) for box in boxes])
        found.append((tf.stack(images), tf.stack([record["labels"] for record in batch]), boxes))
    return found


def ours_boxes(path):
    names = ("image_raw", "labels", "bounding_boxes")
    ds = readers.load(path, schema=BOXED, batch_size=2, batching="ragged", as_supervised=names)
    return list(
        ds.map(
            lambda image, label, box: (resize(floats(image), [256, 256]), label, box.to_tensor())
        )
    )


def test_pictures_come_with_their_boxes_of_which_some_have_none(tmp_path):
    pixels = np.full((20, 30, 3), 80, np.uint8)
    records = [
        example(image_raw=jpeg(pixels), labels=label, bounding_boxes=[0.25] * 4 * count)
        if count
        else example(image_raw=jpeg(pixels), labels=label)
        for label, count in enumerate([1, 3, 0, 2, 1])
    ]
    path = write_plain(tmp_path / "a.tfrecord", records)
    assert_same(ours_boxes(path), plain_boxes(path))
    assert_shorter(ours_boxes, plain_boxes)


TEXTS = readers.Schema({"text": readers.Feature("string"), "label": LABEL})


def plain_words(path, layer):
    texts = [record["text"].numpy() for record in records_of(path, text=BYTES)]
    labels = [record["label"] for record in records_of(path, label=NUMBER)]
    layer.adapt(np.array(texts, object))
    return [
        (layer(np.array(words, object)), tf.stack(label))
        for words, label in zip(batches_of(texts, 2), batches_of(labels, 2), strict=True)
    ]


def ours_words(path, layer):
    ds = readers.load(path, schema=TEXTS, batch_size=2, as_supervised=("text", "label"))
    layer.adapt(ds.map(lambda text, _: text))
    return list(ds.map(lambda text, label: (layer(text), label)))


def test_one_vocabulary_is_learned_from_all_texts(tmp_path):
    texts = ["the cat sat", "the dog", "", "a cat and a dog and the cat", "grün"]
    records = [example(text=text, label=label) for label, text in enumerate(texts)]
    path = write_plain(tmp_path / "a.tfrecord", records)

    def layer():
        return keras.layers.TextVectorization(
            max_tokens=10000, output_mode="int", output_sequence_length=6
        )

    mine, theirs = layer(), layer()
    assert_same(ours_words(path, mine), plain_words(path, theirs))
    assert mine.get_vocabulary() == theirs.get_vocabulary()
    assert mine.get_vocabulary()[2:4] == ["the", "cat"]
    assert_shorter(ours_words, plain_words)


# Raw bytes, batch by batch as NumPy.

DATA = readers.Schema({"data": readers.Feature("float32", (16, 8), "raw")})
ROWS = readers.Schema({"data": readers.Feature("float32", (8,), "raw")})
FLOATS = readers.Schema(
    {"image": readers.Feature("float32", (16, 8, 3), "raw"), "label": readers.Feature("int64")}
)


def plain_raw(path):
    found = []
    for batch in batches_of(records_of(path, data=BYTES), 2):
        arrays = [tf.io.decode_raw(record["data"], tf.float32) for record in batch]
        found.append(tf.reshape(tf.stack(arrays), [-1, 16, 8]).numpy())
    return found


def ours_raw(path):
    for batch in readers.as_numpy(path, schema=DATA, batch_size=2):
        yield batch["data"]


def test_raw_arrays_come_batch_by_batch(tmp_path):
    values = RNG.normal(size=(5, 16, 8)).astype(np.float32)
    path = write_plain(tmp_path / "a.tfrecord", [example(data=v.tobytes()) for v in values])
    assert_same(list(ours_raw(path)), plain_raw(path))
    assert_shorter(ours_raw, plain_raw)


def test_a_file_larger_than_what_is_held_is_gone_through(tmp_path):
    count, shape = 128, (256, 256)
    data = np.ones(shape, np.float32).tobytes()
    path = write_plain(tmp_path / "a.tfrecord", (example(data=data) for _ in range(count)))
    schema = readers.Schema({"data": readers.Feature("float32", shape, "raw")})
    total = 0.0
    tracemalloc.start()
    for batch in readers.as_numpy(path, schema=schema, batch_size=4):
        total += float(batch["data"].sum())
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == count * 256 * 256
    assert held < count * len(data) / 3


def plain_rows(path):
    found = []
    for record in records_of(path, data=BYTES):
        found.append(tf.io.decode_raw(record["data"], tf.float32).numpy())
    return np.array(found)


def ours_rows(path):
    source = readers.RecordSource(path, schema=ROWS)
    return np.fromiter((record["data"] for record in source), (np.float32, 8), len(source))


def test_rows_fill_one_array_without_a_list_of_them(tmp_path):
    values = RNG.normal(size=(7, 8)).astype(np.float32)
    path = write_plain(tmp_path / "a.tfrecord", [example(data=v.tobytes()) for v in values])
    assert_same([ours_rows(path)], [plain_rows(path)])
    assert_shorter(ours_rows, plain_rows)


def plain_raw_pictures(path):
    images, labels = [], []
    for batch in batches_of(records_of(path, image=BYTES, label=NUMBER), 2):
        raw = [tf.io.decode_raw(record["image"], tf.float32) for record in batch]
        images.append(tf.reshape(tf.stack(raw), [-1, 16, 8, 3]).numpy())
        labels.append(tf.stack([record["label"] for record in batch]).numpy())
    return list(zip(images, labels, strict=True))


def ours_raw_pictures(path):
    names = ("image", "label")
    return readers.as_numpy(path, schema=FLOATS, batch_size=2, as_supervised=names)


def test_raw_pictures_come_with_their_labels(tmp_path):
    values = RNG.normal(size=(5, 16, 8, 3)).astype(np.float32)
    records = [example(image=v.tobytes(), label=n) for n, v in enumerate(values)]
    path = write_plain(tmp_path / "a.tfrecord", records)
    assert_same(list(ours_raw_pictures(path)), plain_raw_pictures(path))
    assert_shorter(ours_raw_pictures, plain_raw_pictures)


# The same programs read what the jobs write, by its names and encodings.


def shards_of(job, source, directory, *flags):
    """The shards of a job, two of them; a program of somebody else knows nothing but files."""
    arguments = [job, "--input", source, "--output", directory, "--num_shards", "2", *flags]
    assert main([str(argument) for argument in arguments]) == 0
    return [str(path) for path in sorted(directory.glob("*.tfrecord"))]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """JPEGs of several sizes in folders of two labels."""
    directory = tmp_path_factory.mktemp("photos")
    for number, size in enumerate(SIZES):
        folder = directory / "ab"[number % 2]
        folder.mkdir(exist_ok=True)
        pixels = np.full((*size, 3), 40 * number, np.uint8)
        (folder / f"{number}.jpg").write_bytes(jpeg(pixels))
    return directory


@pytest.mark.parametrize("encoding", ["jpeg", "source"])
def test_encoded_pictures_of_the_images_job_are_read(photos, tmp_path, encoding):
    flags = ["--encoding", encoding, "--names", "image=image_raw"]
    paths = shards_of("images", photos / "*/*.jpg", tmp_path / "out", *flags)
    found = plain_scaled(paths)
    expected = {
        (
            path.parent.name == "b",
            decode_image("image", PICTURE, path.read_bytes())[0, 0, 0] / 255,
        )
        for path in photos.glob("*/*.jpg")
    }
    assert len(found) == len(expected) == len(SIZES)
    for image, label in found:
        assert image.shape == (128, 128, 3)
        assert min(abs(image[0, 0, 0] - shade) for y, shade in expected if y == label) < 0.01
    assert sum(len(labels) for _, labels in plain_resized(paths)) == len(SIZES)


def test_raw_pixels_of_the_images_job_are_read(photos, tmp_path):
    flags = ["--encoding", "raw", "--image_size", "16x8", "--names", "image=image_raw"]
    paths = shards_of("images", photos / "*/*.jpg", tmp_path / "out", *flags)
    expected = readers.RecordSource(tmp_path / "out")
    for record, known in zip(
        records_of(paths, image_raw=BYTES, label=NUMBER), expected, strict=True
    ):
        pixels = tf.reshape(tf.io.decode_raw(record["image_raw"], tf.uint8), [16, 8, 3])
        np.testing.assert_array_equal(pixels, known["image_raw"])
        assert record["label"] == known["label"]


def write_arrays(directory, arrays):
    """Writes recordings of two labels: the n-th is of label n % 2."""
    for number, array in enumerate(arrays):
        folder = directory / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / f"{number}.npy", array)
    return directory / "*/*.npy"


def sorted_by_first(arrays):
    return sorted(arrays, key=lambda array: float(np.asarray(array).flat[0]))


def test_tensors_of_the_sensors_job_are_read_and_batched(tmp_path):
    values = [RNG.normal(size=(n, 2)).astype(np.float32) for n in (3, 1, 4, 2, 5)]
    source = write_arrays(tmp_path / "in", values)
    paths = shards_of("sensors", source, tmp_path / "out", "--names", "signal=my_array")
    assert_same(sorted_by_first(plain_tensors(paths)), sorted_by_first(values))
    padded = plain_padded(paths)
    assert [len(batch) for batch, _ in padded] == [2, 2, 1]
    assert sum(int(mask.sum()) for _, mask in padded) == 2 * (3 + 1 + 4 + 2 + 5)


def test_raw_arrays_of_the_sensors_job_are_read(tmp_path):
    values = [RNG.normal(size=(16, 8)).astype(np.float32) for _ in range(5)]
    source = write_arrays(tmp_path / "in", values)
    flags = ["--encoding", "raw", "--names", "signal=data"]
    paths = shards_of("sensors", source, tmp_path / "out", *flags)
    found = np.concatenate(plain_raw(paths))
    assert_same(sorted_by_first(found), sorted_by_first(values))
    assert plain_rows(paths).shape == (5, 16 * 8)


def test_raw_pictures_of_floats_of_the_sensors_job_are_read_with_their_labels(tmp_path):
    values = [np.full((16, 8, 3), number, np.float32) for number in range(5)]
    source = write_arrays(tmp_path / "in", values)
    flags = ["--encoding", "raw", "--names", "signal=image"]
    batches = plain_raw_pictures(shards_of("sensors", source, tmp_path / "out", *flags))
    found = {
        (int(image[0, 0, 0]), int(label))
        for images, labels in batches
        for image, label in zip(images, labels, strict=True)
    }
    assert found == {(number, number % 2) for number in range(5)}


def test_integers_of_the_sensors_job_are_read_as_a_list(tmp_path):
    values = [np.full(n, n) for n in (3, 1, 200, 2, 5)]
    source = write_arrays(tmp_path / "in", values)
    flags = ["--encoding", "list", "--names", "signal=sequence"]
    batches = plain_sequences(shards_of("sensors", source, tmp_path / "out", *flags), 128)
    found = [row[row > 0].tolist() for rows, _ in batches for row in np.asarray(rows)]
    assert sorted(found) == [[n] * min(n, 128) for n in (1, 2, 3, 5, 200)]


@pytest.fixture
def opinions(tmp_path):
    texts = ["the cat sat", "the dog", "a cat and a dog and the cat", "grün is the cat"]
    rows = [json.dumps({"text": text, "label": n}) + "\n" for n, text in enumerate(texts)]
    (tmp_path / "in.jsonl").write_text("".join(rows))
    return tmp_path / "in.jsonl", texts


def test_texts_of_the_text_job_are_read_with_their_labels(opinions, tmp_path):
    source, texts = opinions
    paths = shards_of("text", source, tmp_path / "out", "--label_field", "label")
    layer = keras.layers.TextVectorization(output_sequence_length=4)
    batches = plain_words(paths, layer)
    found = {
        int(label): words.numpy().tolist()
        for rows, labels in batches
        for words, label in zip(rows, labels, strict=True)
    }
    assert found == dict(enumerate(layer(texts).numpy().tolist()))


def test_tokens_of_the_text_job_are_read_as_a_list(opinions, tmp_path):
    source, texts = opinions
    flags = ["--label_field", "label", "--tokens", "words", "--names", "tokens=sequence"]
    paths = shards_of("text", source, tmp_path / "out", *flags)
    layer = keras.layers.TextVectorization(vocabulary=str(tmp_path / "out" / "vocabulary.txt"))
    expected = layer(texts).numpy()
    for rows, labels in plain_sequences(paths, 8):
        assert np.asarray(rows).tolist() == [expected[label].tolist() for label in labels.numpy()]


def test_any_names_and_encodings_of_a_schema_are_read(tmp_path):
    picture = jpeg(np.full((20, 30, 3), 80, np.uint8))
    records = {
        f"record {n}": {
            "image_raw": picture,
            "labels": n,
            "bounding_boxes": np.full((count, 4), n, np.float32),
        }
        for n, count in enumerate([1, 3, 0, 2, 1])
    }
    with beam.Pipeline("FnApiRunner") as pipeline:
        pairs = pipeline | beam.Create(list(records.items()))
        pairs | WriteShards(str(tmp_path / "out"), schema=BOXED, num_shards=2)
    batches = plain_boxes([str(path) for path in sorted((tmp_path / "out").glob("*.tfrecord"))])
    for _, labels, boxes in batches:
        for label, box in zip(labels.numpy(), boxes.numpy(), strict=True):
            known = records[f"record {label}"]["bounding_boxes"]
            assert_same([box[: len(known)]], [known])
            assert not box[len(known) :].any()
    assert sorted(np.concatenate([labels for _, labels, _ in batches])) == list(range(5))
