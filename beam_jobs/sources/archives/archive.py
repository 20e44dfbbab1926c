"""Archives: the members of .zip, .tar and .tar.gz files, listed by Python's own modules, never unpacked to disk."""

from __future__ import annotations

import gzip
import io
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO, cast

from beam_jobs.errors import RejectError
from beam_jobs.sources.archives.member import (
    DEFLATED,
    IN_TAR,
    LOCAL_HEADER,
    READ_BYTES,
    STORED,
    Member,
    MemberLocation,
    checked_name,
    open_member,
    read_at,
)

_ENDINGS = (".tar.gz", ".tgz", ".zip", ".tar")
_LAST = {ending[-3:] for ending in _ENDINGS}

_NO_BYTES = MemberLocation(0, 0, 0, IN_TAR, 0)

# The ends of a zip's directory, from PKWARE's APPNOTE.TXT 6.3.
_END = struct.Struct("<4s4H2LH")
_END64, _END64_AND_LOCATOR = struct.Struct("<4sQ2H2L4Q"), 76

_ENCRYPTED, _UTF8 = 0x0041, 0x0800
_UNICODE_PATH = 0x7075
_UNKNOWN_ENCODING = (
    "the zip does not state the encoding of this name, which was read as CP437; if it is another one, make the zip "
    "again with names in UTF-8"
)
_UNIX = (3, 19)
_MAX_RATIO = 1032  # Deflate packs at most 258 bytes in two bits.

# The limit of the headers of one member of a tar: extended ones have names and attributes, and maps of sparse files.
_MAX_HEADER_BYTES = 4 << 20

_MAX_BYTES = 1 << 62

_USTAR = b"ustar\0"


def archive_kind(path: str) -> str | None:
    """The kind of archive that a file's name indicates: "zip", "tar", "tar.gz" or None."""
    if path[-3:].lower() not in _LAST:  # Quick, for every listed file: 0.1 us instead of 0.7.
        return None
    lower = path.lower()
    if not lower.endswith(_ENDINGS):
        return None
    return "tar.gz" if lower.endswith(_ENDINGS[:2]) else lower[-3:]


def members(file: BinaryIO, kind: str) -> Iterator[Member]:
    """Yields the regular files of an archive, in the archive's order.

    Folders, links, devices and hidden files are skipped.

    Args:
        file: The archive, seekable.
        kind: "zip" or "tar", from `archive_kind`; `walk` reads a .tar.gz.

    Raises:
        RejectError: the archive is damaged or cut off. All members before the damage were yielded; the
            message names the last of them.
        OSError: the file is unreadable.
    """
    last = ""
    try:
        for member in _zip_members(file) if kind == "zip" else _tar_members(file):
            yield member
            last = member.name
    except RejectError as error:
        raise _broken(last, error) from None


def walk(file: BinaryIO) -> Iterator[tuple[Member, BinaryIO]]:
    """Yields each member of a .tar.gz with a stream of its bytes, which the next step closes.

    GZIP has its checksum at the end, so damage may be noticed only after wrong bytes were yielded.
    The stream of a member with an error is empty.

    Args:
        file: The archive, read from its current position on; it need not be seekable.

    Raises:
        RejectError: the archive is damaged or cut off. The message names the last whole member; one
            more may have been yielded, whose stream raises this error too.
        OSError: the file is unreadable.
    """
    tar = cast(BinaryIO, gzip.GzipFile(fileobj=file, mode="rb"))
    last = ""
    try:
        for member in _tar_members(tar, seekable=False):
            location = member.location or _NO_BYTES
            with open_member(tar, location, member.name) as stream:
                yield member._replace(location=None), stream
            if location.size:
                end = location.offset + location.size
                read_at(tar, end, 0)
                if tar.tell() < end:
                    raise RejectError(f"it ends at byte {tar.tell()}, within a member")
            last = member.name
    except RejectError as error:
        raise _broken(last, error) from None


