"""The place of every record of a shard, from its `.idx` or by a scan."""

from __future__ import annotations

import os
import struct
from typing import BinaryIO

import numpy as np

from readers.files.remote import file_size, open_file, read_file
from readers.format.index import parse_index
from readers.format.manifest import INDEX_SUFFIX
from readers.format.tfrecord import (
    FOOTER_BYTES,
    HEADER_BYTES,
    MAX_RECORD_BYTES,
    CorruptRecordError,
    masked_crc32c,
)


def read_sidecar(path: str, size: int | None = None) -> np.ndarray | None:
    """The (offset, length) in bytes of every record, int64 [records, 2]; None without an `.idx`.

    Args:
        path: Of the TFRecord file; the index stands beside it.
        size: That the file should have, in bytes; None means what it has.

    Raises:
        ValueError: The index is none, or does not fit the size of the file.
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
    """The (offset, length) of every record, int64 [records, 2], found by walking the file.

    It reads 12 bytes a record, and checks the CRC32C of each length.

    Raises:
        CorruptRecordError: A record's header is wrong, or the file ends within a record.
    """
    rows = []
    with open_file(path) as file:
        size = _stream_size(file)
        offset = 0
        while offset < size:
            file.seek(offset)
            header = file.read(HEADER_BYTES)
            length, crc = struct.unpack("<QI", header) if len(header) == HEADER_BYTES else (0, -1)
            if crc != masked_crc32c(header[:8]) or length > MAX_RECORD_BYTES:
                raise CorruptRecordError(f"{path}: no TFRecord starts at byte {offset}")
            framed = HEADER_BYTES + length + FOOTER_BYTES
            rows.append((offset, framed))
            offset += framed
        if offset != size:
            raise CorruptRecordError(f"{path}: the record at byte {rows[-1][0]} is cut off")
    return np.array(rows, np.int64).reshape(-1, 2)


def read_index(path: str, size: int | None = None) -> np.ndarray:
    """The (offset, length) of every record, int64 [records, 2], from the `.idx` or by a scan.

    Args:
        path, size: As `read_sidecar`.
    """
    index = read_sidecar(path, size)
    return scan_index(path) if index is None else index


def _stream_size(file: BinaryIO) -> int:
    file.seek(0, os.SEEK_END)
    return file.tell()
