"""Where records are in their files, and other numbers of each, from the `.index` of a file or by a scan."""

from __future__ import annotations

import contextlib
import os
import threading
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import google_crc32c
import numpy as np

from readers.files.kept import drop, kept
from readers.files.local import is_local, open_local
from readers.files.mapped import MappedFile, MappedFiles
from readers.files.mounts import is_on_local_disk
from readers.files.of_path import files_of
from readers.format.compiled.library import address
from readers.format.index import (
    BLOCK_BYTES,
    OFFSET,
    Head,
    Index,
    checked_offsets,
    head_crc32c,
    parse_head,
)
from readers.format.manifest import INDEX_SUFFIX, DatasetError
from readers.format.tfrecord import (
    FRAME_BYTES,
    HEADER_BYTES,
    MAX_FRAMED_BYTES,
    CorruptRecordError,
    record_length,
)
from readers.shards.local_shard import CHANGED, PresentSize
from readers.shards.plan import Part

# A smaller index is checked as a whole when it is opened; of a larger one, the blocks that are used.
_CHECKED_AT_ONCE = 1 << 20

_OFFSET_DTYPES = ("<u4", "<u8")

# The golden ratio: any number of its multiples lie far from each other on a circle.
_TURN = 0.6180339887


def open_index(part: Part) -> BinaryIO:
    """Opens the index of a part's file as a file of this machine, or makes it from the file's records.

    An index in a store or on a network disk is copied once to this machine.

    Raises:
        FileNotFoundError: The manifest lists an index that is missing.
        DatasetError: (a ValueError) An index in a store is damaged, or not that of the file.
        CorruptRecordError: The file has no index, and its records do not follow one another to its end.
        OSError: A file cannot be read.
    """
    if (local := _in_place(part)) is not None:
        with contextlib.suppress(FileNotFoundError):
            file: BinaryIO = open_local(local)
            return file
    return kept(*_copy_of(part))


def _in_place(part: Part) -> str | None:
    """The path of an index on a disk of this machine, whether it exists or not; None elsewhere."""
    path = part.path + INDEX_SUFFIX
    if is_local(path) and is_on_local_disk(os.path.dirname(os.path.realpath(path))):
        return path
    return None


def _copy_of(part: Part) -> tuple[Any, Callable[[], bytes]]:
    """The key of the copy of an index on this machine, and what makes it."""
    path = part.path + INDEX_SUFFIX
    if part.index_crc32c is not None:
        return (path, part.index_bytes, part.index_crc32c), lambda: _fetched(part)
    try:
        data = _fetched(part)
    except FileNotFoundError:
        version = files_of(part.path).stat(part.path).version
        return (part.path, version), lambda: scanned(part.path).to_bytes()
    return (path, len(data), head_crc32c(data)), lambda: data


def _fetched(part: Part) -> bytes:
    """The bytes of an index: only those that are right become a copy, which would outlive their repair."""
    path = part.path + INDEX_SUFFIX
    try:
        data = files_of(path).read(path, 0, part.index_bytes or None)
    except FileNotFoundError:
        if part.index_crc32c is None:
            raise
        raise FileNotFoundError(
            f"{path}: the manifest lists this index, but it is missing; {_cure(part)}"
        ) from None
    at = _head(data, part).damaged(data)
    if at is not None:
        raise DatasetError(f"{path}: damaged at byte {at}; {_cure(part)}")
    return data


def _forget(part: Part) -> bool:
    """Deletes the copy of an index, which the next process makes anew; returns whether there was one."""
    local = _in_place(part)
    if local is not None and Path(local).exists():
        return False
    return drop(_copy_of(part)[0])


def scanned(path: str) -> Index:
    """The lengths of all records of a file, from their headers.

    It reads 12 bytes per record and checks the CRC32C of each length.

    Raises:
        CorruptRecordError: The header of a record is wrong, or the file ends within a record.
    """
    lengths, offset = array("q"), 0
    with files_of(path).open(path) as file:
        size = file.seek(0, os.SEEK_END)
        while offset < size:
            file.seek(offset)
            lengths.append(FRAME_BYTES + record_length(file.read(HEADER_BYTES), path, offset))
            offset += lengths[-1]
    if offset != size:
        raise CorruptRecordError.at(path, offset - lengths[-1], "is cut off")
    return Index(np.array(lengths, np.int64), {})


