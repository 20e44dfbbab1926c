"""Decoders of one batch, compared with Pillow, TensorFlow and what is drawn in the images."""

import contextlib
import io
import sys

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from sklearn.datasets import load_sample_image

from readers import decoders
from readers.decoders import resampling
from readers.decoders.decoder import Batch
from readers.decoders.view import View, central_view, random_view
from readers.format.decode import images
from readers.format.decode.column import FeatureColumn, column_of, object_array
from readers.format.schema import Feature, Schema
from readers.order.draws import uniforms
from readers.transforms import uniform
from tests.support.images import encoded

IMAGE = Feature("uint8", (None, None, 3), "source")


def waves(height, width, channels=3):
    """A smooth image, which every good filter makes smaller to nearly the same pixels."""
    y, x = np.mgrid[:height, :width]
    parts = [
        np.sin(x / width * (5 + c)) + np.cos(y / height * (7 - c) + x / width)
        for c in range(channels)
    ]
    return np.uint8(np.clip(np.stack(parts, axis=2) * 60 + 128, 0, 255))


@contextlib.contextmanager
def located(row):
    try:
        yield
    except ValueError as error:
        raise ValueError(f"row {row}: {error}") from error.__cause__


def decoded(decoder, values, keys=None, feature=IMAGE, **others):
    """The columns that a decoder of `image` makes of values, and of (feature, values) by name."""
    schema = Schema({"image": feature, **{name: other for name, (other, _) in others.items()}})
    columns = {
        name: column(f, v) for name, (f, v) in {**others, "image": (feature, values)}.items()
    }
    keys = np.arange(len(values)) if keys is None else keys
    found = decoder.columns("image", schema, Batch(columns, keys, located, np.empty))
    assert found.keys() == decoder.features("image", schema).keys()
    for name, made in decoder.features("image", schema).items():
        for array in found[name].arrays():
            assert all(e in (None, f) for e, f in zip(made.shape, np.shape(array), strict=True))
    return {name: column.arrays() for name, column in found.items()}


def column(feature, values):
    is_encoded = feature.is_image or feature.dtype == "string"
    return FeatureColumn(object_array(values)) if is_encoded else column_of(feature, values)


# Windows.


@given(
    st.tuples(st.integers(1, 3000), st.integers(1, 3000)),
    st.lists(st.floats(0, 1, exclude_max=True), min_size=22, max_size=22),
)
def test_a_random_window_lies_in_its_image_and_in_its_ranges(image, draws):
    scale, ratio = (0.2, 0.7), (0.5, 3.0)
    view = random_view(image, scale, ratio, draws)
    assert 0 <= view.top <= view.top + view.height <= image[0]
    assert 0 <= view.left <= view.left + view.width <= image[1]
    assert min(view.height, view.width) > 0
    # Of large windows, rounding to pixels changes little.
    if min(view.height, view.width) > 100 and 0.6 < image[1] / image[0] < 2.5:
        assert 0.19 < view.height * view.width / (image[0] * image[1]) < 0.71
        assert 0.49 < view.width / view.height < 3.1


def test_random_windows_have_the_distribution_of_their_arguments():
    keys = np.random.default_rng(0).integers(0, 2**63, 5000)
    salts = [str(n) for n in range(22)]
    views = [
        random_view((500, 500), (0.1, 0.5), (0.8, 1.25), d) for d in uniforms(keys, salts).tolist()
    ]
    areas = np.array([view.height * view.width for view in views]) / 500**2
    assert abs(areas.mean() - 0.3) < 0.01 and areas.min() < 0.11 and areas.max() > 0.49
    shapes = np.log([view.width / view.height for view in views])
    assert abs(shapes.mean()) < 0.01 and abs(np.abs(shapes).max() - np.log(1.25)) < 0.02
    free = np.array(
        [(view.top / (500 - view.height), view.left / (500 - view.width)) for view in views]
    )
    assert np.abs(free.mean(axis=0) - 0.5).max() < 0.02


def test_an_image_into_which_no_window_fits_gives_the_largest_at_its_center():
    view = random_view((10, 1000), (0.9, 1.0), (0.9, 1.1), [0.5] * 22)
    assert view == View(0, 494, 10, 11)
    view = random_view((1000, 10), (0.9, 1.0), (0.9, 1.1), [0.5] * 22)
    assert view == View(494, 0, 11, 10)


def test_windows_draw_the_numbers_of_transforms():
    keys = np.random.default_rng(0).integers(0, 2**63, 100)
    found = uniforms(keys, ["a", "b"])
    np.testing.assert_array_equal(found, np.stack([uniform(keys, "a"), uniform(keys, "b")], axis=1))


