"""Archives: members of .zip, .tar and .tar.gz files, read where they lie, never unpacked to disk."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from typing import BinaryIO, cast

from beam_jobs.errors import RejectError
from beam_jobs.sources.archives.member import DEFLATED, IN_TAR, STORED, Member, Place
from beam_jobs.sources.archives.streams import (
    CHUNK_BYTES,
    Deflated,
    Stored,
    check_crc,
    check_reaches,
    inflated,
    read_at,
    whole,
)
from beam_jobs.sources.archives.tar import NOWHERE, tar_members, tar_places
from beam_jobs.sources.archives.zip import LOCAL_HEADER, local_header_bytes, zip_members


def archive_kind(path: str) -> str | None:
    """What a file is by its name: "zip", "tar" or "tar.gz", or None if it is no archive."""
    lower = path.lower()
    if lower.endswith((".tar.gz", ".tgz")):
        return "tar.gz"
    return next((kind for kind in ("zip", "tar") if lower.endswith(f".{kind}")), None)


def members(file: BinaryIO, kind: str) -> Iterator[Member]:
    """Yields the regular files of an archive in its order.

    Folders, links and devices are passed over, as are names with a part that begins with a dot, and
    the `__MACOSX` of Apple's archives.

    Args:
        file: Seekable, unless it is a .tar.gz, which is read from the front in constant memory.
        kind: As `archive_kind` gives it.

    Raises:
        RejectError: The archive is damaged or cut off. What stands before has been yielded, and the
            message names the last of it.
        OSError: The file is unreadable.
    """
    if kind == "tar.gz":
        for member, _ in walk(file):
            yield member
        return
    last = ""
    try:
        for member in zip_members(file) if kind == "zip" else tar_places(file):
            yield member
            last = member.name
    except RejectError as error:
        raise _broken(last, error) from None


def walk(file: BinaryIO) -> Iterator[tuple[Member, BinaryIO]]:
    """Yields the members of a .tar.gz, each with a stream of its bytes that ends with the next one.

    The checksum of a .tar.gz stands at its end, so damage may be noticed after bytes that it made
    wrong. The stream of a member with an error is empty.

    Args:
        file: Read from where it stands; it need not be seekable.

    Raises:
        RejectError: The archive is damaged or cut off. The message names the last member that is
            whole; one may have been yielded after it, whose stream raises this as well.
        OSError: The file is unreadable.
    """
    unpacked = cast(BinaryIO, gzip.GzipFile(fileobj=file, mode="rb"))
    last = ""
    try:
        for member, start in tar_members(unpacked, NOWHERE):
            size = 0 if member.error else member.size
            raw = Stored(unpacked, start, size, None, member.name, False)
            with io.BufferedReader(raw, CHUNK_BYTES) as stream:
                yield member, stream
            check_reaches(unpacked, start + size)
            last = member.name
    except RejectError as error:
        raise _broken(last, error) from None


def open_member(file: BinaryIO, place: Place, name: str) -> BinaryIO:
    """A stream of a member's bytes, unpacked as they are read; seekable where they are stored.

    A member of a zip that is read from front to back is checked before its last bytes are given.

    Args:
        file: Of the archive, seekable.
        place: As `members` gives it.
        name: Of the member, and of the stream.

    Raises:
        RejectError: The archive holds no member there. So does the stream where the bytes are
            damaged or more than the member's size.
        OSError: The file is unreadable.
    """
    start, crc = place.offset, None
    if place.method != IN_TAR:
        start += local_header_bytes(read_at(file, start, LOCAL_HEADER.size), place)
        crc = place.crc
    raw: io.RawIOBase = Stored(file, start, place.size, crc, name, True)
    if place.method == DEFLATED:
        raw = Deflated(file, start, place, name)
    return io.BufferedReader(raw, CHUNK_BYTES)


def read_member(file: BinaryIO, place: Place, name: str, limit: int) -> bytes:
    """The bytes of a member.

    Args:
        file: Of the archive, seekable.
        place: As `members` gives it.
        name: Of the member; a zip has it in front of the bytes again.
        limit: How many bytes there may be, packed and unpacked.

    Raises:
        RejectError: There are more, or they are damaged.
        OSError: The file is unreadable.
    """
    if max(place.size, place.packed) > limit:
        raise RejectError(f"it has {max(place.size, place.packed)} bytes, more than {limit}")
    if place.method == IN_TAR:
        return whole(read_at(file, place.offset, place.size), place.size)
    # Only the header says how long it is; it is rarely longer than this, so one read has it all.
    ahead = LOCAL_HEADER.size + len(name) + 64
    data = read_at(file, place.offset, ahead + place.packed)
    start = local_header_bytes(data, place)
    if start > ahead:
        data, start = read_at(file, place.offset + start, place.packed), 0
    packed = memoryview(data)[start : start + place.packed]
    if place.method == STORED:
        unpacked = whole(bytes(packed), place.size)
    else:
        unpacked = inflated(packed, place.size)
    check_crc(zlib.crc32(unpacked), place.crc)
    return unpacked


def _broken(last: str, error: RejectError) -> RejectError:
    where = f"after {last!r}" if last else "before its first member"
    return RejectError(f"the archive is damaged or cut off {where}: {error}")
