"""Mutations of TFRecord files whose lengths and checksums stay right, but for now and then."""

from __future__ import annotations

import gzip
import random
import struct
import zlib

from readers.format.tfrecord import FRAME_BYTES, HEADER_BYTES, frame
from tests.campaigns.fuzz.target import Plain


def frames_in(data: bytes) -> list[bytes]:
    """The records of a file, whatever their checksums are."""
    found, at = [], 0
    while at + FRAME_BYTES <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        if at + FRAME_BYTES + length > len(data):
            break
        found.append(data[at + HEADER_BYTES : at + HEADER_BYTES + length])
        at += FRAME_BYTES + length
    return found


def mutate(data: bytes, size: int, randomness: random.Random, plain: Plain) -> bytes:
    """Changes records of a file, which may be compressed."""
    packed = data[:2] == b"\x1f\x8b"
    if packed:
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            return plain(data, size)
    records = frames_in(data)
    if not records:
        return plain(data, size)
    at = randomness.randrange(len(records))
    match randomness.randrange(5):
        case 0:
            records.insert(at, records[randomness.randrange(len(records))])
        case 1:
            records[at : at + 1] = [records[at]] * randomness.choice((2, 5, 130, 520))
        case 2:
            del records[at]
        case _:
            records[at] = plain(records[at], len(records[at]) + 8)
    framed = [bytearray(frame(record)) for record in records]
    if framed and randomness.random() < 0.3:
        broken = randomness.choice(framed)
        broken[randomness.randrange(len(broken))] ^= 1 << randomness.randrange(8)
    out = b"".join(framed)
    if randomness.random() < 0.2:
        out = out[: randomness.randint(0, len(out))]
    return gzip.compress(out, mtime=0) if packed != (randomness.random() < 0.05) else out
