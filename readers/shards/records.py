"""Reads and decodes the records of a plan by number, without TensorFlow."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np

from readers.format.compiled.columns import Columns, CompiledDecoder
from readers.format.compiled.library import RefusedRecords
from readers.format.decode.column import RowFormat
from readers.format.manifest import DatasetError
from readers.format.tfrecord import (
    FOOTER_BYTES,
    HEADER_BYTES,
    CorruptRecordError,
    intact,
    unframe,
)
from readers.shards.addresses import MappedRecords
from readers.shards.cache import Cache
from readers.shards.decoding import RecordDecoder, RecordError
from readers.shards.framed import FramedReader, FramedRecords
from readers.shards.memory import RecyclingAllocator
from readers.shards.opened.local_shard import CHANGED, is_changed
from readers.shards.opened.open_shards import OpenShards
from readers.shards.plan import Plan

_LOGGER = logging.getLogger("readers")

# (row, first, end) -> the numbers of the records, int64 [end - first], that may replace the record of a
# row; `first` is 0 for the next record.
Following = Callable[[int, int, int], np.ndarray]


def _nothing(row: int, first: int, end: int) -> np.ndarray:
    """Returns no records: nothing replaces a damaged one."""
    return np.empty(0, np.int64)


# This many damaged records in a row are not single faults: a shard is cut off, or belongs to another dataset.
_MOST_DAMAGED_IN_A_ROW = 1024

# Errors that a record or a file of the dataset may cause; any other error is a bug.
RECORD_ERRORS = (CorruptRecordError, DatasetError, RecordError)

_ADVICE = "write or copy the file again, or replace such records by others with on_corrupt='skip'"


class Records:
    """Random access to the records of a plan. It is safe to share between threads, and picklable.

    Shards and their indexes are opened when their first record is read.

    Args:
        verify_crc: Whether to check the CRC32C of every record that is read.
        skip: Whether records that fail this check are left out or replaced, instead of raising an error.
        cache: Where to keep remote shards; None to read them from the store.
        own: Whether the pixels of each record are a separate allocation, which other records do not keep alive.

    Attributes:
        memory: Allocates large arrays, and reuses their memory.
        shards: The open shards and their indexes.
        skipped: (path, number in the file) of each damaged record found so far.
    """

    def __init__(
        self,
        plan: Plan,
        verify_crc: bool = True,
        skip: bool = False,
        cache: Cache | None = None,
        own: bool = False,
    ) -> None:
        self.plan = plan
        self.skip = skip
        self._verify_crc, self._cache, self._own = verify_crc, cache, own
        self.memory = RecyclingAllocator()
        self.shards = OpenShards(plan, cache)
        self._reader = FramedReader(self.shards, self.memory.empty)
        self._mapped = MappedRecords(self.shards)
        self.skipped: set[tuple[str, int]] = set()
        self._kernel = CompiledDecoder(plan.stored, self.memory.empty, verify_crc)
        rows = self.memory.rows if own else None
        self._decoder = RecordDecoder(plan, self._reader.place, self.memory.empty, rows)

    def __len__(self) -> int:
        return self.plan.records

    def of_plan(self, plan: Plan) -> Records:
        """The records of another plan, read in the same way."""
        return Records(plan, self._verify_crc, self.skip, self._cache, self._own)

    def __getstate__(self) -> dict[str, Any]:
        how = {"verify_crc": self._verify_crc, "cache": self._cache, "own": self._own}
        return {"plan": self.plan, "skip": self.skip, **how}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def read(self, numbers: Sequence[int]) -> Iterator[dict[str, Any]]:
        """Reads the records with some numbers together, and yields them in order, before any work on them.

        Raises:
            CorruptRecordError: (a ValueError) The next record fails its checksum; the message names the file and the byte.
            ValueError: The next record does not fit the schema; the message also names the feature.
        """
        framed, good = self._checked(self._reader.read(np.array(numbers, np.int64)))
        for row, is_good in enumerate(good.tolist()):
            if not is_good:
                self._raise_if_damaged(framed, good)
            yield self._decoder.record(framed, row)

    def record(self, number: int) -> dict[str, Any]:
        """Reads one record, before any work on it, in a fifth of the time of `read`, with the same errors.

        Its arrays may be views of memory that the thread's next call reuses.
        """
        framed = self._reader.read_one(number)
        try:
            verifies = self._verify_crc
            data = unframe(framed, "", 0) if verifies else framed[HEADER_BYTES:-FOOTER_BYTES]
            return self._decoder.one(data)
        except ValueError:
            return next(self.read([number]))  # Raises an error that names the record.

    def batches(
        self,
        numbers: np.ndarray,
        bounds: Sequence[int],
        following: Following = _nothing,
        fetched: Sequence[FramedRecords] = (),
        keys: np.ndarray | None = None,
        rows: Mapping[str, RowFormat] = MappingProxyType({}),
    ) -> Iterator[Columns]:
        """Yields batches as columns, replacing each damaged record by the next good one if `skip`.

        The work on the records of a batch is done when its columns are asked for.

        Args:
            numbers: int64 [B], each from 0 to the number of records - 1.
            bounds: The row at which each batch begins, and the row at which the last one ends.
            following: Returns the records that may replace a damaged one.
            fetched: Records in memory, which are not read again.
            keys: int64 [B], the keys of the rows, which are needed for work on records.
            rows: How features become rows. The kernel truncates and pads their columns accordingly; if it cannot read a
                record, they stay as they are.

        Raises:
            CorruptRecordError: (a ValueError) A record is damaged, and `skip` is false, or too
                many after it are damaged, too.
            RecordError: (a ValueError) A record does not fit the schema, or the work on it fails.
            DatasetError: (a ValueError) A file or its index was changed, or an index is damaged.
        """
        framed, found = self._by_kernel(numbers, bounds, fetched, rows)
        if found is None:
            framed = self._good(framed or self._reader.read(numbers, fetched), following, fetched)
            numbers, columns = framed.numbers, self._decoder.stored(framed)
            parts = [column.split(bounds) for column in columns.values()]
            found = [dict(zip(columns, batch, strict=True)) for batch in zip(*parts, strict=True)]
        if not self._decoder.works:
            return iter(found)
        worked = self._decoder.worked
        return (
            worked(batch, numbers[start:stop], None if keys is None else keys[start:stop])
            for batch, (start, stop) in zip(found, pairwise(bounds), strict=True)
        )

    def _by_kernel(
        self,
        numbers: np.ndarray,
        bounds: Sequence[int],
        fetched: Sequence[FramedRecords],
        rows: Mapping[str, RowFormat],
    ) -> tuple[FramedRecords | None, list[Columns] | None]:
        """The records if they had to be read, and the columns of batches if the kernel can decode them."""
        if not self._kernel.is_able or not len(numbers):
            return None, None
        framed, found = None, None if fetched else self._mapped.of(numbers)
        if found is None:
            framed = self._reader.read(numbers, fetched)
            found = framed.addresses()
        data = framed.data if framed else None
        try:
            batches = self._kernel.batches(found.addresses, found.sizes, bounds, rows, data)
        except RefusedRecords:
            return framed, None
        return framed, batches if all(name in batches[0] for name in self.plan.stored) else None

    def _good(
        self, framed: FramedRecords, following: Following, fetched: Sequence[FramedRecords]
    ) -> FramedRecords:
        """The records, with each damaged one replaced by the next good one if `skip`."""
        framed, good = self._checked(framed)
        if good.all():
            return framed
        if self.skip:
            self._report_skipped(framed.numbers[~good])
            numbers = framed.numbers.copy()
            for row in np.flatnonzero(~good).tolist():
                numbers[row] = self.next_good(int(numbers[row]), following, row, fetched)
            framed, good = self._checked(self._reader.read(numbers, fetched))
        self._raise_if_damaged(framed, good)
        return framed

    def _checked(self, framed: FramedRecords) -> tuple[FramedRecords, np.ndarray]:
        """Reads records again if they may be damaged only in the cache; also bool [B], whether each is intact in its file."""
        if not self._verify_crc:
            return framed, np.ones(len(framed.starts), bool)
        good = intact(framed.data, framed.stops - framed.starts)
        if not good.all():
            parts, _ = self.shards.locate(framed.numbers[~good])
            if self.shards.drop_copies(np.unique(parts).tolist()):
                self._mapped.forget()
                framed = self._reader.read(framed.numbers)
                good = intact(framed.data, framed.stops - framed.starts)
        return framed, good

    def next_good(
        self,
        number: int,
        following: Following,
        row: int = 0,
        fetched: Sequence[FramedRecords] = (),
    ) -> int:
        """The number of the first intact record after a damaged one; `following` is called with the row.

        Raises:
            CorruptRecordError: (a ValueError) None of the next records is good.
        """
        first, count = 0, min(_MOST_DAMAGED_IN_A_ROW, len(self) - 1)
        while first < count:
            # Few at first: damaged records are rare, but where a disk failed there are many.
            end = min(4 * first + 1, count)
            numbers = following(row, first, end)
            if not len(numbers):  # No record is left that fits.
                count = first
                break
            _, good = self._checked(self._reader.read(numbers, fetched))
            self._report_skipped(numbers[~good])
            if good.any():
                return int(numbers[np.argmax(good)])
            first = end
        part, row, offset = self._reader.place(number)
        raise CorruptRecordError.at(
            part.path,
            offset,
            f"is damaged, and so are all {count:,} records after it: on_corrupt='skip' is for single "
            "damaged records; write the dataset again, or leave out this part of it with split=",
            row,
        )

    def fetch(self, numbers: np.ndarray, fetched: Sequence[FramedRecords] = ()) -> FramedRecords:
        """Reads records, int64 [B], ascending, into memory, for later calls of `batches`.

        Records that are in memory already are copied. Each request to a store costs as long as a MiB takes
        to arrive, so it should fetch many records.
        """
        return self._reader.read(np.unique(numbers), fetched)

    def _report_skipped(self, damaged: np.ndarray) -> None:
        """Counts and logs damaged records, int64 [k], each only once."""
        for part, row, offset in map(self._reader.place, damaged.tolist()):
            if (part.path, row) not in self.skipped:
                self.skipped.add((part.path, row))
                text = "%s: record %d at byte %d is damaged (%d so far)"
                _LOGGER.warning(text, part.path, row, offset, len(self.skipped))

    def _raise_if_damaged(self, framed: FramedRecords, good: np.ndarray) -> None:
        """Raises the error of the first damaged record, if there is one."""
        if good.all():
            return
        first = int(np.argmin(good))
        part, row, offset = self._reader.place(int(framed.numbers[first]))
        try:
            unframe(framed.record(first), part.path, offset, row)
        except CorruptRecordError as error:
            advice = CHANGED if is_changed(part) else _ADVICE
            raise CorruptRecordError(
                f"{error}: {advice}", error.file, error.record, error.offset
            ) from None
