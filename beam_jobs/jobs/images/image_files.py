"""Opens image files: formats that Pillow decodes by itself, and not more pixels than fit in memory."""

from __future__ import annotations

import contextlib
import functools
import re
import sys
import warnings
from collections.abc import Iterator
from typing import Any, BinaryIO, Literal

import numpy as np
from PIL import Image, UnidentifiedImageError

from beam_jobs.errors import JobError, RejectError, UsageError
from beam_jobs.packages import require

# Formats of animations and pages. The further images in an MPO, a JPEG of a phone or a stereo camera,
# are previews and other views.
_WITH_FRAMES = ("PNG", "TIFF", "GIF", "WEBP", "AVIF")

_WITHOUT_FRAMES = ("BMP", "JPEG2000", "ICO", "PPM", "QOI", "DDS", "SGI", "TGA", "HEIF")

# Pillow's names of the formats that are read. Pillow recognises formats by their content, whatever the
# name of a file, and would also open those that another program or handler decodes: EPS by Ghostscript,
# WMF, BUFR, GRIB, HDF5; and IPTC, which may contain any of them. Common formats come first; TGA has no
# signature and accepts nearly any file.
FORMATS = ("JPEG", *_WITH_FRAMES, *_WITHOUT_FRAMES)

# The brands of HEIF files, at byte 8.
_HEIF_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs", b"mif1")

# Whether the first frame of a file is a record, or every frame.
Frames = Literal["first", "all"]

# An animated PNG states a number, which may be a lie; no frame of any format is smaller.
_MIN_FRAME_BYTES = 12

# The EXIF tag.
ORIENTATION = 0x0112

# Tags of TIFF, and values of two of them.
_BITS, _PHOTOMETRIC, _SAMPLES, _PLANES, _PALETTE, _SAMPLE_FORMAT = 258, 262, 277, 284, 320, 339
_YCBCR, _SIGNED_INTEGERS = 6, 2

# The start of a JPEG 2000 codestream; 38 bytes later its header has the components.
_CODESTREAM = b"\xff\x4f\xff\x51"

_SIXTEEN_BITS = re.compile(r";16[BLN]|SGI16")  # in its names of pixels and decoders

_BIG_ENDIAN = re.compile(r";(16BS|32B)")  # in Pillow's names of the pixels in a file

# By Pillow's names of gray PNGs: the factor of their pixels, which Pillow leaves out for a transparent gray.
_KEY_SCALES = {"L;2": 85, "L;4": 17}

MAX_PIXELS = 89_478_485  # Pillow's own limit: 256 MiB of RGB

# Pillow warns of damaged animations and tags with a line of its source, without the name of the file.
warnings.filterwarnings("ignore", module=r"PIL\.")


@functools.cache
def _formats() -> tuple[str, ...]:
    """The formats that this version of Pillow reads."""
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def _reason(head: bytes) -> str:
    """Why a file that begins with these bytes cannot be opened."""
    if not head:
        return "the file is empty"
    for name in _formats():
        _, accepts = Image.OPEN[name]
        if accepts and accepts(head) is True:
            return f"cannot be decoded: a {name} file that is damaged, or of a kind that Pillow does not read"
    return "cannot be decoded: unknown image format"


