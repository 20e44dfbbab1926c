"""Encoded images: their sizes, and their pixels as arrays."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from readers.format.decode.jpeg import decode_jpeg_into, decode_jpeg_reduced, jpeg_size
from readers.format.decode.records import stacked_steps
from readers.format.decode.wide_colors import has_wide_colors, wide_colors
from readers.format.dtypes import numpy_dtype
from readers.format.encodings.spec import fits, format_shape
from readers.format.schema import Feature, Schema

if TYPE_CHECKING:
    from PIL import Image

# The formats that `tf.io.decode_image` reads, too. Pillow recognises formats by content; without a
# list it would pass EPS to Ghostscript.
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP")


class EncodedImage:
    """An encoded image whose header has been read: a JPEG, PNG, GIF, BMP or WebP. Errors name its feature.

    Its pixels have the `shape` (height, width, channels), with 1 channel for gray, 3 for RGB, 4 for RGBA.

    Raises:
        ValueError: The header cannot be read, or the size does not fit the feature.
        ImportError: Pillow is not installed.
    """

    def __init__(self, name: str, feature: Feature, data: bytes | memoryview) -> None:
        self._name, self._feature, self._data = name, feature, data
        self.dtype, channels = numpy_dtype(feature.dtype), feature.shape[2] or 3
        size = jpeg_size(data) if feature.dtype == "uint8" and channels != 4 else None
        self._opened = None if size else self._open()
        if self._opened:
            size = self._opened.height, self._opened.width
        assert size is not None
        self.shape = (*size, channels)
        if not fits(feature.shape, self.shape):
            raise ValueError(
                f"feature {name!r} ({feature}): expected {format_shape(feature.shape)}, "
                f"found {format_shape(self.shape)}"
            )

    def decode_into(self, out: np.ndarray) -> None:
        """Writes the pixels to a C-contiguous array of the image's shape and dtype; ValueError if the image is damaged."""
        if self._opened is None and decode_jpeg_into(self._data, out):
            return
        image = self._opened or self._open()
        with self._naming_errors(), image:
            mode = {1: "L", 4: "RGBA"}.get(self.shape[2], "RGB")
            if self.dtype == np.uint16:
                pixels = self._pixels_of_16_bits(image, mode)
            else:
                pixels = _pixels_of_8_bits(image, mode)
            out[...] = pixels.reshape(self.shape)

    def reduced(self, factor: int) -> tuple[np.ndarray, int]:
        """The pixels of the image reduced by a factor f of 1, 2, 4 or 8, and f.

        Only an 8-bit JPEG is decoded at a fraction of its size; for any other image, f is 1. The pixels are
        [ceil(height / f), ceil(width / f), channels], in memory that the thread's next call reuses.

        Raises:
            ValueError: The image cannot be decoded.
        """
        if self._opened is None:
            height, width, channels = self.shape
            try:
                return decode_jpeg_reduced(self._data, channels, (height, width), factor), factor
            except ValueError:
                pass  # Pillow decodes it, or finds the reason.
        out = np.empty(self.shape, self.dtype)
        self.decode_into(out)
        return out, 1

    def _open(self) -> Image.Image:
        try:
            from PIL import Image
        except ModuleNotFoundError:
            raise ImportError(
                f"feature {self._name!r} needs Pillow: pip install 'beam-shards[images]'"
            ) from None
        with self._naming_errors():
            return Image.open(io.BytesIO(self._data), formats=_FORMATS)

    @contextmanager
    def _naming_errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # Pillow's plugins raise almost anything for broken input.
            reason = "cannot identify its format" if "identify" in str(error) else error
            raise ValueError(f"feature {self._name!r} ({self._feature}): {reason}") from None

    def _pixels_of_16_bits(self, image: Image.Image, mode: str) -> np.ndarray:
        """Pixels as uint16: 8-bit values times 257, as in TensorFlow."""
        from PIL import Image

        if has_wide_colors(image):
            with Image.open(io.BytesIO(self._data), formats=_FORMATS) as again:
                return wide_colors(image, again)
        if image.mode.startswith("I"):
            return np.clip(np.asarray(image), 0, 65535).astype(np.uint16)
        return np.asarray(image.convert(mode)).astype(np.uint16) * np.uint16(257)


def _pixels_of_8_bits(image: Image.Image, mode: str) -> np.ndarray:
    """Pixels as uint8: the high byte of 16-bit values, as in TensorFlow."""
    from PIL import Image

    if mode == "L":
        # A JPEG stores gray values; values computed from RGB differ by up to ten levels.
        image.draft("L", image.size)
    if image.mode.startswith("I"):
        image = Image.fromarray((np.clip(np.asarray(image), 0, 65535) >> 8).astype(np.uint8))
    if mode != "RGBA":
        image.info.pop("transparency", None)  # Pillow would warn that it is lost.
    # Converting to the same mode would copy all pixels.
    return np.asarray(image if image.mode == mode else image.convert(mode))


def decode_image(name: str, feature: Feature, data: bytes | memoryview) -> np.ndarray:
    """The pixels of an `EncodedImage`, uint8 or uint16 [height, width, channels].

    Raises:
        ValueError: The image cannot be decoded, or its size does not fit the feature.
        ImportError: Pillow is not installed.
    """
    image = EncodedImage(name, feature, data)
    out = np.empty(image.shape, image.dtype)
    image.decode_into(out)
    return out


def pixels_of(
    name: str, feature: Feature, data: bytes | list[bytes]
) -> np.ndarray | list[np.ndarray]:
    """The pixels of an image feature, or of each step of a feature list of images.

    `data` is the value that `Decoder` returns: an encoded image, or one for each step. Errors are as for
    `decode_image`.
    """
    if isinstance(data, bytes):
        return decode_image(name, feature, data)
    assert feature.step is not None
    return stacked_steps(feature, [decode_image(name, feature.step, image) for image in data])


def with_pixels(record: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """Replaces each encoded image in a record by its pixels."""
    for name, feature in schema.items():
        if feature.is_image:
            record[name] = pixels_of(name, feature, record[name])
    return record
