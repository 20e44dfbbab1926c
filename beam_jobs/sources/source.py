"""What records are loaded from, and the references that travel in its place.

A reference is a few dozen bytes: the size of a file, when it was modified, its key, and whatever else
is known of it: its place in an archive, a row of a table, the files that are joined to it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from beam_jobs.errors import RejectError
from beam_jobs.sources.archives.archive import archive_kind
from beam_jobs.sources.archives.member import Place

_REFERENCE = struct.Struct("<Qq")

# No key holds it; what follows the key is JSON.
_DETAILS = b"\0"

# Before the name of a column, in flags that may also name something else.
COLUMN = "column:"

_NOTHING: Mapping[str, Any] = {}


class Source(NamedTuple):
    """A file, or a member of an archive, from which one record or several are loaded.

    Attributes:
        key: Its path below the common root; that of a member goes on below its archive's.
        size: In bytes; 0 where nobody knows it before it is read.
        modified: Nanoseconds since the epoch; of a member, when its archive was.
        archive: The key of the archive that holds it; empty for a file of its own.
        place: Where in the archive it lies.
        row: What a table, or files beside it, say of it: values as JSON has them, by column.
        joined: Files that belong to it: (what each is, path, size, modified).
        path: Below the root, where it is not the key.
        error: Why nothing can be loaded from it; empty unless the lister knows already.
    """

    key: str
    size: int = 0
    modified: int = 0
    archive: str = ""
    place: Place | None = None
    row: Mapping[str, Any] = _NOTHING
    joined: tuple[tuple[str, str, int, int], ...] = ()
    path: str = ""
    error: str = ""

    @property
    def file(self) -> str:
        """Its path below the root, whatever its key is; its ending says what it holds."""
        return self.path or self.key

    @property
    def packed(self) -> bool:
        """Whether it is a `.tar.gz`, whose members nobody knows before it is read."""
        return not self.archive and archive_kind(self.file) == "tar.gz"


def column_of(row: Mapping[str, Any], name: str) -> Any:
    """The value of a column.

    Raises:
        RejectError: The row has no such column; the message lists those it has.
    """
    try:
        return row[name]
    except KeyError:
        known = ", ".join(map(str, row)) or "none"
        raise RejectError(f"no column {name!r}; it has {known}") from None


def pack_reference(source: Source) -> bytes:
    """The reference of a source."""
    key = source.key.encode("utf-8", "surrogateescape")
    plain = _REFERENCE.pack(source.size, source.modified) + key
    details = source[3:]
    if not any(details):
        return plain
    return plain + _DETAILS + _to_json(details)


def _to_json(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # Names of files that are not UTF-8 hold lone surrogates.
        return json.dumps(value).encode()


def _of_json(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text)


def unpack_reference(reference: bytes) -> Source:
    """The source that `pack_reference` was given."""
    size, modified = _REFERENCE.unpack_from(reference)
    key, _, details = reference[_REFERENCE.size :].partition(_DETAILS)
    source = Source(key.decode("utf-8", "surrogateescape"), size, modified)
    if not details:
        return source
    archive, place, row, joined, path, error = _of_json(details)
    return source._replace(
        archive=archive,
        place=Place(*place) if place else None,
        row=row,
        joined=tuple(map(tuple, joined)),
        path=path,
        error=error,
    )


def reference_key(reference: bytes) -> bytes:
    """The key in a reference, as bytes."""
    return reference[_REFERENCE.size :].partition(_DETAILS)[0]


# A key is a feature of its record, and text in an Example is UTF-8.
NOT_UTF8 = "the file's name is not UTF-8: rename it"


def is_utf8(key: str) -> bool:
    """Whether a file's name is UTF-8; Python keeps other bytes as lone surrogates."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


# A record cannot exceed protobuf's 2 GiB.
MAX_FILE_BYTES = 1 << 31
