"""The `.index` of a TFRecord file: where its records are, and some numbers of each, as arrays that can be mapped.

It has a head, which lists the sections and a checksum for each block, and the sections: each is an array
with a number for each record (docs/internals/format.md).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import google_crc32c
import numpy as np

from readers.format.dtypes import numpy_dtype
from readers.format.schema import Feature
from readers.format.tfrecord import FRAME_BYTES, MAX_FRAMED_BYTES

# The sections in the index of every job: where each record begins and the last one ends; and the upper and
# the lower 32 bits of the hash that orders the records.
OFFSET, HASH, HASH_LOW = "offset", "hash", "hash/low"

# Precedes the name of a feature.
LENGTH, VALUE = "length/", "value/"

BLOCK_BYTES = 1 << 16

_MAGIC, _VERSION = b"TFINDEX\n", 1

# Magic, version, CRC32C of the rest of the head, records, bytes of the TFRecord file, start of the blocks, and
# number of sections.
HEAD = struct.Struct("<8sIIQQII")
_UNCHECKED = 16

# Start of a section, its dtype as NumPy writes it, and the length of its name, which follows.
_SECTION = struct.Struct("<Q4sI")

_ALIGNMENT = 64

_MOST_BYTES = 1 << 63  # of a file

_DTYPES = frozenset(f"{kind}{size}" for kind in "iuf" for size in (1, 2, 4, 8)) - {"f1"} | {"b1"}


class Section(NamedTuple):
    """One array of an index: the byte at which it begins, a multiple of 64, and its dtype."""

    start: int
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class Head:
    """The head of an index.

    Attributes:
        bytes: The size of the TFRecord file in bytes.
        start: The byte at which the first block begins.
        size: The size of the index in bytes.
        crc32c: The checksum of the head, which includes the checksums of all blocks.
        checksums: uint32 [blocks], the CRC32C of each block of `BLOCK_BYTES`; the last one may be shorter.
    """

    records: int
    bytes: int
    start: int
    size: int
    crc32c: int
    sections: Mapping[str, Section]
    checksums: np.ndarray

    def numbers(self, data: Any, name: str) -> np.ndarray:
        """A section of an index, given the bytes of the index: an array [records], or [records + 1] for `OFFSET`."""
        section = self.sections[name]
        return np.frombuffer(data, section.dtype, self.records + (name == OFFSET), section.start)

    def damaged(self, data: Any, name: str = "") -> int | None:
        """The byte at which the first block with a wrong checksum begins, of all or of a section; None if all are correct."""
        first, stop = 0, len(self.checksums)
        if name:
            begin = self.sections[name].start - self.start
            end = begin + self.numbers(data, name).nbytes
            first, stop = begin // BLOCK_BYTES, -(-end // BLOCK_BYTES)
        octets = np.frombuffer(data, np.uint8)
        for block in range(first, stop):
            at = self.start + block * BLOCK_BYTES
            if google_crc32c.value(octets[at : at + BLOCK_BYTES]) != self.checksums[block]:
                return at
        return None


def numbers_of(schema: Mapping[str, Feature]) -> dict[str, np.dtype[Any]]:
    """The sections of an index for a schema, and their dtypes.

    `value/NAME` for each feature that is a single number of a NumPy dtype, and `length/NAME`, the size of the
    first unknown dimension, for each feature of unknown shape except images and feature lists.
    """
    found: dict[str, np.dtype[Any]] = {}
    for name, feature in schema.items():
        if feature.is_image or feature.step:
            continue
        if feature.has_length:
            found[LENGTH + name] = np.dtype("<u4")
        elif not feature.shape and feature.dtype != "string":
            dtype = numpy_dtype(feature.dtype)
            if dtype.str[1:] in _DTYPES:
                found[VALUE + name] = dtype
    return found


@dataclass(frozen=True)
class Index:
    """The numbers of consecutive records.

    `lengths`, int64 [records], are in bytes, including framing; `sections` are arrays [records], without `OFFSET`.
    """

    lengths: np.ndarray
    sections: Mapping[str, np.ndarray]

    def to_bytes(self) -> bytes:
        """The `.index` of a TFRecord file that has exactly these records."""
        ends = np.cumsum(self.lengths, dtype=np.int64)
        size = int(ends[-1]) if len(ends) else 0
        offsets = np.append(np.int64(0), ends).astype("<u4" if size < 1 << 32 else "<u8")
        return _formatted(len(ends), size, {OFFSET: offsets, **self.sections})

    @classmethod
    def of_bytes(cls, data: Any, file: str) -> Index:
        """Parses and checks an `.index`; ValueError, with the name of the file, if it is damaged."""
        head = parse_head(data, file)
        lengths = np.diff(checked_offsets(data, head, file))
        sections = {name: head.numbers(data, name) for name in head.sections if name != OFFSET}
        return cls(lengths, sections)

    def slice(self, first: int, stop: int) -> Index:
        """The numbers of the records from `first` to before `stop`."""
        sections = {name: array[first:stop] for name, array in self.sections.items()}
        return Index(self.lengths[first:stop], sections)

    @classmethod
    def join(cls, several: Sequence[Index]) -> Index:
        """Joins the numbers of records with the same schema."""
        sections = {
            name: np.concatenate([each.sections[name] for each in several])
            for name in several[0].sections
        }
        return cls(np.concatenate([each.lengths for each in several]), sections)


def head_crc32c(data: bytes) -> int:
    """The checksum in the head of an index, which covers the checksums of all its blocks."""
    return int.from_bytes(data[12:16], "little")


def _formatted(records: int, size: int, arrays: Mapping[str, np.ndarray]) -> bytes:
    head = HEAD.size + sum(_SECTION.size + len(name.encode()) for name in arrays)
    data = sum(_aligned(array.nbytes) for array in arrays.values())
    start = _aligned(head + 4 * -(-data // BLOCK_BYTES))
    table, body, at = list[bytes](), list[bytes](), start
    for name, array in arrays.items():
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        table += (
            _SECTION.pack(at, little.dtype.str[1:].encode(), len(name.encode())),
            name.encode(),
        )
        body.append(little.tobytes().ljust(_aligned(array.nbytes), b"\0"))
        at += len(body[-1])
    blocks = b"".join(body)
    crcs = [google_crc32c.value(blocks[n : n + BLOCK_BYTES]) for n in range(0, data, BLOCK_BYTES)]
    described = struct.pack("<QQII", records, size, start, len(arrays)) + b"".join(table)
    described += struct.pack(f"<{len(crcs)}I", *crcs)
    described = described.ljust(start - _UNCHECKED, b"\0")
    return (
        struct.pack("<8sII", _MAGIC, _VERSION, google_crc32c.value(described)) + described + blocks
    )


def parse_head(data: Any, file: str) -> Head:
    """Parses the head of an index, but does not check its blocks; ValueError, with the name of the file, if it is damaged."""
    try:
        return _head(np.frombuffer(data, np.uint8))
    except (ValueError, struct.error) as error:
        raise ValueError(f"{file}: not an index of this format ({error})") from None


def _head(data: np.ndarray) -> Head:
    magic, version, crc, records, size, start, count = HEAD.unpack_from(data.data)
    if magic != _MAGIC:
        raise ValueError(f"it begins with {magic!r}")
    if version != _VERSION:
        raise ValueError(f"version {version}; this package reads version {_VERSION}")
    if not HEAD.size <= start <= len(data) or google_crc32c.value(data[_UNCHECKED:start]) != crc:
        raise ValueError("the CRC32C of its head is wrong")
    if start % _ALIGNMENT or size >= _MOST_BYTES:
        raise ValueError(f"its blocks start at byte {start}, for a file of {size} bytes")
    sections, at = dict[str, Section](), HEAD.size
    for _ in range(count):
        begin, dtype, length = _SECTION.unpack_from(data[:start].data, at)
        at += _SECTION.size
        name = bytes(data[at : at + length]).decode()
        at += length
        if name in sections:
            raise ValueError(f"two sections {name!r}")
        kind = dtype.rstrip(b"\0").decode()
        if kind in _DTYPES:  # Other dtypes are from later versions.
            sections[name] = section = Section(begin, np.dtype(f"<{kind}"))
            end = begin + (records + (name == OFFSET)) * section.dtype.itemsize
            if begin < start or begin % _ALIGNMENT or end > len(data):
                raise ValueError(f"section {name!r} at byte {begin} exceeds {len(data)} bytes")
    if OFFSET not in sections or sections[OFFSET].dtype.str not in ("<u4", "<u8"):
        raise ValueError("it lacks the offsets of the records")
    checksums = np.frombuffer(data[:start], "<u4", -(-(len(data) - start) // BLOCK_BYTES), at)
    return Head(records, size, start, len(data), crc, sections, checksums)


def checked_offsets(data: Any, head: Head, file: str) -> np.ndarray:
    """The byte at which each record begins and the last one ends, int64 [records + 1].

    Raises ValueError if a block is damaged, or if the records do not fill their file without gaps.
    """
    at = head.damaged(data)
    if at is not None:
        raise ValueError(f"{file}: damaged at byte {at}")
    offsets = head.numbers(data, OFFSET).astype(np.int64)
    lengths = np.diff(offsets)
    # The difference of two numbers wraps around if one of them is negative, that is, from 2 ** 63 on.
    wrong = (offsets[:-1] < 0) | (lengths < FRAME_BYTES) | (lengths > MAX_FRAMED_BYTES)
    if offsets[0] or offsets[-1] != head.bytes or wrong.any():
        raise ValueError(f"{file}: its records do not fill a file of {head.bytes} bytes")
    return offsets


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
