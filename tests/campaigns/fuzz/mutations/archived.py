"""Mutations of archives: of their members, and of their directories with checksums that stay right."""

from __future__ import annotations

import gzip
import io
import random
import struct
import warnings
import zipfile
import zlib

from tests.campaigns.fuzz.target import Plain

_BLOCK = 512


def mutate_zip(data: bytes, size: int, randomness: random.Random, plain: Plain) -> bytes:
    """Changes a member of a zip, and writes it again; or fields of its directory."""
    if randomness.random() < 0.4:
        return _changed_fields(data, randomness)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [(info, archive.read(info)) for info in archive.infolist()]
    except Exception:  # zipfile raises nearly everything on broken input.
        return plain(data, size)
    if not members:
        return plain(data, size)
    at = randomness.randrange(len(members))
    info, content = members[at]
    match randomness.randrange(5):
        case 0:
            members.insert(randomness.randint(0, len(members)), members[at])
        case 1:
            del members[at]
        case 2:
            name = plain(info.filename.encode("utf-8", "replace"), 60).decode("utf-8", "replace")
            changed = zipfile.ZipInfo(name or "a")
            changed.compress_type = randomness.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
            members[at] = (changed, content)
        case _:
            members[at] = (info, plain(content, len(content) + 32))
    out = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with zipfile.ZipFile(out, "w") as archive:
                for each, octets in members:
                    archive.writestr(each, octets)
        except Exception:
            return plain(data, size)
    return out.getvalue()


def _changed_fields(data: bytes, randomness: random.Random) -> bytes:
    """Changes a number near one of the signatures of a zip."""
    octets = bytearray(data)
    signatures = (b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07")
    places = [at for at in range(len(data) - 8) if data[at : at + 4] in signatures]
    if not places:
        return data
    at = randomness.choice(places) + 4 + 2 * randomness.randrange(22)
    value = randomness.choice((0, 1, 8, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, len(data), at))
    width = randomness.choice((2, 4))
    octets[at : at + width] = (value & (1 << 8 * width) - 1).to_bytes(width, "little")
    return bytes(octets[: len(data)])


def mutate_tar(data: bytes, size: int, randomness: random.Random, plain: Plain) -> bytes:
    """Changes a block of a tar, and writes the checksums of its headers again."""
    octets = bytearray(data)
    blocks = max(1, len(octets) // _BLOCK)
    at = randomness.randrange(blocks) * _BLOCK
    match randomness.randrange(6):
        case 0:
            octets[at:at] = octets[at : at + _BLOCK]
        case 1:
            del octets[at : at + _BLOCK]
        case 2:
            # Sizes, the kind of a member, and the numbers of a sparse one.
            field, width = randomness.choice(((124, 12), (156, 1), (345, 12), (386, 12), (257, 8)))
            values = (
                b"0",
                b"7777",
                b"\xff" * 8,
                b"-1",
                *(b"%c" % kind for kind in b"LKxgS125\x80"),
            )
            value = randomness.choice(values)
            octets[at + field : at + field + width] = value.ljust(width, b"\0")[:width]
        case _:
            block = plain(bytes(octets[at : at + _BLOCK]), _BLOCK)
            octets[at : at + _BLOCK] = block.ljust(_BLOCK, b"\0")
    return _with_checksums(octets)


def _with_checksums(octets: bytearray) -> bytes:
    for at in range(0, len(octets) - _BLOCK + 1, _BLOCK):
        if octets[at + 257 : at + 262] == b"ustar":
            octets[at + 148 : at + 156] = b" " * 8
            total = sum(octets[at : at + _BLOCK])
            octets[at + 148 : at + 156] = b"%06o\0 " % total
    return bytes(octets)


def mutate_tar_gz(data: bytes, size: int, randomness: random.Random, plain: Plain) -> bytes:
    """Changes a tar inside GZIP."""
    try:
        inside = gzip.decompress(data)
    except (OSError, EOFError, zlib.error, struct.error):
        return plain(data, size)
    changed = mutate_tar(inside, size, randomness, plain)
    return gzip.compress(changed, mtime=0)
