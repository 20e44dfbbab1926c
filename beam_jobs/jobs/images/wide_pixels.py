"""Images as pixels of 16 bits, or as floating-point numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PIL import Image

from beam_jobs.errors import RejectError
from beam_jobs.jobs.images.image_files import orientation_of
from beam_jobs.jobs.images.pixels import sixteen_bits, to_mode, turned
from readers.format.decode.wide_colors import has_wide_colors, wide_colors

_WHITE = 65535

# As Pillow converts RGB to gray: ITU-R 601.
_LUMA = np.array((0.299, 0.587, 0.114), np.float32)


def wide_pixels(
    image: Image.Image, reopen: Callable[[], Image.Image], channels: int, dtype: str
) -> np.ndarray:
    """The pixels of an image, turned upright: float32 [height, width, channels].

    Args:
        image: The image.
        reopen: Opens the same frame of the same file once more.
        channels: 1 for gray, 3 for RGB, 4 for RGBA; without alpha, transparent pixels are blended
            with white.
        dtype: "uint16" for values from 0 to 65535; "float32" for floating-point pixels as they are,
            and others from 0 to 1.

    Raises:
        RejectError: The pixels are floating-point numbers and `dtype` is "uint16", or integers that
            16 bits do not hold.
    """
    pixels = _stored_pixels(image, reopen, channels, dtype)
    # Pillow turns a TIFF when it decodes it, and states 1 from then on.
    orientation = orientation_of(image)
    if orientation == 1:
        return pixels
    return by_planes(pixels, lambda plane: turned(plane, orientation))


def _stored_pixels(
    image: Image.Image, reopen: Callable[[], Image.Image], channels: int, dtype: str
) -> np.ndarray:
    if image.mode == "F":
        if dtype != "float32":
            raise RejectError(
                "its pixels are floating-point numbers: --dtype float32 keeps them as they are"
            )
        return _with_channels(np.asarray(image)[..., None], channels, 1)
    if image.mode.startswith("I"):
        pixels = _with_alpha_of_key(sixteen_bits(image)[..., None], image)
    else:
        pixels = _colors(image, reopen, channels)
    pixels = _with_channels(pixels.astype(np.float32), channels, _WHITE)
    return pixels / _WHITE if dtype == "float32" else pixels


def _colors(image: Image.Image, reopen: Callable[[], Image.Image], channels: int) -> np.ndarray:
    if image.format in ("PNG", "TIFF"):
        with reopen() as again:
            if has_wide_colors(again):
                return _with_alpha_of_key(wide_colors(image, again), image)
    pixels = np.asarray(to_mode(image, channels)).astype(np.uint16) * np.uint16(257)
    return pixels.reshape(*pixels.shape[:2], channels)


def _with_alpha_of_key(pixels: np.ndarray, image: Image.Image) -> np.ndarray:
    """Pixels uint16 [height, width, C] with alpha if a PNG names a transparent color, else the same."""
    key = image.info.get("transparency")
    if key is None or pixels.shape[2] == 4:
        return pixels
    alpha = np.where((pixels == np.array(key)).all(-1, keepdims=True), 0, _WHITE)
    colors = np.broadcast_to(pixels, (*pixels.shape[:2], 3))
    return np.concatenate((colors, alpha.astype(np.uint16)), -1)


def _with_channels(pixels: np.ndarray, channels: int, white: float) -> np.ndarray:
    """Pixels float32 [height, width, channels] from gray, RGB or RGBA."""
    if pixels.shape[2] == 4 and channels != 4:
        alpha = pixels[..., 3:] / np.float32(white)
        pixels = pixels[..., :3] * alpha + white * (1 - alpha)
    if pixels.shape[2] == 3 and channels == 1:
        return (pixels @ _LUMA)[..., None]
    if pixels.shape[2] == 1 and channels != 1:
        pixels = np.repeat(pixels, 3, -1)
    if pixels.shape[2] == 3 and channels == 4:
        return np.insert(pixels, 3, white, -1)
    return pixels


def by_planes(pixels: np.ndarray, change: Callable[[Image.Image], Image.Image]) -> np.ndarray:
    """Pixels float32 [height, width, C] after a change of the image of each channel."""
    planes = [Image.fromarray(np.ascontiguousarray(plane)) for plane in np.moveaxis(pixels, -1, 0)]
    return np.stack([np.asarray(change(plane)) for plane in planes], -1)


def resized_by_planes(
    pixels: np.ndarray, resize: Callable[[Image.Image], Image.Image]
) -> np.ndarray:
    """Pixels float32 [height, width, C] in another size; alpha weighs colors, as in Pillow."""
    if pixels.shape[2] != 4:
        return by_planes(pixels, resize)
    weighted = pixels.copy()
    weighted[..., :3] *= pixels[..., 3:]
    found = by_planes(weighted, resize)
    alpha = found[..., 3:]
    found[..., :3] = np.divide(
        found[..., :3], alpha, out=np.zeros_like(found[..., :3]), where=alpha > 0
    )
    return found


def to_uint16(pixels: np.ndarray) -> np.ndarray:
    """The nearest whole numbers from 0 to 65535, uint16."""
    return np.clip(np.rint(pixels), 0, _WHITE).astype(np.uint16)