@pytest.mark.parametrize("size", [(100, 100), (50, 100), (333, 77)])
def test_a_central_window_has_the_shape_of_the_result(size):
    view = central_view((400, 600), size, 0.5)
    assert abs(view.width / view.height - size[1] / size[0]) < 0.02 * size[1] / size[0]
    assert abs(2 * view.top + view.height - 400) <= 1 and abs(2 * view.left + view.width - 600) <= 1
    largest = central_view((400, 600), size, 1)
    assert largest.height == 400 or largest.width == 600


# Pixels.


class Corner(decoders.Resize):
    """A decoder of a window that needs no resizing."""

    def _view(self, image, draws):
        return View(3, 5, *self._size)


@pytest.mark.parametrize("orientation", range(9))
def test_a_window_of_its_own_size_has_the_pixels_of_tensorflow(orientation):
    data = encoded(waves(61, 83), "JPEG", orientation, quality=90)
    expected = tf.io.decode_jpeg(data, dct_method="INTEGER_ACCURATE")[3:43, 5:75]
    (found,) = decoded(Corner((40, 70)), [data])["image"]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("kind", "how"),
    [("JPEG", {"quality": 95, "subsampling": 0}), ("JPEG", {"progressive": True}), ("PNG", {})],
)
@pytest.mark.parametrize("size", [(30, 40), (50, 50), (100, 130), (240, 320), (400, 300)])
@pytest.mark.parametrize("channels", [1, 3])
def test_resized_images_are_those_of_pillow_and_tensorflow(kind, how, size, channels):
    pixels = waves(240, 320, channels)
    data = encoded(pixels[..., 0] if channels == 1 else pixels, kind, **how)
    (found,) = decoded(decoders.Resize(size, channels=channels), [data])["image"]
    whole = Image.open(io.BytesIO(data))
    by_pillow = np.asarray(whole.resize(size[::-1], Image.Resampling.BILINEAR)).reshape(found.shape)
    by_tensorflow = tf.image.resize(tf.io.decode_image(data, channels), size, antialias=True)
    for expected in (by_pillow, by_tensorflow):
        difference = np.abs(np.float64(found) - np.float64(expected))
        assert difference.mean() < 1.5 and difference.max() < 12


def test_mirrored_images_are_mirrored_for_half_of_the_keys():
    data = encoded(waves(64, 64), "PNG")
    crop = decoders.RandomResizedCrop(32, (1, 1), (1, 1), flip=True)
    found = decoded(crop, [data] * 200)["image"]
    (straight,) = decoded(decoders.Resize(32), [data])["image"]
    mirrored = [np.array_equal(image, straight[:, ::-1]) for image in found]
    assert all(
        m != np.array_equal(image, straight) for m, image in zip(mirrored, found, strict=True)
    )
    assert 70 < sum(mirrored) < 130


