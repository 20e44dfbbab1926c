"""`readers.transforms` of tensors, compared with plain TensorFlow, NumPy, Pillow, Keras and the jobs."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import readers
from beam_jobs.jobs.text.tokens import Tokenizer
from readers.format.manifest import PADDING, RESERVED_IDS, UNKNOWN
from readers.transforms import (
    Moments,
    Vectorizer,
    below,
    decode_images,
    normalize,
    random_brightness,
    random_crop,
    random_flip,
    resize,
    to_float,
    uniform,
)
from tests.support.commands import run
from tests.support.datasets import SIGNALS, signals, write_dataset
from tests.support.images import encoded

# Consecutive keys: the numbers computed from them must not show it.
KEYS = np.arange(1 << 16)


def drawn(salt: str, keys: np.ndarray = KEYS) -> np.ndarray:
    return uniform(tf.constant(keys), salt).numpy().astype(np.float64)


def chi_squared(counts: np.ndarray) -> float:
    expected = counts.sum() / counts.size
    return float(((counts - expected) ** 2 / expected).sum())


def assert_even(counts: np.ndarray) -> None:
    """Chi-squared of counts that should be equal is within 4.5 deviations of its mean."""
    freedom = counts.size - 1
    assert abs(chi_squared(counts) - freedom) < 4.5 * np.sqrt(2 * freedom) + 10


# Random numbers.


def test_random_numbers_are_the_same_in_every_version():
    keys = tf.constant([0, 1, 2, 2**32, 2**63 - 1, -1], tf.int64)
    expected = [245363469, 3197371832, 22047444, 234292988, 2567023349, 1938619669]
    assert uniform(keys, "flip").numpy().tolist() == [(n >> 8) / 2**24 for n in expected]
    assert below(keys, "flip", 10).numpy().tolist() == [n * 10 >> 32 for n in expected]
    expected = [41205014, 1132480092, 1493239611, 1310823867, 2193816519, 1757853875]
    assert uniform(keys, "crop").numpy().tolist() == [(n >> 8) / 2**24 for n in expected]


@pytest.mark.parametrize("keys", [KEYS, KEYS << 32, KEYS * 3 - 2**62, 2**63 - 1 - KEYS])
@pytest.mark.parametrize("salt", ["flip", "", "ü"])
def test_random_numbers_are_uniform_for_any_keys(keys, salt):
    found = drawn(salt, keys)
    assert found.min() >= 0 and found.max() < 1
    assert uniform(tf.constant(keys), salt).dtype == tf.float32
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
    numbers = below(tf.constant(keys), "flip", 2**31 - 1).numpy()
    for bit in range(64):
        changed = tf.constant(keys ^ np.int64(-(2**63) if bit == 63 else 1 << bit))
        other = below(changed, "flip", 2**31 - 1)
        changed = (numbers ^ other.numpy())[:, None] >> np.arange(31) & 1
        assert abs(changed.mean(axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(4000), bit


@pytest.mark.parametrize(
    ("one", "two"), [("flip", "crop"), ("a", "b"), ("flip", "flip "), ("", "\0")]
)
def test_numbers_with_different_salts_are_independent(one, two):
    assert_even(np.histogram2d(drawn(one), drawn(two), 32, [[0, 1], [0, 1]])[0])


@pytest.mark.parametrize("count", [1, 2, 3, 9, 33, 1000])
def test_every_number_below_a_count_is_equally_likely(count):
    found = below(tf.constant(KEYS), "crop", count).numpy()
    assert found.min() >= 0 and found.max() < count
    assert found.dtype == np.int64
    if count > 1:
        assert_even(np.bincount(found, minlength=count))
    assert below(KEYS, "crop", tf.constant(count)).numpy().tolist() == found.tolist()


def test_keys_must_be_a_batch():
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=r"(?i)shape"):
        uniform(tf.constant(7, tf.int64), "flip")
    unknown = tf.function(uniform).get_concrete_function(tf.TensorSpec(None, tf.int64), "flip")
    assert unknown.output_shapes.rank == 1


# Random transforms.

IMAGES = np.random.default_rng(0).integers(0, 256, (96, 20, 24, 3), np.uint8)
TENSOR = tf.constant(IMAGES)
IMAGE_KEYS = np.random.default_rng(1).integers(0, 2**63 - 1, 96)

RANDOM = {
    "flip": random_flip,
    "flip both ways": partial(random_flip, up_down=True),
    "crop": partial(random_crop, size=(16, 17)),
    "padded crop": partial(random_crop, size=(20, 24), padding=4),
    "brightness": partial(random_brightness, max_delta=0.3),
}
each_random = pytest.mark.parametrize("transform", RANDOM.values(), ids=RANDOM.keys())
each_dtype = pytest.mark.parametrize("dtype", ["uint8", "float32"])


def images_of(dtype: str) -> tf.Tensor:
    return TENSOR if dtype == "uint8" else to_float(TENSOR)


@pytest.mark.slow(base=["uint8-crop"])
@each_random
@each_dtype
def test_an_image_is_changed_in_the_same_way_in_every_batch(transform, dtype):
    """Whatever the batch size and the place in the batch, eagerly or in a graph."""
    images = images_of(dtype)
    whole = transform(images, IMAGE_KEYS).numpy()
    assert whole.dtype == dtype
    dataset = tf.data.Dataset.from_tensor_slices((images, IMAGE_KEYS))
    for size in (1, 7, 96):
        mapped = dataset.batch(size).map(transform)
        assert np.array_equal(np.concatenate(list(mapped.as_numpy_iterator())), whole)
    order = np.random.default_rng(2).permutation(96)
    assert np.array_equal(transform(tf.gather(images, order), IMAGE_KEYS[order]), whole[order])


@pytest.mark.slow
@pytest.mark.parametrize("order", ["global", "interleave"])
def test_a_resumed_run_augments_alike_and_every_epoch_differently(tmp_path, order):
    schema = readers.Schema({"image": ("uint8", (20, 24, 3))})
    records = [{"image": image} for image in IMAGES]
    shards = [records[:50], records[50:]]
    path = write_dataset(tmp_path / "photos", schema, {"train": shards})

    def augmented(batch, keys):
        images = random_flip(batch["image"], keys)
        images = random_crop(images, keys, (20, 24), padding=4)
        return {"image": random_brightness(images, keys, 0.3)}

    load = partial(
        readers.load, str(path), shuffle=True, order=order, seed=7, repeat=2, transform=augmented
    )

    def images(**arguments):
        return np.concatenate([batch["image"] for batch in load(**arguments)])

    whole = images(batch_size=8)
    assert len(whole) == 2 * 96
    assert np.array_equal(images(batch_size=8, start_step=5), whole[40:])
    assert np.array_equal(images(batch_size=24), whole)
    # Hardly any image of the first epoch comes again in the second.
    again = {image.tobytes() for image in whole[:96]} & {image.tobytes() for image in whole[96:]}
    assert len(again) < 5


@each_random
def test_another_key_or_salt_changes_images_differently(transform):
    found = transform(TENSOR, IMAGE_KEYS).numpy()
    for keys, more in ((IMAGE_KEYS + 1, {}), (IMAGE_KEYS, {"salt": "another"})):
        other = transform(TENSOR, keys, **more)
        assert (found != other.numpy()).any(axis=(1, 2, 3)).sum() > 24


@each_random
@each_dtype
def test_shapes_stay_static(transform, dtype):
    spec = tf.TensorSpec([8, 20, 24, 3], dtype), tf.TensorSpec([8], tf.int64)
    traced = tf.function(transform).get_concrete_function(*spec)
    assert traced.output_shapes.is_fully_defined()


@each_random
def test_a_single_image_is_rejected(transform):
    with pytest.raises(ValueError, match=r"a batch of images \[B, H, W, C\], found .*20, 24, 3"):
        transform(TENSOR[0], IMAGE_KEYS[:1])


@each_dtype
def test_half_of_the_images_are_mirrored(dtype):
    images = images_of(dtype).numpy()
    found = random_flip(images_of(dtype), IMAGE_KEYS).numpy()
    mirrored = (found == images[:, :, ::-1]).all(axis=(1, 2, 3))
    kept = (found == images).all(axis=(1, 2, 3))
    assert (mirrored ^ kept).all()
    assert 30 < mirrored.sum() < 66


def test_images_are_turned_upside_down_and_mirrored_independently():
    images = np.arange(4, dtype=np.uint8).reshape(1, 2, 2, 1).repeat(len(KEYS), axis=0)
    found = random_flip(tf.constant(images), KEYS, up_down=True).numpy().reshape(-1, 4)
    ways = {(0, 1, 2, 3): 0, (1, 0, 3, 2): 1, (2, 3, 0, 1): 2, (3, 2, 1, 0): 3}
    assert_even(np.bincount([ways[tuple(image)] for image in found.tolist()], minlength=4))


@each_dtype
@pytest.mark.parametrize(("size", "padding"), [((16, 17), 0), ((20, 24), 4), ((25, 3), 3)])
def test_a_crop_is_a_part_of_the_padded_image(size, padding, dtype):
    images = images_of(dtype).numpy()
    padded = np.pad(images, [(0, 0), (padding, padding), (padding, padding), (0, 0)])
    found = random_crop(images_of(dtype), IMAGE_KEYS, size, padding).numpy()
    height, width = size
    for image, part in zip(padded, found, strict=True):
        windows = np.lib.stride_tricks.sliding_window_view(image, (height, width, 3))
        assert (windows == part).all(axis=(3, 4, 5)).any()


def test_every_position_of_a_crop_is_equally_likely():
    images = np.arange(36, dtype=np.uint8).reshape(1, 6, 6, 1).repeat(len(KEYS), axis=0)
    corner = random_crop(tf.constant(images), KEYS, (2, 4)).numpy()[:, 0, 0, 0]
    y, x = np.divmod(corner, 6)
    assert (y.max(), x.max()) == (4, 2)
    assert_even(np.bincount(y * 3 + x, minlength=15))


def test_a_crop_of_the_full_size_is_the_image():
    assert np.array_equal(random_crop(TENSOR, IMAGE_KEYS, (20, 24)), IMAGES)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"size": (21, 24)}, "a height of at least 21, including padding, found 20: resize"),
        ({"size": (20, 29), "padding": 2}, "a width of at least 29, including padding, found 28"),
        ({"size": (20, 24), "padding": -1}, "padding=-1: expected a number of pixels"),
        *(
            ({"size": size}, r"expected \(height, width\) in pixels")
            for size in (20, (20,), (0, 20), (20.0, 24), (20, 24, 3))
        ),
    ],
)
def test_an_impossible_crop_is_rejected(how, message):
    with pytest.raises(ValueError, match=message):
        random_crop(TENSOR, IMAGE_KEYS, **how)


def test_a_crop_larger_than_an_image_of_unknown_size_fails_when_run():
    crop = tf.function(
        partial(random_crop, size=(20, 25)),
        input_signature=[tf.TensorSpec([None] * 4, tf.uint8), tf.TensorSpec([None], tf.int64)],
    )
    assert crop(IMAGES.repeat(2, axis=2), IMAGE_KEYS).shape == (96, 20, 25, 3)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"a width of at least 25.*24"):
        crop(IMAGES, IMAGE_KEYS)


@each_dtype
def test_brightness_changes_as_in_tensorflow_within_its_range(dtype):
    images = images_of(dtype)
    found = random_brightness(images, IMAGE_KEYS, 0.3).numpy()
    deltas = (2 * drawn("brightness", IMAGE_KEYS) - 1) * 0.3
    assert -0.3 <= deltas.min() < -0.25 and 0.25 < deltas.max() < 0.3
    highest = 255 if dtype == "uint8" else 1
    for changed, image, delta in zip(found, images, deltas, strict=True):
        expected = tf.image.adjust_brightness(image, np.float32(delta)).numpy()
        expected = np.clip(expected, 0, highest)
        np.testing.assert_allclose(changed, expected, atol=1e-6 if highest == 1 else 1)
    assert found.min() == 0 and found.max() == highest


def test_brightness_cannot_change_by_more_than_the_full_range():
    for wrong in (-0.1, 1.5, 32):
        with pytest.raises(ValueError, match="expected a number from 0 to 1"):
            random_brightness(TENSOR, IMAGE_KEYS, wrong)
    assert np.array_equal(random_brightness(TENSOR, IMAGE_KEYS, 0), IMAGES)


# Images.


def wave(height: int, width: int, mode: str = "RGB") -> Image.Image:
    y, x = np.mgrid[:height, :width]
    gray = 127.5 + 127.5 * np.sin(x / 5 + y / 9)
    pixels = np.stack([gray, gray[::-1], 255 - gray], axis=-1).astype(np.uint8)
    return Image.fromarray(pixels).convert(mode)


ENCODED = [
    encoded(wave(40, 60), "JPEG", quality=90),
    encoded(wave(33, 17), "PNG"),
    encoded(wave(100, 90, "L"), "JPEG"),
    encoded(wave(16, 20, "L"), "PNG"),
    encoded(wave(8, 8), "PNG"),
]


@pytest.mark.parametrize("channels", [1, 3])
def test_encoded_images_are_decoded_and_resized_as_by_tensorflow(channels):
    found = decode_images(tf.constant(ENCODED), (16, 20), channels)
    assert found.shape == (5, 16, 20, channels)
    assert found.dtype == tf.uint8
    for data, image in zip(ENCODED, found, strict=True):
        if data.startswith(b"\xff\xd8"):
            pixels = tf.io.decode_jpeg(data, channels, dct_method="INTEGER_ACCURATE")
        else:
            pixels = tf.io.decode_png(data, channels)
        expected = tf.image.resize(pixels, (16, 20), antialias=True)
        assert np.array_equal(image, np.round(expected).astype(np.uint8))


def test_images_are_decoded_in_a_pipeline_with_static_shapes():
    dataset = tf.data.Dataset.from_tensor_slices(ENCODED).batch(2)
    decoded = dataset.map(partial(decode_images, size=(16, 20)))
    assert decoded.element_spec == tf.TensorSpec([None, 16, 20, 3], tf.uint8)
    assert [len(batch) for batch in decoded] == [2, 2, 1]
    assert decode_images(tf.constant([], tf.string), (16, 20)).shape == (0, 16, 20, 3)


def test_bytes_that_are_not_an_image_give_an_error_that_names_the_format():
    for data in (b"", b"nothing", ENCODED[0][:100]):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?i)image|jpeg"):
            decode_images(tf.constant([ENCODED[1], data]), (8, 8))


def test_an_image_has_one_or_three_channels():
    with pytest.raises(ValueError, match="channels=4: expected 1 for gray or 3 for RGB"):
        decode_images(tf.constant(ENCODED), (8, 8), channels=4)


def test_floats_equal_those_of_convert_image_dtype():
    found = to_float(TENSOR)
    assert np.array_equal(found, tf.image.convert_image_dtype(IMAGES, tf.float32))
    assert (found.dtype, found.numpy().max()) == (tf.float32, 1)
    assert np.array_equal(to_float(found), found)


@pytest.mark.parametrize("size", [(8, 8), (40, 50), (20, 24), (7, 40)])
def test_images_are_resized_as_by_tensorflow(size):
    floats = to_float(TENSOR)
    expected = tf.image.resize(floats, size, antialias=True)
    assert np.array_equal(resize(floats, size), expected)
    found = resize(TENSOR, size)
    assert found.dtype == tf.uint8
    np.testing.assert_allclose(found, expected.numpy() * 255, atol=0.501)


def test_resized_images_equal_those_of_the_images_job():
    """To within one level, because Pillow rounds between its two passes."""
    image = wave(300, 200)
    expected = np.asarray(image.resize((64, 48), Image.Resampling.BILINEAR)).astype(int)
    found = resize(tf.constant(np.asarray(image)[None]), (48, 64))[0].numpy()
    assert abs(found - expected).max() <= 1


def test_images_of_different_sizes_become_a_batch():
    images = [np.asarray(wave(height, 300 // height)) for height in (10, 25, 7)]
    ragged = tf.ragged.stack([tf.RaggedTensor.from_tensor(image) for image in images])
    assert ragged.shape.as_list() == [3, None, None, 3]
    found = resize(ragged, (12, 16))
    expected = [resize(tf.constant(image[None]), (12, 16))[0] for image in images]
    assert np.array_equal(found, expected)
    mapped = tf.data.Dataset.from_tensors(ragged).map(partial(resize, size=(12, 16)))
    assert mapped.element_spec == tf.TensorSpec([3, 12, 16, 3], tf.uint8)
    assert np.array_equal(next(iter(mapped)), expected)


# Normalization.

UNIT = Moments((0.5,), (2.0,), "float32")


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float16", "float32", "float64", "int64"])
@pytest.mark.parametrize("shape", [(7, 3), (5, 4, 3), (5, 4, 6, 3), (0, 4, 3), (5, 0, 3)])
@pytest.mark.parametrize("channels", [1, 3])
def test_normalized_values_equal_those_of_numpy(dtype, shape, channels):
    values = np.random.default_rng(0).integers(0, 100, shape).astype(dtype)
    mean, std = np.array([20.0, 30.5, 40.25])[:channels], np.array([1.0, 2.5, 7.0])[:channels]
    found = normalize(tf.constant(values), Moments(tuple(mean), tuple(std), dtype))
    assert found.dtype == tf.float32
    expected = (values.astype(np.float64) - mean) / std
    np.testing.assert_allclose(found, expected.astype(np.float32), rtol=1e-6, atol=1e-6)


def test_large_numbers_that_differ_little_are_normalized_exactly():
    seconds = 1.7e9 + np.arange(100.0)
    moments = Moments((float(seconds.mean()),), (float(seconds.std()),), "float64")
    found = normalize(tf.constant(seconds), moments).numpy()
    assert found.mean() == pytest.approx(0, abs=1e-6)
    assert found.std() == pytest.approx(1, rel=1e-6)


def test_padding_stays_zero_with_a_mask(tmp_path):
    path = write_dataset(tmp_path / "runs", SIGNALS, {"train": [signals([3, 0, 5, 1])]})
    moments = Moments((2.0, 3.0), (0.5, 4.0), "float32")

    def padded(batch):
        return normalize(batch["signal"], moments, batch["signal_mask"])

    def ragged(batch):
        return normalize(batch["signal"], moments)

    load = partial(readers.load, str(path), batch_size=4)
    found = load(batching="padded", mask=True).map(padded)
    assert found.element_spec.shape.as_list() == [None, None, 2]
    expected = load(batching="ragged").map(ragged)
    assert isinstance(next(iter(expected)), tf.RaggedTensor)
    assert np.array_equal(next(iter(found)), next(iter(expected)).to_tensor())
    assert next(iter(expected))[0].numpy().tolist() == [[-2, -0.25], [2, 0.25], [6, 0.75]]


def test_values_of_another_dtype_than_the_statistics_are_rejected():
    """Otherwise images from `to_float` would be normalized by the statistics of 0 to 255."""
    moments = Moments((120.0,), (60.0,), "uint8")
    normalize(TENSOR, moments)
    with pytest.raises(ValueError, match=r"of uint8, .* found float32: normalize before any conv"):
        normalize(to_float(TENSOR), moments)


def test_another_number_of_channels_is_rejected():
    moments = Moments((1.0, 2.0), (1.0, 1.0), "uint8")
    for values in (TENSOR, tf.zeros(2, tf.uint8), IMAGES, np.zeros(2, np.uint8)):
        with pytest.raises(ValueError, match="the moments have 2 channels: expected as many"):
            normalize(values, moments)


@pytest.mark.parametrize(
    ("mean", "std"),
    [((), ()), ((1.0,), (0.0,)), ((1.0,), (-1.0,)), ((np.nan,), (1.0,)), ((1.0, 2.0), (1.0,))],
)
def test_impossible_moments_are_rejected(mean, std):
    with pytest.raises(ValueError, match="expected finite numbers, one deviation above 0 for"):
        Moments(mean, std, "float32")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Recordings from the sensors job, whose channels have different means and deviations."""
    directory = tmp_path_factory.mktemp("runs")
    generator = np.random.default_rng(0)
    for number in range(20):
        values = generator.normal([0, 50, -3], [1, 10, 0.1], (30 + number, 3))
        np.save(directory / f"{number:02d}.npy", values.astype(np.float32))
    out = directory / "shards"
    flags = ["--label", "none", "--splits", "train=0.7,val=0.3", "--num_shards", "2"]
    assert run("sensors", "--input", f"{directory}/*.npy", "--output", out, *flags) == 0
    return str(out)


