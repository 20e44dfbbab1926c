"""Members of archives: what is known of each, and the names that they may have."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote

STORED, DEFLATED, IN_TAR = 0, 8, -1

# A longer name is no path: Linux opens none.
_MAX_NAME_BYTES = 4096

_DRIVE = re.compile("[A-Za-z]:/")


class Place(NamedTuple):
    """Where the bytes of a member lie in its archive.

    Attributes:
        offset: In bytes: of its local header in a zip, of its data in a tar.
        packed: Bytes in the archive.
        size: Bytes unpacked.
        method: `STORED` or `DEFLATED` in a zip, `IN_TAR` in a tar.
        crc: CRC-32 of the unpacked bytes in a zip, 0 in a tar.
    """

    offset: int
    packed: int
    size: int
    method: int
    crc: int


class Member(NamedTuple):
    """One regular file of an archive.

    Attributes:
        name: Its parts separated by /; one that can be shown, where the error is about it.
        size: Bytes unpacked.
        place: None in a .tar.gz, and where there is an error.
        error: Why it cannot be read; empty if it can.
    """

    name: str
    size: int
    place: Place | None = None
    error: str = ""


def shown_name(name: str) -> tuple[str, str] | None:
    """(name, what is wrong with it) of a member; None where it is a folder or hidden."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    hidden = any(part[0] == "." and part != ".." for part in parts)
    if name.endswith("/") or hidden or parts[:1] == ["__MACOSX"]:
        return None
    if error := _name_error(name, parts):
        return _harmless(name), error
    return "/".join(parts), ""


def _name_error(name: str, parts: list[str]) -> str:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:  # Python keeps other bytes as lone surrogates
        return "the member's name is not UTF-8: rename it"
    if size > _MAX_NAME_BYTES:
        return f"the member's name has {size} bytes, more than {_MAX_NAME_BYTES}"
    if "\0" in name:
        return "the member's name holds a NUL"
    if name.startswith("/") or _DRIVE.match(name):
        return "the member's name is an absolute path"
    if ".." in parts:
        return "the member's name leads out of the archive"
    return "" if parts else "the member has no name"


def _harmless(name: str) -> str:
    """A name that can be shown, and that is a path below a folder if somebody takes it for one."""
    quoted = quote(name[:_MAX_NAME_BYTES], " /", errors="surrogateescape").split("/")
    parts = ["%2E%2E" if part == ".." else part for part in quoted if part not in ("", ".")]
    return ("%2F" if name.startswith("/") else "") + "/".join(parts) or "(no name)"
