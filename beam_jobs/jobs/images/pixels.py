"""The modes, orientation and size of images."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
from PIL import Image, ImageOps

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.images.boxes import Resize, letterbox
from beam_jobs.jobs.images.image_files import ORIENTATION, orientation_of
from readers.format.schema import IMAGE_ENCODINGS

_WHITE = (255, 255, 255, 255)

_JPEG_QUALITY = 95

# Formats of photographs, whose pixels take a multiple of the file's bytes in a PNG.
_LOSSY = ("JPEG", "MPO", "HEIF", "AVIF")

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


def encoding_of(file_format: str | None, channels: int) -> str:
    """The encoding of an image whose file cannot be kept: as small as the file, or else without loss."""
    return "jpeg" if file_format in _LOSSY and channels != 4 else "png"


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
        RejectError: The range of the pixels is unknown: they are floating-point numbers, or integers
            that 16 bits do not hold.
    """
    if image.mode == "F":
        raise RejectError(
            "its pixels are floating-point numbers: convert it to 8 or 16 bit, or add --dtype float32"
        )
    if image.mode.startswith("I"):
        image = Image.fromarray((sixteen_bits(image) >> 8).astype(np.uint8))
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        image = image.convert("RGBA")
        if channels == 4:
            return image
        image = Image.alpha_composite(Image.new("RGBA", image.size, _WHITE), image)
    if channels == 1:
        return image if image.mode == "L" else image.convert("RGB").convert("L")
    image = image if image.mode == "RGB" else image.convert("RGB")
    return image.convert("RGBA") if channels == 4 else image


def turned(image: Image.Image, orientation: int) -> Image.Image:
    """An image turned upright, as an EXIF orientation states."""
    image.getexif()[ORIENTATION] = orientation
    return ImageOps.exif_transpose(image)


def resized(
    image: Image.Image,
    size: tuple[int, int] | None,
    resize: Resize,
    method: Image.Resampling,
) -> Image.Image:
    """An image of another size.

    Args:
        image: The image.
        size: (height, width) in pixels; None keeps the image's own.
        resize: "stretch" to the size, "fit" inside it with black borders, or "crop" the center.
        method: The filter.
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


def encoded(image: Image.Image, encoding: str) -> np.ndarray | bytes:
    """An 8-bit image as a record holds it.

    Returns:
        The bytes of a JPEG file for "jpeg" and of a PNG file for "png" and "source"; for any other
        encoding the pixels, uint8 [height, width, channels].
    """
    if encoding not in IMAGE_ENCODINGS:
        return np.asarray(image).reshape(image.height, image.width, len(image.getbands()))
    buffer = io.BytesIO()
    if encoding == "jpeg":
        image.save(buffer, "JPEG", quality=_JPEG_QUALITY)
    else:
        image.save(buffer, "PNG")
    return buffer.getvalue()


def compressed(pixels: np.ndarray, encoding: str) -> bytes:
    """The file of an image, a JPEG for "jpeg", else a PNG.

    Args:
        pixels: uint8 or uint16 [height, width, channels].
        encoding: The encoding.
    """
    if pixels.dtype == np.uint16:
        return to_png(pixels)
    data = encoded(Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels), encoding)
    assert isinstance(data, bytes)
    return data


def to_png(pixels: np.ndarray) -> bytes:
    """A PNG of 16 bits, which Pillow writes for gray alone.

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


def mask_values(mask: Image.Image) -> Image.Image:
    """A mask as 8-bit grayscale: the indices of a palette (VOC, ADE20K), never its colors; 0 and 1 for one bit.

    Raises:
        RejectError: The values are colors, negative, or larger than 255.
    """
    if mask.mode == "1":
        return Image.fromarray(np.asarray(mask).astype(np.uint8))
    if mask.mode in ("L", "P"):
        return Image.fromarray(np.asarray(mask))
    if mask.mode.startswith("I"):
        values = np.asarray(mask)
        if values.min(initial=0) < 0 or values.max(initial=0) > 255:
            raise RejectError(f"values up to {values.max()}, expected 0 to 255")
        return Image.fromarray(values.astype(np.uint8))
    raise RejectError(
        f"an image of mode {mask.mode}, expected one value a pixel: gray or a palette; replace each color "
        "by its class id"
    )


def parse_image_size(text: str) -> tuple[int, int] | None:
    """Parses `HEIGHTxWIDTH` in pixels into (height, width), and `none` into None.

    Raises:
        UsageError: The text has neither form.
    """
    if text == "none":
        return None
    height, x, width = text.lower().partition("x")
    if not (x and height.isdecimal() and width.isdecimal() and int(height) and int(width)):
        raise UsageError(f"--image_size {text}: expected HEIGHTxWIDTH such as 224x224, or none")
    return int(height), int(width)
