"""Pixels: modes, orientation and size of pictures."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from beam_jobs.errors import RejectError

_WHITE = (255, 255, 255, 255)

_ORIENTATION = 0x0112

_TRANSPOSES = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

# Files that TensorFlow decodes to the picture that Pillow shows, so `source` keeps their bytes.
_KEPT_MODES = {"JPEG": ("L", "RGB"), "PNG": ("L", "RGB")}


def _is_kept(image: Image.Image, channels: int) -> bool:
    """Whether TensorFlow decodes a file to the same picture; others are stored as PNG."""
    return (
        image.mode in _KEPT_MODES.get(image.format or "", ())
        and (channels == 3 or image.mode == "L")
        and image.getexif().get(_ORIENTATION, 1) == 1
        and "transparency" not in image.info
    )


def to_mode(image: Image.Image, channels: int) -> Image.Image:
    """The picture in 8-bit gray or RGB, whatever mode it has.

    Transparent pixels are laid over white; 16-bit ones keep their upper byte.

    Raises:
        RejectError: Its pixels are floating-point numbers, whose range nobody knows.
    """
    if image.mode == "F":
        raise RejectError("its pixels are floating-point numbers: convert it to 8 or 16 bit")
    if image.mode.startswith("I"):
        pixels = np.clip(np.asarray(image), 0, 65535).astype(np.uint16) >> 8
        image = Image.fromarray(pixels.astype(np.uint8))
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, _WHITE), image)
    if channels == 1:
        return image if image.mode == "L" else image.convert("RGB").convert("L")
    return image if image.mode == "RGB" else image.convert("RGB")


def mask_values(mask: Image.Image) -> Image.Image:
    """A mask as 8-bit gray: of a palette its indices, of one bit 0 and 1.

    Raises:
        RejectError: Its values are colours, or larger than 255.
    """
    if mask.mode == "1":
        return Image.fromarray(np.asarray(mask).astype(np.uint8))
    if mask.mode in ("L", "P"):
        return Image.fromarray(np.asarray(mask))
    if mask.mode.startswith("I"):
        values = np.asarray(mask)
        if values.min(initial=0) < 0 or values.max(initial=0) > 255:
            raise RejectError(f"its mask has values up to {values.max()}, expected 0 to 255")
        return Image.fromarray(values.astype(np.uint8))
    raise RejectError(
        f"its mask is a picture of mode {mask.mode}, expected one value a pixel: gray or a palette"
    )


def _turned(image: Image.Image, orientation: int) -> Image.Image:
    """The picture that `ImageOps.exif_transpose` makes of one with this orientation."""
    method = _TRANSPOSES.get(orientation)
    return image if method is None else image.transpose(method)


def _size_of(data: bytes) -> tuple[int, int] | None:
    """(height, width) of a picture by its header; None where it is none."""
    try:
        with Image.open(io.BytesIO(data)) as image:
            return image.height, image.width
    except Exception:  # Pillow's plugins raise nearly everything; who decodes it tells why.
        return None
