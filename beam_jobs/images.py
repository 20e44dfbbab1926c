"""The images job: a record is a picture file, decoded, turned upright and resized."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.files import Inputs, open_seekable
from beam_jobs.labels import Labels
from readers.format.schema import Feature, Schema

RESIZE = ("stretch", "fit", "crop")
ENCODINGS = ("tensor", "raw", "jpeg", "png", "source")

# Antialiased when it shrinks, as Pillow does it; what training pipelines use.
_FILTER = Image.Resampling.BILINEAR
_JPEG_QUALITY = 95
_MAX_PIXELS = 89_478_485  # Pillow's own limit: 256 MiB of RGB
_MAX_RECORD_BYTES = 1 << 31
_WHITE = (255, 255, 255, 255)
_ORIENTATION = 0x0112
_SWAPS_SIDES = (5, 6, 7, 8)

# Files that TensorFlow decodes to the picture that Pillow shows, so `source` keeps their bytes.
_KEPT_MODES = {"JPEG": ("L", "RGB"), "PNG": ("L", "RGB")}


@dataclass(frozen=True)
class ImageJob:
    """What an image record is.

    Attributes:
        inputs: The picture files, in any format Pillow opens.
        labels: Where labels come from.
        image_size: (height, width), or None to keep each picture's own.
        resize: "stretch" to the size, "fit" inside it with black borders, or "crop" its middle.
        channels: 1 for gray, 3 for RGB.
        encoding: "tensor" or "raw" for pixels, "jpeg", "png", or "source" for the files' own bytes.
    """

    inputs: Inputs
    labels: Labels
    image_size: tuple[int, int] | None = None
    resize: str = "stretch"
    channels: int = 3
    encoding: str = "tensor"

    def __post_init__(self) -> None:
        if self.image_size and math.prod(self.image_size) * self.channels >= _MAX_RECORD_BYTES:
            raise UsageError(
                f"--image_size {'x'.join(map(str, self.image_size))}: too large to store"
            )
        if self.encoding == "source" and self.image_size:
            raise UsageError("--encoding source keeps the files as they are: drop --image_size")

    @property
    def schema(self) -> Schema:
        """Of the records: image, label unless there are none, key."""
        height, width = self.image_size or (None, None)
        features = {
            "image": Feature("uint8", (height, width, self.channels), self.encoding),
            "key": Feature("string"),
        }
        if self.labels.mode != "none":
            features["label"] = Feature("int64")
        return Schema(features)

    def load(self, key: str) -> dict[str, Any]:
        """The `image` of one file: uint8 [H, W, C], or encoded bytes.

        Raises:
            RejectError: The file cannot be read or decoded.
        """
        try:
            file = open_seekable(self.inputs.path(key))
        except OSError as error:
            raise RejectError(f"cannot be read: {error}") from None
        with file:
            return {"image": self.convert(file)}

    def convert(self, file: BinaryIO) -> np.ndarray | bytes:
        """What is stored of an open picture file.

        Raises:
            RejectError: They are no whole picture, or one that is too large to be honest.
        """
        try:
            # Not its bytes at once: Pillow takes 64 KiB at a time, which stay in the processor's
            # cache; 100 KB of fresh memory for each picture took 7 % of all time.
            with Image.open(file) as image:
                # Up to twice its limit Pillow only warns, and filters of warnings are shared by
                # all threads.
                if image.width * image.height > _MAX_PIXELS:
                    raise RejectError(
                        f"a decompression bomb: {image.width} x {image.height} pixels are more "
                        f"than {_MAX_PIXELS}"
                    )
                if self.encoding == "source" and _is_kept(image, self.channels):
                    image.load()  # a broken picture is a reject in every encoding
                    file.seek(0)
                    return file.read()
                return self._encoded(self._resized(image))
        except RejectError:
            raise
        except UnidentifiedImageError:
            if not file.seek(0, io.SEEK_END):
                raise RejectError("the file is empty") from None
            # Pillow's own message names the file by its path, which is no part of a dataset.
            raise RejectError("not a picture that can be decoded: of no format known") from None
        except Exception as error:  # Pillow's plugins raise nearly everything on broken input
            raise RejectError(f"not a picture that can be decoded: {error}") from None

    def _resized(self, image: Image.Image) -> Image.Image:
        orientation = image.getexif().get(_ORIENTATION, 1)
        if self.image_size:
            height, width = self.image_size
            swapped = orientation in _SWAPS_SIDES
            # The JPEG decoder scales by 1/2, 1/4 or 1/8 for nearly nothing, never below this size:
            # 2.3 times as fast from 640x480 to 224x224 (DESIGN.md section 6).
            image.draft(None, (height, width) if swapped else (width, height))
        if orientation != 1:  # or Pillow makes a copy
            image = ImageOps.exif_transpose(image)
        image = to_mode(image, self.channels)
        if not self.image_size or image.size == (width, height):
            return image
        if self.resize == "stretch":
            return image.resize((width, height), _FILTER)
        if self.resize == "fit":
            scale = min(width / image.width, height / image.height)
            inner = max(1, round(image.width * scale)), max(1, round(image.height * scale))
            framed = Image.new(image.mode, (width, height))
            place = ((width - inner[0]) // 2, (height - inner[1]) // 2)
            framed.paste(image.resize(inner, _FILTER), place)
            return framed
        return ImageOps.fit(image, (width, height), _FILTER)

    def _encoded(self, image: Image.Image) -> np.ndarray | bytes:
        if self.encoding in ("tensor", "raw"):
            return np.asarray(image).reshape(image.height, image.width, self.channels)
        buffer = io.BytesIO()
        if self.encoding == "jpeg":
            image.save(buffer, "JPEG", quality=_JPEG_QUALITY)
        else:
            image.save(buffer, "PNG")
        return buffer.getvalue()


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


def parse_image_size(text: str) -> tuple[int, int] | None:
    """(height, width) of `224x224`, None of `none`.

    Raises:
        UsageError: It is neither.
    """
    if text == "none":
        return None
    height, x, width = text.lower().partition("x")
    if not (x and height.isdecimal() and width.isdecimal() and int(height) and int(width)):
        raise UsageError(f"--image_size {text}: expected HEIGHTxWIDTH such as 224x224, or none")
    return int(height), int(width)