def open_image(file: BinaryIO, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Opens an image file, with the opener of an optional package if it needs one; only its header is read.

    Raises:
        RejectError: The image has more than `max_pixels`, its format is not in `FORMATS`, or its package is not
            installed.
        DecompressionBombError: It has more than twice as many pixels.
    """
    # Pillow warns above its own limit, and rejects images of twice as many pixels.
    if max_pixels > (Image.MAX_IMAGE_PIXELS or max_pixels):
        Image.MAX_IMAGE_PIXELS = max_pixels
    try:
        image = Image.open(file, formats=_formats())
    except UnidentifiedImageError:
        file.seek(0)
        head = file.read(16)
        if head[4:8] != b"ftyp" or head[8:12] not in _HEIF_BRANDS or "HEIF" in _formats():
            raise RejectError(_reason(head)) from None
        try:
            require("pillow_heif", "heif", "HEIC and HEIF files").register_heif_opener()
        except UsageError as error:
            raise RejectError(error.message) from None
        _formats.cache_clear()
        return open_image(file, max_pixels)
    check_pixels(image, max_pixels)
    return image


def _too_large(pixels: int | Exception, max_pixels: int) -> RejectError:
    """The reject for a number of pixels, or for an error of Pillow, whose text begins with it."""
    number = "".join(re.findall(r"\d+", str(pixels))[:1])
    return RejectError(
        f"its {number} pixels are more than --max_pixels {max_pixels}: give a larger number to read it"
    )


@contextlib.contextmanager
def decoding(file: BinaryIO, max_pixels: int = MAX_PIXELS) -> Iterator[Image.Image]:
    """Opens an image file to decode it: a file is rejected if anything fails in this context.

    Raises:
        RejectError: The file is not a complete image, or its image is too large.
    """
    try:
        # Not all bytes at once: Pillow takes 64 KiB at a time, which stay in the processor's
        # cache; 100 KB of fresh memory for each image took 7% of all time.
        with open_image(file, max_pixels) as image:
            yield image
    except (RejectError, JobError):
        raise
    except Image.DecompressionBombError as error:
        raise _too_large(error, max_pixels) from None
    except Exception as error:  # Pillow's plugins raise nearly everything on broken input
        raise RejectError(f"cannot be decoded: {error}") from None


def check_decodable(image: Image.Image, file: BinaryIO, dtype: str = "uint8") -> None:
    """Checks that Pillow decodes the current frame of an image to the right pixels, and corrects how it does.

    Args:
        image: Not decoded yet.
        dtype: The dtype that it becomes.

    Raises:
        RejectError: Pillow decodes such files to wrong pixels, or reports a misleading error.
    """
    reason, tiles = "", getattr(image, "tile", ())
    if image.format == "JPEG2000":
        reason = _misread_jpeg2000(image, file)
    elif image.format == "TIFF" and tiles:
        reason = _misread_tiff(image, dtype)
    elif image.format == "PNG" and tiles and "transparency" in image.info and not image.tell():
        rawmode = tiles[0][3]
        if rawmode == "RGB;16B" and dtype == "uint8":
            reason = (
                "one of its 16-bit colors is transparent; convert it to RGBA, or add --dtype uint16"
            )
        image.info["transparency"] *= _KEY_SCALES.get(rawmode, 1)
    elif image.format == "GIF" and tiles and not image.tell():
        partial = tiles[0][1] != (0, 0, *image.size) and "transparency" not in image.info
        reason = "a GIF whose first frame covers a part of it; convert it to PNG" * partial
    if reason:
        raise RejectError(f"cannot be decoded: {reason}")


def _misread_jpeg2000(image: Image.Image, file: BinaryIO) -> str:
    """Why Pillow decodes a JPEG 2000 file to wrong pixels; empty if it does not."""
    file.seek(0)
    _, _, header = file.read().partition(_CODESTREAM)
    depth = header[38] if len(header) > 38 else 0
    if depth & 128:
        return "a JPEG 2000 file of signed numbers; scale them to 0 to 255 or 0 to 65535"
    # Pillow rounds the upper byte, and white becomes black.
    if depth >= 8 and not image.mode.startswith("I"):
        return f"a JPEG 2000 file with colors of {depth + 1} bits; convert it to PNG or TIFF"
    return ""


def _misread_tiff(image: Any, dtype: str) -> str:
    """Why Pillow decodes a TIFF to wrong pixels; empty if it does not, or no longer."""
    codec, arguments = image.tile[0][0], image.tile[0][3]
    tags = image.tag_v2
    bits, photometric = max(tags.get(_BITS, (1,))), tags.get(_PHOTOMETRIC, 0)
    # Only libtiff, which decodes compressed pixels, converts them.
    if codec == "raw" and photometric == _YCBCR:
        return "an uncompressed YCbCr TIFF; convert it to RGB"
    # libtiff gives numbers in the order of this machine, and Pillow swaps all but unsigned 16 bits.
    if codec == "libtiff" and sys.byteorder == "little" and _BIG_ENDIAN.search(arguments[0]):
        return "a compressed big-endian TIFF, whose bytes Pillow swaps; save it without compression"
    if bits == 8 and _SIGNED_INTEGERS in tags.get(_SAMPLE_FORMAT, ()):
        return "a TIFF of signed bytes; scale them to 0 to 255"
    if 8 < bits < 16:
        return f"a TIFF of {bits} bits; scale its pixels to 8 or 16 bits"
    if bits == 16 and photometric == 0:
        return "a TIFF of 16 bits whose white is 0; invert it"
    if "P" in image.mode and max(tags[_PALETTE]) < 256:
        return "a TIFF whose palette has 8 bits, not 16; convert it to RGB"
    # libtiff gives the upper bytes of separate planes.
    wide = bits == 16 and (codec == "raw" or dtype != "uint8") and len(image.getbands()) > 1
    if tags.get(_PLANES) == 2 and (wide or image.mode == "LA"):
        return "a TIFF of 16 bits, or with alpha, in separate planes; save it with interleaved channels"
    return ""


def stored_bits(image: Image.Image) -> int:
    """The most bits of a number in the file of an image that is not decoded yet; 8 if Pillow does not tell."""
    tags: Any = getattr(image, "tag_v2", {})
    wide = image.mode.startswith("I")
    for codec, _, _, arguments in getattr(image, "tile", ())[:1]:
        wide |= bool(_SIXTEEN_BITS.search(f"{codec} {arguments}"))
        wide |= codec.startswith("ppm") and image.mode != "1" and arguments[-1] > 255
    return max(tags.get(_BITS, (16 if wide else 8,)))


def losses(
    image: Image.Image, bits: int, upright: Image.Image | None, channels: int
) -> Iterator[str]:
    """Yields remarks about what a record lacks of its image.

    Args:
        image: The image, which was decoded.
        bits: Its `stored_bits`, if the record has fewer; else 0.
        upright: The 8-bit pixels of the record; None if it has others.
    """
    bands = len(image.getbands())
    if (samples := getattr(image, "tag_v2", {}).get(_SAMPLES, 0)) > bands:
        yield f"only {bands} of its {samples} channels were read"
    if image.mode == "CMYK":
        yield "its CMYK was converted to RGB without its color profile"
    if bits > 8 and not upright:
        yield f"its pixels of {bits} bits were decoded to 8 bits"
    elif bits > 8 and upright and max(np.ravel(upright.getextrema())) < 16:
        yield "its 16-bit pixels are below 4,096: uint8 has 16 levels or fewer of them; --dtype uint16 keeps all"
    elif bits > 8:
        yield "uint8 has the upper byte of its 16-bit pixels; --dtype uint16 keeps both"
    if channels != 4 and _is_transparent(image):
        yield "its transparent pixels were blended with white; --channels 4 keeps alpha"


def _is_transparent(image: Image.Image) -> bool:
    """Whether a decoded image has pixels that are not opaque."""
    if "transparency" in image.info:
        if image.mode.startswith("I"):
            return True
        image = image.convert("RGBA")
    last = image.getbands()[-1]
    return last in "Aa" and image.getchannel(last).getextrema()[0] != 255


def check_pixels(image: Image.Image, max_pixels: int) -> None:
    """Checks that an image is not too large to decode.

    Raises:
        RejectError: It has more than `max_pixels`.
    """
    if (pixels := image.width * image.height) > max_pixels:
        raise _too_large(pixels, max_pixels)


def has_more_frames(image: Image.Image) -> bool:
    """Whether an image, whose first frame was decoded, is an animation or has more pages."""
    if image.format not in _WITH_FRAMES:
        return False
    with contextlib.suppress(Exception):  # Pillow's plugins raise nearly everything on broken input
        return bool(getattr(image, "is_animated", False))
    return False


def count_frames(image: Image.Image, size: int) -> int:
    """The number of frames of an image whose file has `size` bytes.

    Raises:
        RejectError: The file claims to have more frames than it has room for.
    """
    count: int = getattr(image, "n_frames", 1) if image.format in _WITH_FRAMES else 1
    if count * _MIN_FRAME_BYTES > size:
        raise RejectError(f"{count} frames in {size} bytes: the number of frames is damaged")
    return count


def orientation_of(image: Image.Image) -> int:
    """The EXIF orientation of an image, 1 to 8; 1 if its EXIF is damaged."""
    if image.format == "PNG":
        image.load()  # EXIF may follow the pixels.
    with contextlib.suppress(Exception):  # Pillow raises nearly everything on damaged EXIF.
        # Not the PNG plugin's own `getexif`, which decodes all pixels first.
        found = Image.Image.getexif(image).get(ORIENTATION, 1)
        return int(found) if found in range(1, 9) else 1
    return 1


def stored_size(file: BinaryIO, max_pixels: int = MAX_PIXELS) -> tuple[int, int]:
    """(height, width) in the header of an image file; zeros if it cannot be read."""
    # Pillow's plugins raise nearly everything; decoding the file reports why.
    with contextlib.suppress(Exception), open_image(file, max_pixels) as image:
        return image.height, image.width
    return 0, 0
