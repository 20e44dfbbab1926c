"""The chunks of PNG files: whether they are whole, those that decide the pixels, and 16-bit files.

Source: https://www.w3.org/TR/png-3/
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

SIGNATURE = b"\x89PNG\r\n\x1a\n"

# The names of the chunks of a PNG, joined; those that begin with a small letter may be ignored.
_IN_ORDER = re.compile(
    rb"IHDR([a-z][A-Za-z]{3})*(PLTE)?([a-z][A-Za-z]{3})*(IDAT)+([a-z][A-Za-z]{3})*IEND"
)

# The chunks that may be ignored but decide pixels: transparent colors, animations, the orientation.
_OF_PIXELS = (b"tRNS", b"acTL", b"fcTL", b"fdAT", b"eXIf")

# The type of a PNG's pixels by their channels.
_COLORS = {1: 0, 3: 2, 4: 6}


class _Chunk(NamedTuple):
    name: bytes
    data: bytes
    is_whole: bool


def _chunks(png: bytes) -> Iterator[_Chunk]:
    """Yields the chunks up to the end of a PNG file; `data` is a chunk with its length and checksum."""
    at, name = len(SIGNATURE), b""
    while at + 12 <= len(png) and name != b"IEND":
        length, name = struct.unpack_from(">I4s", png, at)
        data = png[at : at + 12 + length]
        crc = struct.pack(">I", zlib.crc32(memoryview(data)[4:-4]))
        yield _Chunk(name, data, len(data) == 12 + length and data[-4:] == crc)
        at += 12 + length


def is_whole(png: bytes) -> bool:
    """Whether a PNG file has the chunks of a PNG in their order, with right checksums, up to its end.

    Pillow stops once it has all pixels, and ignores chunks that it does not know. TensorFlow's libpng
    refuses a file whose end is cut or damaged, and unknown chunks that are marked as critical.
    """
    names = []
    for chunk in _chunks(png):
        if not chunk.is_whole:
            return False
        names.append(chunk.name)
    return _IN_ORDER.fullmatch(b"".join(names)) is not None


def is_metadata(name: bytes) -> bool:
    """Whether a chunk of this name does not decide the pixels."""
    return name[:1].islower() and name not in _OF_PIXELS


def without_metadata(png: bytes) -> bytes:
    """A PNG file without texts, color profiles and whatever else does not decide its pixels.

    TensorFlow's libpng ignores such chunks if they are damaged, as viewers do. Pillow refuses the file.
    """
    kept = (
        chunk.data
        for chunk in _chunks(png)
        if not is_metadata(chunk.name) and (chunk.is_whole or chunk.name != b"eXIf")
    )
    return SIGNATURE + b"".join(kept)


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
    header = struct.pack(">2I5B", width, height, 16, _COLORS[channels], 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes())), (b"IEND", b"")
    return SIGNATURE + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    )
