"""JPEG and PNG files whose bytes a record keeps: up to the end of the image, and without metadata on request.

Sources: https://www.w3.org/Graphics/JPEG/itu-t81.pdf (annex B) and https://www.w3.org/TR/png-3/.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from itertools import pairwise

_SIGNATURE = b"\x89PNG\r\n\x1a\n"

# The names of the chunks of a PNG, joined; those that begin with a small letter may be ignored.
_PNG_IN_ORDER = re.compile(
    rb"IHDR([a-z][A-Za-z]{3})*(PLTE)?([a-z][A-Za-z]{3})*(IDAT)+([a-z][A-Za-z]{3})*IEND"
)

# The markers of a JPEG, joined: of its size (SOF), of pixels (SOS), and of its end, which may lack.
_JPEG_IN_ORDER = re.compile(
    rb"[^\xda\xd9]*[\xc0-\xc3\xc5-\xc7\xc9-\xcb\xcd-\xcf][^\xda\xd9]*\xda[^\xd9]*\xd9?", re.DOTALL
)

# EXIF, texts (XMP among them) and times.
_METADATA_CHUNKS = (b"eXIf", b"tEXt", b"zTXt", b"iTXt", b"tIME")

# A marker of a JPEG; among the pixels, a byte FF is followed by 0, and restarts are numbered from D0 to D7. The bytes
# FF with which a marker may be padded are left to the part before it: `\xff+` takes quadratic time in a run of them.
_MARKER = re.compile(rb"\xff([^\x00\xff\xd0-\xd7])", re.DOTALL)

_END, _PIXELS, _COMMENT, _APPLICATIONS = 0xD9, 0xDA, 0xFE, range(0xE0, 0xF0)

# Segments of applications on which pixels depend: JFIF, a color profile, and Adobe's color transform.
_OF_PIXELS = {0xE0: b"", 0xE2: b"ICC_PROFILE\0", 0xEE: b"Adobe"}

# Where the further images of an MPO are, which are cut off.
_OTHER_IMAGES = b"MPF\0"

# A part of a file: its first byte, its name or marker, and whether it is metadata.
_Part = tuple[int, bytes, bool]


def kept_file(data: bytes, strip_metadata: bool) -> bytes | None:
    """The bytes of a JPEG or PNG file that its record keeps, which end with the image.

    Args:
        data: The whole file, which Pillow decodes.
        strip_metadata: Whether to leave out EXIF, XMP, comments and other texts.

    Returns:
        The bytes; None for a damaged file that other decoders may reject. Pillow stops reading a PNG once it has all
        pixels, and ignores unknown chunks; TensorFlow's libpng rejects a file with a cut or damaged end, and unknown
        chunks that are marked as critical.
    """
    is_png = data.startswith(_SIGNATURE)
    parts = list(_png_parts(data) if is_png else _jpeg_parts(data))
    in_order = _PNG_IN_ORDER if is_png else _JPEG_IN_ORDER
    if not in_order.fullmatch(b"".join(name for _, name, _ in parts)):
        return None
    kept = (
        data[start:end]
        for (start, _, is_metadata), (end, *_) in pairwise(parts)
        if not ((is_metadata and strip_metadata) or data.startswith(_OTHER_IMAGES, start + 4))
    )
    return data[: parts[0][0]] + b"".join(kept)


def _png_parts(data: bytes) -> Iterator[_Part]:
    """Yields the chunks of a PNG up to its end, or up to one that is cut off or fails its checksum; then the end."""
    at, name = len(_SIGNATURE), b""
    while at + 12 <= len(data) and name != b"IEND":
        length, name = struct.unpack_from(">I4s", data, at)
        chunk = memoryview(data)[at : at + 12 + length]
        if len(chunk) < 12 + length or chunk[-4:] != struct.pack(">I", zlib.crc32(chunk[4:-4])):
            break
        yield at, name, name in _METADATA_CHUNKS
        at += len(chunk)
    yield at, b"", False


def _jpeg_parts(data: bytes) -> Iterator[_Part]:
    """Yields the segments of a JPEG, each with the pixels that follow it, then the end of its image, or of the file."""
    at, in_pixels = 2, False
    while found := _MARKER.search(data, at):
        marker, at = found[1][0], found.end()
        if marker == _END:
            yield found.start(), found[1], False
            yield at, b"", False
            return
        if marker in (0x01, 0xD8):  # These have no length.
            continue
        at += int.from_bytes(data[at : at + 2], "big")
        in_pixels = (
            in_pixels or marker == _PIXELS
        )  # Where they are damaged, they may look like metadata.
        is_metadata = not in_pixels and (marker == _COMMENT or marker in _APPLICATIONS)
        if is_metadata and marker in _OF_PIXELS:
            is_metadata = not data.startswith(_OF_PIXELS[marker], found.end() + 2)
        yield found.start(), found[1], is_metadata
    yield len(data), b"", False
