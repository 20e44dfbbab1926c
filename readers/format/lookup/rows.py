"""Rows: records by their number among all stored records of a split, and which of them a reader sees."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import google_crc32c
import numpy as np

from readers.format.compiled.library import rows_seen

# Parts of the numbers of seen rows: 32 MiB at most.
_MOST_PARTS = 1 << 22


class RowList(NamedTuple):
    """A file with rows of a split: little-endian uint32, or uint64 for a split of 2**32 stored records or more.

    Attributes:
        path: Its path in the dataset's directory.
        records: The number of rows, which ascend and differ.
        crc32c: Its CRC32C.
    """

    path: str
    records: int
    crc32c: int


def pack_rows(rows: np.ndarray, stored: int) -> bytes:
    """The content of a file with rows, int64 [n], of a split with `stored` records."""
    return rows.astype(_dtype(stored)).tobytes()


def unpack_rows(data: bytes, listed: RowList, stored: int) -> np.ndarray:
    """The rows in a file, uint32 or uint64 [n], for a split with `stored` records; ValueError if they are not the listed ones."""
    if listed.records >= 1 << 32:
        raise ValueError(f"found {listed.records:,} rows, expected fewer than {1 << 32:,}")
    # It may have been written when the split had fewer records.
    dtype = np.dtype("<u8") if len(data) > 4 * listed.records else np.dtype("<u4")
    size, crc = listed.records * dtype.itemsize, google_crc32c.value(data)
    if (len(data), crc) != (size, listed.crc32c):
        raise ValueError(
            f"found {len(data):,} bytes and the CRC32C {crc:08x}, the manifest states {size:,} and "
            f"{listed.crc32c:08x}"
        )
    rows: np.ndarray = np.frombuffer(data, dtype)
    if len(rows) and (int(rows[-1]) >= stored or not (rows[1:] > rows[:-1]).all()):
        raise ValueError(f"its rows do not ascend, or are not below {stored:,}")
    return rows


def _dtype(stored: int) -> np.dtype[Any]:
    return np.dtype("<u4" if stored < 1 << 32 else "<u8")


@dataclass(frozen=True, eq=False)
class SeenRows:
    """The rows that a reader sees, numbered from 0.

    Attributes:
        stored: The number of stored records.
        listed: int64 or uint32 [n], some of their rows.
        are_gone: Whether the reader sees all rows but the listed ones; otherwise it sees the listed ones, in their order.
            They ascend, except in a mixture.
    """

    stored: int
    listed: np.ndarray
    are_gone: bool

    def __len__(self) -> int:
        return self.stored - len(self.listed) if self.are_gone else len(self.listed)

    def of(self, numbers: np.ndarray) -> np.ndarray:
        """The rows with some numbers, int64 [k]."""
        if not self.are_gone:
            return self.listed[numbers].astype(np.int64)
        return rows_seen(numbers, len(self), *self._search)

    def numbers_of(self, rows: np.ndarray) -> np.ndarray:
        """The numbers of some rows, int64 [k]; -1 for rows that the reader does not see."""
        at = self.listed.searchsorted(rows)
        is_listed = at < len(self.listed)
        is_listed[is_listed] = self.listed[at[is_listed]] == rows[is_listed]
        return np.where(is_listed, -1, rows - at) if self.are_gone else np.where(is_listed, at, -1)

    @classmethod
    def where(cls, is_seen: np.ndarray) -> SeenRows:
        """The rows that are true, bool [stored], in the shorter of both forms."""
        stored, seen = len(is_seen), int(np.count_nonzero(is_seen))
        are_gone = 2 * seen > stored
        rows = np.flatnonzero(~is_seen if are_gone else is_seen)
        return cls(stored, rows.astype(_dtype(stored)), are_gone)

    @functools.cached_property
    def _search(self) -> tuple[np.ndarray, np.ndarray, int]:
        """Arguments of `rows_seen`: no row that is gone between most neighbours of `first`, so that few searches begin."""
        before = self.listed - np.arange(len(self.listed))
        parts = min(16 * len(before), _MOST_PARTS)
        shift = max(0, (len(self) // max(1, parts)).bit_length() - 1)
        ends = np.arange((len(self) >> shift) + 2) << shift
        return before, before.searchsorted(ends).astype(np.uint32), shift

    def counts(self, ends: np.ndarray) -> np.ndarray:
        """How many of the stored records before each end, but not before the one before it, are seen, int64 [k]."""
        listed = self.listed if self.are_gone else np.sort(self.listed)
        before = listed.searchsorted(ends)
        return np.diff(ends - before if self.are_gone else before, prepend=0)

    def cut(self, start: int, stop: int) -> tuple[int, int, SeenRows]:
        """The rows with the numbers from `start` to before `stop`.

        Returns:
            The first stored record that they need and the one after the last, and the rows among these.
        """
        first, last = self.of(np.array([start, stop - 1])).tolist() if start < stop else (0, -1)
        low, high = self.listed.searchsorted([first, last + 1])
        listed = self.listed[low:high].astype(np.int64) - first
        return first, last + 1, SeenRows(last + 1 - first, listed, self.are_gone)

    def digest(self) -> tuple[bool, int, int]:
        """Values that differ for other rows."""
        return self.are_gone, len(self.listed), google_crc32c.value(self.listed.tobytes())


def joined_rows(several: Sequence[tuple[int, SeenRows | None]]) -> SeenRows | None:
    """The rows of several splits, stored one after another; None stands for all of the stored records, whose number is given."""
    if all(rows is None for _, rows in several):
        return None
    are_gone = all(rows is None or rows.are_gone for _, rows in several)
    listed, before = [np.empty(0, np.int64)], 0
    for stored, rows in several:
        if rows is None or rows.are_gone != are_gone:
            # All that a reader sees, unless only those that are gone are listed.
            every = np.arange(0 if are_gone else stored)
            listed.append(before + (every if rows is None else rows.of(np.arange(len(rows)))))
        else:
            listed.append(before + rows.listed)
        before += stored
    return SeenRows(before, np.concatenate(listed), are_gone)
