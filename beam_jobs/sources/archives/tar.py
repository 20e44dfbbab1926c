"""The headers of a tar: which members it has, and where they lie.

The standard library's `tarfile` takes a damaged header for the end of the archive. Sources: `pax` in
POSIX.1-2017, and the manual of GNU tar.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from beam_jobs.errors import RejectError
from beam_jobs.sources.archives.member import IN_TAR, Member, Place, shown_name
from beam_jobs.sources.archives.streams import CHUNK_BYTES, read_at, whole

_BLOCK = 512

_ZEROS = bytes(_BLOCK)

_FILES = (b"0", b"\0", b"7", b"S")

_EXTENDED = (b"L", b"K", b"x", b"X", b"g")

_WITHOUT_DATA = (b"1", b"2", b"3", b"4", b"5", b"6")

_SPARSE = b"S"

_MAX_EXTENDED_BYTES = 16 << 20

_SPARSE_KEYS = (b"GNU.sparse.size", b"GNU.sparse.realsize", b"GNU.sparse.name")

_PAX_KEYS = (b"path", b"size", *_SPARSE_KEYS)

# Where a stream without a known size ends at the latest.
NOWHERE = 1 << 62


class _Header(NamedTuple):
    """The first block of a member of a tar: sizes in bytes, times in seconds since the epoch."""

    kind: bytes
    name: bytes
    size: int


def tar_places(file: BinaryIO) -> Iterator[Member]:
    """Yields the regular files of a tar that is not packed."""
    for member, start in tar_members(file, file.seek(0, io.SEEK_END)):
        if member.error:
            yield member
        else:
            yield member._replace(place=Place(start, member.size, member.size, IN_TAR, 0))


def tar_members(file: BinaryIO, total: int) -> Iterator[tuple[Member, int]]:
    """Yields (member, where its bytes begin) of the regular files of a tar, from front to back.

    Args:
        total: Bytes of the file.
    """
    at = 0
    shared: dict[bytes, bytes] = {}
    own: dict[bytes, bytes] = {}
    while (block := read_at(file, at, _BLOCK)) != _ZEROS:
        header, start = _tar_header(block, at), at + _BLOCK
        if header.kind in _EXTENDED:
            if header.size > _MAX_EXTENDED_BYTES:
                raise RejectError(f"the extended header at byte {at} has {header.size} bytes")
            data = whole(read_at(file, start, header.size), header.size)
            if header.kind == b"L":
                own |= {b"path": data.partition(b"\0")[0]}
            elif header.kind == b"g":
                shared |= _pax_records(data)
            elif header.kind != b"K":
                own |= _pax_records(data)
            at = start + _padded(header.size)
            continue
        if header.kind == _SPARSE:
            start = _end_of_map(file, block, start)
        member, size = _tar_member(header, shared | own)
        end = start + (0 if header.kind in _WITHOUT_DATA else _padded(size))
        if end > total:
            raise RejectError(f"the member at byte {at} ends at byte {end}, the archive at {total}")
        if member:
            yield member, start
        at, own = end, {}
    if own:
        raise RejectError(f"the extended header before byte {at} belongs to no member")
    while block := read_at(file, at, CHUNK_BYTES):
        if block.strip(b"\0"):
            raise RejectError(f"zeros, which end a tar, but more follows them from byte {at} on")
        at += len(block)


def _tar_member(header: _Header, records: dict[bytes, bytes]) -> tuple[Member | None, int]:
    """(the member, or None where it is passed over; bytes of its data)."""
    size = _pax_size(records, header.size)
    if header.kind not in _FILES:
        return None, size
    path = records.get(b"GNU.sparse.name") or records.get(b"path") or header.name
    named = shown_name(path.decode("utf-8", "surrogateescape"))
    if named is None:
        return None, size
    name, error = named
    if header.kind == _SPARSE or any(map(records.__contains__, _SPARSE_KEYS)):
        error = error or "the member is a sparse file: pack it without --sparse"
    return Member(name, size, None, error), size


def _end_of_map(file: BinaryIO, block: bytes, at: int) -> int:
    """Where the blocks end in which the map of a sparse file goes on."""
    more = block[482]
    while more:
        more = whole(read_at(file, at, _BLOCK), _BLOCK)[504]
        at += _BLOCK
    return at


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _tar_header(block: bytes, at: int) -> _Header:
    if len(block) < _BLOCK:
        raise RejectError(f"it ends at byte {at + len(block)} without the zeros that end a tar")
    try:
        expected, summed = _tar_number(block[148:156]), block[:148] + b" " * 8 + block[156:]
        # Some old systems added up signed bytes.
        if expected != sum(summed) and expected != sum(memoryview(summed).cast("b")):
            raise ValueError
        size = _tar_number(block[124:136])
    except ValueError:
        raise RejectError(f"there is no header of a tar at byte {at}") from None
    if not 0 <= size < NOWHERE:
        raise RejectError(f"the header at byte {at} says {size} bytes")
    name = block[:100].partition(b"\0")[0]
    prefix = block[345:500].partition(b"\0")[0]
    # GNU tar keeps other things there.
    if prefix and block[257:263] == b"ustar\0":
        name = prefix + b"/" + name
    return _Header(block[156:157], name, size)


def _tar_number(field: bytes) -> int:
    """A number in octal digits, or in binary where those would not suffice.

    Raises:
        ValueError: It is neither.
    """
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    if field[0] == 0xFF:
        return int.from_bytes(field, "big", signed=True)
    return int(field.partition(b"\0")[0].strip() or b"0", 8)


def _pax_records(data: bytes) -> dict[bytes, bytes]:
    """Keyword -> value of an extended header, each "length keyword=value\\n"; of `_PAX_KEYS` alone."""
    records, at = {}, 0
    while at < len(data):
        digits = data[at : at + 10].partition(b" ")[0]
        end = at + (int(digits) if digits.isdigit() else 0)
        key, equals, value = data[at + len(digits) + 1 : end].partition(b"=")
        if not equals or not value.endswith(b"\n") or end > len(data):
            raise RejectError("an extended header is damaged")
        if key in _PAX_KEYS:
            records[key] = value[:-1]
        at = end
    return records


def _pax_size(records: dict[bytes, bytes], size: int) -> int:
    text = records.get(b"size")
    if not text:
        return size
    if not text.isdigit() or len(text) > 18:
        raise RejectError(f"an extended header says {text[:20]!r} bytes")
    return int(text)
