"""Encoded pictures -> arrays of pixels, with Pillow."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from readers.format.decode.records import stacked
from readers.format.schema import Feature, Schema, fits, format_shape

if TYPE_CHECKING:
    from PIL import Image


def decode_picture(name: str, feature: Feature, data: bytes) -> np.ndarray:
    """The pixels, uint8 [height, width, channels], as gray or RGB by the feature's channels.

    Raises:
        ValueError: It is no picture that Pillow knows, or of another size than the feature says.
        ImportError: Pillow is missing.
    """
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise ImportError(f"feature {name!r} needs Pillow: pip install pillow") from None
    try:
        with Image.open(io.BytesIO(data)) as picture:
            mode = "L" if feature.shape[2] == 1 else "RGB"
            if mode == "L":
                # A JPEG holds the gray of its colours; that of RGB is up to ten levels off.
                picture.draft("L", picture.size)
            pixels = np.array(_of_8_bits(picture).convert(mode))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        # Pillow tells of a broken PNG by SyntaxError.
        reason = "cannot identify its format" if "identify" in str(error) else error
        raise ValueError(f"feature {name!r} ({feature}): {reason}") from None
    pixels = pixels.reshape(*pixels.shape[:2], -1)
    if not fits(feature.shape, pixels.shape):
        raise ValueError(
            f"feature {name!r} ({feature}): expected {format_shape(feature.shape)}, "
            f"found {format_shape(pixels.shape)}"
        )
    return pixels


def _of_8_bits(picture: Image.Image) -> Image.Image:
    """A picture whose pixels are bytes: of 16 bits the upper ones, as TensorFlow does."""
    from PIL import Image

    if not picture.mode.startswith("I"):
        return picture
    return Image.fromarray((np.clip(np.asarray(picture), 0, 65535) >> 8).astype(np.uint8))


def pixels_of(
    name: str, feature: Feature, data: bytes | list[bytes]
) -> np.ndarray | list[np.ndarray]:
    """The pixels of a picture, or of the picture of each step of a feature list.

    Raises:
        ValueError, ImportError: As `decode_picture`.
    """
    if isinstance(data, bytes):
        return decode_picture(name, feature, data)
    assert feature.step is not None
    return stacked(feature, [decode_picture(name, feature.step, picture) for picture in data])


def with_pixels(record: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """The record, with the pixels of each encoded picture in place of its bytes."""
    for name, feature in schema.items():
        if feature.is_picture:
            record[name] = pixels_of(name, feature, record[name])
    return record
