"""Sources, from which records are loaded, and the packed references that are shuffled instead of them.

A reference is a few dozen bytes: the size of a file, its time of modification and its key; if it has them, also
its location in an archive, its row of a table and the files that are joined to it.
"""

from __future__ import annotations

import contextlib
import functools
import json
import struct
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import google_crc32c
import orjson

from beam_jobs.columns import text_bytes
from beam_jobs.errors import RejectError
from beam_jobs.sources.archives.archive import archive_kind
from beam_jobs.sources.archives.member import MemberLocation

_REFERENCE = struct.Struct("<Qq")

# Separates the key, which never contains it, from the other fields as JSON.
_DETAILS = b"\0"

# Precedes the name of a column in flags that also accept other values.
COLUMN = "column:"

_NOTHING: Mapping[str, Any] = {}

# The label of a record, or all its labels if it may have several.
Label = str | tuple[str, ...]


class Source(NamedTuple):
    """A file, or a member of an archive, from which one record or several are loaded.

    Attributes:
        key: Path relative to the common root; for a member, the archive's key and the member's path.
        size: Size in bytes; 0 if it is not known before reading.
        modified: Time of the last change, in nanoseconds since the epoch; the archive's for a member.
        archive: Key of the archive that contains it; empty for a file.
        location: The place of its bytes in the archive.
        row: Columns from a table, or from files next to it: JSON values by name.
        joined: Other files: (name of the array, or kind of content; path; size; modified), and the location
            of a member of an archive.
        path: Path relative to the root, if it is not the key.
        error: Why nothing can be loaded from it; empty if no reason is known yet.
        groups: The row groups of Parquet that it represents: the numbers of the first one and after the last one, from
            0, and of the first row, from 1; None for other sources.
        label: The label of its records, or their labels; None until it was derived, or without labels.
        remark: A remark about its records, such as about its name; empty for none.
    """

    key: str
    size: int = 0
    modified: int = 0
    archive: str = ""
    location: MemberLocation | None = None
    row: Mapping[str, Any] = _NOTHING
    joined: tuple[tuple[Any, ...], ...] = ()
    path: str = ""
    error: str = ""
    groups: tuple[int, int, int] | None = None
    label: Label | None = None
    remark: str = ""

    @property
    def file(self) -> str:
        """Its path relative to the root, whose extension names its kind."""
        return self.path or self.key

    @property
    def packed(self) -> bool:
        """Whether its members are unknown until it is read: a `.tar.gz`, or files in Parquet."""
        return bool(self.groups) or (not self.archive and archive_kind(self.file) == "tar.gz")


# The fields of a plain file after its key, its size and its time.
_PLAIN = Source("")[3:]


def value_at(row: Mapping[str, Any], name: str) -> Any:
    """The value of a column, or of a field in it: `meta.cls` is the field `cls` of the object `meta`.

    A column or field whose own name has a dot comes first. The fields of a missing object are None. Raises KeyError
    if the row has no such column or field.
    """
    if name in row:
        return row[name]
    at = name.find(".")
    while at >= 0:
        parent = row.get(name[:at], ())
        if parent is None:
            return None
        if isinstance(parent, Mapping):
            with contextlib.suppress(KeyError):
                return value_at(parent, name[at + 1 :])
        at = name.find(".", at + 1)
    raise KeyError(name)


def values_at(row: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The columns and fields of a row with some names; missing ones are left out."""
    values = {}
    for name in names:
        with contextlib.suppress(KeyError):
            values[name] = value_at(row, name)
    return values


def names_in(row: Mapping[str, Any]) -> Iterator[str]:
    """Yields the names of all columns, each before those of its fields, as `value_at` takes them."""
    names = [(str(name), value) for name, value in reversed([*row.items()])]
    while names:
        name, value = names.pop()
        yield name
        if isinstance(value, Mapping):
            names += [(f"{name}.{field}", child) for field, child in reversed([*value.items()])]


def used_columns(row: Mapping[str, Any], columns: Collection[str]) -> dict[str, Any]:
    """The values of the columns that a job uses; if one is missing, all columns, so that the reject can list them."""
    used = values_at(row, columns)
    return used if len(used) == len(columns) else dict.fromkeys(names_in(row), "") | used


def column_of(row: Mapping[str, Any], name: str) -> Any:
    """The value of a column or field, as `value_at` finds it; RejectError with the names of all columns if it is missing."""
    try:
        return value_at(row, name)
    except KeyError:
        columns = ", ".join(names_in(row)) or "none"
        raise RejectError(f"no column {name!r}; it has {columns}") from None


def pack_reference(source: Source) -> bytes:
    """The reference of a source."""
    plain = _REFERENCE.pack(source.size, source.modified) + text_bytes(source.key)
    details = source[3:]
    if details == _PLAIN:
        return plain
    return plain + _DETAILS + _to_json(details)


def with_label(reference: bytes, source: Source, label: Label | None) -> bytes:
    """The reference of a source, given the reference of the source without a label."""
    if label is None:
        return reference
    if _DETAILS not in reference[_REFERENCE.size :]:
        return reference + _only_label(label)
    return pack_reference(source._replace(label=label))


@functools.lru_cache(maxsize=1024)
def _only_label(label: Label) -> bytes:
    """The part after the key in the reference of a plain file with a label."""
    return pack_reference(Source("", label=label))[_REFERENCE.size :]


def identity_of(source: Source) -> int:
    """Identifies a source together with its key, on a disk and in a store: its row if it has one, or its size."""
    return google_crc32c.value(_to_json(source.row)) if source.row else source.size


def _to_json(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # File names that are not UTF-8 contain lone surrogates.
        return json.dumps(value).encode()


def _of_json(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text)


def unpack_reference(reference: bytes) -> Source:
    """The source that `pack_reference` packed."""
    size, modified = _REFERENCE.unpack_from(reference)
    key, _, details = reference[_REFERENCE.size :].partition(_DETAILS)
    fields_of = _details_of if len(details) <= _SHORT else _details_of.__wrapped__
    return Source(key.decode("utf-8", "surrogatepass"), size, modified, *fields_of(details))


# The largest details to cache, in bytes: of files with only a label. A row of a table may have megabytes.
_SHORT = 256


@functools.lru_cache(maxsize=1024)
def _details_of(details: bytes) -> tuple[Any, ...]:
    """The fields of a source after the third."""
    if not details:
        return ()
    archive, location, row, joined, path, error, groups, label, remark = _of_json(details)
    return (
        archive,
        MemberLocation(*location) if location else None,
        row,
        tuple(map(tuple, joined)),
        path,
        error,
        tuple(groups) if groups else None,
        tuple(label) if isinstance(label, list) else label,
        remark,
    )


def reference_key(reference: bytes) -> bytes:
    """The key in a reference, as bytes."""
    return reference[_REFERENCE.size :].partition(_DETAILS)[0]


# A key becomes a feature of its record, and text in an Example is UTF-8.
NOT_UTF8 = "the file's name is not UTF-8: rename it"
if sys.getfilesystemencoding() != "utf-8":
    NOT_UTF8 += f"; or, as this locale is {sys.getfilesystemencoding()}, set PYTHONUTF8=1"
