"""`readers.transforms` of NumPy arrays: the values of TensorFlow's tensors, without TensorFlow."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

import readers
from readers import transforms
from readers.transforms import Moments, Vectorizer, arrays
from readers.transforms.tftensors import operations as tftensors
from tests.support.checkout import ROOT
from tests.support.datasets import SIGNALS, manifest_bytes, signals, write_dataset
from tests.support.images import encoded

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (48, 20, 24, 3), np.uint8)
IMAGES = {"uint8": PIXELS, "float32": RNG.random((48, 20, 24, 3), np.float32)}
KEYS = RNG.integers(-(2**63), 2**63 - 1, 48)

each_dtype = pytest.mark.parametrize("dtype", IMAGES)

# Both compute in float32, but a compiler may round a product and a sum once instead of twice, and
# sums of many numbers depend on their order: a few steps of 2**-24 between 0 and 1, and one level of
# uint8 where a number is halfway between two.
CLOSE = {"uint8": 1, "float32": 8 * 2.0**-24}

# TensorFlow's graphs multiply by 1 / std instead of dividing: two roundings instead of one.
QUOTIENTS = 2.0**-22


def both(transform, values, *others):
    """The results of arrays, and those of the same tensors."""
    found = transform(values, *others)
    expected = transform(tf.constant(values), *map(tf.constant, others)).numpy()
    assert type(found) is np.ndarray
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    return found, expected


def test_arrays_and_tensors_have_the_same_operations():
    found, expected = (
        {name for name, value in vars(module).items() if is_own(value, module)}
        for module in (arrays, tftensors)
    )

    assert found == expected >= {"cropped", "resized", "standardized"}


def is_own(value, module) -> bool:
    name = getattr(value, "__name__", "_")
    return getattr(value, "__module__", "") == module.__name__ and not name.startswith("_")


# Random numbers.


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1), st.text(), st.integers(1, 2**31 - 1))
@example([0, 1, -1, 2**32, 2**63 - 1, -(2**63)], "flip", 2**31 - 1)
@settings(max_examples=15)
def test_arrays_and_tensors_draw_the_same_numbers(keys, salt, count):
    keys = np.array(keys, np.int64)
    tensor = tf.constant(keys)
    for draw in (transforms.uniform, partial(transforms.below, count=count)):
        found, expected = draw(keys, salt=salt), draw(tensor, salt=salt).numpy()
        assert found.dtype == expected.dtype
        assert np.array_equal(found, expected)


def test_each_record_may_have_a_count_of_its_own():
    counts = np.arange(1, 49)
    found = transforms.below(KEYS, "a", counts)
    assert np.array_equal(found, transforms.below(tf.constant(KEYS), "a", tf.constant(counts)))
    assert (found < counts).all() and found.any()


@pytest.mark.parametrize("keys", [KEYS[None], KEYS[0], KEYS.astype(float), KEYS.astype(np.uint64)])
def test_keys_must_be_a_batch_of_integers(keys):
    with pytest.raises(ValueError, match=r"expected keys of the shape \[B\] and int64, found the"):
        transforms.uniform(keys, "flip")


# Images.


@each_dtype
@pytest.mark.parametrize(
    "transform",
    [
        transforms.random_flip,
        partial(transforms.random_flip, up_down=True, salt="another"),
        partial(transforms.random_crop, size=(16, 17)),
        partial(transforms.random_crop, size=(25, 3), padding=4),
        partial(transforms.random_crop, size=(20, 24)),
    ],
)
def test_flips_and_crops_of_arrays_equal_those_of_tensors(transform, dtype):
    images = IMAGES[dtype].copy()
    found, expected = both(transform, images, KEYS)
    assert np.array_equal(found, expected)
    assert np.array_equal(images, IMAGES[dtype])
    # Of any layout, and of no record.
    fortran = np.asfortranarray(images)
    assert np.array_equal(transform(fortran, KEYS), expected)
    assert transform(images[:0], KEYS[:0]).shape == (0, *expected.shape[1:])


@each_dtype
@pytest.mark.parametrize(
    "transform",
    [
        lambda images: transforms.random_brightness(images, KEYS, 0.3),
        *(partial(transforms.resize, size=size) for size in [(8, 8), (41, 50), (20, 24), (7, 60)]),
    ],
    ids=["brightness", "smaller", "larger", "the same", "both"],
)
def test_values_of_arrays_are_close_to_those_of_tensors(transform, dtype):
    images = IMAGES[dtype].copy()
    found, expected = both(transform, images)
    difference = np.abs(found.astype(np.float64) - expected)
    assert difference.max() <= CLOSE[dtype]
    # A level differs in one of a thousand values at most.
    assert (difference > 1e-5).mean() < 1e-3
    assert np.array_equal(images, IMAGES[dtype])


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float16", "float32", "float64"])
def test_floats_of_arrays_equal_those_of_tensors(dtype):
    values = RNG.random((4, 5)) * (np.iinfo(dtype).max if dtype.startswith("u") else 1)
    assert np.array_equal(*both(transforms.to_float, values.astype(dtype)))


def test_a_tensor_among_the_arguments_gives_a_tensor():
    keys = tf.constant(KEYS)
    for found in (
        transforms.random_flip(PIXELS, keys),
        transforms.random_crop(tf.constant(PIXELS), KEYS, (20, 24), 4),
        transforms.random_brightness(tf.constant(PIXELS), KEYS, np.float64(0.1)),
    ):
        assert tf.is_tensor(found) and found.dtype == tf.uint8
    brighter = transforms.random_brightness(IMAGES["float32"], KEYS, np.float64(0.1))
    assert brighter.dtype == np.float32


def wave(height: int, width: int, mode: str = "RGB") -> np.ndarray:
    y, x = np.mgrid[:height, :width]
    gray = 127.5 + 127.5 * np.sin(x / 5 + y / 9)
    pixels = np.stack([gray, gray[::-1], 255 - gray], axis=-1).astype(np.uint8)
    return np.asarray(Image.fromarray(pixels).convert(mode))


def objects(items) -> np.ndarray:
    out = np.empty(len(items), object)
    out[:] = items
    return out


def test_arrays_of_different_sizes_become_a_batch():
    images = [wave(10, 30), wave(25, 12), wave(7, 42)]
    found = transforms.resize(objects(images), (12, 16))
    ragged = tf.ragged.stack([tf.RaggedTensor.from_tensor(image) for image in images])
    assert found.dtype == np.uint8
    np.testing.assert_allclose(found, transforms.resize(ragged, (12, 16)), atol=1)


ENCODED = [
    encoded(Image.fromarray(wave(40, 60)), "JPEG", quality=90),
    encoded(Image.fromarray(wave(33, 17)), "PNG"),
    encoded(Image.fromarray(wave(100, 90, "L")), "JPEG"),
    encoded(Image.fromarray(wave(16, 20, "L")), "PNG"),
]


@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_of_arrays_equal_those_of_tensors(channels):
    """Within a level: Pillow and TensorFlow decode the same pixels."""
    # Libraries compute the gray of colored PNGs differently.
    data = objects([ENCODED[0], *ENCODED[2:]] if channels == 1 else ENCODED)
    found = transforms.decode_images(data, (16, 20), channels)
    expected = transforms.decode_images(tf.constant(data), (16, 20), channels).numpy()
    assert (found.dtype, found.shape) == (np.uint8, expected.shape)
    assert np.abs(found.astype(int) - expected).max() <= 1
    assert transforms.decode_images(data[:0], (16, 20)).shape == (0, 16, 20, 3)


@pytest.mark.parametrize("data", [b"", b"nothing", ENCODED[0][:100], "a text"])
def test_bytes_that_are_not_a_picture_are_named_by_their_place(data):
    with pytest.raises(ValueError, match=r"^image 1 of the batch: "):
        transforms.decode_images(objects([ENCODED[1], data]), (8, 8))


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (lambda: transforms.random_flip(PIXELS[0], KEYS[:1]), r"\[B, H, W, C\], found the shape"),
        (lambda: transforms.resize(PIXELS[0], (8, 8)), r"found the shape \(20, 24, 3\)"),
        (lambda: transforms.resize(PIXELS, (8, 0)), r"expected \(height, width\) in pixels"),
        (
            lambda: transforms.random_crop(PIXELS, KEYS, (21, 24)),
            "a height of at least 21, including padding, found 20: resize first, or pad more",
        ),
        (lambda: transforms.random_crop(PIXELS, KEYS, (20, 29), 2), "a width of .* found 28"),
        (lambda: transforms.random_crop(PIXELS, KEYS, (20, 29), -1), "padding=-1: expected"),
        (lambda: transforms.random_brightness(PIXELS, KEYS, 2), "a number from 0 to 1"),
    ],
)
def test_impossible_transforms_of_arrays_are_rejected(transform, message):
    with pytest.raises(ValueError, match=message):
        transform()


# Normalization.


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float16", "float32", "float64", "int64"])
@pytest.mark.parametrize("shape", [(7, 3), (5, 4, 6, 3), (0, 4, 3), (5, 0, 3)])
def test_normalized_arrays_equal_tensors(dtype, shape):
    """Exactly, because IEEE 754 defines differences and quotients."""
    values = RNG.integers(0, 100, shape).astype(dtype)
    kept = values.copy()
    for channels in (1, 3):
        moments = Moments((20.0, 30.5, 40.25)[:channels], (1.0, 2.5, 7.0)[:channels], dtype)
        found, expected = both(partial(transforms.normalize, moments=moments), values)
        assert found.dtype == np.float32 and np.array_equal(found, expected)
    assert np.array_equal(values, kept)


def test_normalized_arrays_are_close_to_tensors_of_a_graph():
    moments = Moments((100.0, 110.0, 120.0), (60.0, 57.0, 23.0), "uint8")
    normalize = partial(transforms.normalize, moments=moments)
    expected = tf.function(normalize)(tf.constant(PIXELS))
    np.testing.assert_allclose(normalize(PIXELS), expected, rtol=QUOTIENTS)


def test_arrays_of_batches_are_normalized_with_masks_and_ragged(tmp_path):
    path = write_dataset(tmp_path / "runs", SIGNALS, {"train": [signals([3, 0, 5, 1])]})
    moments = Moments((2.0, 3.0), (0.5, 4.0), "float32")
    (padded,) = readers.as_numpy(path, batch_size=4, batching="padded", mask=True)
    (ragged,) = readers.as_numpy(path, batch_size=4, batching="ragged")
    found = transforms.normalize(padded["signal"], moments, padded["signal_mask"])
    expected = transforms.normalize(
        tf.constant(padded["signal"]), moments, tf.constant(padded["signal_mask"])
    )
    assert found.dtype == np.float32 and np.array_equal(found, expected)
    rows = transforms.normalize(ragged["signal"], moments)
    assert rows.dtype == object and [len(row) for row in rows] == [3, 0, 5, 1]
    for row, wide in zip(rows, found, strict=True):
        assert np.array_equal(row, wide[: len(row)])
        assert not wide[len(row) :].any()


def test_arrays_must_fit_the_moments():
    with pytest.raises(ValueError, match=r"of uint8, .* found float32: normalize before any conv"):
        transforms.normalize(IMAGES["float32"], Moments((120.0,), (60.0,), "uint8"))
    with pytest.raises(ValueError, match="the moments have 2 channels: expected as many"):
        transforms.normalize(PIXELS, Moments((1.0, 2.0), (1.0, 1.0), "uint8"))


# Texts.

TEXTS = ["It's A b, a!", "ünïcödé İSTANBUL a", "", "nul\0in side a\x1cb\x0bc", "... 'a b b c c c"]


WORDS = ["a", "b", "c", "its", "ünïcödé", "nul\0in"]


def text_dataset(directory: Path, tokens: str, max_length: int = 0) -> Path:
    """An empty dataset with a vocabulary."""
    schema = readers.Schema({"text": ("string",), "tokens": ("int64", (None,))})
    options = {"tokens": tokens, "max_length": max_length}
    path = write_dataset(directory, schema, {}, options=options, vocabulary=2 + len(WORDS))
    (path / "vocabulary.txt").write_text("".join(f"{word}\n" for word in WORDS), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("tokens", "max_length"), [("words", 0), ("words", 3), ("bytes", 0), ("bytes", 7)]
)
def test_ids_of_arrays_of_texts_equal_those_of_tensors(tokens, max_length, tmp_path):
    directory = text_dataset(tmp_path, tokens, max_length)
    expected = Vectorizer(directory)(tf.constant(TEXTS)).to_list()
    assert any(id_ > 1 for ids in expected for id_ in ids)
    for texts in (TEXTS, np.array(TEXTS), objects([text.encode() for text in TEXTS])):
        found = Vectorizer(directory)(texts)
        assert found.dtype == object
        assert [ids.tolist() for ids in found] == expected
        assert {ids.dtype for ids in found} == {np.dtype(np.int64)}
    fixed = pickle.loads(pickle.dumps(Vectorizer(directory, length=2)))
    assert np.array_equal(fixed(TEXTS), fixed(tf.constant(TEXTS)))
    assert (fixed(TEXTS).dtype, fixed([]).shape) == (np.int64, (0, 2))
    for one in ("a text", b"a text", [TEXTS]):
        with pytest.raises(ValueError, match=r"expected a batch of texts \[B\], found the shape"):
            fixed(one)


# Readers.


def test_one_function_augments_alike_in_load_and_as_numpy(tmp_path):
    schema = readers.Schema({"image": ("uint8", (20, 24, 3)), "label": ("int64",)})
    records = [{"image": image, "label": number} for number, image in enumerate(PIXELS)]
    path = write_dataset(tmp_path / "photos", schema, {"train": [records[:20], records[20:]]})
    moments = Moments((120.0, 125.0, 130.0), (60.0, 70.0, 65.0), "uint8")

    def augment(batch, keys):
        images = transforms.random_flip(batch["image"], keys)
        images = transforms.random_crop(images, keys, (20, 24), padding=4)
        return {**batch, "image": transforms.normalize(images, moments)}

    options = {"batch_size": 7, "shuffle": True, "seed": 3, "repeat": 2, "transform": augment}
    arrays = list(readers.as_numpy(path, **options))
    tensors = list(readers.load(path, **options))
    assert len(arrays) == len(tensors) == 14
    for found, expected in zip(arrays, tensors, strict=True):
        assert np.array_equal(found["label"], expected["label"])
        assert type(found["image"]) is np.ndarray
        np.testing.assert_allclose(found["image"], expected["image"], rtol=QUOTIENTS)


# Without TensorFlow.

EVERY_TRANSFORM = """
import sys
import numpy as np

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tensorflow", "keras"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())

