"""The directory of a zip, read by `zipfile`: which members it has, and where their bytes are."""

from __future__ import annotations

import io
import stat
import struct
import zipfile
from collections.abc import Iterator
from typing import BinaryIO, cast

from beam_jobs.errors import RejectError
from beam_jobs.sources.archives.member import DEFLATED, STORED, Member, MemberLocation, checked_name
from beam_jobs.sources.archives.streams import read_at

# From PKWARE's APPNOTE.TXT 6.3.
LOCAL_HEADER = struct.Struct("<4s5H3L2H")
_ENTRY, _NAME, _FLAGS_AT, _LENGTHS_AT = b"PK\1\2", 46, 8, 28
_END = struct.Struct("<4s4H2LH")
_END64, _END64_AND_LOCATOR = struct.Struct("<4sQ2H2L4Q"), 76

_ENCRYPTED, _UTF8 = 0x0041, 0x0800
_UNIX = (3, 19)
_MAX_RATIO = 1032  # Deflate packs at most 258 bytes in two bits.


def zip_members(file: BinaryIO) -> Iterator[Member]:
    """Yields the regular files of a zip, in the order of its directory."""
    directory = _Directory(file)
    try:
        archive = zipfile.ZipFile(cast(BinaryIO, directory))
    except RejectError:
        raise
    except Exception as damage:  # `zipfile` raises errors of many kinds on damaged input.
        raise RejectError(f"no zip directory at the end of the file: {damage}") from None
    infos = archive.infolist()
    _check_directory(file, archive)
    end, used = archive.start_dir, 0
    for number, info in enumerate(infos):
        location = MemberLocation(
            info.header_offset, info.compress_size, info.file_size, info.compress_type, info.CRC
        )
        error = _location_error(location, info.flag_bits, end)
        used += 0 if error else LOCAL_HEADER.size + info.compress_size
        if used > end:
            raise RejectError("its members overlap: they claim more bytes than it has")
        name, on_unix = directory.names.get(number) or _name(info), info.create_system in _UNIX
        named = checked_name(name if on_unix else name.replace("\\", "/"))
        kind = stat.S_IFMT(info.external_attr >> 16) if on_unix else 0
        if named is None or kind not in (0, stat.S_IFREG):
            continue
        error = named[1] or error
        yield Member(named[0], info.file_size, None if error else location, error)


def _location_error(location: MemberLocation, flags: int, end: int) -> str:
    """Why a member cannot be read, empty if it can; all members end before byte `end`."""
    offset, packed, size, method, _ = location
    if flags & _ENCRYPTED:
        return "the member is encrypted"
    if method not in (STORED, DEFLATED):
        return f"the member is packed by method {method}, expected 0 (stored) or 8 (deflated)"
    if offset + LOCAL_HEADER.size + packed > end:
        return f"the member's {packed} bytes from byte {offset} on do not end before byte {end}"
    if size > packed * _MAX_RATIO or (method == STORED and size != packed):
        return f"the member's {size} bytes cannot be packed in {packed} by method {method}"
    return ""


def _check_directory(file: BinaryIO, archive: zipfile.ZipFile) -> None:
    """Checks that the directory is that of the whole file, not of a zip at the end of one that is cut off.

    Raises:
        RejectError: It is not, or has another number of entries than it states.
    """
    at = file.seek(0, io.SEEK_END) - _END.size - len(archive.comment)
    found = read_at(file, at, _END.size)
    if len(found) < _END.size or not found.startswith(b"PK\5\6"):
        raise RejectError("no zip directory at the end of the file: more follows it")
    _, disk, _, _, count, _, offset, comment = _END.unpack(found)
    if comment != len(archive.comment):
        raise RejectError("no zip directory at the end of the file: its comment is cut off")
    if at >= _END64_AND_LOCATOR:
        wide = read_at(file, at - _END64_AND_LOCATOR, _END64.size)
        if wide.startswith(b"PK\6\6"):
            disk, _, _, count, _, offset = _END64.unpack(wide)[4:]
    if disk:
        raise RejectError(f"it is part {disk + 1} of an archive of several parts: join them")
    if offset != archive.start_dir:
        raise RejectError(
            f"its directory should begin at byte {offset}, but does at {archive.start_dir}"
        )
    # Some writers store the number modulo 65,536.
    if (len(archive.infolist()) - count) % 65536:
        raise RejectError(f"its directory has {len(archive.infolist())} entries, expected {count}")


class _Directory:
    """A zip whose directory has no name that `zipfile` cannot decode, for which it would refuse all others.

    Attributes:
        names: Those that are not UTF-8 but should be, by the numbers of their entries, with lone surrogates.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell
        self.names: dict[int, str] = {}

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        return self._with_names(bytearray(data)) if data.startswith(_ENTRY) else data

    def _with_names(self, directory: bytearray) -> bytes:
        self.names.clear()  # The end of the file may have been read before.
        at = number = 0
        while directory.startswith(_ENTRY, at) and at + _NAME <= len(directory):
            (flags,) = struct.unpack_from("<H", directory, at + _FLAGS_AT)
            lengths = struct.unpack_from("<3H", directory, at + _LENGTHS_AT)
            name = slice(at + _NAME, at + _NAME + lengths[0])
            if flags & _UTF8 and not directory[name].isascii():
                decoded = directory[name].decode("utf-8", "surrogateescape")
                if any("\udc80" <= character <= "\udcff" for character in decoded):
                    self.names[number] = decoded
                    directory[name] = b"_" * len(directory[name])
            at += _NAME + sum(lengths)
            number += 1
        return bytes(directory)


def _name(info: zipfile.ZipInfo) -> str:
    """The name of an entry as it is stored."""
    if info.flag_bits & _UTF8:
        return info.orig_filename
    # macOS writes UTF-8 without the flag. No real name in CP437 happens to be valid UTF-8.
    try:
        return info.orig_filename.encode("cp437").decode()
    except UnicodeDecodeError:
        return info.orig_filename


def local_header_bytes(head: bytes, location: MemberLocation) -> int:
    """The size in bytes of a member's local header.

    Raises:
        RejectError: `head` is not a local header, or states another compression method.
    """
    if len(head) < LOCAL_HEADER.size or not head.startswith(b"PK\3\4"):
        raise RejectError(f"damaged: no local header at byte {location.offset}")
    fields = LOCAL_HEADER.unpack_from(head)
    if fields[3] != location.method:
        raise RejectError(
            f"damaged: the local header states method {fields[3]}, expected {location.method}"
        )
    return LOCAL_HEADER.size + fields[9] + fields[10]
