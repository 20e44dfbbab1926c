"""The chunks of PNG files: whether they are whole, and files of 16 bits.

Source: https://www.w3.org/TR/png-3/
"""

from __future__ import annotations

import re
import struct
import zlib

import numpy as np

SIGNATURE = b"\x89PNG\r\n\x1a\n"

# The names of the chunks of a PNG, joined; those that begin with a small letter may be ignored.
_IN_ORDER = re.compile(
    rb"IHDR([a-z][A-Za-z]{3})*(PLTE)?([a-z][A-Za-z]{3})*(IDAT)+([a-z][A-Za-z]{3})*IEND"
)

# The type of a PNG's pixels by their channels.
_COLORS = {1: 0, 3: 2, 4: 6}


def is_whole(png: bytes) -> bool:
    """Whether a PNG file has the chunks of a PNG in their order, with right checksums, up to its end.

    Pillow stops once it has all pixels, and ignores chunks that it does not know. TensorFlow's libpng
    refuses a file whose end is cut or damaged, and unknown chunks that are marked as critical.
    """
    at, names = len(SIGNATURE), list[bytes]()
    while at + 12 <= len(png) and names[-1:] != [b"IEND"]:
        length, name = struct.unpack_from(">I4s", png, at)
        chunk = memoryview(png)[at : at + 12 + length]
        if len(chunk) < 12 + length or chunk[-4:] != struct.pack(">I", zlib.crc32(chunk[4:-4])):
            return False
        names.append(name)
        at += 12 + length
    return _IN_ORDER.fullmatch(b"".join(names)) is not None


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
