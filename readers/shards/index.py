"""The position of every record in a TFRecord file, from its `.idx` or by a scan."""

from __future__ import annotations

import os

import numpy as np

from readers.files.remote import file_size, open_file, read_file
from readers.format.index import parse_index
from readers.format.manifest import INDEX_SUFFIX
from readers.format.tfrecord import FRAME_BYTES, HEADER_BYTES, CorruptRecordError, record_length


def read_index(path: str, size: int | None = None) -> np.ndarray:
    """The (offset, length) of every record, int64 [records, 2], from the `.idx` or else by a scan.

    The arguments and errors are those of `read_sidecar`; a scan may raise CorruptRecordError.
    """
    index = read_sidecar(path, size)
    return scan_index(path) if index is None else index


def read_sidecar(path: str, size: int | None = None) -> np.ndarray | None:
    """The (offset, length) in bytes of every record, int64 [records, 2]; None without an `.idx`.

    Args:
        path: The path of the TFRecord file, which is that of the `.idx` without its suffix.
        size: The size that the file must have, in bytes; None for its actual size.

    Raises:
        ValueError: The `.idx` is not an index, or does not fit the size.
    """
    sidecar = path + INDEX_SUFFIX
    try:
        index = parse_index(read_file(sidecar), sidecar)
    except FileNotFoundError:
        return None
    end = int(index[-1].sum()) if len(index) else 0
    size = file_size(path) if size is None else size
    if end != size:
        raise ValueError(
            f"{sidecar}: the records end at byte {end}, but {path} has {size} bytes; "
            "delete or rewrite the index"
        )
    return index


def scan_index(path: str) -> np.ndarray:
    """The (offset, length) in bytes of every record, int64 [records, 2], from the records' headers.

    It reads 12 bytes per record and checks the CRC32C of each length.

    Raises:
        CorruptRecordError: The header of a record is wrong, or the file ends within a record.
    """
    rows = []
    with open_file(path) as file:
        size = file.seek(0, os.SEEK_END)
        offset = 0
        while offset < size:
            file.seek(offset)
            framed = FRAME_BYTES + record_length(file.read(HEADER_BYTES), path, offset)
            rows.append((offset, framed))
            offset += framed
        if offset != size:
            raise CorruptRecordError.at(path, rows[-1][0], "is cut off")
    return np.array(rows, np.int64).reshape(-1, 2)
