"""Decodes JPEGs with libjpeg-turbo into the caller's memory, without the interpreter's lock.

The pixels equal those of Pillow and of `tf.io.decode_jpeg(dct_method="INTEGER_ACCURATE")`, in two thirds of
the time. Images that it does not accept, including damaged ones, are left to Pillow, which defines the result.
"""

from __future__ import annotations

import threading
from functools import cache
from types import ModuleType

import numpy as np

_START = b"\xff\xd8"

# Pillow converts other color spaces, such as CMYK.
_COLORS = ("YCbCr", "Gray", "RGB")

# Larger images are left to Pillow, which rejects images with twice as many pixels.
_MAX_PIXELS = (1 << 30) // 4 // 3


@cache
def _codec() -> ModuleType | None:
    """The module `simplejpeg`; None if it is not installed."""
    try:
        import simplejpeg
    except ModuleNotFoundError:
        return None
    return simplejpeg


def jpeg_size(data: bytes | memoryview) -> tuple[int, int] | None:
    """The (height, width) of a JPEG; None if only Pillow can decode it."""
    codec = _codec()
    if codec is None or data[:2] != _START:
        return None
    try:
        height, width, colors, _ = codec.decode_jpeg_header(data)
    except (ValueError, KeyError):  # It has no name for some subsamplings, such as 4:4:1.
        return None
    return (height, width) if colors in _COLORS and height * width <= _MAX_PIXELS else None


def decode_jpeg_into(data: bytes | memoryview, out: np.ndarray) -> bool:
    """Decodes a JPEG that has a `jpeg_size` into an array; returns False if only Pillow can decode it.

    The array is uint8 [height, width, channels], C-contiguous; pixels are gray if it has one channel, otherwise RGB.
    """
    codec = _codec()
    assert codec is not None
    try:
        codec.decode_jpeg(data, "GRAY" if out.shape[2] == 1 else "RGB", buffer=out)
    except ValueError:
        return False
    return True


def decode_jpeg_reduced(
    data: bytes | memoryview, channels: int, size: tuple[int, int], factor: int
) -> np.ndarray:
    """Decodes a JPEG of a (height, width) at a fraction of its size, which is faster; ValueError if it is damaged.

    libjpeg-turbo reduces each block of 8x8 pixels in the frequency domain, without aliasing. The factor is 1, 2, 4
    or 8. Pixels are uint8 [ceil(height / factor), ceil(width / factor), channels], 1 channel for gray and 3 for RGB, in
    memory that the thread's next call reuses.
    """
    codec = _codec()
    assert codec is not None
    height, width = -(-size[0] // factor), -(-size[1] // factor)
    found: np.ndarray = codec.decode_jpeg(
        data,
        "GRAY" if channels == 1 else "RGB",
        min_height=height,
        min_width=width,
        buffer=_scratch(height * width * channels),
    )
    return found


class _Scratch(threading.local):
    """Memory for one image per thread."""

    memory = np.empty(0, np.uint8)


_SCRATCH = _Scratch()

# Larger images are rare, and each thread would keep this much memory.
_MOST_KEPT = 64 << 20


def _scratch(nbytes: int) -> np.ndarray:
    """uint8 [nbytes] that this thread reuses: fresh memory costs a page fault per 4 KiB."""
    if nbytes > _MOST_KEPT:
        return np.empty(nbytes, np.uint8)
    if len(_SCRATCH.memory) < nbytes:
        _SCRATCH.memory = np.empty(nbytes, np.uint8)
    return _SCRATCH.memory[:nbytes]