import readers
from readers import transforms

runs, texts, picture = sys.argv[1:]
images, keys = np.zeros((2, 6, 5, 3), np.uint8), np.arange(2)
encoded = np.array([open(picture, "rb").read()] * 2, object)
moments = transforms.Moments.of(readers.Manifest.read(runs), "train", "signal")
(batch,) = readers.as_numpy(runs, batch_size=4, batching="padded", mask=True)
vectorizer = transforms.Vectorizer(texts, length=4)
found = {
    "uniform": transforms.uniform(keys, "a"),
    "below": transforms.below(keys, "a", 3),
    "random_flip": transforms.random_flip(images, keys, up_down=True),
    "random_crop": transforms.random_crop(images, keys, (4, 4), padding=1),
    "random_brightness": transforms.random_brightness(images, keys, 0.1),
    "to_float": transforms.to_float(images),
    "resize": transforms.resize(images, (3, 3)),
    "decode_images": transforms.decode_images(encoded, (3, 3)),
    "normalize": transforms.normalize(batch["signal"], moments, batch["signal_mask"]),
    "Vectorizer": vectorizer(["a b"]),
}
assert all(type(values) is np.ndarray for values in found.values())
assert not {"tensorflow", "keras", "apache_beam"} & {*sys.modules}
assert {*found, "Moments"} == {*transforms.__all__}
print(found["normalize"][0, 0].tolist())
"""


def test_every_transform_of_arrays_runs_without_tensorflow(tmp_path):
    runs = write_dataset(tmp_path / "runs", SIGNALS, {"train": [signals([3, 0, 5, 1])]})
    manifest = json.loads((runs / "manifest.json").read_text())
    manifest["splits"]["train"]["statistics"] = {"signal": {"mean": 0.5, "std": 0.5}}
    (runs / "manifest.json").write_bytes(manifest_bytes(manifest))
    picture = tmp_path / "picture.jpg"
    picture.write_bytes(ENCODED[0])
    texts = text_dataset(tmp_path / "texts", "words")
    command = [sys.executable, "-c", EVERY_TRANSFORM, runs, texts, picture]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "[1.0, 3.0]\n"), done.stderr