def read_offsets(part: Part) -> np.ndarray:
    """Where each record of a part's file begins and where the last one ends, int64 [records + 1], checked.

    Raises:
        DatasetError: (a ValueError) The index is damaged, or not that of the file.
        CorruptRecordError, FileNotFoundError, OSError: As `open_index`.
    """
    with open_index(part) as file:
        data = file.read()
    return _offsets_of(data, _head(data, part), part)


def _offsets_of(data: object, head: Head, part: Part) -> np.ndarray:
    """As `checked_offsets`, with what to do if they are wrong."""
    try:
        return checked_offsets(data, head, part.path + INDEX_SUFFIX)
    except ValueError as error:
        raise DatasetError(f"{error}; {_cure(part)}") from None


def index_of(part: Part) -> tuple[int, int, int]:
    """The number of records in a part's file, their bytes, and the size of the index.

    The errors are those of `read_offsets`.
    """
    with open_index(part) as file:
        head = _head(MappedFile(file).view, part)
    return head.records, head.bytes, head.size


def _head(data: object, part: Part) -> Head:
    """The head of an index, which must be that of a part's file.

    Raises:
        DatasetError: It is not.
    """
    path = part.path + INDEX_SUFFIX
    try:
        head = parse_head(data, path)
    except ValueError as error:
        raise DatasetError(f"{error}; {_cure(part)}") from None
    for what, found, expected in (
        ("records", head.records, part.total),
        ("bytes of records", head.bytes, part.bytes),
        ("bytes", head.size, None if part.total is None else part.index_bytes),
        ("as the CRC32C of its head", _hex(head.crc32c), _hex(part.index_crc32c)),
    ):
        if expected not in (None, found):
            source = "its file has" if part.crc32c is None else "the manifest states"
            raise DatasetError(f"{path}: {found} {what}, {source} {expected}; {_cure(part)}")
    return head


def _hex(crc: int | None) -> str | None:
    return None if crc is None else f"{crc:08x}"


def _cure(part: Part) -> str:
    if part.index_crc32c is None:
        return "delete the index"
    return "copy it again from where the job wrote it, or run the job again"


