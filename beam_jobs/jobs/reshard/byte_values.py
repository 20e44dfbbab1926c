"""Recognises tensors, images and text in byte strings."""

from __future__ import annotations

import io

from beam_jobs.errors import UsageError
from readers.format.dtypes import TENSORFLOW_DTYPES
from readers.format.protobuf.tensor import parse_tensor

_DTYPES = {number: name for name, number in TENSORFLOW_DTYPES.items()}

# Format -> the bytes that its images begin with.
_IMAGES = {"jpeg": b"\xff\xd8\xff", "png": b"\x89PNG\r\n\x1a\n"}

# Pillow's modes of gray images, with or without alpha, from 1 to 16 bits.
_GRAY_MODES = ("1", "L", "LA", "I", "I;16")


def tensor_type(value: memoryview) -> tuple[str, tuple[int, ...]] | None:
    """The dtype and shape of a TensorProto; None if the value is not one of `serialize_tensor`.

    Raises:
        UsageError: The dtype needs a package that is not installed.
    """
    dtype = _DTYPES.get(value[1]) if len(value) > 1 and value[0] == 8 else None
    if dtype is None:
        return None
    try:
        return dtype, parse_tensor(value, dtype).shape
    except ValueError:
        return None
    except ImportError as error:
        raise UsageError(str(error)) from None


def image_format(value: bytes | memoryview) -> str:
    """ "jpeg" or "png" by the first bytes of an image; "" for anything else."""
    return next((name for name, first in _IMAGES.items() if value[: len(first)] == first), "")


def is_gray(image: bytes | memoryview) -> bool:
    """Whether a JPEG or PNG is gray; one whose header is damaged is not."""
    from PIL import Image

    try:
        # Pillow would also try formats that are unsafe: it hands EPS to Ghostscript.
        with Image.open(io.BytesIO(image), formats=("JPEG", "PNG")) as opened:
            return opened.mode in _GRAY_MODES
    except Exception:  # Pillow's plugins raise nearly everything on damaged input.
        return False


def is_utf8(value: bytes | memoryview) -> bool:
    """Whether a byte string is UTF-8."""
    try:
        str(value, "utf-8")
    except UnicodeDecodeError:
        return False
    return True
