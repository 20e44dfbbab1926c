"""Colors of 16 bits per channel, of which Pillow only decodes the upper bytes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from PIL import Image

# How Pillow decodes the upper bytes of a file's pixels -> how it decodes the lower bytes:
# as if the byte order were reversed.
_LOWER_BYTES = {
    f"{mode};16{order}": f"{mode};16{other}"
    for mode in ("RGB", "RGBX", "RGBA")
    for order, other in (("B", "L"), ("L", "B"), ("N", "B" if sys.byteorder == "little" else "L"))
}

# A pixel of 16-bit gray and alpha is as large as four bytes: both bytes of gray, then both of alpha.
_GRAY_AND_ALPHA = "LA;16B"
_LOWER_BYTES[_GRAY_AND_ALPHA] = "RGBA"


def _rawmode(image: Image.Image) -> str:
    tiles: Any = getattr(image, "tile", None)
    if not tiles:
        return ""
    arguments = tiles[0][3]
    return str(arguments[0] if isinstance(arguments, tuple) else arguments)


def _with_rawmode(tile: Any, rawmode: str) -> Any:
    codec, extents, offset, arguments = tile
    arguments = (rawmode, *arguments[1:]) if isinstance(arguments, tuple) else rawmode
    # Before Pillow 11.1, tiles are plain tuples.
    make = getattr(tile, "_make", tuple)
    return make((codec, extents, offset, arguments))


def has_wide_colors(image: Image.Image) -> bool:
    """Whether an image that is not decoded yet has 16-bit colors that can be read."""
    return _rawmode(image) in _LOWER_BYTES


def wide_colors(image: Image.Image, again: Image.Image) -> np.ndarray:
    """The pixels of an image with `has_wide_colors`: uint16 [height, width, 3 or 4].

    `again` is the same frame of the same file, opened a second time and not decoded yet.
    """
    rawmode = _rawmode(again)
    tiled: Any = again
    tiled.tile = [_with_rawmode(tile, _LOWER_BYTES[rawmode]) for tile in tiled.tile]
    # NumPy would hide some decoding errors.
    image.load()
    again.load()
    upper, lower = np.asarray(image), np.asarray(again)
    if rawmode == _GRAY_AND_ALPHA:
        lower = lower[..., [1, 1, 1, 3]]
    return upper.astype(np.uint16) << 8 | lower