@pytest.mark.parametrize("per_channel", [True, False])
def test_the_statistics_of_a_split_normalize_it(runs, per_channel):
    manifest = readers.Manifest.read(runs)
    moments = Moments.of(manifest, "train", "signal", per_channel=per_channel)
    batches = readers.load(runs, split="train", batch_size=5, batching="ragged")
    rows = [normalize(batch["signal"], moments).flat_values for batch in batches]
    values = np.concatenate(rows)
    axis = 0 if per_channel else None
    np.testing.assert_allclose(values.mean(axis), 0, atol=1e-5)
    np.testing.assert_allclose(values.std(axis), 1, rtol=1e-5)
    assert len(moments.mean) == (3 if per_channel else 1)
    assert moments != Moments.of(manifest, "val", "signal", per_channel=per_channel)


def manifest_with(statistics: object) -> readers.Manifest:
    image = ("uint8", (8, 8, 3), "jpeg")
    schema = readers.Schema({"x": ("float32", (3,)), "image": image, "text": ("string",)})
    split = {"records": 0, "bytes": 0, "rejected": 0, "statistics": statistics, "shards": []}
    value = readers.Manifest(schema, {}).to_json()
    return readers.Manifest.from_json(json.loads(json.dumps(value | {"splits": {"train": split}})))


