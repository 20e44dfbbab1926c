"""Images in memory, encoded by Pillow."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import ExifTags, Image


def encoded(pixels: np.ndarray | Image.Image, kind: str, orientation: int = 0, **options) -> bytes:
    """The bytes of an image file.

    Args:
        pixels: An image, or uint8 [height, width] or [height, width, channels].
        kind: Pillow's name of the format: "JPEG", "PNG", ...
        orientation: The EXIF orientation, 1 to 8; 0 writes none.
        options: Pillow's options of the format.
    """
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    if orientation:
        exif: Any = Image.Exif()
        exif[ExifTags.Base.Orientation] = orientation
        options["exif"] = exif.tobytes()
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()
