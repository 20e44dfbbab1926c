"""Archives: the members of .zip, .tar and .tar.gz files, read in place, never unpacked to disk."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from typing import BinaryIO, cast

from beam_jobs.errors import RejectError
from beam_jobs.sources.archives.member import DEFLATED, IN_TAR, Member, MemberLocation
from beam_jobs.sources.archives.streams import (
    READ_BYTES,
    DeflatedStream,
    StoredStream,
    decompressed,
    read_at,
    read_exactly,
)
from beam_jobs.sources.archives.tar import tar_members
from beam_jobs.sources.archives.zip import LOCAL_HEADER, local_header_bytes, zip_members

_ENDINGS = (".tar.gz", ".tgz", ".zip", ".tar")

_NOWHERE = MemberLocation(0, 0, 0, IN_TAR, 0)


def archive_kind(path: str) -> str | None:
    """The kind of archive that a file's name indicates: "zip", "tar", "tar.gz" or None."""
    lower = path.lower()
    if not lower.endswith(_ENDINGS):  # Every file that is listed: 0.1 us in place of 0.7.
        return None
    return "tar.gz" if lower.endswith(_ENDINGS[:2]) else lower[-3:]


def members(file: BinaryIO, kind: str) -> Iterator[Member]:
    """Yields the regular files of an archive, in the archive's order.

    Folders, links, devices and hidden files are skipped, as is Apple's `__MACOSX` folder.

    Args:
        file: The archive. It must be seekable, except for a .tar.gz, which is read from front to
            back in constant memory.
        kind: "zip", "tar" or "tar.gz", from `archive_kind`.

    Raises:
        RejectError: the archive is damaged or cut off. All members before the damage have been
            yielded; the message names the last of them.
        OSError: the file is unreadable.
    """
    if kind == "tar.gz":
        for member, _ in walk(file):
            yield member
        return
    last = ""
    try:
        for member in zip_members(file) if kind == "zip" else tar_members(file):
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
        RejectError: the archive is damaged or cut off. The message names the last member that is
            whole; one more may have been yielded, whose stream raises this error too.
        OSError: the file is unreadable.
    """
    tar = cast(BinaryIO, gzip.GzipFile(fileobj=file, mode="rb"))
    last = ""
    try:
        for member in tar_members(tar, seekable=False):
            start, _, size, _, _ = member.location or _NOWHERE
            raw = StoredStream(tar, start, size, name=member.name, seekable=False)
            with io.BufferedReader(raw, READ_BYTES) as stream:
                yield member._replace(location=None), stream
            if size:
                read_at(tar, start + size, 0)
                if tar.tell() < start + size:
                    raise RejectError(f"it ends at byte {tar.tell()}, within a member")
            last = member.name
    except RejectError as error:
        raise _broken(last, error) from None


def open_member(file: BinaryIO, location: MemberLocation, name: str) -> BinaryIO:
    """Opens a stream of a member's decompressed bytes, seekable unless the member is deflated.

    A member of a zip that is read from front to back is checked before its last bytes are returned.

    Args:
        file: The archive, seekable.
        location: Where the member is, from `members`.
        name: Name of the stream.

    Raises:
        RejectError: there is no such member in the archive. Reading raises it if the bytes are
            damaged, or more than the member's size.
        OSError: the file is unreadable.
    """
    start = location.offset
    if location.method != IN_TAR:
        start += local_header_bytes(read_at(file, start, LOCAL_HEADER.size), location)
    crc = None if location.method == IN_TAR else location.crc
    raw: io.RawIOBase = StoredStream(file, start, location.size, crc, name)
    if location.method == DEFLATED:
        raw = DeflatedStream(file, start, location, name)
    return io.BufferedReader(raw, READ_BYTES)


def read_member(file: BinaryIO, location: MemberLocation, name: str, limit: int) -> bytes:
    """Reads a whole member.

    Args:
        file: The archive, seekable.
        location: Where the member is, from `members`.
        name: The member's name; its length tells how long the local header of a zip may be.
        limit: Maximum size in bytes, in the archive and decompressed.

    Raises:
        RejectError: the member is larger than `limit`, or damaged.
        OSError: the file is unreadable.
    """
    if (size := max(location.size, location.packed)) > limit:
        raise RejectError(f"it has {size} bytes, more than {limit}")
    if location.method == IN_TAR:
        return read_exactly(file, location.offset, size)
    read = member_bytes(location, name)
    data = read_at(file, location.offset, read)
    start = local_header_bytes(data, location)
    if start + location.packed > read:
        data, start = read_at(file, location.offset + start, location.packed), 0
    return decompressed(memoryview(data)[start : start + location.packed], location)


def member_bytes(location: MemberLocation, name: str) -> int:
    """How many bytes `read_member` reads at once, from the location's offset on."""
    if location.method == IN_TAR:
        return location.size
    # Only the local header states its own length. It is rarely more than this, so that one read, which
    # is one request to an object store, returns the header and the data.
    return LOCAL_HEADER.size + len(name) + 64 + location.packed


def _broken(last: str, error: RejectError) -> RejectError:
    where = f"after {last!r}" if last else "before its first member"
    return RejectError(f"the archive is damaged or cut off {where}: {error}")
