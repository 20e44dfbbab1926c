"""Resizes a window of an image to a given size with OpenCV, without the interpreter's lock."""

from __future__ import annotations

from functools import cache
from types import ModuleType

import numpy as np

from readers.decoders.view import View
from readers.format.decode.images import EncodedImage


class ArrayImage:
    """An image that is stored as an array [height, width, channels]."""

    def __init__(self, pixels: np.ndarray) -> None:
        self._pixels, self.shape = pixels, pixels.shape

    def reduced(self, factor: int) -> tuple[np.ndarray, int]:
        """Returns the array itself, like `EncodedImage.reduced` for images other than JPEGs."""
        return self._pixels, 1


@cache
def opencv() -> ModuleType:
    """The module `cv2`. Raises ImportError without it, or without simplejpeg: JPEGs would have other pixels."""
    try:
        import cv2
        import simplejpeg  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"decoders that resize images need {error.name}: pip install 'beam-shards[images]'"
        ) from None
    module: ModuleType = cv2
    return module


def read_view(image: EncodedImage | ArrayImage, view: View, out: np.ndarray) -> View:
    """Writes a window of an image, resized, to a C-contiguous array [height, width, channels]; returns the window.

    The image is first reduced to a half, a quarter or an eighth where that still has as many pixels as the
    result: each pixel is the mean of 2x2, 4x4 or 8x8, which the JPEG codec finds without decoding all of them, and the
    edges move by less than 8 pixels. If a side is still at least twice as long as that of the result, whole numbers of
    pixels are averaged, too. The rest is bilinear interpolation.
    """
    target = out.shape[0], out.shape[1]
    factor = view.reduction(target)
    view = view.aligned(factor, (image.shape[0], image.shape[1]))
    pixels, found = image.reduced(factor)
    bottom, right = -(-(view.top + view.height) // found), -(-(view.left + view.width) // found)
    window = pixels[view.top // found : bottom, view.left // found : right]
    # The number of pixels, down and across, that become one.
    means = [
        factor // found * max(side * found // factor // goal, 1)
        for side, goal in zip(window.shape, target, strict=False)
    ]
    if means != [1, 1]:
        cv2 = opencv()
        sides = [-(-side // mean) for side, mean in zip(window.shape, means, strict=False)]
        small = cv2.resize(window, (sides[1], sides[0]), interpolation=cv2.INTER_AREA)
        window = small.reshape(*sides, window.shape[2])
    _resize(window, view, out)
    return view


def read_mask(mask: np.ndarray, view: View, out: np.ndarray) -> None:
    """Writes a window of a mask [height, width, channels] to another array, using the nearest values."""
    extents = (view.top, view.height, len(out)), (view.left, view.width, out.shape[1])
    # The centers of the result's pixels. Not with OpenCV, which supports few dtypes.
    down, across = (
        first + (2 * np.arange(count) + 1) * extent // (2 * count)
        for first, extent, count in extents
    )
    out[...] = mask[down][:, across[::-1] if view.mirrored else across]


def _resize(window: np.ndarray, view: View, out: np.ndarray) -> None:
    cv2 = opencv()
    if out.shape[2] == 1:  # OpenCV has no last axis for gray images.
        window, out = window[..., 0], out[..., 0]
    # The exact variant gives the same pixels on every machine, for a tenth of the time of decoding.
    size, exact = (out.shape[1], out.shape[0]), cv2.INTER_LINEAR_EXACT
    if view.mirrored:
        cv2.flip(cv2.resize(window, size, interpolation=exact), 1, dst=out)
    else:
        cv2.resize(window, size, dst=out, interpolation=exact)
