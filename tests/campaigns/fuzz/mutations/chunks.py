"""Mutations of pictures and sounds in chunks: PNGs whose checksums stay right, and RIFF."""

from __future__ import annotations

import random
import struct
import zlib

from tests.campaigns.fuzz.target import Plain

_PNG = b"\x89PNG\r\n\x1a\n"


def mutate_picture(data: bytes, size: int, randomness: random.Random, plain: Plain) -> bytes:
    """Changes a chunk of a PNG, or any bytes of another picture."""
    if not data.startswith(_PNG):
        return plain(data, size)
    chunks, at = [], len(_PNG)
    while at + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, at)
        if at + 12 + length > len(data):
            break
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    if not chunks:
        return plain(data, size)
    place = randomness.randrange(len(chunks))
    kind, content = chunks[place]
    match randomness.randrange(6):
        case 0:
            chunks.insert(randomness.randint(0, len(chunks)), chunks[place])
        case 1:
            del chunks[place]
        case 2 if kind == b"IDAT":
            try:
                pixels = zlib.decompress(content)
            except zlib.error:
                pixels = content
            chunks[place] = (kind, zlib.compress(plain(pixels, len(pixels) + 8)))
        case 3:
            kinds = b"tRNS PLTE gAMA eXIf iCCP acTL fcTL fdAT zTXt".split()
            chunks[place] = (randomness.choice(kinds), content)
        case _:
            chunks[place] = (kind, plain(content, len(content) + 8))
    out = [_PNG]
    for each, octets in chunks:
        body = each + octets
        out.append(struct.pack(">I", len(octets)) + body + struct.pack(">I", zlib.crc32(body)))
    return b"".join(out)
