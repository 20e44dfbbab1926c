"""Reads and decodes the records of a plan by number, without TensorFlow."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np

from readers.decoders.decoder import Batch
from readers.format.compiled.columns import Columns
from readers.format.decode.column import RowFormat
from readers.format.manifest import DatasetError
from readers.format.tfrecord import FOOTER_BYTES, HEADER_BYTES, CorruptRecordError, unframe
from readers.shards.cache import Cache
from readers.shards.decoding import RecordError, RecordFiles
from readers.shards.framed import FramedRecords
from readers.shards.memory import RecyclingAllocator
from readers.shards.opened.local_shard import CHANGED, is_changed
from readers.shards.plan import Plan

_LOGGER = logging.getLogger("readers")

# The same records as they are in each of the files of a plan.
Framed = Sequence[FramedRecords]

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

    `memory` allocates large arrays, and reuses their memory. `is_local` is whether every file is on a local disk, or cached
    there when first read. `skipped` has (path, number in the file) of each damaged record found so far.
    """

    def __init__(
        self,
        plan: Plan,
        verify_crc: bool = True,
        skip: bool = False,
        cache: Cache | None = None,
        own: bool = False,
    ) -> None:
        self.plan, self.skip, self._own = plan, skip, own
        self._how = verify_crc, skip, cache, own
        self.memory = RecyclingAllocator()
        parts = [part for files in plan.files for part in files.parts]
        cacheable = cache.cacheable(parts) if cache else frozenset[str]()
        how = verify_crc, cache, own, self.memory, cacheable
        self.files = [RecordFiles(each, *how) for each in plan.files]
        self.is_local = all(files.shards.is_local for files in self.files)
        self._works = bool(plan.work or any(files.images for files in self.files))
        self.skipped: set[tuple[str, int]] = set()

    @property
    def is_fetched(self) -> bool:
        """Whether every file is on a local disk by now, so that no record needs a request."""
        return all(files.shards.is_fetched for files in self.files)

    def __len__(self) -> int:
        return self.plan.records

    def of_plan(self, plan: Plan) -> Records:
        """The records of another plan, read in the same way."""
        return Records(plan, *self._how)

    def __reduce__(self) -> tuple[Any, ...]:
        return Records, (self.plan, *self._how)

    def read(self, numbers: Sequence[int]) -> Iterator[dict[str, Any]]:
        """Reads the records with some numbers together, and yields them in order, before any work on them.

        Raises CorruptRecordError if the next record fails its checksum, RecordError if it does not fit the schema.
        """
        framed, good = self._checked(self._read(np.array(numbers, np.int64)))
        for row, is_good in enumerate(np.all(good, axis=0)):
            if not is_good:
                self._raise_if_damaged(framed, good)
            pairs = zip(self.files, framed, strict=True)
            yield self._merged([files.record(records, row) for files, records in pairs])

    def record(self, number: int) -> dict[str, Any]:
        """Reads one record, before any work on it, in a fifth of the time of `read`, with the same errors.

        Its arrays may be views of memory that the thread's next call reuses.
        """
        verifies, found = self._how[0], []
        for files in self.files:
            framed = files.reader.read_one(number)
            try:
                data = unframe(framed, "", 0) if verifies else framed[HEADER_BYTES:-FOOTER_BYTES]
                found.append(files.one(data))
            except ValueError:
                return next(self.read([number]))  # Raises an error that names the record.
        return self._merged(found)

    def _merged(self, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The features that are in several files, in the order of the schema."""
        if len(parts) == 1:
            return parts[0]
        every = {name: value for part in parts for name, value in part.items()}
        return {name: every[name] for name in self.plan.stored}

    def batches(
        self,
        numbers: np.ndarray,
        bounds: Sequence[int],
        following: Following = _nothing,
        fetched: Sequence[Framed] = (),
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

        Raises CorruptRecordError if a record is damaged, and `skip` is false, or too many after it are damaged, too;
        RecordError if one does not fit the schema, or the work on it fails; DatasetError if a file or its index was changed.
        """
        several = [*zip(*fetched, strict=True)] or [()] * len(self.files)
        pairs = [*zip(self.files, several, strict=True)]
        read = [files.by_kernel(numbers, bounds, some, rows) for files, some in pairs]
        found = [batches for _, batches in read if batches is not None]
        if len(found) < len(read):
            records = [
                framed or files.reader.read(numbers, some)
                for (framed, _), (files, some) in zip(read, pairs, strict=True)
            ]
            framed = self._good(records, following, fetched)
            numbers = framed[0].numbers
            found = [f.batches(some, bounds) for f, some in zip(self.files, framed, strict=True)]
        merged = found[0] if len(found) == 1 else map(self._merged, zip(*found, strict=True))
        if not self._works:
            return iter(merged)
        return (
            self._worked(batch, numbers[start:stop], None if keys is None else keys[start:stop])
            for batch, (start, stop) in zip(merged, pairwise(bounds), strict=True)
        )

    def _worked(self, columns: Columns, numbers: np.ndarray, keys: np.ndarray | None) -> Columns:
        """The columns after the work on records, with the pixels of images; RecordError if a record fails."""
        for files in self.files:
            files.add_pixels(columns, numbers)
        if self.plan.work is None:
            return columns
        assert keys is not None
        located, own = self.files[0].located, self.memory.rows if self._own else None
        how = partial(located, numbers), self.memory.empty, own
        return self.plan.work.columns(Batch(columns, keys, *how))

    def _good(self, framed: Framed, following: Following, fetched: Sequence[Framed]) -> Framed:
        """The records, with each damaged one replaced by the next good one if `skip`."""
        framed, good = self._checked(framed)
        if good.all():
            return framed
        if self.skip:
            self._report_skipped(framed[0].numbers, good)
            numbers = framed[0].numbers.copy()
            for row in np.flatnonzero(~good.all(axis=0)).tolist():
                numbers[row] = self.next_good(int(numbers[row]), following, row, fetched)
            framed, good = self._checked(self._read(numbers, fetched))
        self._raise_if_damaged(framed, good)
        return framed

    def _checked(self, framed: Framed) -> tuple[Framed, np.ndarray]:
        """The records, and bool [files, B], whether each is intact in these files."""
        pairs = zip(self.files, framed, strict=True)
        checked, good = zip(*(files.checked(records) for files, records in pairs), strict=True)
        return checked, np.stack(good)

    def next_good(
        self, number: int, following: Following, row: int = 0, fetched: Sequence[Framed] = ()
    ) -> int:
        """The number of the first intact record after a damaged one, or CorruptRecordError; `following` is called with the row."""
        first, count = 0, min(_MOST_DAMAGED_IN_A_ROW, len(self) - 1)
        while first < count:
            # Few at first: damaged records are rare, but where a disk failed there are many.
            end = min(4 * first + 1, count)
            numbers = following(row, first, end)
            if not len(numbers):  # No record is left that fits.
                count = first
                break
            _, good = self._checked(self._read(numbers, fetched))
            self._report_skipped(numbers, good)
            if good.all(axis=0).any():
                return int(numbers[np.argmax(good.all(axis=0))])
            first = end
        part, row, offset = self.files[0].reader.place(number)
        raise CorruptRecordError.at(
            part.path,
            offset,
            f"is damaged, and so are all {count:,} records after it: on_corrupt='skip' is for single "
            "damaged records; write the dataset again, or leave out this part of it with split=",
            row,
        )

    def fetch(self, numbers: np.ndarray, fetched: Sequence[Framed] = ()) -> Framed:
        """Reads records, int64 [B], ascending, into memory, for later calls of `batches`.

        Records that are in memory already are copied. Each request to a store costs as long as a MiB takes
        to arrive, so it should fetch many records.
        """
        return self._read(np.unique(numbers), fetched)

    def _read(self, numbers: np.ndarray, fetched: Sequence[Framed] = ()) -> Framed:
        several = [*zip(*fetched, strict=True)] or [()] * len(self.files)
        pairs = zip(self.files, several, strict=True)
        return [files.reader.read(numbers, some) for files, some in pairs]

    def _report_skipped(self, numbers: np.ndarray, good: np.ndarray) -> None:
        """Counts and logs damaged records, each only once, given numbers, int64 [B], and what is good, bool [files, B]."""
        for files, is_good in zip(self.files, good, strict=True):
            for part, row, offset in map(files.reader.place, numbers[~is_good].tolist()):
                if (part.path, row) not in self.skipped:
                    self.skipped.add((part.path, row))
                    text = "%s: record %d at byte %d is damaged (%d so far)"
                    _LOGGER.warning(text, part.path, row, offset, len(self.skipped))

    def _raise_if_damaged(self, framed: Framed, good: np.ndarray) -> None:
        """Raises the error of the first damaged record, if there is one."""
        if good.all():
            return
        first = int(np.argmin(good.all(axis=0)))
        number = int(np.argmin(good[:, first]))
        records = framed[number]
        part, row, offset = self.files[number].reader.place(int(records.numbers[first]))
        try:
            unframe(records.record(first), part.path, offset, row)
        except CorruptRecordError as error:
            advice = CHANGED if is_changed(part) else _ADVICE
            raise CorruptRecordError(
                f"{error}: {advice}", error.file, error.record, error.offset
            ) from None
