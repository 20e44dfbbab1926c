"""The directory of a zip: which members it has, and where they lie.

The standard library's `zipfile` gives some names otherwise from one version of Python to the next,
and holds every member in memory. Source: PKWARE's APPNOTE.TXT 6.3.
"""

from __future__ import annotations

import io
import stat
import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from beam_jobs.errors import RejectError
from beam_jobs.sources.archives.member import DEFLATED, STORED, Member, Place, shown_name
from beam_jobs.sources.archives.streams import read_at, whole

_END = struct.Struct("<4s4H2LH")

_LOCATOR64 = struct.Struct("<4sLQL")

_END64 = struct.Struct("<4sQ2H2L4Q")

_ENTRY = struct.Struct("<4s6H3L5H2L")

LOCAL_HEADER = struct.Struct("<4s5H3L2H")

_EXTRA = struct.Struct("<HH")

_WINDOW = 1 << 18  # of the directory, in memory at once; more than its largest entry

_WIDE = 0xFFFFFFFF  # the number stands in a field of its own

_ZIP64, _UNICODE_PATH = 0x0001, 0x7075

_ENCRYPTED, _UTF8 = 0x0041, 0x0800

_UNIX = (3, 19)

_MAX_RATIO = 1032  # 258 bytes in two bits


def zip_members(file: BinaryIO) -> Iterator[Member]:
    """Yields the regular files of a zip, in the order of its directory."""
    start, size, count = _directory(file)
    found = used = 0
    for fields, encoded, extra in _entries(file, start, size):
        made, _, flags, method, _, _, crc = fields[1:8]
        unpacked, packed, offset = _zip64(extra, fields[9], fields[8], fields[16])
        found += 1
        place = Place(offset, packed, unpacked, method, crc)
        error = _place_error(place, flags, start)
        used += 0 if error else LOCAL_HEADER.size + packed
        if used > start:
            raise RejectError("its members overlap: they claim more bytes than it has")
        name, on_unix = _zip_name(encoded, flags, extra), made >> 8 in _UNIX
        named = shown_name(name if on_unix else name.replace("\\", "/"))
        if named is None or (on_unix and stat.S_IFMT(fields[15] >> 16) not in (0, stat.S_IFREG)):
            continue
        error = named[1] or error
        yield Member(named[0], unpacked, None if error else place, error)
    # Where there are more than 65,535, some writers give the count modulo 65,536.
    if (found - count) % 65536:
        raise RejectError(f"its directory has {found} entries, expected {count}")


def _place_error(place: Place, flags: int, end: int) -> str:
    """Why a member of a zip cannot be read, empty if it can; members end at byte `end`."""
    offset, packed, size, method, _ = place
    if flags & _ENCRYPTED:
        return "the member is encrypted"
    if method not in (STORED, DEFLATED):
        return f"the member is packed by method {method}, expected 0 (stored) or 8 (deflated)"
    if offset + LOCAL_HEADER.size + packed > end:
        return f"the member's {packed} bytes from byte {offset} on are not before byte {end}"
    if size > packed * _MAX_RATIO or (method == STORED and size != packed):
        return f"the member's {size} bytes cannot be packed in {packed} by method {method}"
    return ""


