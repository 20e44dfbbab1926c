"""The pixels of images: their mode, orientation and size, in 8 bits, 16 bits, or as floating-point numbers."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from typing import BinaryIO

import numpy as np
from PIL import Image, ImageOps

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.images.boxes import Resize, letterbox
from beam_jobs.jobs.images.image_files import ORIENTATION, orientation_of
from readers.format.decode.wide_colors import has_wide_colors, wide_colors

_WHITE_RGBA = (255, 255, 255, 255)

# White in 16 bits.
_WHITE = 65535

# As Pillow converts RGB to gray: ITU-R 601.
_LUMA = np.array((0.299, 0.587, 0.114), np.float32)

_JPEG_QUALITY = 95

# The type of a PNG's pixels by their channels.
_PNG_COLORS = {1: 0, 3: 2, 4: 6}


def readers_decode_alike(image: Image.Image, channels: int) -> bool:
    """Whether TensorFlow and Pillow decode the file of an image to the same pixels as `to_mode`."""
    modes = {1: ("L",), 3: ("L", "RGB"), 4: ("RGBA",)}[channels]
    return (
        image.format in ("JPEG", "MPO", "PNG")
        and image.mode in modes
        and orientation_of(image) == 1
        and "transparency" not in image.info
    )


def sixteen_bits(image: Image.Image) -> np.ndarray:
    """The pixels of an image of integers, uint16 [height, width].

    Raises:
        RejectError: 16 bits do not hold them.
    """
    pixels = np.asarray(image)
    low, high = pixels.min(initial=0), pixels.max(initial=0)
    if low < 0 or high > 65535:
        raise RejectError(
            f"its pixels are integers from {low} to {high}, more than 16 bits hold: scale them to "
            "0 to 255 or 0 to 65535, and convert it to 8 or 16 bit"
        )
    return pixels.astype(np.uint16)


def to_mode(image: Image.Image, channels: int) -> Image.Image:
    """Converts an image of any mode to 8-bit grayscale, RGB or RGBA.

    Without alpha, transparent pixels are blended with white; 16-bit pixels keep their upper byte.

    Raises:
        RejectError: The pixels are integers that 16 bits do not hold.
    """
    if image.mode.startswith("I"):
        pixels = _with_alpha_of_key(sixteen_bits(image)[..., None], image) >> 8
        gray = pixels.shape[2] == 1
        image = Image.fromarray((pixels[..., 0] if gray else pixels).astype(np.uint8))
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        image = image.convert("RGBA")
        if channels == 4:
            return image
        image = Image.alpha_composite(Image.new("RGBA", image.size, _WHITE_RGBA), image)
    if channels == 1:
        return image if image.mode == "L" else image.convert("RGB").convert("L")
    image = image if image.mode == "RGB" else image.convert("RGB")
    return image.convert("RGBA") if channels == 4 else image


def turned(image: Image.Image, orientation: int) -> Image.Image:
    """Turns an image upright, as its EXIF orientation states."""
    image.getexif()[ORIENTATION] = orientation
    return ImageOps.exif_transpose(image)


def resized(
    image: Image.Image,
    size: tuple[int, int] | None,
    resize: Resize,
    method: Image.Resampling,
) -> Image.Image:
    """Resizes an image.

    Args:
        size: (height, width) in pixels; None keeps the image's own.
        resize: "stretch" to the size, "fit" inside it with black borders, or "crop" the center.
    """
    if not size or image.size == size[::-1]:
        return image
    height, width = size
    if resize == "stretch":
        return image.resize((width, height), method)
    if resize == "fit":
        inner, (top, left) = letterbox((image.height, image.width), size)
        framed = Image.new(image.mode, (width, height))
        framed.paste(image.resize(inner[::-1], method), (left, top))
        return framed
    return ImageOps.fit(image, (width, height), method)


def compressed(image: Image.Image | np.ndarray, encoding: str) -> bytes:
    """The file of an image, a JPEG for "jpeg", else a PNG.

    Args:
        image: An 8-bit image, or pixels, uint8 or uint16 [height, width, channels].
    """
    if isinstance(image, np.ndarray):
        if image.dtype == np.uint16:
            return _wide_png(image)
        image = Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)
    buffer = io.BytesIO()
    if encoding == "jpeg":
        image.save(buffer, "JPEG", quality=_JPEG_QUALITY)
    else:
        image.save(buffer, "PNG")
    return buffer.getvalue()


def _wide_png(pixels: np.ndarray) -> bytes:
    """A PNG of 16 bits, which Pillow writes only for gray.

    Args:
        pixels: uint16 [height, width, 1, 3 or 4].
    """
    height, width, channels = pixels.shape
    rows = pixels.astype(">u2").reshape(height, -1).view(np.uint8)
    lines = np.empty((height, rows.shape[1] + 1), np.uint8)
    lines[:, 0] = 2  # the filter "Up": each byte minus the one above
    lines[:, 1:] = rows
    lines[1:, 1:] -= rows[:-1]
    header = struct.pack(">2I5B", width, height, 16, _PNG_COLORS[channels], 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes())), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    )


def parse_image_size(text: str) -> tuple[int, int] | None:
    """Parses `HEIGHTxWIDTH` in pixels into (height, width), and `none` into None.

    Raises:
        UsageError: The text is neither.
    """
    if text == "none":
        return None
    height, x, width = text.lower().partition("x")
    if not (x and height.isdecimal() and width.isdecimal() and int(height) and int(width)):
        raise UsageError(f"--image_size {text}: expected HEIGHTxWIDTH such as 224x224, or none")
    return int(height), int(width)


def wide_pixels(image: Image.Image, file: BinaryIO, channels: int, dtype: str) -> np.ndarray:
    """The pixels of an image, turned upright: float32 [height, width, channels].

    Args:
        image: The current frame is read.
        file: The image's file.
        channels: 1 for gray, 3 for RGB, 4 for RGBA; without alpha, transparent pixels are blended
            with white.
        dtype: "uint16" for values from 0 to 65535; "float32" for floating-point pixels as they are,
            and others from 0 to 1.

    Raises:
        RejectError: The pixels are integers that 16 bits do not hold.
    """
    if image.mode == "F":
        pixels = _with_channels(np.asarray(image)[..., None], channels, 1)
    else:
        stored = _colors(image, file, channels).astype(np.float32)
        pixels = _with_channels(stored, channels, _WHITE)
        pixels = pixels / _WHITE if dtype == "float32" else pixels
    # Pillow turns a TIFF when it decodes it, and states 1 from then on.
    orientation = orientation_of(image)
    if orientation == 1:
        return pixels
    return by_planes(pixels, lambda plane: turned(plane, orientation))


def has_wide_pixels(image: Image.Image) -> bool:
    """Whether `wide_pixels` gives all bits of an image that is not decoded yet."""
    colors = image.format in ("PNG", "TIFF") and has_wide_colors(image)
    return colors or image.mode.startswith(("I", "F"))


def _colors(image: Image.Image, file: BinaryIO, channels: int) -> np.ndarray:
    """The pixels of an image of integers in 16 bits, uint16 [height, width, C]."""
    if image.mode.startswith("I"):
        return _with_alpha_of_key(sixteen_bits(image)[..., None], image)
    if image.format in ("PNG", "TIFF"):
        with Image.open(file, formats=[image.format]) as again:
            again.seek(image.tell())
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
    found[..., :3] /= np.where(alpha > 0, alpha, 1)
    return found
