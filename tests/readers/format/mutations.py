"""Bytes that are almost valid, for tests of parsers."""

from __future__ import annotations

import random

from readers.format.protobuf.wire import varint


def mutated(randoms: random.Random, data: bytes) -> bytes:
    """The data with a few bytes changed, removed, repeated or inserted anywhere."""
    octets = bytearray(data)
    for _ in range(randoms.randint(1, 4)):
        at = randoms.randrange(len(octets) + 1)
        match randoms.randrange(5):
            case 0:
                octets[at : at + 1] = randoms.randbytes(1)
            case 1:
                del octets[at : at + randoms.randint(1, 4)]
            case 2:
                octets[at:at] = randoms.randbytes(randoms.randint(1, 10))
            case 3:
                octets[at:at] = octets[at : at + 8]
            case 4:  # A varint of ten bytes, or one that is as long as a length may be.
                octets[at : at + 1] = randoms.choice((b"\xff" * 9 + b"\x01", b"\xff" * 8 + b"\x7f"))
    return bytes(octets)


def field(number: int, content: bytes) -> bytes:
    """A field of a message that holds bytes or another message."""
    return varint(number << 3 | 2) + varint(len(content)) + content
