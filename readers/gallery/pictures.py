"""Small pictures of arrays that hold one."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree.ElementTree import Element

import numpy as np

from readers.gallery.levels import finite_range, levels
from readers.gallery.markup import data_uri, element

if TYPE_CHECKING:
    from PIL import Image

# Pixels of the longer side; a smaller picture is magnified to 96 at most, by a whole number.
SIDE = 240
_SMALL_SIDE = 96

# Bytes of a picture inside the page, unless it is asked for fewer: nine in ten photographs have 12,000 at 240
# pixels and this quality.
MOST_BYTES = 16_000
_QUALITY = 75

# As a PNG, a picture of more has more bytes than as a JPEG, unless it is very small.
_FEW_COLORS = 64

# Fewer columns than this, without a dimension of colours, are channels of a signal.
_FEWEST_COLUMNS = 16

# Pixels of the squares behind transparent parts, and their two grays.
_SQUARE, _GRAYS = 8, (153, 204)


class Thumbnail(NamedTuple):
    """A small picture.

    Attributes:
        uri: Its URI, which holds its bytes.
        width, height: The size at which it is shown, in pixels.
        words: The size of the picture that it shows.
    """

    uri: str
    width: int
    height: int
    words: str


def is_picture(value: object) -> bool:
    """Whether a value is an array [height, width, 1, 3 or 4], or [height, 16 or more], of numbers."""
    if not isinstance(value, np.ndarray) or not value.size or value.dtype.kind not in "uif":
        return False
    if value.ndim == 2:
        return min(value.shape) >= _FEWEST_COLUMNS
    return value.ndim == 3 and value.shape[2] in (1, 3, 4)


def thumbnail(
    pixels: np.ndarray,
    size: tuple[int, int] | None = None,
    side: int = SIDE,
    most: int = MOST_BYTES,
) -> Thumbnail:
    """A small picture whose longer side has `side` pixels at most, as a PNG or a JPEG.

    Args:
        pixels: The picture, [height, width] or [height, width, 1, 3 or 4], not empty. All dtypes but
            uint8 are scaled from their smallest to their largest finite value.
        size: The height and width of the picture, if `pixels` are fewer.
        side: The pixels.
        most: About how many bytes it may have: a picture of noise becomes smaller and coarser.

    Raises:
        ImportError: Pillow is not installed.
    """
    from PIL import Image

    height, width = size or pixels.shape[:2]
    # Every n-th pixel first, so that a large picture is not converted as a whole.
    step = max(1, max(pixels.shape[:2]) // (4 * side))
    small = _as_bytes(pixels[::step, ::step])
    if small.ndim == 3 and small.shape[2] == 4:
        small = _on_squares(small)
    image = Image.fromarray(small[..., 0] if small.shape[2:] == (1,) else small)
    image.thumbnail((side, side))
    magnified = max(1, _SMALL_SIDE // max(image.size))
    return Thumbnail(
        _encoded(image, most),
        image.width * magnified,
        image.height * magnified,
        f"{width:,} x {height:,} pixels",
    )


def picture(shown: Thumbnail) -> Element:
    """An `img` of a small picture."""
    return element(
        "img",
        src=shown.uri,
        alt=shown.words,
        title=shown.words,
        width=str(shown.width),
        height=str(shown.height),
        style="image-rendering:pixelated;max-width:100%;height:auto",
    )


def _as_bytes(pixels: np.ndarray) -> np.ndarray:
    """Pixels as uint8."""
    if pixels.dtype == np.uint8:
        return np.ascontiguousarray(pixels)
    values = pixels.astype(np.float64)
    low, high = finite_range(values)
    finite = np.nan_to_num(values, nan=low, posinf=high, neginf=low)
    return (levels(finite, low, high) * 255).astype(np.uint8)


def _on_squares(pixels: np.ndarray) -> np.ndarray:
    """RGBA pixels before squares of two grays, uint8 [height, width, 3]."""
    rows, columns = (np.arange(length) // _SQUARE % 2 for length in pixels.shape[:2])
    squares = np.where(rows[:, None] ^ columns, *_GRAYS)[..., None]
    opacity = pixels[..., 3:] / 255
    return (pixels[..., :3] * opacity + squares * (1 - opacity) + 0.5).astype(np.uint8)


def _encoded(image: Image.Image, most: int) -> str:
    """A picture as the URI of a PNG if it is small or has few colours, else of a JPEG."""
    if max(image.size) <= _SMALL_SIDE or image.getcolors(_FEW_COLORS) is not None:
        data = saved(image, "PNG")
        if len(data) <= most:
            return data_uri("image/png", data)
    quality = _QUALITY
    data = saved(image, "JPEG", quality=quality)
    while len(data) > most and max(image.size) > 32:
        image = image.resize(tuple(max(1, length * 2 // 3) for length in image.size))  # type: ignore[arg-type]
        quality = max(40, quality - 10)
        data = saved(image, "JPEG", quality=quality)
    return data_uri("image/jpeg", data)


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    """The bytes of a picture as a PNG or a JPEG."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()
