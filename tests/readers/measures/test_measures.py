"""Numbers of pictures, texts, signals and arrays, compared with other packages and real photographs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image, ImageStat
from scipy import ndimage
from scipy import stats as scipy_stats
from sklearn.datasets import load_sample_images

from readers.format.manifest import Manifest
from readers.format.schema import Schema
from readers.measures.arrays import measure_array, measure_signal
from readers.measures.pictures import measure_picture
from readers.measures.sample import _digest, sample_of
from readers.measures.texts import measure_text
from tests.support.datasets import write_dataset
from tests.support.images import encoded


@pytest.fixture(scope="module")
def crops():
    """Squares of 224 pixels of two photographs."""
    rng = np.random.default_rng(0)
    found = []
    for image in load_sample_images().images:
        for _ in range(8):
            top, left = (rng.integers(0, side - 224) for side in image.shape[:2])
            found.append(image[top : top + 224, left : left + 224])
    return found


def sharpness(pixels):
    return [measure_picture(each)["sharpness"] for each in pixels]


def test_blurred_photographs_are_told_from_sharp_ones(crops):
    assert np.percentile(sharpness(crops), 1) > 0.6
    for sigma in (2, 5):
        blurred = sharpness(ndimage.gaussian_filter(each, (sigma, sigma, 0)) for each in crops)
        assert np.nanpercentile(blurred, 95) < 0.43


def test_brightness_is_that_of_pillow(crops):
    for pixels in crops[::4]:
        luma = ImageStat.Stat(Image.fromarray(pixels).convert("L"))
        found = measure_picture(pixels)
        assert found["brightness"] * 255 == pytest.approx(luma.mean[0], abs=0.6)
        assert found["contrast"] * 255 == pytest.approx(luma.stddev[0], abs=0.6)
        counts = np.bincount(np.asarray(Image.fromarray(pixels).convert("L")).reshape(-1))
        assert found["entropy"] == pytest.approx(scipy_stats.entropy(counts, base=2), abs=0.1)
        assert (found["width"], found["height"], found["gray"]) == (224, 224, 0)


def test_levels_of_all_dtypes_mean_the_same(crops):
    pixels = crops[0]
    expected = measure_picture(pixels)
    for other in (
        pixels.astype(np.uint16) * 257,
        pixels / np.float32(255),
        pixels.astype(np.float32),
    ):
        found = measure_picture(other)
        for name in ("brightness", "contrast", "dark", "light"):
            assert found[name] == pytest.approx(expected[name], abs=1e-3)


def test_text_that_was_decoded_wrongly_is_recognised():
    for text in ("café", "naïve", "Größe", "“quoted”", "Привет", "Ελλάδα"):
        wrong = text.encode().decode("cp1252", "ignore")
        assert measure_text(wrong.encode())["mojibake"], wrong
        assert not measure_text(text.encode())["mojibake"], text


def test_markup_is_not_what_looks_like_it():
    assert measure_text(b"a < b and b > c & d; <3 <- x<y>z")["markup"] == 0
    assert measure_text(b"<P>a</p> &amp; <br/> <a href='x'>b</a>")["markup"] == 6


def test_control_characters_are_counted():
    assert measure_text(b"a\tb\nc\r\nd")["control"] == 0
    assert measure_text(b"a\x00\x1b[31m\x85 \xff")["control"] == 4


def test_a_clipped_wave_is_told_from_others():
    wave = np.sin(np.arange(2000) / 20)
    noise = np.random.default_rng(0).normal(size=2000)
    assert measure_signal(wave)["clipped"] == 0
    assert measure_signal(noise)["clipped"] == 0
    assert measure_signal((wave > 0).astype(float))["clipped"] == 0
    for levels in (20, 100, 1000):
        assert measure_signal((levels * wave).astype(np.int16))["clipped"] == 0
    assert measure_signal(np.clip(wave, -0.9, 0.9))["clipped"] == pytest.approx(0.285, abs=0.01)


def test_channels_of_one_value_are_counted():
    signal = np.random.default_rng(0).normal(size=(50, 4))
    signal[:, 1], signal[:, 2], signal[:, 3] = 0, 7, np.nan
    found = measure_signal(signal)
    assert (found["constant"], found["dead"], found["missing"]) == (2, 1, 0.25)


any_array = arrays.arrays(
    st.sampled_from([np.uint8, np.int16, np.float32, np.float64, np.bool_]),
    arrays.array_shapes(min_dims=1, max_dims=2, min_side=1, max_side=30),
)


@given(any_array)
@settings(max_examples=40, deadline=None)
def test_any_array_is_measured(values):
    with np.errstate(all="ignore"):
        found = measure_signal(values)
        finite = values[np.isfinite(values)].astype(np.float64)
        if finite.size:
            assert found["max"] == finite.max()
        assert found["size"] == values.size
        assert measure_array(values).items() <= measure_signal(values).items() or not finite.size


@given(
    arrays.arrays(
        st.sampled_from([np.uint8, np.uint16, np.float32]),
        st.tuples(st.integers(1, 40), st.integers(1, 40), st.sampled_from([1, 3, 4])),
    )
)
@settings(max_examples=40, deadline=None)
def test_any_picture_is_measured(pixels):
    found = measure_picture(pixels)
    assert 0 <= found["brightness"] <= 1 and 0 <= found["entropy"] <= 8


def test_a_picture_of_any_size_and_dtype_is_sampled(tmp_path):
    shapes = [(1, 1), (0, 5), (3, 9000), (40, 30)]
    features = {"a": ("uint16", (None, None, 1), "png"), "b": ("float32", (None, None, 3))}
    rng = np.random.default_rng(0)
    records = [
        {
            "a": encoded(rng.integers(0, 65536, (*(s or 1 for s in shape),), np.uint16), "PNG"),
            "b": rng.normal(size=(*shape, 3)).astype(np.float32),
        }
        for shape in shapes
    ]
    directory = write_dataset(tmp_path / "d", Schema(features), {"train": [records]})
    sample = sample_of(str(directory), Manifest.read(directory), 100)["train"]
    assert sample.measures["b"]["width"].tolist()[2:] == [9000, 30]
    assert sample.sketches["a"].known[3].all()
    assert not sample.sketches["b"].known[1, 1:].any()


def test_the_digest_tells_shapes_apart():
    row = np.arange(6, dtype=np.float32)
    assert _digest(row) != _digest(row.reshape(2, 3))
    assert _digest(row) == _digest(row.copy())
