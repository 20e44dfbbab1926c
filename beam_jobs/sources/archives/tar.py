"""Headers of a tar, read by `tarfile`: which members it has, and where their bytes are."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from typing import BinaryIO, cast

from beam_jobs.errors import RejectError
from beam_jobs.sources.archives.member import IN_TAR, Member, MemberLocation, checked_name
from beam_jobs.sources.archives.streams import READ_BYTES, read_at

# What the headers of one member may take: extended ones hold names and attributes, and maps of sparse files.
_MAX_HEADER_BYTES = 4 << 20

_MAX_BYTES = 1 << 62

_USTAR = b"ustar\0"


def tar_members(file: BinaryIO, seekable: bool = True) -> Iterator[Member]:
    """Yields the regular files of a tar, from front to back.

    Args:
        file: The tar, decompressed.
        seekable: Whether seeking to its end is cheap, so that members that end after it are found.
    """
    total = file.seek(0, io.SEEK_END) if seekable else _MAX_BYTES
    end = 0
    for info, end in _infos(_Headers(file)):
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


def _infos(headers: _Headers) -> Iterator[tuple[tarfile.TarInfo, int]]:
    """Yields (member, where the next one begins)."""
    archive, end = None, 0
    while True:
        headers.left = _MAX_HEADER_BYTES
        try:
            # The first member is read here.
            archive = archive or tarfile.TarFile(
                fileobj=cast(BinaryIO, headers),
                tarinfo=_StrictInfo,
                encoding="utf-8",
                errors="surrogateescape",
            )
            info = archive.next()
        except RejectError:
            raise
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
        # `tarfile` takes a size that is no number for 0.
        size = info.pax_headers.get("size", "0")
        if not (size.isascii() and size.isdigit() and len(size) <= 18):
            raise RejectError(f"an extended header states a size of {size[:20]!r} bytes")
        return info

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _StrictInfo:
        info = super().frombuf(buf, encoding, errors)
        if not 0 <= info.size < _MAX_BYTES:
            raise RejectError(f"a header states a size of {info.size} bytes")
        if not buf[257:].startswith(_USTAR):  # GNU tar stores times where others have folders.
            info.name = bytes(buf[:100]).partition(b"\0")[0].decode(encoding, errors)
        return info


class _Headers:
    """What `tarfile` reads of a tar, wherever others move its file's position to.

    Attributes:
        left: How many bytes may be read.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._at, self.left = file, 0, 0

    def read(self, size: int) -> bytes:
        """Reads bytes; errors as for `read_at`, and one if more than `left` are asked for."""
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
