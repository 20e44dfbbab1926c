"""The bytes of members of archives: read where they lie, unpacked as they are read, and checked."""

from __future__ import annotations

import errno
import gzip
import io
import zlib
from typing import Any, BinaryIO

from beam_jobs.errors import RejectError
from beam_jobs.sources.archives.member import Place

CHUNK_BYTES = 1 << 16

_NO_END = "damaged: what is packed has no end"

_GZIP_ERRORS = (gzip.BadGzipFile, EOFError, zlib.error)


def _too_long(size: int) -> RejectError:
    return RejectError(f"damaged: it unpacks to more than the {size} bytes that the archive says")


def whole(data: bytes, size: int) -> bytes:
    """The bytes themselves.

    Raises:
        RejectError: They are fewer than there should be.
    """
    if len(data) != size:
        raise RejectError(f"cut off: {len(data)} of {size} bytes are there")
    return data


def check_crc(found: int, expected: int) -> None:
    """Refuses bytes whose CRC-32 is not the one that the archive says.

    Raises:
        RejectError: They are such.
    """
    if found != expected:
        raise RejectError(f"damaged: the CRC-32 is {found:08x}, the archive says {expected:08x}")


def read_at(file: BinaryIO, offset: int, size: int) -> bytes:
    """The bytes there, fewer at the end; what else reads from the file may have moved it."""
    try:
        file.seek(offset)
        return file.read(size)
    except _GZIP_ERRORS as error:
        raise RejectError(f"GZIP: {error}") from None


def check_reaches(file: BinaryIO, end: int) -> None:
    """Refuses a file that ends before some byte.

    Raises:
        RejectError: It does.
    """
    read_at(file, end, 0)
    if file.tell() < end:
        raise RejectError(f"it ends at byte {file.tell()}, before the end of a member")


def inflated(packed: memoryview, size: int) -> bytes:
    """The bytes that are deflated in others.

    Raises:
        RejectError: They are damaged, or not as many as there should be.
    """
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        data = inflater.decompress(packed, size + 1)
    except zlib.error as error:
        raise RejectError(f"damaged: {error}") from None
    if len(data) > size:
        raise _too_long(size)
    if not inflater.eof:
        raise RejectError(_NO_END)
    return whole(data, size)


class Stored(io.RawIOBase):
    """A run of a file's bytes.

    Args:
        crc: CRC-32 that all of them have, None where it is not known.
        seekable: Whether the file can go back.
    """

    def __init__(
        self, file: BinaryIO, start: int, size: int, crc: int | None, name: str, seekable: bool
    ) -> None:
        self.name = name
        self._file, self._start, self._size = file, start, size
        self._expected, self._seekable = crc, seekable
        self._at = self._checked = self._crc = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._seekable

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if not self._seekable:
            raise io.UnsupportedOperation("seek")
        at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if at < 0:
            raise OSError(errno.EINVAL, "seek to before the beginning")
        self._at = at
        return at

    def readinto(self, buffer: Any) -> int:
        wanted = max(0, min(len(buffer), self._size - self._at))
        data = read_at(self._file, self._start + self._at, wanted) if wanted else b""
        if wanted and not data:
            raise RejectError(f"cut off: {self._at} of {self._size} bytes are there")
        end = self._at + len(data)
        # Whoever goes back to read the beginning again is checked all the same.
        if self._expected is not None and self._at <= self._checked <= end:
            self._crc = zlib.crc32(memoryview(data)[self._checked - self._at :], self._crc)
            self._checked = end
            if end == self._size:
                check_crc(self._crc, self._expected)
        self._at = end
        buffer[: len(data)] = data
        return len(data)


class Deflated(io.RawIOBase):
    """The bytes of a deflated member of a zip, never more than its size."""

    def __init__(self, file: BinaryIO, start: int, place: Place, name: str) -> None:
        self.name = name
        self._file, self._at, self._end = file, start, start + place.packed
        self._place, self._left, self._crc = place, place.size, 0
        self._inflater = zlib.decompressobj(-zlib.MAX_WBITS)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._unpacked(min(len(buffer), self._left)) if self._left else b""
        self._crc = zlib.crc32(data, self._crc)
        if self._left and not data:
            size = self._place.size
            raise RejectError(f"cut off: {size - self._left} of {size} bytes are there")
        self._left -= len(data)
        if not self._left:
            if self._unpacked(1):
                raise _too_long(self._place.size)
            check_crc(self._crc, self._place.crc)
        buffer[: len(data)] = data
        return len(data)

    def _unpacked(self, limit: int) -> bytes:
        """The next bytes, `limit` at most; none at the end."""
        while not self._inflater.eof:
            packed = self._inflater.unconsumed_tail
            if not packed:
                packed = read_at(self._file, self._at, min(CHUNK_BYTES, self._end - self._at))
                self._at += len(packed)
            try:
                data = self._inflater.decompress(packed, limit)
            except zlib.error as error:
                raise RejectError(f"damaged: {error}") from None
            if data:
                return data
            if not packed:
                raise RejectError(_NO_END)
        return b""
