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
    compression_of,
    record_length,
)

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
            if not offset and (name := compression_of(header)):
                cure = _UNPACK[name]
                raise ValueError(f"{path}: compressed with {name}, expected no compression; {cure}")
            lengths.append(FRAME_BYTES + record_length(header, path, offset))
            offset += lengths[-1]
    if offset != size:
        raise CorruptRecordError.at(path, offset - lengths[-1], "is cut off")
    return Index(np.array(lengths, np.int64), {})