def _directory(file: BinaryIO) -> tuple[int, int, int]:
    """(start, bytes, entries) of a zip's directory.

    Raises:
        RejectError: There is none.
    """
    total = file.seek(0, io.SEEK_END)
    first = max(0, total - _END.size - 0xFFFF)
    tail = read_at(file, first, total - first)
    at = tail.rfind(b"PK\5\6", 0, max(0, len(tail) - _END.size + 4))
    # The last record whose comment ends with the file: another may be part of a member.
    while at >= 0 and at + _END.size + _END.unpack_from(tail, at)[-1] != len(tail):
        at = tail.rfind(b"PK\5\6", 0, at + 3)
    if at < 0:
        raise RejectError("there is no directory of a zip at its end")
    _, disk, _, _, count, size, offset, _ = _END.unpack_from(tail, at)
    end = first + at
    if end >= _LOCATOR64.size + _END64.size:
        wide = read_at(file, end - _LOCATOR64.size - _END64.size, _LOCATOR64.size + _END64.size)
        if wide[_END64.size :].startswith(b"PK\6\7"):
            if not wide.startswith(b"PK\6\6"):
                raise RejectError("the zip64 record of its directory is not where it should be")
            disk, _, _, count, size, offset = _END64.unpack_from(wide)[4:]
            end -= len(wide)
    if disk:
        raise RejectError(f"it is part {disk + 1} of an archive of several parts: join them")
    if offset + size != end:
        raise RejectError(
            f"its directory should be the {size} bytes from byte {offset} on, but ends at byte {end}"
        )
    return offset, size, count


def _entries(file: BinaryIO, start: int, size: int) -> Iterator[tuple[tuple, bytes, bytes]]:
    """Yields (fields, name, extra fields) of each entry of a zip's directory, in bounded memory."""
    data, at, end = b"", 0, start + size
    while start < end or at < len(data):
        if start < end and len(data) - at < _ENTRY.size + 3 * 0xFFFF:
            wanted = min(_WINDOW, end - start)
            more = whole(read_at(file, start, wanted), wanted)
            data, at, start = data[at:] + more, 0, start + len(more)
        where = start - len(data) + at
        if data[at : at + 4] != b"PK\1\2" or len(data) - at < _ENTRY.size:
            raise RejectError(f"there is no entry of its directory at byte {where}")
        fields = _ENTRY.unpack_from(data, at)
        named = at + _ENTRY.size
        extra = named + fields[10]
        comment = extra + fields[11]
        at = comment + fields[12]
        if at > len(data):
            raise RejectError(f"the entry of its directory at byte {where} is cut off")
        yield fields, data[named:extra], data[extra:comment]


def _extra_field(extra: bytes, wanted: int) -> bytes:
    at = 0
    while at + _EXTRA.size <= len(extra):
        kind, size = _EXTRA.unpack_from(extra, at)
        at += _EXTRA.size
        if kind == wanted:
            return extra[at : at + size]
        at += size
    return b""


def _zip64(extra: bytes, *numbers: int) -> list[int]:
    """(size, packed, offset) of an entry, those that need more than 32 bits from a field for them."""
    if _WIDE not in numbers:
        return list(numbers)
    field = _extra_field(extra, _ZIP64)
    wide = struct.iter_unpack("<Q", field[: len(field) // 8 * 8])
    return [next(wide, (n,))[0] if n == _WIDE else n for n in numbers]


def _zip_name(encoded: bytes, flags: int, extra: bytes) -> str:
    """The name of an entry; bytes that are no UTF-8, where they should be, as lone surrogates."""
    if flags & _UTF8:
        return encoded.decode("utf-8", "surrogateescape")
    path = _extra_field(extra, _UNICODE_PATH)
    if path[:5] == b"\1" + zlib.crc32(encoded).to_bytes(4, "little"):
        return path[5:].decode("utf-8", "surrogateescape")
    # macOS writes UTF-8 without saying so, and names in CP437 that look like it do not occur.
    try:
        return encoded.decode()
    except UnicodeDecodeError:
        return encoded.decode("cp437")


def local_header_bytes(head: bytes, place: Place) -> int:
    """The size of the header in front of a zip's member.

    Raises:
        RejectError: It is none, or of another method of packing.
    """
    if len(head) < LOCAL_HEADER.size or not head.startswith(b"PK\3\4"):
        raise RejectError(f"damaged: there is no header of a member at byte {place.offset}")
    fields = LOCAL_HEADER.unpack_from(head)
    if fields[3] != place.method:
        raise RejectError(f"damaged: its header says method {fields[3]}, not {place.method}")
    return LOCAL_HEADER.size + fields[9] + fields[10]
