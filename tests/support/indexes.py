"""Indexes by plain Python, as docs/internals/format.md describes them: written, read, sealed after changes, and compared."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple
from unittest import mock

from google_crc32c import value as crc32c

from readers.format.lookup.index_file import IndexFile
from readers.shards.opened import indexes

HEAD = struct.Struct("<8sIIQQII")
ENTRY = struct.Struct("<Q4sI")
BLOCK = 1 << 16

# The longest record that a reader takes, with its framing.
LONGEST = (1 << 31) - 1 + 16

DTYPES = {f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)} | {"f2", "f4", "f8", "b1"}


class Parsed(NamedTuple):
    """An index whose checksums are right.

    Attributes:
        size: The size of the TFRecord file.
        offsets: Where each record begins, and where the last one ends.
        sections: The dtype and the bytes of each section but `offset`, by name.
    """

    size: int
    offsets: tuple[int, ...]
    sections: dict[str, tuple[str, bytes]]

    def row(self, number: int) -> tuple[int, int] | None:
        """The (offset, length) of a record; None if no record can be there."""
        start, end = self.offsets[number : number + 2]
        return (start, end - start) if 16 <= end - start <= LONGEST and end <= self.size else None

    @property
    def rows(self) -> list[tuple[int, int]] | None:
        """The (offset, length) of all records; None if they do not follow one another to the end of the file."""
        found = [self.row(number) for number in range(len(self.offsets) - 1)]
        rows = [row for row in found if row]
        follow = (self.offsets[0], self.offsets[-1]) == (0, self.size)
        return rows if follow and len(rows) == len(found) else None


def index_bytes(
    records: int, size: int, sections: Sequence[tuple[str | bytes, str, bytes]], **head: int
) -> bytes:
    """An index with right checksums, whatever its numbers are.

    Args:
        records: The number of records.
        size: The size of the TFRecord file.
        sections: The name, the dtype and the bytes of each section.
        head: Other values than the right ones: `version`, `start`, `count`, or `begin` of all sections.
    """
    names = [name if isinstance(name, bytes) else name.encode() for name, _, _ in sections]
    body, begins = b"", list[int]()
    for _, _, data in sections:
        begins.append(len(body))
        body += data + bytes(-len(data) % 64)
    table = HEAD.size + sum(ENTRY.size + len(name) for name in names)
    start = head.get("start", -(-(table + 4 * -(-len(body) // BLOCK)) // 64) * 64)
    found = HEAD.pack(
        b"TFINDEX\n", head.get("version", 1), 0, records, size, start, head.get("count", len(names))
    )
    for name, (_, dtype, _), begin in zip(names, sections, begins, strict=True):
        found += ENTRY.pack(head.get("begin", start + begin), dtype.encode(), len(name)) + name
    return sealed(found.ljust(start, b"\0") + body)


def spans(data: bytes) -> list[tuple[int, int]]:
    """Where each record of an intact TFRecord file begins and ends."""
    found, at = [], 0
    while at < len(data):
        end = at + 16 + int.from_bytes(data[at : at + 8], "little")
        found.append((at, end))
        at = end
    return found


def index_of_file(data: bytes) -> bytes:
    """The index of an intact TFRecord file that says no more than where its records are."""
    offsets = [0, *(end for _, end in spans(data))]
    section = "offset", "u4", struct.pack(f"<{len(offsets)}I", *offsets)
    return index_bytes(len(offsets) - 1, len(data), [section])


def sealed(data: bytes) -> bytes:
    """The bytes of an index with the checksums that they should have, as far as there is a place for them."""
    if len(data) < HEAD.size:
        return data
    *_, start, count = HEAD.unpack_from(data)
    found, at = bytearray(data), _table(data, start, count)[1]
    for begin in range(start, len(data), BLOCK):
        if at + 4 <= start:
            struct.pack_into("<I", found, at, crc32c(data[begin : begin + BLOCK]))
        at += 4
    struct.pack_into("<I", found, 12, crc32c(bytes(found[16:start])))
    return bytes(found)


def parsed(data: bytes) -> Parsed | None:
    """What an index says; None if it is none, or a checksum of it is wrong."""
    if len(data) < HEAD.size:
        return None
    magic, version, crc, records, size, start, count = HEAD.unpack_from(data)
    if (magic, version) != (b"TFINDEX\n", 1) or start % 64 or not 40 <= start <= len(data):
        return None
    table, at = _table(data, start, count)
    crcs = [crc32c(data[begin : begin + BLOCK]) for begin in range(start, len(data), BLOCK)]
    if len(table) < count or at + 4 * len(crcs) > start or size >= 1 << 63:
        return None
    if (crc, *struct.unpack_from(f"<{len(crcs)}I", data, at)) != (crc32c(data[16:start]), *crcs):
        return None
    sections = dict[str, tuple[str, bytes]]()
    for raw, code, begin in table:
        try:
            name, dtype = raw.decode(), code.rstrip(b"\0").decode()
        except UnicodeDecodeError:
            return None
        if name in sections:
            return None
        if dtype in DTYPES:
            end = begin + (records + (name == "offset")) * int(dtype[1:])
            if begin < start or begin % 64 or end > len(data):
                return None
            sections[name] = dtype, data[begin:end]
    dtype, numbers = sections.pop("offset", ("", b""))
    if dtype not in ("u4", "u8"):
        return None
    offsets = struct.unpack(f"<{records + 1}{'I' if dtype == 'u4' else 'Q'}", numbers)
    return Parsed(size, offsets, sections)


def _table(data: bytes, start: int, count: int) -> tuple[list[tuple[bytes, bytes, int]], int]:
    """The name, the dtype and the begin of each section that the head describes, and where that ends."""
    found, at = list[tuple[bytes, bytes, int]](), HEAD.size
    while len(found) < count and at + ENTRY.size <= min(start, len(data)):
        begin, code, length = ENTRY.unpack_from(data, at)
        at += ENTRY.size
        if at + length > start:
            break
        found.append((data[at : at + length], code, begin))
        at += length
    return found, at


def compare_mapped(data: bytes, path: str) -> None:
    """Asserts that readers find in an index what it says, or raise a ValueError that names it.

    They check a small index when they open it, and of a large one what they use: it is opened as both.

    Args:
        data: The bytes of the index.
        path: The path of a file that has them.
    """
    known = parsed(data)
    records = len(known.offsets) - 1 if known else 0
    index = IndexFile(path, path.removesuffix(".index"), records, None, len(data), None)
    for at_once in (len(data), -1):
        opened = indexes.ShardIndexes([index])
        is_right = known is not None and (at_once < 0 or known.rows is not None)
        try:
            with mock.patch.object(indexes, "_CHECKED_AT_ONCE", at_once):
                opened.load(0)
        except ValueError as error:
            assert path in str(error)
            assert not is_right, f"an index is refused: {error}"
            continue
        assert is_right or at_once < 0, "no index was taken for one"
        for number in range(records):
            found = None
            try:
                found = opened.of_one(number, 0)
            except ValueError as error:
                assert path in str(error)
            assert known and found == known.row(number), "another record than the index has"
