"""Thumbnails of arrays: photographs, masks, and spectrograms of recordings."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree.ElementTree import Element

import numpy as np

from readers.pages.markup import data_uri, element, finite_range, scaled

if TYPE_CHECKING:
    from PIL import Image

# Pixels of the longer side; a smaller picture is magnified by a whole number, to at most 96.
SIDE = 160
_SMALL_SIDE = 96
_QUALITY = 75

# A PNG of a picture with more colors is larger than a JPEG, unless the picture is tiny.
_FEW_COLORS = 64


class Thumbnail(NamedTuple):
    """A thumbnail: its bytes as a URI, the pixels at which it is shown, and the size of the original."""

    uri: str
    width: int
    height: int
    words: str

    def element(self) -> Element:
        """The thumbnail as an `img`."""
        return element(
            "img",
            src=self.uri,
            alt=self.words,
            title=self.words,
            width=str(self.width),
            height=str(self.height),
            style="image-rendering:pixelated;max-width:100%;height:auto",
        )


def thumbnail(
    pixels: np.ndarray, size: tuple[int, int] | None = None, side: int = SIDE
) -> Thumbnail:
    """Makes a thumbnail of a picture [height, width] or [height, width, 1, 3 or 4], not empty; `size` is the original size if it was reduced.

    All dtypes except uint8 are scaled from their smallest to their largest finite value. `side` limits the longer side.
    """
    from PIL import Image

    height, width = size or pixels.shape[:2]
    # Every n-th pixel first, to avoid converting all of a large picture.
    step = max(1, max(pixels.shape[:2]) // (4 * side))
    small = _as_bytes(pixels[::step, ::step])
    image = Image.fromarray(small[..., 0] if small.shape[2:] == (1,) else small)
    if image.mode == "RGBA":  # On white, as browsers show it.
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    image.thumbnail((side, side))
    magnified = max(1, _SMALL_SIDE // max(image.size))
    words = f"{width:,} x {height:,} pixels"
    return Thumbnail(_encoded(image), image.width * magnified, image.height * magnified, words)


def _as_bytes(pixels: np.ndarray) -> np.ndarray:
    if pixels.dtype == np.uint8:
        return np.ascontiguousarray(pixels)
    values = pixels.astype(np.float64)
    low, high = finite_range(values)
    finite = np.nan_to_num(values, nan=low, posinf=high, neginf=low)
    return np.ascontiguousarray((scaled(finite, low, high) * 255).astype(np.uint8))


def _encoded(image: Image.Image) -> str:
    """A picture as the URI of a PNG if it is small or has few colors, otherwise of a JPEG."""
    if max(image.size) <= _SMALL_SIDE or image.getcolors(_FEW_COLORS) is not None:
        return data_uri("image/png", saved(image, "PNG"))
    return data_uri("image/jpeg", saved(image, "JPEG", quality=_QUALITY))


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    """The bytes of a picture, encoded as PNG or JPEG."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()
