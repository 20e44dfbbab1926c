"""`readers.transforms` of arrays, against NumPy; those of tensors, against arrays."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

import readers
from readers.transforms import (
    Moments,
    arrays,
    below,
    normalize,
    random_crop,
    random_flip,
    tftensors,
    to_float,
    uniform,
)
from tests.support.datasets import SIGNALS, signals, write_dataset

# Consecutive keys: the numbers computed from them must not show it.
KEYS = np.arange(1 << 16)

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (96, 20, 24, 3), np.uint8)
IMAGES = {"uint8": PIXELS, "float32": RNG.random((96, 20, 24, 3), np.float32)}
IMAGE_KEYS = RNG.integers(-(2**63), 2**63 - 1, 96)

RANDOM = {
    "flip": random_flip,
    "flip both ways": partial(random_flip, up_down=True),
    "crop": partial(random_crop, size=(16, 17)),
    "padded crop": partial(random_crop, size=(25, 3), padding=4),
    "whole crop": partial(random_crop, size=(20, 24)),
}
each_random = pytest.mark.parametrize("transform", RANDOM.values(), ids=RANDOM.keys())
each_dtype = pytest.mark.parametrize("dtype", IMAGES)


def drawn(salt: str, keys: np.ndarray = KEYS) -> np.ndarray:
    return uniform(keys, salt).astype(np.float64)


def chi_squared(counts: np.ndarray) -> float:
    expected = counts.sum() / counts.size
    return float(((counts - expected) ** 2 / expected).sum())


def assert_even(counts: np.ndarray) -> None:
    """Chi-squared of counts that should be equal is within 4.5 deviations of its mean."""
    freedom = counts.size - 1
    assert abs(chi_squared(counts) - freedom) < 4.5 * np.sqrt(2 * freedom) + 10


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
    assert found == expected >= {"cropped", "standardized"}


def is_own(value, module) -> bool:
    name = getattr(value, "__name__", "_")
    return getattr(value, "__module__", "") == module.__name__ and not name.startswith("_")


# Random numbers.


def test_random_numbers_are_the_same_in_every_version():
    keys = np.array([0, 1, 2, 2**32, 2**63 - 1, -1])
    expected = [245363469, 3197371832, 22047444, 234292988, 2567023349, 1938619669]
    assert uniform(keys, "flip").tolist() == [(n >> 8) / 2**24 for n in expected]
    assert below(keys, "flip", 10).tolist() == [n * 10 >> 32 for n in expected]
    expected = [41205014, 1132480092, 1493239611, 1310823867, 2193816519, 1757853875]
    assert uniform(keys, "crop").tolist() == [(n >> 8) / 2**24 for n in expected]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1), st.text(), st.integers(1, 2**31 - 1))
@example([0, 1, -1, 2**32, 2**63 - 1, -(2**63)], "flip", 2**31 - 1)
@settings(max_examples=4)
def test_arrays_and_tensors_draw_the_same_numbers(keys, salt, count):
    for draw in (uniform, partial(below, count=count)):
        assert np.array_equal(*both(partial(draw, salt=salt), np.array(keys, np.int64)))


@pytest.mark.parametrize("keys", [KEYS, KEYS << 32, KEYS * 3 - 2**62, 2**63 - 1 - KEYS])
@pytest.mark.parametrize("salt", ["flip", "", "ü"])
def test_random_numbers_are_uniform_for_any_keys(keys, salt):
    found = drawn(salt, keys)
    assert found.min() >= 0 and found.max() < 1
    assert_even(np.bincount((found * 1024).astype(int), minlength=1024))
    # The last of the 24 bits as well.
    assert_even(np.bincount((found * 2**24).astype(int) % 256, minlength=256))


def test_neighboring_keys_have_independent_numbers():
    found = drawn("flip")
    for lag in (1, 2, 3, 256):
        pairs = np.histogram2d(found[:-lag], found[lag:], 32, [[0, 1], [0, 1]])[0]
        assert_even(pairs)


def test_a_bit_of_a_key_changes_half_of_the_bits_of_its_number():
    keys = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 4000)
    numbers = below(keys, "flip", 2**31 - 1)
    for bit in range(64):
        changed = keys ^ np.int64(-(2**63) if bit == 63 else 1 << bit)
        changed = (numbers ^ below(changed, "flip", 2**31 - 1))[:, None] >> np.arange(31) & 1
        assert abs(changed.mean(axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(4000), bit


@pytest.mark.parametrize("count", [1, 2, 9, 1000])
def test_every_number_below_a_count_is_equally_likely(count):
    found = below(KEYS, "crop", count)
    assert found.min() >= 0 and found.max() < count
    assert found.dtype == np.int64
    if count > 1:
        assert_even(np.bincount(found, minlength=count))
    assert below(KEYS, "crop", tf.constant(count)).numpy().tolist() == found.tolist()


def test_each_record_may_have_a_count_of_its_own():
    counts = np.arange(1, 97)
    found = below(IMAGE_KEYS, "a", counts)
    assert np.array_equal(found, below(tf.constant(IMAGE_KEYS), "a", tf.constant(counts)))
    assert (found < counts).all() and found.any()


@pytest.mark.parametrize("keys", [KEYS[None], KEYS[0], KEYS.astype(float), KEYS.astype(np.uint64)])
def test_keys_must_be_a_batch_of_integers(keys):
    with pytest.raises(ValueError, match=r"expected keys of the shape \[B\] and int64, found the"):
        uniform(keys, "flip")


def test_tensors_of_keys_must_be_a_batch():
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=r"(?i)shape"):
        uniform(tf.constant(7, tf.int64), "flip")


# Random transforms.


@each_random
@each_dtype
def test_images_of_arrays_equal_those_of_tensors(transform, dtype):
    images = IMAGES[dtype].copy()
    found, expected = both(transform, images, IMAGE_KEYS)
    assert np.array_equal(found, expected)
    assert np.array_equal(images, IMAGES[dtype])
    # Of any layout, and of no record.
    assert np.array_equal(transform(np.asfortranarray(images), IMAGE_KEYS), found)
    assert transform(images[:0], IMAGE_KEYS[:0]).shape == (0, *expected.shape[1:])


@pytest.mark.parametrize("name", ["flip both ways", "padded crop"])
def test_an_image_is_changed_in_the_same_way_in_every_batch(name):
    """By its key alone: whatever the batch, its place there, and eagerly or in a graph."""
    transform = RANDOM[name]
    whole = transform(PIXELS, IMAGE_KEYS)
    assert whole.dtype == np.uint8
    order = np.random.default_rng(2).permutation(96)
    assert np.array_equal(transform(PIXELS[order[:7]], IMAGE_KEYS[order[:7]]), whole[order[:7]])
    mapped = tf.data.Dataset.from_tensor_slices((PIXELS, IMAGE_KEYS)).batch(32).map(transform)
    assert mapped.element_spec.shape.as_list() == [None, *whole.shape[1:]]
    in_graph = np.concatenate(list(mapped.as_numpy_iterator()))
    assert np.array_equal(in_graph, whole)
    for keys, more in ((IMAGE_KEYS + 1, {}), (IMAGE_KEYS, {"salt": "another"})):
        other = transform(PIXELS, keys, **more)
        assert (whole != other).any(axis=(1, 2, 3)).sum() > 24


def test_images_are_turned_upside_down_and_mirrored_independently():
    images = np.arange(4, dtype=np.uint8).reshape(1, 2, 2, 1).repeat(len(KEYS), axis=0)
    found = random_flip(images, KEYS, up_down=True).reshape(-1, 4)
    ways = {(0, 1, 2, 3): 0, (1, 0, 3, 2): 1, (2, 3, 0, 1): 2, (3, 2, 1, 0): 3}
    assert_even(np.bincount([ways[tuple(image)] for image in found.tolist()], minlength=4))


@pytest.mark.parametrize(("size", "padding"), [((16, 17), 0), ((20, 24), 4), ((25, 3), 3)])
def test_a_crop_is_a_part_of_the_padded_image(size, padding):
    padded = np.pad(PIXELS, [(0, 0), (padding, padding), (padding, padding), (0, 0)])
    found = random_crop(PIXELS, IMAGE_KEYS, size, padding)
    for image, part in zip(padded, found, strict=True):
        windows = np.lib.stride_tricks.sliding_window_view(image, (*size, 3))
        assert (windows == part).all(axis=(3, 4, 5)).any()


def test_every_position_of_a_crop_is_equally_likely():
    images = np.arange(36, dtype=np.uint8).reshape(1, 6, 6, 1).repeat(len(KEYS), axis=0)
    corner = random_crop(images, KEYS, (2, 4))[:, 0, 0, 0]
    y, x = np.divmod(corner, 6)
    assert (y.max(), x.max()) == (4, 2)
    assert_even(np.bincount(y * 3 + x, minlength=15))


@pytest.mark.parametrize("kind", [np.asarray, tf.constant])
@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (partial(random_crop, size=(21, 24)), "a height of at least 21, including padding, found "),
        (partial(random_crop, size=(20, 29), padding=2), "a width of at least 29, .* found 28"),
        (partial(random_crop, size=(20, 24), padding=-1), "padding=-1: expected a number of pix"),
        *(
            (partial(random_crop, size=size), r"expected \(height, width\) in pixels")
            for size in (20, (20,), (0, 20), (20.0, 24), (20, 24, 3))
        ),
    ],
)
def test_impossible_transforms_are_rejected(kind, transform, message):
    with pytest.raises(ValueError, match=message):
        transform(kind(PIXELS), IMAGE_KEYS)


@pytest.mark.parametrize("kind", [np.asarray, tf.constant])
@each_random
def test_a_single_image_is_rejected(transform, kind):
    with pytest.raises(ValueError, match=r"a batch of images \[B, H, W, C\], found .*20, 24, 3"):
        transform(kind(PIXELS[0]), IMAGE_KEYS[:1])


def test_a_crop_larger_than_an_image_of_unknown_size_fails_when_run():
    crop = tf.function(
        partial(random_crop, size=(20, 25)),
        input_signature=[tf.TensorSpec([None] * 4, tf.uint8), tf.TensorSpec([None], tf.int64)],
    )
    assert crop(PIXELS.repeat(2, axis=2), IMAGE_KEYS).shape == (96, 20, 25, 3)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"a width of at least 25.*24"):
        crop(PIXELS, IMAGE_KEYS)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float16", "float32", "float64"])
def test_floats_equal_those_of_convert_image_dtype(dtype):
    values = RNG.random((4, 5)) * (np.iinfo(dtype).max if dtype.startswith("u") else 1)
    found, expected = both(to_float, values.astype(dtype))
    assert found.dtype == np.float32 and np.array_equal(found, expected)


# Normalization.


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float16", "float32", "float64", "int64"])
@pytest.mark.parametrize("shape", [(7, 3), (5, 4, 6, 3), (0, 4, 3), (5, 0, 3)])
def test_normalized_values_equal_those_of_numpy(dtype, shape):
    values = RNG.integers(0, 100, shape).astype(dtype)
    kept = values.copy()
    for channels in (1, 3):
        mean, std = (20.0, 30.5, 40.25)[:channels], (1.0, 2.5, 7.0)[:channels]
        # Exactly alike, because IEEE 754 defines differences and quotients.
        found, tensor = both(partial(normalize, moments=Moments(mean, std, dtype)), values)
        assert found.dtype == np.float32 and np.array_equal(found, tensor)
        expected = (values.astype(np.float64) - mean) / std
        np.testing.assert_allclose(found, expected.astype(np.float32), rtol=1e-6, atol=1e-6)
    assert np.array_equal(values, kept)


def test_padding_stays_zero_with_a_mask_as_in_ragged_batches(tmp_path):
    path = write_dataset(tmp_path / "runs", SIGNALS, {"train": [signals([3, 0, 5, 1])]})
    moments = Moments((2.0, 3.0), (0.5, 4.0), "float32")
    (padded,) = readers.as_numpy(path, batch_size=4, batching=readers.Padded(mask=True))
    (ragged,) = readers.as_numpy(path, batch_size=4, batching="ragged")
    found, expected = both(
        partial(normalize, moments=moments, mask=padded["signal_mask"]), padded["signal"]
    )
    assert found.dtype == np.float32 and np.array_equal(found, expected)
    rows = normalize(ragged["signal"], moments)
    assert rows.dtype == object and [len(row) for row in rows] == [3, 0, 5, 1]
    assert rows[0].tolist() == [[-2, -0.25], [2, 0.25], [6, 0.75]]
    for row, wide in zip(rows, found, strict=True):
        assert np.array_equal(row, wide[: len(row)])
        assert not wide[len(row) :].any()
    (tensors,) = readers.load(path, batch_size=4, batching="ragged")
    tensor = normalize(tensors["signal"], moments)
    assert isinstance(tensor, tf.RaggedTensor)
    np.testing.assert_array_equal(tensor.to_tensor(), found)


def test_values_that_do_not_fit_the_moments_are_rejected():
    """Otherwise images from `to_float` would be normalized by the statistics of 0 to 255."""
    one, two = Moments((120.0,), (60.0,), "uint8"), Moments((1.0, 2.0), (1.0, 1.0), "uint8")
    for kind in (np.asarray, tf.constant):
        with pytest.raises(ValueError, match=r"of uint8, .* found float32: normalize before any c"):
            normalize(kind(IMAGES["float32"]), one)
        for values in (PIXELS, np.zeros(2, np.uint8)):
            with pytest.raises(ValueError, match="the moments have 2 channels: expected as many"):
                normalize(kind(values), two)


@pytest.mark.parametrize(
    ("mean", "std"),
    [((), ()), ((1.0,), (0.0,)), ((1.0,), (-1.0,)), ((np.nan,), (1.0,)), ((1.0, 2.0), (1.0,))],
)
def test_impossible_moments_are_rejected(mean, std):
    with pytest.raises(ValueError, match="expected finite numbers, one deviation above 0 for"):
        Moments(mean, std, "float32")


def manifest_with(statistics: object) -> readers.Manifest:
    image = ("uint8", (8, 8, 3), "jpeg")
    schema = readers.Schema({"x": ("float32", (3,)), "image": image, "text": ("string",)})
    value = readers.Manifest(schema, {"train": readers.Split(())}).to_json()
    value["splits"]["train"]["statistics"] = statistics
    return readers.Manifest.from_json(json.loads(json.dumps(value)))


def test_moments_are_those_of_each_channel_or_of_all_values():
    channels = {"mean": [0.5, 3.5, 1.0], "std": [1.5, 2.0, 3.0]}
    manifest = manifest_with({"x": {"mean": 2.0, "std": 1.0, "channels": channels}})
    expected = Moments((0.5, 3.5, 1.0), (1.5, 2.0, 3.0), "float32")
    assert Moments.of(manifest, "train", "x") == expected
    whole = Moments.of(manifest, "train", "x", per_channel=False)
    assert whole == Moments((2.0,), (1.0,), "float32")


@pytest.mark.parametrize(
    "figures",
    [
        {},
        None,
        {"mean": 1.0},
        {"mean": 1.0, "std": 1.0, "channels": {"mean": [0.0, None, 1.0], "std": [1.0, None, 1.0]}},
        {"mean": 1.0, "std": 1.0, "channels": {"mean": [1.0], "std": [1.0, 0.0]}},
    ],
)
def test_a_feature_without_statistics_is_rejected(figures):
    manifest = manifest_with({"x": figures})
    with pytest.raises(ValueError, match=r"^feature 'x': .* in split 'train': the feature, or one"):
        Moments.of(manifest, "train", "x")


LENGTHS = {"lengths": {"bytes": {"count": 3}}}
CONSTANT = {"count": 3, "mean": 2.0, "std": 0.0}
ONE_CONSTANT = {"mean": 2.0, "std": 1.0, "channels": {"mean": [0.5, 3.5], "std": [1.5, 0.0]}}


@pytest.mark.parametrize(
    ("feature", "figures", "message"),
    [
        ("x", CONSTANT, r"^feature 'x' is 2.0 throughout split 'train' \(std 0\)"),
        (
            "x",
            ONE_CONSTANT,
            "^channel 1 of feature 'x' is 3.5 throughout .*: use per_channel=False",
        ),
        ("image", LENGTHS, "encoded images have no statistics; .*--encoding tensor"),
        ("text", LENGTHS, "string features have no statistics"),
        ("y", {}, "unknown feature 'y': the dataset has image, text, x"),
    ],
)
def test_the_error_states_why_a_feature_cannot_be_normalized(feature, figures, message):
    with pytest.raises(ValueError, match=message):
        Moments.of(manifest_with({feature: figures}), "train", feature)
    with pytest.raises(ValueError, match="unknown split 'val': the dataset has train"):
        Moments.of(manifest_with({feature: figures}), "val", "x")


# Readers.


# Without TensorFlow.


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_batches_of_many_pixels_become_floats_that_later_batches_leave_alone(dtype):
    highest = np.iinfo(dtype).max
    images = np.random.default_rng(0).integers(0, highest + 1, (8, 256, 256, 3), dtype)
    first = to_float(images)
    second = to_float(images[::-1])
    scale = np.float32(1 / highest)
    np.testing.assert_array_equal(first, images.astype(np.float32) * scale)
    np.testing.assert_array_equal(second, first[::-1])