def _broken(last: str, error: RejectError) -> RejectError:
    where = f"after {last!r}" if last else "before its first member"
    return RejectError(f"the archive is damaged or cut off {where}: {error}")


def _zip_members(file: BinaryIO) -> Iterator[Member]:
    try:
        archive = zipfile.ZipFile(file)
    except Exception as damage:  # `zipfile` raises errors of many kinds on damaged input.
        raise RejectError(f"no zip directory at the end of the file: {damage}") from None
    _check_directory(file, archive)
    end, used = archive.start_dir, 0
    infos = archive.infolist()
    has_slash = any("/" in info.orig_filename for info in infos)
    for info in infos:
        location = MemberLocation(
            info.header_offset, info.compress_size, info.file_size, info.compress_type, info.CRC
        )
        error = _location_error(location, info.flag_bits, end)
        used += 0 if error else LOCAL_HEADER.size + info.compress_size
        if used > end:
            raise RejectError("its members overlap: they claim more bytes than the archive has")
        on_unix = info.create_system in _UNIX
        name, remark = _zip_name(info)
        # In Shift-JIS and GBK, the byte of a backslash is part of letters.
        if not on_unix and not (remark and has_slash):
            name = name.replace("\\", "/")
        kind = stat.S_IFMT(info.external_attr >> 16) if on_unix else 0
        if (named := checked_name(name)) and kind in (0, stat.S_IFREG):
            error = named[1] or error
            at = None if error else location
            yield Member(named[0], info.file_size, at, error, remark)


def _zip_name(info: zipfile.ZipInfo) -> tuple[str, str]:
    """The name of an entry as it is stored, and a remark if its encoding is not known."""
    name = info.orig_filename
    if info.flag_bits & _UTF8 or name.isascii():
        return name, ""
    stored = name.encode("cp437")
    # macOS writes UTF-8 without the flag. No real name in CP437 happens to be valid UTF-8.
    try:
        return (_unicode_path(info.extra, stored) or stored).decode(), ""
    except UnicodeDecodeError:
        return name, _UNKNOWN_ENCODING


def _unicode_path(extra: bytes, stored: bytes) -> bytes:
    """The UTF-8 of a name in Info-ZIP's extra field, which 7-Zip and WinRAR write, too; empty without the field."""
    while len(extra) >= 4:
        kind, size = struct.unpack_from("<HH", extra)
        if kind == _UNICODE_PATH and extra[4:9] == struct.pack("<BL", 1, zlib.crc32(stored)):
            return extra[9 : 4 + size]
        extra = extra[4 + size :]
    return b""


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
    """Rejects a directory that does not fill the end of the file, as when a zip is the last member of a cut-off one."""
    at = file.seek(0, io.SEEK_END) - _END.size - len(archive.comment)
    end = read_at(file, at, _END.size)
    kind, disk, *_, offset, comment = _END.unpack(end)
    if kind != b"PK\5\6" or comment != len(archive.comment):
        raise RejectError("no zip directory at the end of the file: it is cut off, or data follows")
    if at >= _END64_AND_LOCATOR:
        wide = read_at(file, at - _END64_AND_LOCATOR, _END64.size)
        if wide.startswith(b"PK\6\6"):
            disk, *_, offset = _END64.unpack(wide)[4:]
    if disk:
        raise RejectError(f"it is part {disk + 1} of an archive of several parts: join them")
    if offset != archive.start_dir:
        raise RejectError(
            f"its directory should begin at byte {offset}, but does at {archive.start_dir}"
        )