@pytest.mark.parametrize(
    "figures",
    [
        {},
        None,
        3,
        {"count": 0},
        {"mean": 1.0},
        {"mean": "1", "std": 1.0},
        {"mean": 1.0, "std": 1.0, "channels": {"mean": [0.0, None, 1.0], "std": [1.0, None, 1.0]}},
        {"mean": 1.0, "std": 1.0, "channels": {"mean": 1.0}},
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
        ("image", LENGTHS, "no statistics are kept for encoded images; .*--encoding tensor"),
        ("text", LENGTHS, "no statistics are kept for string"),
        ("y", {}, "unknown feature 'y': the dataset has image, text, x"),
    ],
)
def test_the_error_states_why_a_feature_cannot_be_normalized(feature, figures, message):
    with pytest.raises(ValueError, match=message):
        Moments.of(manifest_with({feature: figures}), "train", feature)


def test_a_feature_with_a_constant_channel_is_normalized_as_a_whole():
    manifest = manifest_with({"x": ONE_CONSTANT})
    found = Moments.of(manifest, "train", "x", per_channel=False)
    assert found == Moments((2.0,), (1.0,), "float32")
    with pytest.raises(ValueError, match="unknown split 'val': the dataset has train"):
        Moments.of(manifest, "val", "x")


# Texts.

