"""JPEG and PNG files whose bytes a record keeps: up to the end of their image, and without metadata if asked for.

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
_IN_ORDER = re.compile(
    rb"IHDR([a-z][A-Za-z]{3})*(PLTE)?([a-z][A-Za-z]{3})*(IDAT)+([a-z][A-Za-z]{3})*IEND"
)

# EXIF, texts (XMP among them) and times.
_METADATA_CHUNKS = (b"eXIf", b"tEXt", b"zTXt", b"iTXt", b"tIME")

# A marker of a JPEG; among the pixels, a byte FF is followed by 0, and restarts are numbered from D0 to D7.
_MARKER = re.compile(rb"\xff+([^\x00\xff\xd0-\xd7])", re.DOTALL)

_END, _COMMENT, _APPLICATIONS = 0xD9, 0xFE, range(0xE0, 0xF0)

# What applications store that pixels depend on: JFIF, a color profile, and Adobe's kind of colors.
_OF_PIXELS = {0xE0: b"", 0xE2: b"ICC_PROFILE\0", 0xEE: b"Adobe"}


# A part of a file: its first byte, its end, and whether it is metadata.
_Part = tuple[int, int, bool]


def kept_file(data: bytes, strip_metadata: bool) -> bytes | None:
    """The bytes of a JPEG or PNG file that its record keeps, which end with the image.

    Args:
        data: The whole file, which Pillow decodes.
        strip_metadata: Whether to leave out EXIF, XMP, comments and other texts.

    Returns:
        The bytes; None for a PNG that other decoders refuse: Pillow stops once it has all pixels, and ignores
        chunks that it does not know. TensorFlow's libpng refuses a file whose end is cut or damaged, and
        unknown chunks that are marked as critical.
    """
    is_png = data.startswith(_SIGNATURE)
    parts = list(_png_parts(data) if is_png else _jpeg_parts(data))
    if is_png and not _IN_ORDER.fullmatch(b"".join(data[at + 4 : at + 8] for at, *_ in parts)):
        return None
    end = parts[-1][1]
    if not strip_metadata:
        return data[:end]
    # Pixels of a JPEG follow the part that announces them.
    starts = [*(start for start, *_ in parts), end]
    kept = (
        data[start:next_start]
        for (*_, is_metadata), (start, next_start) in zip(parts, pairwise(starts), strict=True)
        if not is_metadata
    )
    return data[: starts[0]] + b"".join(kept)


def _png_parts(data: bytes) -> Iterator[_Part]:
    """Yields the chunks of a PNG up to its end, or up to one that is cut off or has a wrong checksum."""
    at, name = len(_SIGNATURE), b""
    while at + 12 <= len(data) and name != b"IEND":
        length, name = struct.unpack_from(">I4s", data, at)
        chunk = memoryview(data)[at : at + 12 + length]
        if len(chunk) < 12 + length or chunk[-4:] != struct.pack(">I", zlib.crc32(chunk[4:-4])):
            return
        yield at, at + len(chunk), name in _METADATA_CHUNKS
        at += len(chunk)


def _jpeg_parts(data: bytes) -> Iterator[_Part]:
    """Yields the segments of a JPEG up to the end of its image, or of the file if that has no end."""
    at = 2
    while found := _MARKER.search(data, at):
        marker, at = found[1][0], found.end()
        if marker == _END:
            yield found.start(), at, False
            return
        if marker in (0x01, 0xD8):  # These have no length.
            continue
        at += int.from_bytes(data[at : at + 2], "big")
        is_metadata = marker == _COMMENT or marker in _APPLICATIONS
        if is_metadata and marker in _OF_PIXELS:
            is_metadata = not data.startswith(_OF_PIXELS[marker], found.end() + 2)
        yield found.start(), at, is_metadata
    yield len(data), len(data), False
