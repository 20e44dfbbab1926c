"""The position of every record in a TFRecord file, from its `.idx` or by a scan."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from readers.files.remote import file_size, local_path, open_file, read_file
from readers.files.shared import SharedNumbers
from readers.format.index import parse_index
from readers.format.manifest import INDEX_SUFFIX, DatasetError
from readers.format.tfrecord import FRAME_BYTES, HEADER_BYTES, CorruptRecordError, record_length
from readers.shards.local_shard import CHANGED, version_of
from readers.shards.plan import Part

# An index of fewer records is parsed in 50 ms, and takes 8 MB at most.
_SHARED_FROM = 1 << 20

# The golden ratio: any number of its multiples lie far from each other on a circle.
_TURN = 0.6180339887


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
    try:
        data = read_file(path + INDEX_SUFFIX)
    except FileNotFoundError:
        return None
    return parse_sidecar(data, path, size)


def parse_sidecar(data: bytes, path: str, size: int | None = None) -> np.ndarray:
    """The (offset, length) of every record in the text of an `.idx`; arguments and errors of `read_sidecar`."""
    sidecar = path + INDEX_SUFFIX
    index = parse_index(data, sidecar)
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


class RecordOffsets:
    """Where the records of a plan are in their files, in 4 or 8 bytes a record.

    The processes of a user on one machine share the offsets of large local datasets. It is safe to
    share between threads.

    Args:
        parts: The parts of the plan, with known numbers of records.

    Attributes:
        is_shared: Whether other processes find what this one loads.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        takes = np.array([part.take or 0 for part in parts], np.int64)
        are_small = all(part.bytes is not None and part.bytes < 1 << 32 for part in parts)
        self._identities: list[Any] = []
        if takes.sum() >= _SHARED_FROM:
            self._identities = [_identity(part) for part in parts]
        key = repr(self._identities) if self._identities and all(self._identities) else None
        # A record ends where the next one begins, and after the last one is one more number.
        dtype = np.uint32 if are_small else np.int64
        self._offsets = SharedNumbers(key, np.cumsum(takes + 1), dtype)
        self.is_shared = self._offsets.is_shared

    def is_loaded(self, part: int) -> bool:
        """Whether the index of a part was loaded."""
        return self._offsets.is_loaded(part)

    def missing(self, parts: Sequence[int]) -> list[int]:
        """The parts of these that are not loaded yet, in the order in which to load them.

        It differs between processes, so that those which start together share the work.
        """
        found = [part for part in parts if not self.is_loaded(part)]
        first = int(os.getpid() * _TURN % 1 * len(found)) if self.is_shared else 0
        return found[first:] + found[:first]

    def load(self, part: int) -> None:
        """Reads the index of a part, unless it was loaded before.

        Raises:
            ValueError: The index is wrong, does not fit the file, or has changed.
        """
        self._offsets.load(part, partial(self._read, part))

    def of(self, numbers: np.ndarray, parts: np.ndarray) -> np.ndarray:
        """The (offset, length) of records, int64 [B, 2], whose parts are loaded.

        Args:
            numbers: int64 [B], the numbers of the records.
            parts: int64 [B], the part of each record.
        """
        at, offsets = numbers + parts, self._offsets.numbers
        index = np.empty((len(at), 2), np.int64)
        index[:, 0] = offsets[at]
        index[:, 1] = offsets[at + 1]
        index[:, 1] -= index[:, 0]
        return index

    def of_one(self, number: int, part: int) -> tuple[int, int]:
        """The offset and the length of one record, whose part is loaded."""
        offset, end = self._offsets.numbers[number + part :][:2].tolist()
        return offset, end - offset

    def _read(self, number: int) -> np.ndarray:
        """Where each record of a part begins, and where the last one ends, int64 [records + 1]."""
        part = self._parts[number]
        index = _checked_index(part)[part.skip :][: part.take]
        if self._identities and self._identities[number] != _identity(part):
            raise DatasetError(f"{part.path}: {CHANGED}")
        ends = index[:, 0] + index[:, 1]  # Ten times as fast as `sum`.
        gaps = np.flatnonzero(ends[:-1] != index[1:, 0])
        if gaps.size:
            raise DatasetError(
                f"{part.path}{INDEX_SUFFIX}: a record ends at byte {ends[gaps[0]]}, and the next one "
                f"begins at byte {index[gaps[0] + 1, 0]}; delete or rewrite the index"
            )
        return np.append(index[:, 0], ends[-1:])


def _identity(part: Part) -> tuple[Any, ...] | None:
    """What changes with a local file, its index, or the run of its records; None for other files."""
    if part.gzipped or local_path(part.path) is None:
        return None
    found = list[Any]()
    for path in (part.path, part.path + INDEX_SUFFIX):
        try:
            stat = os.stat(path)
        except FileNotFoundError:
            found.append(None)
        else:
            found.append((stat.st_dev, stat.st_size, *version_of(stat)))
    return (*found, part.skip, part.take, part.total, part.bytes)


def _checked_index(part: Part) -> np.ndarray:
    """The (offset, length) of every record in a part's file, int64 [records, 2]."""
    index = read_index(part.path, part.bytes)
    if len(index) != part.total:
        raise DatasetError(
            f"{part.path}: the manifest states {part.total} records, the index has {len(index)}"
        )
    return index