@pytest.mark.parametrize("factor", [1, 2, 4, 8])
def test_large_jpegs_are_decoded_at_a_fraction_of_their_size(factor, monkeypatch):
    factors, decode = [], images.decode_jpeg_reduced

    def spy(*arguments):
        factors.append(arguments[-1])
        return decode(*arguments)

    monkeypatch.setattr(images, "decode_jpeg_reduced", spy)
    data = encoded(waves(811, 903), "JPEG", quality=95)
    size = (811 // factor - 1, 903 // factor - 1)
    (found,) = decoded(decoders.Resize(size), [data])["image"]
    assert factors == [factor]
    expected = tf.image.resize(tf.io.decode_jpeg(data), size, antialias=True)
    assert np.abs(found - expected.numpy()).mean() < 2


def bilinear(pixels, size):
    """Pixels made smaller or larger between the centers of the nearest four."""
    for axis, count in enumerate(size):
        places = (np.arange(count) + 0.5) * pixels.shape[axis] / count - 0.5
        below = np.clip(np.floor(places).astype(int), 0, pixels.shape[axis] - 2)
        share = np.clip(places - below, 0, 1).reshape([-1 if a == axis else 1 for a in range(3)])
        first, second = (np.take(pixels, below + n, axis) for n in (0, 1))
        pixels = first * (1 - share) + second * share
    return pixels


@pytest.mark.parametrize("name", ["china.jpg", "flower.jpg"])
def test_large_photographs_are_those_of_a_full_decode_within_a_level(name):
    """Against the mean of each 8x8, 4x4 or 2x2 pixels that Pillow decodes, and then bilinear between them."""
    photograph = Image.fromarray(load_sample_image(name)).resize((3000, 2000))
    data = encoded(photograph, "JPEG", quality=90)
    pixels = np.asarray(Image.open(io.BytesIO(data)))
    whole = pixels.astype(np.float32)
    for view, size in [
        (View(0, 0, 2000, 3000), (224, 224)),
        (View(8, 704, 1800, 1896), (224, 224)),
        (View(300, 512, 900, 1000), (224, 224)),
        (View(4, 2, 1200, 1700), (480, 640)),
    ]:
        factor = view.reduction(size)
        window = whole[view.top : view.top + view.height, view.left : view.left + view.width]
        shape = view.height // factor, factor, view.width // factor, factor, 3
        expected = bilinear(window.reshape(shape).mean(axis=(1, 3)), size)
        found = np.empty((*size, 3), np.uint8)
        for image in (images.EncodedImage("image", IMAGE, data), resampling.ArrayImage(pixels)):
            assert resampling.read_view(image, view, found) == view
            difference = np.abs(found - expected)
            assert factor > 1 and difference.mean() < 1 and np.percentile(difference, 99) < 4


def test_pngs_of_16_bits_gray_images_and_arrays_keep_their_dtype_and_channels():
    wide = waves(40, 60).astype(np.uint16) * 257
    data = tf.io.encode_png(wide).numpy()
    feature = Feature("uint16", (None, None, 3), "png")
    (found,) = decoded(decoders.Resize((20, 30)), [data], feature=feature)["image"]
    expected = tf.image.resize(wide, (20, 30), antialias=True).numpy()
    assert found.dtype == np.uint16 and np.abs(found - expected).mean() < 257
    array = Feature("uint8", (None, None, 1))
    (found,) = decoded(decoders.Resize((20, 30)), [waves(40, 60, 1)], feature=array)["image"]
    assert found.shape == (20, 30, 1)
    (found,) = decoded(decoders.Resize((20, 30)), [data], feature=Feature("string"))["image"]
    assert found.shape == (20, 30, 3) and found.dtype == np.uint8
    rgba = encoded(np.dstack([waves(40, 60), np.full((40, 60), 255, np.uint8)]), "PNG")
    (found,) = decoded(decoders.Resize(20, channels=4), [rgba], feature=Feature("string"))["image"]
    assert found.shape == (20, 20, 4) and (found[..., 3] == 255).all()


# Boxes and masks.

BOX = np.array([[0.25, 0.3, 0.6, 0.8], [0, 0, 0.05, 0.05]], np.float32)


def painted(height=200, width=300):
    """An image, black but for a white rectangle at the first box."""
    pixels = np.zeros((height, width, 3), np.uint8)
    y0, x0, y1, x1 = np.int64(np.round(BOX[0] * [height, width, height, width]))
    pixels[y0:y1, x0:x1] = 255
    return pixels


@pytest.mark.parametrize("order", ["yxyx", "xyxy"])
@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_boxes_and_masks_move_with_their_image(order, kind):
    count, size = 40, (96, 128)
    pixels = painted(800, 1200)
    boxes = BOX if order == "yxyx" else BOX[:, [1, 0, 3, 2]]
    crop = decoders.RandomResizedCrop(
        size,
        (0.3, 1.0),
        flip=True,
        with_boxes="boxes",
        box_order=order,
        with_masks=["mask", "stack", "array"],
    )
    found = decoded(
        crop,
        [encoded(pixels, kind)] * count,
        boxes=(Feature("float32", (None, 4)), [boxes] * count),
        mask=(Feature("uint8", (None, None, 1), "png"), [encoded(pixels[..., 0], "PNG")] * count),
        stack=(Feature("uint8", (None, None, None)), [np.stack([pixels[..., 0]] * 2)] * count),
        array=(Feature("uint8", (None, None, 1)), [pixels[..., :1]] * count),
    )
    places = set()
    for row in range(count):
        image, mask, box = found["image"][row], found["mask"][row][..., 0], found["boxes"][row]
        assert box.shape == (2, 4) and box.dtype == np.float32
        assert np.isin(mask, [0, 255]).all()
        np.testing.assert_array_equal(found["array"][row][..., 0], mask)
        np.testing.assert_array_equal(found["stack"][row], [mask, mask])
        y0, x0, y1, x1 = box[0] if order == "yxyx" else box[0][[1, 0, 3, 2]]
        if y0 == y1 or x0 == x1:
            continue
        for white in (image[..., 0] > 127, mask > 127):
            ys, xs = np.flatnonzero(white.any(axis=1)), np.flatnonzero(white.any(axis=0))
            if len(ys):
                edges = [ys[0] / 96, xs[0] / 128, (ys[-1] + 1) / 96, (xs[-1] + 1) / 128]
                np.testing.assert_allclose([y0, x0, y1, x1], edges, atol=0.013)
                places.add(tuple(edges))
    assert len(places) > count // 2


@pytest.mark.parametrize("source", ["JPEG", "PNG", "array"])
def test_the_edges_of_a_window_move_to_multiples_of_a_reduction(source):
    pixels, view = waves(811, 903), View(101, 203, 403, 501)
    image = resampling.ArrayImage(pixels)
    if source != "array":
        image = images.EncodedImage("image", IMAGE, encoded(pixels, source))
    used = resampling.read_view(image, view, np.empty((50, 60, 3), np.uint8))
    assert used == View(96, 200, 408, 504)


def test_boxes_are_parts_of_the_window_that_was_used():
    boxes = np.array([[0.25, 0.5, 0.75, 1.0]], np.float32)
    view = View(96, 200, 408, 504)
    expected = [[(200 - 96) / 408, (500 - 200) / 504, 1.0, 1.0]]
    np.testing.assert_allclose(view.moved_boxes(boxes, (800, 1000), False), expected, rtol=1e-6)
    mirrored = View(96, 200, 408, 504, mirrored=True).moved_boxes(boxes, (800, 1000), False)
    expected = [[(200 - 96) / 408, 0, 1.0, 1 - (500 - 200) / 504]]
    np.testing.assert_allclose(mirrored, expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["bool", "int64", "uint64", "float16", "bfloat16", "complex64"])
def test_masks_may_have_any_numbers(dtype):
    mask = np.arange(48).reshape(6, 8, 1).astype(tf.as_dtype(dtype).as_numpy_dtype)
    crop, pixels = decoders.Resize((3, 4), with_masks="mask"), waves(6, 8)
    found = decoded(crop, [encoded(pixels, "PNG")], mask=(Feature(dtype, (None, None, 1)), [mask]))
    np.testing.assert_array_equal(found["mask"][0], mask[1::2, 1::2])


def test_a_box_outside_of_the_window_has_no_area_and_keeps_its_place():
    moved = View(100, 100, 50, 50).moved_boxes(BOX, (200, 200), False)
    assert moved.shape == (2, 4)
    assert ((moved[1, 2:] - moved[1, :2]) == 0).all() and (moved >= 0).all() and (moved <= 1).all()


def test_a_mask_of_another_size_than_its_image_is_an_error():
    crop = decoders.Resize(8, with_masks="mask")
    mask = Feature("uint8", (None, None, 1), "png"), [encoded(np.zeros((9, 9), np.uint8), "PNG")]
    with pytest.raises(ValueError, match=r"row 0: feature 'mask': the mask is \[9, 9\], but its"):
        decoded(crop, [encoded(painted(), "PNG")], mask=mask)


# Others.


def test_skip_keeps_the_bytes():
    data = [encoded(waves(9, 7), "PNG"), encoded(waves(5, 6), "JPEG")]
    assert decoded(decoders.Skip(), data)["image"] == data


@pytest.mark.parametrize("decoder", [decoders.Resize(8), decoders.RandomResizedCrop(8)])
@pytest.mark.parametrize("data", [b"", b"\xff\xd8\xff", encoded(waves(64, 64), "JPEG")[:300]])
def test_a_damaged_image_is_an_error_of_its_row(decoder, data):
    good = encoded(waves(20, 20), "JPEG")
    with pytest.raises(ValueError, match="row 1: feature 'image'"):
        decoded(decoder, [good, data, good])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: decoders.Resize(0), "Resize: size=0: expected pixels"),
        (lambda: decoders.Resize(8, channels=2), "channels=2"),
        (lambda: decoders.Resize(8, box_order="yx"), "box_order='yx'"),
        (lambda: decoders.CenterCrop(8, fraction=0), "fraction=0"),
        (lambda: decoders.RandomResizedCrop(8, (0, 1)), r"scale=\(0, 1\)"),
        (lambda: decoders.RandomResizedCrop(8, (0.5, 2)), "at most 1"),
        (lambda: decoders.RandomResizedCrop(8, ratio=(2, 1)), r"ratio=\(2, 1\)"),
    ],
)
def test_wrong_arguments_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_without_opencv_a_decoder_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    resampling.opencv.cache_clear()
    with pytest.raises(ImportError, match=r"need cv2: pip install 'beam-shards\[images\]'"):
        decoders.Resize(8)
