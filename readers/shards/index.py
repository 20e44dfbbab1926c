"""The positions of records in their files: from the `.index` of a file, or from a scan of its headers."""

from __future__ import annotations

import contextlib
import os
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from readers.files.kept import drop, kept
from readers.files.mapped import MappedFile
from readers.files.of_path import files_of
from readers.format.index import Head, Index, checked_offsets, head_crc32c
from readers.format.manifest import DatasetError
from readers.format.tfrecord import (
    FRAME_BYTES,
    HEADER_BYTES,
    CorruptRecordError,
    masked_crc32c,
    record_length,
)
from readers.shards.plan import Part

# The first bytes of a file compressed with ZLIB.
_ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")

_UNPACK = {
    "GZIP": "beam-shards reshard --input FILES --output DIR makes a dataset from such files",
    "ZLIB": "write it again without tf.io.TFRecordOptions",
}


def open_index(part: Part) -> BinaryIO:
    """Opens the index of a part's file as a local file, or creates it from the file's records.

    An index in a store or on a network disk is copied once to this machine.

    Raises:
        FileNotFoundError: The manifest lists an index that is missing.
        DatasetError: (a ValueError) An index in a store is damaged, or does not belong to the file.
        CorruptRecordError: The file has no index, and its records do not fill it without gaps.
        OSError: A file cannot be read.
    """
    if part.index_crc32c is not None:
        return part.index.open()
    if part.index.is_on_local_disk:
        with contextlib.suppress(FileNotFoundError):
            return part.index.open()
    return kept(*_copy_of(part))


def _copy_of(part: Part) -> tuple[Any, Callable[[], bytes]]:
    """The key of the local copy of an index, and a function that creates it."""
    if part.index_crc32c is not None:
        return part.index.key, part.index.fetch
    try:
        data = part.index.fetch()
    except FileNotFoundError:
        version = files_of(part.path).stat(part.path).version
        return (part.path, version), lambda: scanned(part.path).to_bytes()
    return (part.index.path, len(data), head_crc32c(data)), lambda: data


def forget(part: Part) -> bool:
    """Deletes the copy of an index, so that the next process creates it again; returns whether there was one."""
    if part.index.is_on_local_disk and Path(part.index.path).exists():
        return False
    return drop(_copy_of(part)[0])


def scanned(path: str) -> Index:
    """The lengths of all records of a file, from their headers of 12 bytes, whose CRC32C is checked.

    Raises:
        CorruptRecordError: The header of a record is wrong, or the file ends within a record.
        ValueError: The file is compressed.
    """
    lengths, offset = array("q"), 0
    with files_of(path).open(path) as file:
        size = file.seek(0, os.SEEK_END)
        while offset < size:
            file.seek(offset)
            header = file.read(HEADER_BYTES)
            if not offset:
                _refuse_compressed(header, path)
            lengths.append(FRAME_BYTES + record_length(header, path, offset))
            offset += lengths[-1]
    if offset != size:
        raise CorruptRecordError.at(path, offset - lengths[-1], "is cut off")
    return Index(np.array(lengths, np.int64), {})


def _refuse_compressed(header: bytes, path: str) -> None:
    """Raises ValueError if a file that begins with these bytes is compressed, whatever its name.

    A plain file may begin with the same bytes, but then a valid checksum of the length follows.
    Source: RFC 1952 (GZIP) and RFC 1950 (ZLIB).
    """
    name = "GZIP" if header[:2] == b"\x1f\x8b" else "ZLIB" if header[:2] in _ZLIB else None
    is_plain = masked_crc32c(header[:8]) == int.from_bytes(header[8:], "little")
    if name and not is_plain:
        raise ValueError(
            f"{path}: compressed with {name}, expected no compression; {_UNPACK[name]}"
        )


def read_offsets(part: Part) -> np.ndarray:
    """The byte at which each record of a part's file begins and the last one ends, int64 [records + 1].

    Raises DatasetError if the index is damaged or does not belong to the file, and the errors of `open_index`.
    """
    with open_index(part) as file:
        data = file.read()
    return offsets_of(data, part.index.head(data), part)


def offsets_of(data: object, head: Head, part: Part) -> np.ndarray:
    """The same as `checked_offsets`, with advice in its errors."""
    try:
        return checked_offsets(data, head, part.index.path)
    except ValueError as error:
        raise DatasetError(f"{error}; {part.index.advice}") from None


def index_of(part: Part) -> tuple[int, int, int]:
    """The number of records in a part's file, their bytes, and the size of the index; errors as for `read_offsets`."""
    with open_index(part) as file:
        head = part.index.head(MappedFile(file).view)
    return head.records, head.bytes, head.size