def _tar_members(file: BinaryIO, seekable: bool = True) -> Iterator[Member]:
    """Yields the regular files of a decompressed tar; if seeking is cheap, finds members that end after it."""
    total = file.seek(0, io.SEEK_END) if seekable else _MAX_BYTES
    end = 0
    for info, end in _tar_infos(_Headers(file)):
        if end > total:
            raise RejectError(
                f"the member at byte {info.offset} ends at byte {end}, the archive at {total}"
            )
        if not info.isreg() or not (named := checked_name(info.name)):
            continue
        name, error = named
        if info.issparse() or any(key.startswith("GNU.sparse.") for key in info.pax_headers):
            error = error or "the member is a sparse file: pack it without --sparse"
        size = max(info.size, 0)
        location = MemberLocation(info.offset_data, size, size, IN_TAR, 0)
        yield Member(name, size, None if error else location, error)
    while block := read_at(file, end, READ_BYTES):
        if block.strip(b"\0"):
            raise RejectError(f"data after the end-of-archive marker, from byte {end} on")
        end += len(block)


def _tar_infos(headers: _Headers) -> Iterator[tuple[tarfile.TarInfo, int]]:
    """Yields (member, where the next one begins)."""
    archive, end = None, 0
    while True:
        headers.left = _MAX_HEADER_BYTES
        try:
            if archive is None:
                archive = tarfile.TarFile(
                    fileobj=cast(BinaryIO, headers),
                    tarinfo=_StrictInfo,
                    encoding="utf-8",
                    errors="surrogateescape",
                )
                # Python 3.10 would look for the next member first.
                if archive.firstmember is None:  # type: ignore[attr-defined]
                    return
            info = archive.next()
        except RecursionError:
            raise RejectError(f"too many extended headers from byte {end} on") from None
        except (tarfile.TarError, ValueError, OverflowError, KeyError) as error:
            raise RejectError(f"a damaged header at byte {end}: {error}") from None
        if info is None:
            return
        if archive.offset <= end:
            raise RejectError(f"the header at byte {end} states a size below 0")
        end = archive.offset
        archive.members.clear()  # type: ignore[attr-defined]  # Or all are kept.
        archive.pax_headers = {
            k: v for k, v in archive.pax_headers.items() if k in ("path", "size")
        }
        yield info, end


class _StrictInfo(tarfile.TarInfo):
    """A header that is damaged, or cut off, is an error: `tarfile` takes it for the end of the archive."""

    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> _StrictInfo:
        headers = cast(_Headers, tarfile_.fileobj)
        at = headers.tell()
        try:
            info = super().fromtarfile(tarfile_)
        except tarfile.HeaderError as error:
            headers.seek(at)
            block = headers.read(tarfile.BLOCKSIZE)
            if block == bytes(tarfile.BLOCKSIZE):  # The end-of-archive marker.
                raise
            if not block:
                raise RejectError(
                    f"it ends at byte {at} without an end-of-archive marker"
                ) from None
            raise RejectError(f"no tar header at byte {at}: {error}") from None
        # `tarfile` takes a size that is not a number for 0.
        size = info.pax_headers.get("size", "0")
        if not (size.isascii() and size.isdigit() and len(size) <= 18):
            raise RejectError(f"an extended header states a size of {size[:20]!r} bytes")
        return info

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _StrictInfo:
        info = super().frombuf(buf, encoding, errors)
        if not 0 <= info.size < _MAX_BYTES:
            raise RejectError(f"a header states a size of {info.size} bytes")
        if not buf[257:].startswith(_USTAR):  # GNU tar stores times in place of folders.
            info.name = bytes(buf[:100]).partition(b"\0")[0].decode(encoding, errors)
        return info


class _Headers:
    """The file that `tarfile` reads, whose position others may move.

    Attributes:
        left: The number of bytes that may be read.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._at, self.left = file, 0, 0

    def read(self, size: int) -> bytes:
        """Reads bytes; RejectError for more than `left`."""
        if not 0 <= size <= self.left:
            raise RejectError(
                f"the headers of the member before byte {self._at + size} have more than "
                f"{_MAX_HEADER_BYTES} bytes"
            )
        data = read_at(self._file, self._at, size)
        self._at += len(data)
        self.left -= len(data)
        return data

    def seek(self, offset: int) -> None:
        self._at = offset

    def tell(self) -> int:
        return self._at
