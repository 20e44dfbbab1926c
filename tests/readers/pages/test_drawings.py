"""Pictures and lines of arrays, compared with the arrays."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image
from sklearn.datasets import load_sample_image

from readers.format.display import visible
from readers.pages.cards.lines import lines
from readers.pages.cards.thumbnails import thumbnail
from readers.pages.markup import element, to_html

numbers = st.sampled_from([np.uint8, np.int16, np.uint16, np.float32, np.float64, np.int64])


def pixels_of(drawn):
    kind, data = drawn.uri.split(";base64,")
    assert kind in ("data:image/png", "data:image/jpeg")
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))


def points_of(path):
    return [tuple(map(float, point.split())) for point in re.split("[ML]", path.get("d"))[1:]]


def test_a_large_picture_becomes_small():
    pixels = np.zeros((3000, 1000, 3), np.uint8)
    pixels[1500:] = 200
    drawn = thumbnail(pixels)
    found = pixels_of(drawn)
    assert found.shape == (160, 53, 3)
    assert not found[:75].any() and (found[85:] == 200).all()
    shown = drawn.element()
    assert shown.get("alt") == "1,000 x 3,000 pixels"
    assert (shown.get("width"), shown.get("height")) == ("53", "160")


def test_a_photograph_is_a_small_jpeg():
    photo = load_sample_image("china.jpg")
    drawn = thumbnail(photo)
    assert drawn.uri.startswith("data:image/jpeg") and len(drawn.uri) < 12_000
    small = Image.fromarray(photo).resize(pixels_of(drawn).shape[1::-1])
    assert np.abs(pixels_of(drawn).astype(float) - np.asarray(small)).mean() < 12


@pytest.mark.parametrize("shape", [(1, 100_000, 3), (100_000, 1, 1), (5_000, 4_000), (1, 1, 4)])
def test_noise_of_any_shape_is_bounded(shape):
    noise = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    assert len(thumbnail(noise).uri) < 30_000


def test_transparent_pixels_are_white():
    pixels = np.zeros((32, 32, 4), np.uint8)
    pixels[:16] = 255, 0, 0, 255
    found = pixels_of(thumbnail(pixels))
    assert (found[:16] == (255, 0, 0)).all() and (found[16:] == 255).all()


@given(arrays.arrays(numbers, arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=40)))
@settings(max_examples=40, deadline=None)
def test_any_array_is_drawn(array):
    if array.size and (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (1, 3, 4))):
        assert max(pixels_of(thumbnail(array)).shape[:2]) <= 160
    if array.size and array.ndim in (1, 2):
        assert "nan" not in to_html(lines(array))


def test_a_line_goes_through_all_values_of_a_short_signal():
    signal = np.sin(np.arange(100, dtype=np.float32))
    (path,) = lines(signal).findall("path")
    points = points_of(path)
    assert [across for across, _ in points] == pytest.approx(np.linspace(0, 240, 100), abs=0.05)
    down = np.array([down for _, down in points])
    expected = 1 + 78 * (1 - (signal - signal.min()) / (signal.max() - signal.min()))
    np.testing.assert_allclose(down, expected, atol=0.06)


def test_a_spike_in_a_long_signal_is_seen():
    signal = np.zeros((100_000, 2), np.int16)
    signal[54_321, 1] = 1_000
    first, second = lines(signal).findall("path")
    assert min(down for _, down in points_of(first)) == 79
    assert [across for across, down in points_of(second) if down == 1] == pytest.approx(
        [130], abs=2
    )


def test_a_line_has_gaps_where_values_are_missing():
    signal = np.arange(20, dtype=np.float32)
    signal[5:10] = np.nan
    (path,) = lines(signal).findall("path")
    assert path.get("d").count("M") == 2
    assert len(points_of(path)) == 15


@given(st.text())
@settings(max_examples=40, deadline=None)
def test_text_of_any_kind_stays_text(text):
    tree = element("p", text, element("b", text), text, title=text)
    assert "".join(tree.itertext()) == 3 * visible(text)
    html = to_html(tree)
    assert re.sub('<(/?(p|b)|p title="[^"]*")>', "", html).count("<") == 0
    assert visible(text) == visible(visible(text))