NASTY = [
    'It\'s a well-known fact: 100% of U.S. e-mails ~ [UNK] `x` {y} \\ /path|to^ <b>"q"</b>',
    "Ünïcödé İSTANBUL Straße ΣΑΣ ǅ",
    "no\u00a0break em\u2003space line\u2028sep next\u0085line \x1cfs \x1fus zero\u200bwidth",
    "tab\tform\x0cfeed vertical\x0bfeed nul\x00inside \x7f carriage\rreturn",
    "“curly” — dash … ¿qué? 日本語 한국어 🎉🎉 a🎉b",
    "unk [unk] UNK [UNK]",
    "... !!! '",
    "",
    "a a a a b b b c c d",
]


def write_texts(directory: Path, texts: list[str], *flags: str) -> str:
    """Writes a dataset with the text job and returns its directory."""
    directory.mkdir()
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (directory / "texts.jsonl").write_text(lines)
    out = directory / "shards"
    arguments = ["--input", f"{directory}/texts.jsonl", "--output", out, *flags]
    assert run("text", *arguments, "--direct_num_workers", 1) == 0
    return str(out)


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A dataset of texts tokenized into words, some of which are not in the vocabulary."""
    flags = ("--tokens", "words", "--vocabulary_size", "30")
    return write_texts(tmp_path_factory.mktemp("words") / "in", NASTY, *flags)


@pytest.mark.slow(base=["--tokens words --vocabulary_size 12 --max_length 5"])
@pytest.mark.parametrize(
    "flags",
    [
        ("--tokens", "words"),
        ("--tokens", "words", "--vocabulary_size", "12", "--max_length", "5"),
        ("--tokens", "bytes"),
        ("--tokens", "bytes", "--max_length", "7"),
    ],
    ids=" ".join,
)
def test_ids_equal_those_that_the_job_writes_for_the_same_texts(flags, tmp_path):
    directory = write_texts(tmp_path / "in", NASTY, *flags)
    vectorizer = Vectorizer(directory)
    batches = readers.load(directory, batch_size=4, batching="ragged").map(
        lambda batch: (vectorizer(batch["text"]), batch["tokens"])
    )
    pairs = [(found.to_list(), expected.to_list()) for found, expected in batches]
    assert all(found == expected for found, expected in pairs)
    assert sum(len(found) for found, _ in pairs) == len(NASTY)
    largest = max(id_ for found, _ in pairs for ids in found for id_ in ids)
    assert largest < vectorizer.size
    if "words" in flags:
        assert vectorizer.size == readers.Manifest.read(directory).vocabulary == largest + 1
    else:
        assert vectorizer.size == RESERVED_IDS + 256


def test_a_fixed_length_truncates_and_pads_with_zeros(words):
    ragged = Vectorizer(words)(tf.constant(NASTY)).to_list()
    found = Vectorizer(words, length=6)
    dataset = tf.data.Dataset.from_tensors(tf.constant(NASTY)).map(found)
    assert dataset.element_spec == tf.TensorSpec([len(NASTY), 6], tf.int64)
    assert next(iter(dataset)).numpy().tolist() == [(ids + [0] * 6)[:6] for ids in ragged]
    assert {len(ids) for ids in ragged} > {0, 10}


@pytest.fixture(scope="module")
def vectorizer(words):
    return Vectorizer(Path(words))


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), max_size=4))
@settings(max_examples=60)
def test_new_texts_have_the_ids_that_the_job_would_write(words, vectorizer, texts):
    learned = (Path(words) / "vocabulary.txt").read_bytes().split(b"\n")[:-1]
    tokenizer = Tokenizer("words", (PADDING, UNKNOWN, *learned), 0)
    texts = [*texts, " ".join(texts), "A unk, never-seen b!"]
    found = vectorizer(tf.constant(texts)).to_list()
    assert found == [tokenizer(text.encode()).tolist() for text in texts]
    assert [ids.tolist() for ids in vectorizer(texts)] == found


def test_an_empty_batch_of_texts_has_no_ids(words, tmp_path):
    assert Vectorizer(words)(tf.constant([], tf.string)).to_list() == []
    octets = write_texts(tmp_path / "in", ["a"], "--tokens", "bytes")
    assert Vectorizer(octets)(tf.constant([], tf.string)).to_list() == []
    assert Vectorizer(octets)(tf.constant(["", "a", ""])).to_list() == [[], [97 + 2], []]


def test_a_single_text_is_rejected(vectorizer):
    with pytest.raises(ValueError, match=r"a batch of texts \[B\], found the shape \(\)"):
        vectorizer(tf.constant("a text"))


def test_a_vectorizer_is_saved_with_a_model(words, tmp_path):
    module = tf.Module()
    module.vectorizer = Vectorizer(words, length=4)
    spec = tf.TensorSpec([None], tf.string)
    module.ids = tf.function(lambda texts: module.vectorizer(texts), input_signature=[spec])
    tf.saved_model.save(module, str(tmp_path / "model"))
    expected = module.ids(tf.constant(NASTY)).numpy()
    again = tf.saved_model.load(str(tmp_path / "model"))
    assert np.array_equal(again.ids(tf.constant(NASTY)), expected)


def test_a_dataset_without_tokens_has_no_vocabulary(tmp_path):
    directory = write_texts(tmp_path / "in", ["a b"])
    with pytest.raises(ValueError, match=r"without tokens, .* --tokens words or --tokens bytes"):
        Vectorizer(directory)


@pytest.mark.parametrize("length", [0, -1, 2.0, True])
def test_an_impossible_length_is_rejected(words, length):
    with pytest.raises(ValueError, match="expected a number of ids of at least 1, or None"):
        Vectorizer(words, length=length)


def test_a_vocabulary_that_does_not_match_the_manifest_is_rejected(tmp_path):
    directory = write_texts(tmp_path / "in", ["a b c"], "--tokens", "words")
    vocabulary = Path(directory) / "vocabulary.txt"
    assert vocabulary.read_text() == "c\nb\na\n"
    for text in ("a\nb\n", "a\nb\nc", "a\na\nb\n", "a\nb\nb\nc\n", "a\nb\nc\nd\n", ""):
        vocabulary.write_text(text)
        with pytest.raises(readers.DatasetError, match="expected 3 lines with a different word"):
            Vectorizer(directory)
    vocabulary.write_text("c\nb\nx\n")
    with pytest.raises(readers.DatasetError, match=r"vocabulary.txt: its CRC32C is \w+, the manif"):
        Vectorizer(directory)
    vocabulary.unlink()
    with pytest.raises(FileNotFoundError, match="the manifest lists 5 tokens, but the file is mis"):
        Vectorizer(directory)
