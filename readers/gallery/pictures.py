"""Small pictures of arrays that hold one."""

from __future__ import annotations

import base64
import io
from xml.etree.ElementTree import Element

import numpy as np

from readers.gallery.levels import finite_range, levels
from readers.gallery.markup import element

# Pixels of the longer side; a smaller picture is magnified to half of them, but by a whole number.
_SIDE = 160
_SMALL_SIDE = 80

# Fewer columns than this, without a dimension of colours, are channels of a signal.
_FEWEST_COLUMNS = 16


def is_picture(value: object) -> bool:
    """Whether a value is an array [height, width, 1, 3 or 4], or [height, 16 or more], of numbers."""
    if not isinstance(value, np.ndarray) or not value.size or value.dtype.kind not in "uif":
        return False
    if value.ndim == 2:
        return min(value.shape) >= _FEWEST_COLUMNS
    return value.ndim == 3 and value.shape[2] in (1, 3, 4)


def thumbnail(pixels: np.ndarray) -> Element:
    """An `img` of a picture, whose longer side has 160 pixels at most.

    Args:
        pixels: The picture, [height, width] or [height, width, 1, 3 or 4]. All dtypes but uint8 are
            scaled from their smallest to their largest finite value.

    Raises:
        ImportError: Pillow is not installed.
    """
    from PIL import Image

    height, width = pixels.shape[:2]
    # Every n-th pixel first, so that a large picture is not converted as a whole.
    step = max(1, max(height, width) // (4 * _SIDE))
    small = _as_bytes(pixels[::step, ::step])
    image = Image.fromarray(small[..., 0] if small.shape[2:] == (1,) else small)
    image.thumbnail((_SIDE, _SIDE))
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    larger = max(1, _SMALL_SIDE // max(image.size))
    data = base64.b64encode(file.getvalue()).decode()
    return element(
        "img",
        src=f"data:image/png;base64,{data}",
        alt=f"{width} x {height} pixels",
        title=f"{width} x {height} pixels",
        width=str(image.width * larger),
        height=str(image.height * larger),
        style="image-rendering: pixelated",
    )


def _as_bytes(pixels: np.ndarray) -> np.ndarray:
    """Pixels as uint8."""
    if pixels.dtype == np.uint8:
        return np.ascontiguousarray(pixels)
    values = pixels.astype(np.float64)
    low, high = finite_range(values)
    finite = np.nan_to_num(values, nan=low, posinf=high, neginf=low)
    return (levels(finite, low, high) * 255).astype(np.uint8)
