from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from readers.format.similarity.pictures import (
    PICTURE_CORRELATION,
    PICTURE_DIFFERENCE,
    _luma,
    alike_pictures,
    hash_and_luma,
)
from tests.readers.format.similarity.lookalikes import (
    DISTANCE,
    brighter,
    gray,
    jpeg,
    near_hashes,
    photograph_tiles,
    resized,
    smooth_picture,
)


def picture_hash(pixels):
    return hash_and_luma(pixels)[0]


def small_luma(pixels):
    return hash_and_luma(pixels)[1]


GOLDEN = [4520925597417858624, 4518392322627462754, 4518392322644109122]

COPIES = {
    "compressed": jpeg,
    "of half the size": lambda pixels: resized(pixels, 0.5),
    "of double the size": lambda pixels: resized(pixels, 2),
    "of another size": lambda pixels: resized(pixels, 0.73),
    "brighter": brighter,
    "gray": gray,
    "gray with a channel": lambda pixels: gray(pixels)[..., None],
    "opaque": lambda pixels: np.dstack([pixels, np.full(pixels.shape[:2], 255, np.uint8)]),
    "smaller, gray and compressed": lambda pixels: jpeg(gray(resized(pixels, 0.5))),
}


@pytest.fixture(scope="module")
def pictures():
    made = [*photograph_tiles(), *(smooth_picture(seed) for seed in range(15))]
    hashes = [picture_hash(pixels) for pixels in made]
    kept = [
        (pixels, found) for pixels, found in zip(made, hashes, strict=True) if found is not None
    ]
    # Some tiles show the sky.
    assert len(kept) >= 39
    return kept


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_differs_in_few_bits(pictures, name):
    copies = [picture_hash(COPIES[name](pixels)) for pixels, _ in pictures]
    apart = [
        found is None or (found ^ original).bit_count() > DISTANCE
        for found, (_, original) in zip(copies, pictures, strict=True)
    ]
    assert sum(apart) == 0


def test_different_pictures_are_not_near(pictures):
    hashes = np.array([found for _, found in pictures], np.uint64)
    assert len(near_hashes(hashes, DISTANCE + 4)[0]) == 0


def test_a_picture_without_detail_has_no_hash():
    rng = np.random.default_rng(0)
    fading = np.repeat(np.arange(224, dtype=np.uint8)[None], 224, axis=0)
    assert picture_hash(fading) is None and picture_hash(fading.T) is None
    for level in (0, 1, 127, 255):
        flat = np.full((224, 224, 3), level, np.uint8)
        assert picture_hash(flat) is None
        noisy = np.clip(flat + rng.integers(-2, 3, flat.shape), 0, 255).astype(np.uint8)
        assert picture_hash(noisy) is None


@pytest.mark.parametrize("shape", [(1, 1), (1, 1, 4), (1, 500), (500, 1, 3), (2, 3, 1)])
def test_a_few_pixels_and_stripes_are_no_detail(shape):
    assert picture_hash(np.random.default_rng(0).integers(0, 256, shape, np.uint8)) is None


@pytest.mark.parametrize("shape", [(3, 3), (8, 8), (9, 200, 3), (31, 33), (32, 32, 1), (33, 100)])
def test_small_and_narrow_pictures_have_a_hash(shape):
    assert picture_hash(np.random.default_rng(0).integers(0, 256, shape, np.uint8)) is not None


def test_transparent_pixels_are_white():
    pixels = smooth_picture(0)
    opacity = np.where(np.arange(224) < 112, 0, 255)[:, None] * np.ones(224)
    clear = np.dstack([pixels, opacity.astype(np.uint8)])
    white = np.where(opacity[..., None] == 0, 255, pixels).astype(np.uint8)
    assert picture_hash(clear) == picture_hash(white)


def test_averages_are_those_of_whole_and_parts_of_pixels():
    pixels = np.random.default_rng(0).integers(0, 256, (45, 70), np.uint8)
    # Each pixel 32 times in both directions: parts of whole pixels.
    large = pixels.repeat(32, axis=0).repeat(32, axis=1)
    assert picture_hash(pixels) == picture_hash(large)
    means = large.reshape(32, 45, 32, 70).mean(axis=(1, 3))
    np.testing.assert_array_equal(_luma(pixels), np.rint(means / 255 * 65535))


def test_hashes_are_the_same_in_every_version():
    y, x = np.mgrid[:97, :131]
    blocks = (y // 13 * 37 + x // 11 * 101) ** 2 % 251
    pixels = np.stack([blocks, blocks // 2 + x // 2, 255 - blocks], -1).astype(np.uint8)
    alpha = np.dstack([pixels, (128 + (x + y) // 2).astype(np.uint8)])
    found = [picture_hash(pixels), picture_hash(pixels[..., 0]), picture_hash(alpha)]
    assert found == GOLDEN


def test_the_correlation_of_lumas_is_that_of_numpy():
    rng = np.random.default_rng(4)
    pictures = rng.integers(0, 256, (6, 48, 64, 3), dtype=np.uint8)
    lumas = np.array([small_luma(each) for each in pictures])
    parts = np.array([299, 587, 114]) @ pictures.reshape(6, 16, 3, 16, 4, 3).mean((2, 4))[..., None]
    np.testing.assert_allclose(lumas, parts[..., 0] / 255_000, atol=1e-4)
    correlation, difference = alike_pictures(lumas[:3], lumas[3:])
    expected = [
        np.corrcoef(a.reshape(-1), b.reshape(-1))[0, 1]
        for a, b in zip(lumas[:3], lumas[3:], strict=True)
    ]
    np.testing.assert_allclose(correlation, expected, atol=1e-6)
    scaled = (lumas - lumas.mean((1, 2), keepdims=True)) / lumas.std((1, 2), keepdims=True)
    apart = np.abs(scaled[:3] - scaled[3:]).max(axis=(1, 2))
    np.testing.assert_allclose(difference, apart, rtol=1e-5)
    correlation, difference = alike_pictures(lumas, lumas * 0.3 + 0.2)
    np.testing.assert_allclose(correlation, 1, atol=1e-6)
    np.testing.assert_allclose(difference, 0, atol=1e-5)
    flat = np.zeros((1, 16, 16), np.float32)
    assert alike_pictures(flat, lumas[:1])[0] == 0


def test_digits_that_are_alike_are_no_copies_and_copies_of_them_are():
    """Of 1,797 digits, none of which is a copy, 24 pairs have near hashes and lumas that correlate; 2 are near."""
    shrunk = [image.astype(np.uint8) for image in load_digits().images * 15.9]
    digits = [
        np.asarray(Image.fromarray(image).resize((28, 28), Image.Resampling.BICUBIC))
        for image in shrunk
    ]
    hashes = np.array([picture_hash(digit) for digit in digits], np.uint64)
    lumas = np.array([small_luma(digit) for digit in digits])
    first, second = near_hashes(hashes, DISTANCE)
    correlation, difference = alike_pictures(lumas[first], lumas[second])
    correlated = correlation >= PICTURE_CORRELATION
    assert (correlated.sum(), (correlated & (difference <= PICTURE_DIFFERENCE)).sum()) == (
        24,
        2,
    )
    for copy in (jpeg, brighter, lambda pixels: resized(pixels, 0.5)):
        copies = np.array([small_luma(copy(digit)) for digit in digits[:100]])
        correlation, difference = alike_pictures(lumas[:100], copies)
        assert min(correlation) >= PICTURE_CORRELATION
        assert max(difference) <= PICTURE_DIFFERENCE
