"""The numbers in the mapped indexes of a plan's files."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Sequence
from typing import Any

import google_crc32c
import numpy as np

from readers.files.mapped import MappedFiles
from readers.format.compiled.library import address
from readers.format.index import BLOCK_BYTES, OFFSET, Head
from readers.format.lookup.index_file import IndexFile
from readers.format.manifest import DatasetError
from readers.format.tfrecord import FRAME_BYTES, MAX_FRAMED_BYTES
from readers.shards.opened.local_shard import CHANGED, PresentSize

# A smaller index is checked completely when it is opened; in a larger one, only the blocks that are used.
_CHECKED_AT_ONCE = 1 << 20

_OFFSET_DTYPES = ("<u4", "<u8")


class ShardIndexes:
    """The numbers in the indexes of a plan's parts, each mapped when first needed. It is safe to share between threads.

    The processes of a machine share their pages. `descriptors` is whether to keep a file descriptor for each
    index on a local disk.
    """

    def __init__(self, indexes: Sequence[IndexFile], descriptors: bool = False) -> None:
        self._indexes, self._bytes = indexes, [index.size or 0 for index in indexes]
        self._files = MappedFiles(self._bytes)
        self._heads: list[Head | None] = [None] * len(indexes)
        self._offsets_of_part: list[np.ndarray | None] = [None] * len(indexes)
        self._sizes = np.zeros(len(indexes), np.int64)
        # (section, dtype) -> the byte of each part at which it begins in the address range; 0 without it. Only
        # those that were asked for, because there may be thousands of sections and of parts.
        self._sections_at = dict[tuple[str, str], np.ndarray]()
        # For each part: where its blocks begin in the address range, and how many blocks come before them.
        self._blocks_at = np.array(self._files.starts, np.int64)
        blocks = [-(-size // BLOCK_BYTES) for size in self._bytes]
        self._blocks_before = np.cumsum([0, *blocks])[:-1]
        self._checked = np.zeros(sum(blocks), bool)
        self._checks = False
        self._lock = threading.Lock()
        self._mapped = set[int]()
        self._has_descriptors = descriptors
        # For each part: how to find the present size of an index that another program may truncate.
        self._present: list[PresentSize | None] = [None] * len(indexes)

    def is_loaded(self, part: int) -> bool:
        """Whether the index of a part is loaded; DatasetError if it was truncated since.

        A mapped page that no longer exists kills the process, so the size is checked before each use.
        """
        if self._heads[part] is None:
            return False
        present = self._present[part]
        if present is not None and present() < self._bytes[part]:
            raise DatasetError(f"{self._indexes[part].path}: {CHANGED}")
        return True

    def missing(self, parts: Sequence[int]) -> list[int]:
        """The parts among these that are not loaded yet.

        Their order differs between processes, so that processes started together share the work of copies and scans.
        """
        found = [part for part in parts if not self.is_loaded(part)]
        if len(found) > 1:
            random.Random(os.getpid()).shuffle(found)
        return found

    def load(self, number: int) -> None:
        """Maps the index of a part; errors as for `IndexFile.open`.

        Also raises DatasetError if the index is damaged, does not fit the file, or has changed.
        """
        try:
            self._load(number)
        except DatasetError:
            self._mapped.discard(number)
            if not self._indexes[number].forget():
                raise
            self._load(number)

    def _load(self, number: int) -> None:
        index, size = self._indexes[number], self._bytes[number]
        with index.open() as file:
            if os.fstat(file.fileno()).st_size != size:
                index.head(file.read())  # Raises a more specific error.
            with self._lock:
                # Other threads may read a map as soon as it exists.
                if number not in self._mapped:
                    self._files.map(number, file)
                    self._mapped.add(number)
                    if isinstance(file.name, str):  # Copies lack it, and nobody truncates them.
                        self._present[number] = PresentSize(file, file.name, self._has_descriptors)
        start = self._files.starts[number]
        data = self._files.octets[start : start + size]
        head = index.head(data)
        self._sizes[number] = head.bytes
        self._blocks_at[number] = start + head.start
        if head.size <= _CHECKED_AT_ONCE:
            index.offsets(head, data)
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
        """The byte of the address range at which a section of a part begins, given its head; 0 without it."""
        section = head.sections.get(name) if head else None
        if section is None or section.dtype.str != dtype:
            return 0
        return self._files.starts[number] + section.start

    def in_memory(self, part: int) -> dict[str, Any]:
        """Where the kernel finds the offsets in a loaded index, and which blocks are checked."""
        head, offsets, present = self._heads[part], self._offsets_of_part[part], self._present[part]
        assert head is not None and offsets is not None
        size = self._bytes[part]
        return {
            "offsets": address(offsets),
            "itemsize": offsets.itemsize,
            "before": head.sections[OFFSET].start - head.start,
            "checked": address(self._checked) + int(self._blocks_before[part]),
            "index_bytes": size,
            "bytes": head.bytes,
            "of_index": (-1, 0, 0, size) if present is None else present.question,
        }

    def of(self, rows: np.ndarray, parts: np.ndarray) -> np.ndarray:
        """The (offset, length) of records in bytes, int64 [B, 2]; DatasetError if an index is damaged.

        The numbers of the records in their files, and their parts, which must be loaded, are int64 [B].
        """
        index = np.empty((len(rows), 2), np.int64)
        for column, row in enumerate((rows, rows + 1)):
            index[:, column] = self.numbers(OFFSET, _OFFSET_DTYPES, row, parts)
        ends = index[:, 1].copy()
        index[:, 1] -= index[:, 0]
        starts, lengths = index[:, 0], index[:, 1]
        # The difference of two numbers wraps around if one of them is negative, that is, from 2 ** 63 on.
        wrong = (starts < 0) | (ends < 0) | (ends > self._sizes[parts])
        wrong |= (lengths < FRAME_BYTES) | (lengths > MAX_FRAMED_BYTES)
        if wrong.any():
            raise self._damaged(int(parts[np.argmax(wrong)]))
        return index

    def of_one(self, row: int, part: int) -> tuple[int, int]:
        """The offset and the length of one record in a loaded part, in a tenth of the time of `of`."""
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
        """Whether the index of a loaded part has a section with a dtype."""
        return self._place(part, self._heads[part], name, dtype.str) > 0

    def numbers(
        self, name: str, dtypes: Sequence[str], rows: np.ndarray, parts: np.ndarray
    ) -> np.ndarray:
        """The numbers of a section, int64 [B], for records as in `of`.

        Each index has the section in one of the dtypes; DatasetError if an index lacks it.
        """
        found, missing = np.empty(len(rows), np.int64), np.True_
        for dtype in dtypes:
            at = self._starts(name, dtype)[parts]
            here = at > 0
            numbers = self._files.octets.view(dtype)
            if here.all():
                return self._checked_numbers(numbers, at, rows, parts).astype(np.int64)
            if here.any():
                found[here] = self._checked_numbers(numbers, at[here], rows[here], parts[here])
            missing = missing & ~here
        if np.any(missing):
            index = self._indexes[int(parts[np.argmax(missing)])]
            raise DatasetError(
                f"{index.path}: no section {name!r} of {' or '.join(dtypes)}; {index.advice}"
            )
        return found

    def _starts(self, name: str, dtype: str) -> np.ndarray:
        """The byte of the address range at which a section of each part begins, int64 [parts]; 0 without it."""
        key = name, dtype
        if key not in self._sections_at:
            with self._lock:
                every = [self._place(n, head, *key) for n, head in enumerate(self._heads)]
                self._sections_at[key] = np.array(every, np.int64)
        return self._sections_at[key]

    def _checked_numbers(
        self, numbers: np.ndarray, at: np.ndarray, rows: np.ndarray, parts: np.ndarray
    ) -> np.ndarray:
        """Numbers of sections that begin at the given bytes of the address range."""
        places = at // numbers.itemsize + rows
        if self._checks:
            self._check(places * numbers.itemsize, parts)
        return numbers[places]

    def _check(self, places: np.ndarray, parts: np.ndarray) -> None:
        """Compares the blocks around the given bytes of the address range with their checksums, once per block."""
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
        index = self._indexes[number]
        what_to_do = "open the dataset again" if index.forget() else index.advice
        return DatasetError(f"{index.path}: damaged; {what_to_do}")
