"""Headers of a tar: which members it has, and where their bytes are.

Source: `pax` in POSIX.1-2017, and the manual of GNU tar. `tarfile` with a `TarInfo` that raises errors
was tried with Python 3.11.7, and does not serve untrusted input:

- Listing 200,000 members takes 2.2 times as long (7.4 s instead of 3.4 s), with PAX headers 3.9 times
  (23 s instead of 5.9 s).
- A damaged size in a PAX header counts as 0. Other damage to PAX headers is ignored by 3.12.1 and
  older versions.
- Global PAX headers are all kept in memory, and every long-name header is one more recursion.
- Times that GNU tar stores after a name become part of it.
- Preventing this takes private methods, which newer versions call in other ways.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import BinaryIO

from beam_jobs.errors import RejectError
from beam_jobs.sources.archives.member import IN_TAR, Member, MemberLocation, checked_name
from beam_jobs.sources.archives.streams import READ_BYTES, read_at, read_exactly

_BLOCK = 512
_ZEROS = bytes(_BLOCK)
_FILES = (b"0", b"\0", b"7", b"S")
_EXTENDED = (b"L", b"K", b"x", b"X", b"g")
_WITHOUT_DATA = (b"1", b"2", b"3", b"4", b"5", b"6")
_SPARSE = b"S"
_MAX_EXTENDED_BYTES = 16 << 20
_MAX_BYTES = 1 << 62
_SPARSE_KEYS = {b"GNU.sparse.size", b"GNU.sparse.realsize", b"GNU.sparse.name"}
_PAX_KEYS = {b"path", b"size", *_SPARSE_KEYS}


def tar_members(file: BinaryIO, seekable: bool = True) -> Iterator[Member]:
    """Yields the regular files of a tar, from front to back.

    Args:
        file: The tar, decompressed.
        seekable: Whether seeking to its end is cheap, so that members that end after it are found.
    """
    total = file.seek(0, io.SEEK_END) if seekable else _MAX_BYTES
    at = 0
    shared: dict[bytes, bytes] = {}
    own: dict[bytes, bytes] = {}
    while (block := read_at(file, at, _BLOCK)) != _ZEROS:
        kind, name, size = _parse_header(block, at)
        start = at + _BLOCK
        if kind in _EXTENDED:
            if size > _MAX_EXTENDED_BYTES:
                raise RejectError(f"the extended header at byte {at} has {size} bytes")
            data = read_exactly(file, start, size)
            if kind == b"L":
                own |= {b"path": data.partition(b"\0")[0]}
            elif kind == b"g":
                shared |= _pax_records(data)
            elif kind != b"K":
                own |= _pax_records(data)
            at = start + _padded(size)
            continue
        if kind == _SPARSE:
            start = _end_of_map(file, block, start)
        records = shared | own
        size = _pax_size(records, size)
        end = start + (0 if kind in _WITHOUT_DATA else _padded(size))
        if end > total:
            raise RejectError(f"the member at byte {at} ends at byte {end}, the archive at {total}")
        path = records.get(b"GNU.sparse.name") or records.get(b"path") or name
        if kind in _FILES and (named := checked_name(path.decode("utf-8", "surrogateescape"))):
            shown, error = named
            if kind == _SPARSE or not _SPARSE_KEYS.isdisjoint(records):
                error = error or "the member is a sparse file: pack it without --sparse"
            location = None if error else MemberLocation(start, size, size, IN_TAR, 0)
            yield Member(shown, size, location, error)
        at, own = end, {}
    if own:
        raise RejectError(f"the extended header before byte {at} belongs to no member")
    while block := read_at(file, at, READ_BYTES):
        if block.strip(b"\0"):
            raise RejectError(f"data after the end-of-archive marker, from byte {at} on")
        at += len(block)


def _end_of_map(file: BinaryIO, block: bytes, at: int) -> int:
    """Where the blocks end that continue the map of a GNU sparse file."""
    more = block[482]
    while more:
        more = read_exactly(file, at, _BLOCK)[504]
        at += _BLOCK
    return at


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _parse_header(block: bytes, at: int) -> tuple[bytes, bytes, int]:
    """(type, name, size in bytes) of the member whose header is at byte `at`."""
    if len(block) < _BLOCK:
        raise RejectError(f"it ends at byte {at + len(block)} without an end-of-archive marker")
    try:
        expected, summed = _number(block[148:156]), block[:148] + b" " * 8 + block[156:]
        # Some old systems summed signed bytes.
        if expected != sum(summed) and expected != sum(memoryview(summed).cast("b")):
            raise ValueError
        size = _number(block[124:136])
    except ValueError:
        raise RejectError(f"no tar header at byte {at}") from None
    if not 0 <= size < _MAX_BYTES:
        raise RejectError(f"the header at byte {at} states a size of {size} bytes")
    name = block[:100].partition(b"\0")[0]
    prefix = block[345:500].partition(b"\0")[0]
    # The prefix is POSIX's alone: GNU tar stores times there.
    if prefix and block[257:263] == b"ustar\0":
        name = prefix + b"/" + name
    return block[156:157], name, size


def _number(field: bytes) -> int:
    """A number in octal digits, or in binary if those do not suffice.

    Raises:
        ValueError: the field is neither.
    """
    if field[0] in (0x80, 0xFF):
        return int.from_bytes(field[1:], "big") - (field[0] == 0xFF) * 256 ** len(field[1:])
    return int(field.partition(b"\0")[0].strip() or b"0", 8)


def _pax_records(data: bytes) -> dict[bytes, bytes]:
    """Parses an extended header, records of "length keyword=value\\n"; keeps `_PAX_KEYS` alone."""
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
        raise RejectError(f"an extended header states a size of {text[:20]!r} bytes")
    return int(text)