class ShardIndexes:
    """The numbers in the indexes of the files of a plan, which are mapped when they are first needed.

    The processes of a machine share their pages. It is safe to share between threads.

    Args:
        parts: The parts of the plan.
        descriptors: Whether to keep a file descriptor of each index on a local disk.
    """

    def __init__(self, parts: Sequence[Part], descriptors: bool = False) -> None:
        self._parts = parts
        self._files = MappedFiles([part.index_bytes for part in parts])
        self._heads: list[Head | None] = [None] * len(parts)
        self._offsets_of_part: list[np.ndarray | None] = [None] * len(parts)
        self._sizes = np.array([part.bytes or 0 for part in parts], np.int64)
        # (section, dtype) -> the byte of each part at which it begins in the range of addresses; 0 without it. Only
        # those that were asked for: there may be thousands of sections and of parts.
        self._sections_at = {
            (OFFSET, dtype): np.zeros(len(parts), np.int64) for dtype in _OFFSET_DTYPES
        }
        # Of each part: where its blocks begin in the range of addresses, and how many blocks come before them.
        self._blocks_at = np.array(self._files.starts, np.int64)
        blocks = [-(-part.index_bytes // BLOCK_BYTES) for part in parts]
        self._blocks_before = np.cumsum([0, *blocks])[:-1]
        self._checked = np.zeros(sum(blocks), bool)
        self._checks = False
        self._lock = threading.Lock()
        self._mapped = set[int]()
        self._has_descriptors = descriptors
        # Of each part: what tells the present size of an index that another program may truncate.
        self._present: list[PresentSize | None] = [None] * len(parts)

    def is_loaded(self, part: int) -> bool:
        """Whether the index of a part was loaded.

        A mapped page that no longer exists kills the process, so the size is asked before each use.

        Raises:
            DatasetError: (a ValueError) The index was truncated.
        """
        if self._heads[part] is None:
            return False
        present = self._present[part]
        if present is not None and present() < self._parts[part].index_bytes:
            raise DatasetError(f"{self._parts[part].path}{INDEX_SUFFIX}: {CHANGED}")
        return True

    def missing(self, parts: Sequence[int]) -> list[int]:
        """The parts of these that are not loaded yet, in the order in which to load them.

        It differs between processes, so that those which start together share the work of copies and scans.
        """
        found = [part for part in parts if not self.is_loaded(part)]
        first = int(os.getpid() * _TURN % 1 * len(found))
        return found[first:] + found[:first]

    def load(self, number: int) -> None:
        """Maps the index of a part.

        Raises:
            DatasetError: (a ValueError) It is damaged, does not fit the file, or has changed.
            CorruptRecordError, FileNotFoundError, OSError: As `open_index`.
        """
        try:
            self._load(number)
        except DatasetError:
            self._mapped.discard(number)
            if not _forget(self._parts[number]):
                raise
            self._load(number)

    def _load(self, number: int) -> None:
        part = self._parts[number]
        with open_index(part) as file:
            if os.fstat(file.fileno()).st_size != part.index_bytes:
                _head(file.read(), part)  # Raises an error that says more.
            with self._lock:
                # Other threads may read a map that is there.
                if number not in self._mapped:
                    self._files.map(number, file)
                    self._mapped.add(number)
                    if isinstance(file.name, str):  # Copies have none, and nobody truncates them.
                        self._present[number] = PresentSize(file, file.name, self._has_descriptors)
        start = self._files.starts[number]
        data = self._files.octets[start : start + part.index_bytes]
        head = _head(data, part)
        self._sizes[number] = head.bytes
        self._blocks_at[number] = start + head.start
        if head.size <= _CHECKED_AT_ONCE:
            _offsets_of(data, head, part)
            first = self._blocks_before[number]
            self._checked[first : first + len(head.checksums)] = True
        else:
            self._checks = True
        with self._lock:
            for key, at in self._sections_at.items():
                at[number] = self._place(number, head, *key)
            self._offsets_of_part[number] = head.numbers(data, OFFSET)
            self._heads[number] = head

    def _place(self, number: int, head: Head | None, name: str, dtype: str) -> int:
        """The byte of the range at which a section of a part begins, given its head; 0 without it."""
        section = head.sections.get(name) if head else None
        if section is None or section.dtype.str != dtype:
            return 0
        return self._files.starts[number] + section.start

    def in_memory(self, part: int) -> dict[str, int] | None:
        """Where the kernel finds the numbers of an index that is loaded; None if it cannot read it.

        It has no checksums of blocks, and asks for the size of a file by its descriptor.
        """
        head, offsets, present = self._heads[part], self._offsets_of_part[part], self._present[part]
        if head is None or offsets is None or head.size > _CHECKED_AT_ONCE:
            return None
        descriptor = -1 if present is None else present.descriptor
        if descriptor is None:
            return None
        return {
            "offsets": address(offsets),
            "itemsize": offsets.itemsize,
            "index_descriptor": descriptor,
            "index_bytes": self._parts[part].index_bytes,
            "bytes": head.bytes,
        }

    def of(self, rows: np.ndarray, parts: np.ndarray) -> np.ndarray:
        """The (offset, length) of records in bytes, int64 [B, 2], whose parts are loaded.

        Args:
            rows: int64 [B], the number of each record in its file.
            parts: int64 [B], the part of each record.

        Raises:
            DatasetError: (a ValueError) An index is damaged.
        """
        index = np.empty((len(rows), 2), np.int64)
        for column, row in enumerate((rows, rows + 1)):
            index[:, column] = self._offsets(row, parts)
        ends = index[:, 1].copy()
        index[:, 1] -= index[:, 0]
        starts, lengths = index[:, 0], index[:, 1]
        # The difference of two numbers wraps around if one of them is negative: from 2 ** 63 on.
        wrong = (starts < 0) | (ends < 0) | (ends > self._sizes[parts])
        wrong |= (lengths < FRAME_BYTES) | (lengths > MAX_FRAMED_BYTES)
        if wrong.any():
            raise self._damaged(int(parts[np.argmax(wrong)]))
        return index

    def of_one(self, row: int, part: int) -> tuple[int, int]:
        """The offset and the length of one record, whose part is loaded, in a tenth of the time of `of`."""
        head, offsets = self._heads[part], self._offsets_of_part[part]
        assert head is not None and offsets is not None
        first = head.sections[OFFSET].start - head.start + row * offsets.itemsize
        before = int(self._blocks_before[part])
        blocks = (first // BLOCK_BYTES, (first + offsets.itemsize) // BLOCK_BYTES)
        if all(self._checked[before + block] for block in blocks):
            offset, end = offsets[row : row + 2].tolist()
            if offset + FRAME_BYTES <= end <= min(head.bytes, offset + MAX_FRAMED_BYTES):
                return offset, end - offset
        (offset, length) = self.of(np.array([row]), np.array([part]))[0].tolist()
        return offset, length

    def has(self, name: str, dtype: np.dtype[Any], part: int) -> bool:
        """Whether the index of a part that is loaded has a section of a dtype."""
        return self._place(part, self._heads[part], name, dtype.str) > 0

    def numbers(
        self, name: str, dtype: np.dtype[Any], rows: np.ndarray, parts: np.ndarray
    ) -> np.ndarray:
        """The numbers of a section, [B], of records whose parts are loaded.

        The other arguments are those of `of`.

        Raises:
            DatasetError: (a ValueError) An index is damaged, or has no such section.
        """
        key = name, dtype.str
        with self._lock:
            if key not in self._sections_at:
                every = [self._place(n, head, *key) for n, head in enumerate(self._heads)]
                self._sections_at[key] = np.array(every, np.int64)
        places = self._sections_at[key][parts]
        if not places.all():
            part = self._parts[int(parts[np.argmin(places)])]
            raise DatasetError(
                f"{part.path}{INDEX_SUFFIX}: without a section {name!r} of {dtype}; {_cure(part)}"
            )
        return self._numbers(dtype.str, places, rows, parts)

    def _offsets(self, rows: np.ndarray, parts: np.ndarray) -> np.ndarray:
        """Numbers of the section `OFFSET`, int64 [B]."""
        found = np.empty(len(rows), np.int64)
        for dtype in _OFFSET_DTYPES:
            at = self._sections_at[OFFSET, dtype][parts]
            chosen = at > 0
            if chosen.all():
                return self._numbers(dtype, at, rows, parts).astype(np.int64)
            if chosen.any():
                found[chosen] = self._numbers(dtype, at[chosen], rows[chosen], parts[chosen])
        return found

    def _numbers(
        self, dtype: str, at: np.ndarray, rows: np.ndarray, parts: np.ndarray
    ) -> np.ndarray:
        """Numbers of sections that begin at some bytes of the range."""
        numbers = self._files.octets.view(dtype)
        places = at // numbers.itemsize + rows
        if self._checks:
            self._check(places * numbers.itemsize, parts)
        return numbers[places]

    def _check(self, places: np.ndarray, parts: np.ndarray) -> None:
        """Compares the blocks around some bytes of the range with their checksums, unless that was done."""
        blocks = (places - self._blocks_at[parts]) // BLOCK_BYTES + self._blocks_before[parts]
        for block in np.unique(blocks[~self._checked[blocks]]).tolist():
            part = int(np.searchsorted(self._blocks_before, block, side="right")) - 1
            head = self._heads[part]
            assert head is not None
            number = block - int(self._blocks_before[part])
            at = int(self._blocks_at[part]) + number * BLOCK_BYTES
            end = self._files.starts[part] + head.size
            data = self._files.octets[at : min(at + BLOCK_BYTES, end)]
            if google_crc32c.value(data) != head.checksums[number]:
                raise self._damaged(part)
            self._checked[block] = True

    def _damaged(self, number: int) -> DatasetError:
        part = self._parts[number]
        cure = "open the dataset again" if _forget(part) else _cure(part)
        return DatasetError(f"{part.path}{INDEX_SUFFIX}: damaged; {cure}")
