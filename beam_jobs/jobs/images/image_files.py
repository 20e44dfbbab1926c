"""Opens image files: formats that Pillow decodes by itself, and not more pixels than fit in memory."""

from __future__ import annotations

import functools
from typing import BinaryIO

from PIL import Image

from beam_jobs.errors import RejectError

# Pillow recognises formats by their content, whatever the name of a file, and would also open those that
# another program or handler decodes: EPS by Ghostscript, WMF, BUFR, GRIB, HDF5; and IPTC, which may
# contain any of them. Common formats come first; the last two have no signature and accept nearly
# any file.
_FORMATS = (
    *("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "JPEG2000", "AVIF", "PPM", "ICO", "ICNS"),
    *("QOI", "DDS", "SGI", "PCX", "XBM", "MSP", "FITS", "IM", "TGA"),
)

# The EXIF tag.
ORIENTATION = 0x0112

MAX_PIXELS = 89_478_485  # Pillow's own limit: 256 MiB of RGB


@functools.cache
def _formats() -> tuple[str, ...]:
    """The formats that this version of Pillow reads."""
    Image.init()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


def open_image(file: BinaryIO) -> Image.Image:
    """Opens an image file; only its header is read.

    Raises:
        RejectError: The image has too many pixels.
        UnidentifiedImageError: The format is unknown, or not in `_FORMATS`.
    """
    image = Image.open(file, formats=_formats())
    # Up to twice its limit Pillow only warns, and filters of warnings are shared by all threads.
    if image.width * image.height > MAX_PIXELS:
        image.close()
        raise RejectError(
            f"a decompression bomb: {image.width} x {image.height} pixels are more than "
            f"{MAX_PIXELS}"
        )
    return image


def header_of(file: BinaryIO) -> tuple[tuple[int, int], int] | None:
    """((height, width), EXIF orientation) of an image file; None if its header cannot be read."""
    try:
        with open_image(file) as image:
            # Not the PNG plugin's own `getexif`, which decodes all pixels first.
            orientation = Image.Image.getexif(image).get(ORIENTATION, 1)
            return (image.height, image.width), orientation
    except Exception:  # Pillow's plugins raise nearly everything; decoding the file reports why.
        return None
