"""The positions of records in a file without an index, from a scan of its headers."""

from __future__ import annotations

import os
from array import array

import numpy as np

from readers.files.of_path import files_of
from readers.format.index import Index
from readers.format.tfrecord import (
    FRAME_BYTES,
    HEADER_BYTES,
    CorruptRecordError,
    masked_crc32c,
    record_length,
)

# The first bytes of a file compressed with ZLIB.
_ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")

_UNPACK = {
    "GZIP": "beam-shards reshard --input FILES --output DIR makes a dataset from such files",
    "ZLIB": "write it again without tf.io.TFRecordOptions",
}


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
