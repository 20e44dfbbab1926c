"""Mutations of protocol-buffer messages: fields are changed, repeated, moved, and lengths kept right."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from typing import Any

from tests.campaigns.fuzz.target import Plain

# (field number, wire type, value): an int, bytes, or the fields of a message.
Field = tuple[int, int, Any]

_DEPTH = 5
_NUMBERS = (0, 1, 2, 127, 128, 1 << 31, (1 << 31) - 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)


def _varint(value: int, longer: int = 0) -> bytes:
    """A varint, with some more bytes than it needs."""
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    for _ in range(longer):
        out[-1] |= 128
        out.append(0)
    return bytes(out)


def parsed(data: bytes, depth: int = 0) -> list[Field] | None:
    """The fields of a message, with those that may be messages parsed; None if the bytes are no message."""
    fields: list[Field] = []
    at = 0
    while at < len(data):
        tag, at = _read(data, at)
        number, kind = tag >> 3, tag & 7
        if not 0 < number < 1000 or at < 0:
            return None
        if kind == 0:
            value, at = _read(data, at)
            if at < 0:
                return None
            fields.append((number, kind, value))
            continue
        size = {1: 8, 5: 4}.get(kind, -1)
        if kind == 2:
            size, at = _read(data, at)
        if size < 0 or at < 0 or at + size > len(data):
            return None
        piece = data[at : at + size]
        inner = parsed(piece, depth + 1) if kind == 2 and piece and depth < _DEPTH else None
        fields.append((number, kind, piece if inner is None else inner))
        at += size
    return fields


def _read(data: bytes, at: int) -> tuple[int, int]:
    """A varint and the position after it, which is negative if it is cut off."""
    value = shift = 0
    while at < len(data) and shift < 70:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at
    return 0, -1


def written(fields: Sequence[Field], randomness: random.Random | None = None) -> bytes:
    """A message; with randomness, now and then a varint is longer than it needs to be."""
    out = []
    for number, kind, value in fields:
        longer = randomness.randint(1, 3) if randomness and randomness.random() < 0.02 else 0
        out.append(_varint(number << 3 | kind, longer if longer > 2 else 0))
        if kind == 0:
            out.append(_varint(value & (1 << 64) - 1, longer))
            continue
        piece = written(value, randomness) if isinstance(value, list) else value
        out += [_varint(len(piece), longer), piece] if kind == 2 else [piece]
    return b"".join(out)


def mutate(data: bytes, size: int, randomness: random.Random, plain: Plain) -> bytes:
    """Changes a message here and there."""
    fields = parsed(data)
    if not fields:
        return plain(data, size)
    for _ in range(randomness.randint(1, 3)):
        _change(fields, randomness, plain)
    return written(fields, randomness)


def _lists(fields: list[Field]) -> list[list[Field]]:
    """A message and all messages in it."""
    found = [fields]
    for _, _, value in fields:
        if isinstance(value, list):
            found += _lists(value)
    return found


def _change(whole: list[Field], randomness: random.Random, plain: Plain) -> None:
    everywhere = _lists(whole)
    fields = randomness.choice(everywhere)
    at = randomness.randrange(len(fields)) if fields else 0
    match randomness.randrange(8):
        case 0 if fields:  # Repeated, near or far.
            fields.insert(randomness.randint(0, len(fields)), copy.deepcopy(fields[at]))
        case 1 if len(fields) > 1 or fields is not whole:
            if fields:
                del fields[at]
        case 2 if fields:
            other = randomness.choice(everywhere)
            other.insert(randomness.randint(0, len(other)), copy.deepcopy(fields[at]))
        case 3 if fields:
            number, kind, value = fields[at]
            fields[at] = (randomness.choice((number, 1, 2, 3, 4, 8, 15)), kind, value)
        case 4 if fields:  # A packed run in two, or a message in two that merge.
            number, kind, value = fields[at]
            if kind == 2 and len(value) > 1:
                cut = randomness.randrange(len(value))
                fields[at : at + 1] = [(number, kind, value[:cut]), (number, kind, value[cut:])]
        case 5 if fields:  # A packed run becomes single numbers.
            number, kind, value = fields[at]
            if kind == 2 and isinstance(value, bytes):
                wire, step = randomness.choice(((0, 1), (5, 4), (1, 8)))
                pieces = [value[i : i + step] for i in range(0, len(value) - step + 1, step)][:20]
                found = [(number, wire, p if wire else p[0]) for p in pieces]
                fields[at : at + 1] = found
        case _ if fields:
            number, kind, value = fields[at]
            if kind == 0:
                fields[at] = (number, kind, randomness.choice((*_NUMBERS, value ^ 1, value + 1)))
            elif kind == 2:
                piece = written(value) if isinstance(value, list) else value
                fields[at] = (number, kind, plain(piece, len(piece) + 16))
            else:
                fields[at] = (number, kind, plain(value, len(value)).ljust(len(value), b"\0"))
