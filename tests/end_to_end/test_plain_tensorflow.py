"""Programs of plain TensorFlow and of `readers` read the same from the same TFRecord files.

Each pair of functions is one program: `plain_…` in TensorFlow alone, `ours_…` with `readers`. The
plain programs also read the shards of jobs.
"""

from __future__ import annotations

import json
import tracemalloc

import keras
import numpy as np
import pytest
import tensorflow as tf

import readers
from readers.format.decode.images import decode_image
from readers.transforms import resize
from tests.support.commands import run
from tests.support.plain import example, jpeg, tensor, write_plain

BYTES = tf.io.FixedLenFeature([], tf.string)
NUMBER = tf.io.FixedLenFeature([], tf.int64)

IMAGE = readers.Feature("uint8", (None, None, 3), "jpeg")
LABEL = readers.Feature("int64")


def records_of(path, **spec):
    """The parsed records of a file, one by one."""
    for serialized in tf.data.TFRecordDataset(path):
        yield tf.io.parse_single_example(serialized, spec)


def pixels_of(data):
    # The default method differs by up to 18 levels.
    return tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE")


def batches_of(items, size):
    items = list(items)
    return [items[start : start + size] for start in range(0, len(items), size)]


def assert_close(found, expected):
    """Asserts that nested lists, tuples and arrays are equal, floats to within 1e-5."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        if isinstance(other, (list, tuple)):
            assert_close(one, other)
        else:
            one, other = np.asarray(one), np.asarray(other)
            assert one.shape == other.shape
            assert one.dtype == other.dtype
            np.testing.assert_allclose(one, other, atol=1e-5 if one.dtype == np.float32 else 0)


# Arrays of different shapes, stored as serialized tensors.


ARRAYS = readers.Schema({"my_array": ("float32", (None, None))})


def plain_tensors(path):
    found = []
    for record in records_of(path, my_array=BYTES):
        found.append(tf.io.parse_tensor(record["my_array"], tf.float32).numpy())
    return found


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


def test_arrays_are_padded_in_both_dimensions_and_masked(tmp_path):
    rng = np.random.default_rng(11)
    shapes = [(3, 2), (1, 4), (2, 5), (4, 1), (2, 2)]
    values = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    path = write_plain(tmp_path / "a.tfrecord", [example(my_array=tensor(a)) for a in values])
    assert_close(ours_padded(path), plain_padded(path))


# Images.


def write_images(path, sizes):
    """Writes JPEGs of some sizes with labels 0, 1, 2, ..."""
    records = []
    for label, size in enumerate(sizes):
        # Smooth like photos: resizers differ by more than a rounding on noise.
        slopes = np.add.outer(*(np.linspace(0, 120, n) for n in size))
        pixels = (slopes[..., None] + [label, 20, 10]).astype(np.uint8)
        records.append(example(image_raw=jpeg(pixels), label=label))
    return write_plain(path, records)


def floats(images):
    """Ragged images as float32 from 0 to 1."""
    return tf.cast(images, tf.float32) / 255


SIZES = [(40, 30), (25, 60), (33, 33), (60, 20), (48, 48)]
RAW_AND_LABEL = readers.Schema({"image_raw": IMAGE, "label": LABEL})


def plain_resized(path):
    found = []
    for batch in batches_of(records_of(path, image_raw=BYTES, label=NUMBER), 2):
        images = []
        for record in batch:
            pixels = tf.image.convert_image_dtype(pixels_of(record["image_raw"]), tf.float32)
            images.append(tf.image.resize(pixels, [256, 256]))
        found.append((tf.stack(images), tf.stack([record["label"] for record in batch])))
    return found


def ours_resized(path):
    names = ("image_raw", "label")
    ds = readers.load(
        path, schema=RAW_AND_LABEL, batch_size=2, batching="ragged", as_supervised=names
    )
    return list(ds.map(lambda image, label: (resize(floats(image), [256, 256]), label)))


def test_images_of_different_sizes_are_decoded_and_resized(tmp_path):
    path = write_images(tmp_path / "a.tfrecord", SIZES)
    assert_close(ours_resized(path), plain_resized(path))


def plain_mixed(pattern):
    files = tf.data.Dataset.list_files(pattern, seed=1)
    found = files.interleave(tf.data.TFRecordDataset, cycle_length=3)
    found = found.shuffle(10000, seed=1)
    found = found.map(lambda data: tf.io.parse_single_example(data, {"label": NUMBER})["label"])
    return [batch.numpy() for batch in found.batch(4).prefetch(1)]


def ours_mixed(pattern):
    ds = readers.load(pattern, schema=RAW_AND_LABEL, batch_size=4, columns=["label"], shuffle=True)
    return [batch["label"].numpy() for batch in ds]


@pytest.mark.slow
def test_the_files_of_a_pattern_are_interleaved_and_shuffled(tmp_path):
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


# Texts and tokens.

SEQUENCE = readers.Schema({"sequence": ("int64", (None,), "list"), "label": LABEL})


def plain_sequences(path, width):
    found = []
    spec = {"sequence": tf.io.VarLenFeature(tf.int64), "label": NUMBER}
    for batch in batches_of(records_of(path, **spec), 2):
        rows = [record["sequence"].values[:width] for record in batch]
        rows = [tf.pad(row, [[0, width - len(row)]]) for row in rows]
        found.append((tf.stack(rows), tf.stack([record["label"] for record in batch])))
    return found


def ours_sequences(path, width):
    return list(
        readers.load(
            path,
            schema=SEQUENCE,
            batch_size=2,
            batching="padded",
            max_length=width,
            pad_to="max_length",
            as_supervised=("sequence", "label"),
        )
    )


def test_tokens_are_truncated_and_padded_to_one_length(tmp_path):
    records = [example(sequence=[i + 1] * n, label=i) for i, n in enumerate([3, 0, 200, 1, 5])]
    path = write_plain(tmp_path / "a.tfrecord", records)
    assert_close(ours_sequences(path, 128), plain_sequences(path, 128))


BOXED = readers.Schema(
    {"image_raw": IMAGE, "labels": LABEL, "bounding_boxes": ("float32", (None, 4), "list")}
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
            pixels = tf.image.convert_image_dtype(pixels_of(record["image_raw"]), tf.float32)
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


def test_images_come_with_any_number_of_boxes(tmp_path):
    pixels = np.full((20, 30, 3), 80, np.uint8)
    records = [
        example(image_raw=jpeg(pixels), labels=label, bounding_boxes=[0.25] * 4 * count)
        if count
        else example(image_raw=jpeg(pixels), labels=label)
        for label, count in enumerate([1, 3, 0, 2, 1])
    ]
    path = write_plain(tmp_path / "a.tfrecord", records)
    assert_close(ours_boxes(path), plain_boxes(path))


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


def test_keras_learns_one_vocabulary_from_all_texts(tmp_path):
    texts = ["the cat sat", "the dog", "", "a cat and a dog and the cat", "grün"]
    records = [example(text=text, label=label) for label, text in enumerate(texts)]
    path = write_plain(tmp_path / "a.tfrecord", records)

    def layer():
        return keras.layers.TextVectorization(
            max_tokens=10000, output_mode="int", output_sequence_length=6
        )

    mine, theirs = layer(), layer()
    assert_close(ours_words(path, mine), plain_words(path, theirs))
    assert mine.get_vocabulary() == theirs.get_vocabulary()
    assert mine.get_vocabulary()[2:4] == ["the", "cat"]


# Raw bytes as NumPy batches.

FLOATS = readers.Schema(
    {"image": readers.Feature("float32", (16, 8, 3), "raw"), "label": readers.Feature("int64")}
)


def test_reading_holds_a_fraction_of_a_file_in_memory(tmp_path):
    count, shape = 512, (256, 256)
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
    # 8 MiB of records, framed and decoded, and a batch.
    assert held < min(32 << 20, count * len(data) / 4)


def plain_raw_images(path):
    images, labels = [], []
    for batch in batches_of(records_of(path, image=BYTES, label=NUMBER), 2):
        raw = [tf.io.decode_raw(record["image"], tf.float32) for record in batch]
        images.append(tf.reshape(tf.stack(raw), [-1, 16, 8, 3]).numpy())
        labels.append(tf.stack([record["label"] for record in batch]).numpy())
    return list(zip(images, labels, strict=True))


def ours_raw_images(path):
    names = ("image", "label")
    return readers.as_numpy(path, schema=FLOATS, batch_size=2, as_supervised=names)


def test_raw_images_come_with_labels(tmp_path):
    values = np.random.default_rng(11).normal(size=(5, 16, 8, 3)).astype(np.float32)
    records = [example(image=v.tobytes(), label=n) for n, v in enumerate(values)]
    path = write_plain(tmp_path / "a.tfrecord", records)
    assert_close(list(ours_raw_images(path)), plain_raw_images(path))


# The plain programs read the shards of jobs, with the names and encodings they expect.


def shards_of(job, source, directory, *flags):
    """Runs a job; returns the paths of its two shards."""
    arguments = [job, "--input", source, "--output", directory, "--num_shards", 2, *flags]
    assert run(*arguments) == 0
    return [str(path) for path in sorted(directory.glob("*.tfrecord"))]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """JPEGs of different sizes in folders of two labels."""
    directory = tmp_path_factory.mktemp("photos")
    for number, size in enumerate(SIZES):
        folder = directory / "ab"[number % 2]
        folder.mkdir(exist_ok=True)
        pixels = np.full((*size, 3), 40 * number, np.uint8)
        (folder / f"{number}.jpg").write_bytes(jpeg(pixels))
    return directory


@pytest.mark.parametrize("encoding", ["jpeg", "source"])
def test_encoded_images_of_the_images_job_are_read(photos, tmp_path, encoding):
    flags = ["--encoding", encoding, "--names", "image=image_raw"]
    paths = shards_of("images", photos / "*/*.jpg", tmp_path / "out", *flags)
    found = [
        (image, label)
        for images, labels in plain_resized(paths)
        for image, label in zip(images, labels, strict=True)
    ]
    shades = [(path.parent.name == "b", shade_of(path)) for path in photos.glob("*/*.jpg")]
    assert len(found) == len(shades) == len(SIZES)
    for image, label in found:
        assert image.shape == (256, 256, 3)
        assert min(abs(image[0, 0, 0] - shade) for y, shade in shades if y == label) < 0.01


def shade_of(path):
    return decode_image("image", IMAGE, path.read_bytes())[0, 0, 0] / 255


def test_raw_pixels_of_the_images_job_are_read(photos, tmp_path):
    flags = ["--encoding", "raw", "--image_size", "16x8", "--names", "image=image_raw"]
    paths = shards_of("images", photos / "*/*.jpg", tmp_path / "out", *flags)
    records = records_of(paths, image_raw=BYTES, label=NUMBER)
    for record, known in zip(records, readers.RecordSource(tmp_path / "out"), strict=True):
        pixels = tf.reshape(tf.io.decode_raw(record["image_raw"], tf.uint8), [16, 8, 3])
        np.testing.assert_array_equal(pixels, known["image_raw"])
        assert record["label"] == known["label"]


def write_arrays(directory, arrays):
    """Writes recordings; the n-th has label n % 2."""
    for number, array in enumerate(arrays):
        folder = directory / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / f"{number}.npy", array)
    return directory / "*/*.npy"


def test_tensors_of_the_sensors_job_are_read_and_padded(tmp_path):
    values = [np.full((n, 2), n, np.float32) for n in (3, 1, 4, 2, 5)]
    source = write_arrays(tmp_path / "in", values)
    paths = shards_of("sensors", source, tmp_path / "out", "--names", "signal=my_array")
    found = sorted(plain_tensors(paths), key=len)
    assert_close(found, sorted(values, key=len))
    padded = plain_padded(paths)
    assert [len(batch) for batch, _ in padded] == [2, 2, 1]
    assert sum(int(mask.sum()) for _, mask in padded) == 2 * (3 + 1 + 4 + 2 + 5)


def test_raw_floats_of_the_sensors_job_are_read_with_their_labels(tmp_path):
    values = [np.full((16, 8, 3), number, np.float32) for number in range(5)]
    source = write_arrays(tmp_path / "in", values)
    flags = ["--encoding", "raw", "--names", "signal=image"]
    batches = plain_raw_images(shards_of("sensors", source, tmp_path / "out", *flags))
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
