"""Decoding of encoded images into arrays of pixels, with Pillow."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from readers.format.decode.records import stacked_steps
from readers.format.decode.wide_colors import has_wide_colors, wide_colors
from readers.format.schema import Feature, Schema, fits, format_shape

if TYPE_CHECKING:
    from PIL import Image

# Those that `tf.io.decode_image` reads, too. Pillow recognises formats by their content, and without a
# list would hand EPS to Ghostscript.
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP")


def decode_image(name: str, feature: Feature, data: bytes) -> np.ndarray:
    """The pixels of an encoded image, uint8 or uint16 [height, width, channels].

    Args:
        name: The feature's name, for error messages.
        feature: The feature; the last size of its shape is 1 for gray pixels, 3 for RGB, 4 for RGBA.
        data: The encoded image, a JPEG, PNG, GIF, BMP or WebP.

    Raises:
        ValueError: Pillow cannot decode the image, or its size does not fit the feature.
        ImportError: Pillow is not installed.
    """
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise ImportError(f"feature {name!r} needs Pillow: pip install pillow") from None
    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
            mode = {1: "L", 4: "RGBA"}.get(feature.shape[2] or 3, "RGB")
            if feature.dtype == "uint16":
                pixels = _pixels_of_16_bits(image, data, mode)
            else:
                pixels = _pixels_of_8_bits(image, mode)
    except Exception as error:  # Pillow's plugins raise nearly everything on broken input
        reason = "cannot identify its format" if "identify" in str(error) else error
        raise ValueError(f"feature {name!r} ({feature}): {reason}") from None
    pixels = pixels.reshape(*pixels.shape[:2], -1)
    if not fits(feature.shape, pixels.shape):
        raise ValueError(
            f"feature {name!r} ({feature}): expected {format_shape(feature.shape)}, "
            f"found {format_shape(pixels.shape)}"
        )
    return pixels


def _pixels_of_8_bits(image: Image.Image, mode: str) -> np.ndarray:
    """Pixels uint8: the high byte of 16-bit values, as in TensorFlow."""
    from PIL import Image

    if mode == "L":
        # A JPEG stores gray values; those computed from RGB are up to ten levels off.
        image.draft("L", image.size)
    if image.mode.startswith("I"):
        image = Image.fromarray((np.clip(np.asarray(image), 0, 65535) >> 8).astype(np.uint8))
    return np.array(image.convert(mode))


def _pixels_of_16_bits(image: Image.Image, data: bytes, mode: str) -> np.ndarray:
    """Pixels uint16: 8-bit values times 257, as in TensorFlow."""
    from PIL import Image

    if has_wide_colors(image):
        with Image.open(io.BytesIO(data), formats=_FORMATS) as again:
            return wide_colors(image, again)
    if image.mode.startswith("I"):
        return np.clip(np.asarray(image), 0, 65535).astype(np.uint16)
    return np.asarray(image.convert(mode)).astype(np.uint16) * np.uint16(257)


def pixels_of(
    name: str, feature: Feature, data: bytes | list[bytes]
) -> np.ndarray | list[np.ndarray]:
    """The pixels of an image feature, or those of each step of a feature list of images.

    `data` is the value that `Decoder` returns: an encoded image, or one for each step. Errors are those
    of `decode_image`.
    """
    if isinstance(data, bytes):
        return decode_image(name, feature, data)
    assert feature.step is not None
    return stacked_steps(feature, [decode_image(name, feature.step, image) for image in data])


def with_pixels(record: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """The record, with each encoded image replaced by its pixels in place."""
    for name, feature in schema.items():
        if feature.is_image:
            record[name] = pixels_of(name, feature, record[name])
    return record
