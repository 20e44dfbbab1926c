"""Members of archives: where their bytes are, and which names they may have."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote

STORED, DEFLATED, IN_TAR = 0, 8, -1

_MAX_NAME_BYTES = 4096  # Linux opens no longer path.

_DRIVE = re.compile("[A-Za-z]:/")


class MemberLocation(NamedTuple):
    """Where an archive holds the bytes of a member.

    Attributes:
        offset: First byte of the member's data in a tar, of its local header in a zip.
        packed: Size in the archive, in bytes.
        size: Size after decompression, in bytes.
        method: `STORED` or `DEFLATED` in a zip, `IN_TAR` in a tar.
        crc: CRC-32 of the decompressed bytes in a zip, 0 in a tar.
    """

    offset: int
    packed: int
    size: int
    method: int
    crc: int


class Member(NamedTuple):
    """One regular file of an archive.

    Attributes:
        name: Path in the archive, separated by /. If the name is invalid, a printable form of it.
        size: Size after decompression, in bytes.
        location: None in a .tar.gz, and for a member with an error.
        error: Why the member cannot be read; empty if it can.
    """

    name: str
    size: int
    location: MemberLocation | None = None
    error: str = ""


def checked_name(name: str) -> tuple[str, str] | None:
    """Normalizes a member's name.

    Returns:
        (name, error), where an invalid name is printable and the error is not empty; None for
        folders and hidden files.
    """
    parts = [part for part in name.split("/") if part not in ("", ".")]
    # The first test is quick, and true of few names.
    hidden = "/." in f"/{name}" and any(part[0] == "." and part != ".." for part in parts)
    if name.endswith("/") or hidden or parts[:1] == ["__MACOSX"]:
        return None
    if error := _name_error(name, parts):
        return _printable(name), error
    return "/".join(parts), ""


def _name_error(name: str, parts: list[str]) -> str:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:  # Bytes that are not UTF-8 were decoded to lone surrogates.
        return "the member's name is not UTF-8: rename it"
    if size > _MAX_NAME_BYTES:
        return f"the member's name has {size} bytes, more than {_MAX_NAME_BYTES}"
    if "\0" in name:
        return "the member's name contains a NUL"
    if name.startswith("/") or _DRIVE.match(name):
        return "the member's name is an absolute path"
    if ".." in parts:
        return "the member's name leads out of the archive"
    return "" if parts else "the member has no name"


def _printable(name: str) -> str:
    """An invalid name, escaped so that it is a harmless relative path if used as one."""
    quoted = quote(name[:_MAX_NAME_BYTES], " /", errors="surrogateescape").split("/")
    parts = ["%2E%2E" if part == ".." else part for part in quoted if part not in ("", ".")]
    return ("%2F" if name.startswith("/") else "") + "/".join(parts) or "(no name)"
