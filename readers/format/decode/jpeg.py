"""JPEGs decoded by libjpeg-turbo into memory of the caller, without the interpreter's lock.

Its pixels are those of Pillow and of `tf.io.decode_jpeg(dct_method="INTEGER_ACCURATE")`, in two thirds of
their time. Whatever it refuses, damaged files among it, is left to Pillow, which defines the result.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType

import numpy as np

_START = b"\xff\xd8"

# Pillow converts other colors, those of CMYK.
_COLORS = ("YCbCr", "Gray", "RGB")

# Pillow, which refuses images of twice as many, has to decode those of more.
_MAX_PIXELS = (1 << 30) // 4 // 3


@cache
def _codec() -> ModuleType | None:
    """The module `simplejpeg`; None if it is not installed."""
    try:
        import simplejpeg
    except ModuleNotFoundError:
        return None
    return simplejpeg


def jpeg_size(data: bytes) -> tuple[int, int] | None:
    """The (height, width) of a JPEG; None if Pillow has to decode it."""
    codec = _codec()
    if codec is None or data[:2] != _START:
        return None
    try:
        height, width, colors, _ = codec.decode_jpeg_header(data)
    except ValueError:
        return None
    return (height, width) if colors in _COLORS and height * width <= _MAX_PIXELS else None


def decode_jpeg_into(data: bytes, out: np.ndarray) -> bool:
    """Decodes a JPEG that has a `jpeg_size`; False if Pillow has to decode it.

    Args:
        data: The encoded image.
        out: uint8 [height, width, channels], C-contiguous; gray pixels if it has one channel, else RGB.
    """
    codec = _codec()
    assert codec is not None
    try:
        codec.decode_jpeg(data, "GRAY" if out.shape[2] == 1 else "RGB", buffer=out)
    except ValueError:
        return False
    return True
