"""A window of an image -> pixels of a given size, by OpenCV, without the interpreter's lock."""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Protocol

import numpy as np

from readers.decoders.view import View

# How many pixels in one direction become one before bilinear interpolation leaves out too many. The mean
# takes five times as long, as long as decoding.
_ALIASES = 4


class Pixels(Protocol):
    """An image whose size is known before it is decoded."""

    @property
    def shape(self) -> tuple[int, ...]:
        """[height, width, channels]."""
        ...

    @property
    def can_reduce(self) -> bool:
        """Whether `reduced` may make the image smaller."""
        ...

    def reduced(self, factor: int) -> tuple[np.ndarray, int]:
        """See `EncodedImage.reduced`."""
        ...


class ArrayImage:
    """An image that is stored as an array [height, width, channels]."""

    def __init__(self, pixels: np.ndarray) -> None:
        self._pixels, self.shape, self.can_reduce = pixels, pixels.shape, False

    def reduced(self, factor: int) -> tuple[np.ndarray, int]:
        """The array itself."""
        return self._pixels, 1


@cache
def opencv() -> ModuleType:
    """The module `cv2`.

    Raises:
        ImportError: It, or the codec without which JPEGs would have other pixels, is not installed.
    """
    try:
        import cv2
        import simplejpeg  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"decoders that resize images need {error.name}: pip install 'beam-shards[images]'"
        ) from None
    module: ModuleType = cv2
    return module


def read_view(image: Pixels, view: View, out: np.ndarray) -> View:
    """Writes a window of an image, resized, into an array of the image's dtype.

    A JPEG is decoded at a half, a quarter or an eighth of its size where that still has as many
    pixels as the result. The rest is bilinear, or, where the result is at most half as high and half as
    wide, or a quarter of one of them, the mean of the pixels under each pixel of the result.

    Args:
        image: The image.
        view: The window.
        out: [height, width, channels], C-contiguous.

    Returns:
        The window used, whose edges a reduction has moved by less than 8 pixels.

    Raises:
        ValueError: The image cannot be decoded.
    """
    size = image.shape[0], image.shape[1]
    target = out.shape[0], out.shape[1]
    factor = view.reduction(target) if image.can_reduce else 1
    view = view.aligned(factor, size)
    pixels, found = image.reduced(factor)
    bottom, right = -(-(view.top + view.height) // found), -(-(view.left + view.width) // found)
    window = pixels[view.top // found : bottom, view.left // found : right]
    cv2 = opencv()
    down, across = window.shape[0] / target[0], window.shape[1] / target[1]
    if min(down, across) < 1 and max(down, across) >= _ALIASES:
        # The mean of pixels needs both sides to shrink, so the longer one shrinks first.
        sides = (target[1], window.shape[0]) if across > 1 else (window.shape[1], target[0])
        window = cv2.resize(window, sides, interpolation=cv2.INTER_AREA).reshape(
            sides[1], sides[0], out.shape[2]
        )
    elif min(down, across) >= 2 or max(down, across) >= _ALIASES:
        _resize(window, view, out, cv2.INTER_AREA)
        return view
    # The exact variant has the same pixels on every machine, for a tenth of the time of decoding.
    _resize(window, view, out, cv2.INTER_LINEAR_EXACT)
    return view


def read_mask(mask: np.ndarray, view: View, out: np.ndarray) -> None:
    """Writes a window of a mask [height, width, channels] into another, each value from its nearest."""
    down, across = (
        first + (2 * np.arange(count) + 1) * extent // (2 * count)
        for first, extent, count in (
            (view.top, view.height, out.shape[0]),
            (view.left, view.width, out.shape[1]),
        )
    )
    # Not by OpenCV, which knows few dtypes.
    out[...] = mask[down][:, across[::-1] if view.mirrored else across]


def _resize(window: np.ndarray, view: View, out: np.ndarray, interpolation: int) -> None:
    cv2 = opencv()
    if out.shape[2] == 1:  # OpenCV has no last axis for gray images.
        window, out = window[..., 0], out[..., 0]
    size = out.shape[1], out.shape[0]
    if view.mirrored:
        cv2.flip(cv2.resize(window, size, interpolation=interpolation), 1, dst=out)
    else:
        cv2.resize(window, size, dst=out, interpolation=interpolation)
