"""The decoded records of a plan by their numbers, without TensorFlow."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from readers.format.compiled.columns import CompiledDecoder
from readers.format.decode.column import FeatureColumn, RowFormat, merged
from readers.format.decode.images import with_pixels
from readers.format.decode.records import Decoder
from readers.format.tfrecord import (
    FOOTER_BYTES,
    HEADER_BYTES,
    CorruptRecordError,
    intact,
    unframe,
)
from readers.shards.cache import Cache
from readers.shards.decoding import FramedDecoder
from readers.shards.framed import FetchedRecords, FramedReader, FramedRecords
from readers.shards.local_shard import CHANGED, is_changed
from readers.shards.memory import RecyclingAllocator
from readers.shards.plan import Plan

_LOGGER = logging.getLogger("readers")

# (row, first, end) -> the numbers of the records, int64 [end - first], that come after that of a row,
# from the `first` on; 0 is the next one.
Following = Callable[[int, int, int], np.ndarray]

# So many damaged records in a row are not single faults: a shard is cut off, or of another dataset.
_MOST_DAMAGED_IN_A_ROW = 1024

_CURE = "write or copy the file again, or read other records in its place with on_corrupt='skip'"


class Records:
    """Random access to the records of a plan. It is safe to share between threads, and picklable.

    Shards and their indexes are opened when their first record is read.

    Args:
        plan: The plan.
        verify_crc: Whether to check the CRC32C of every record that is read.
        skip: Whether records that fail this check are left out or replaced, instead of raising an error.
        cache: Where to keep remote shards; None to read them from the store.
        own: Whether the pixels of each record are in memory of their own, which those of others do not keep.

    Attributes:
        plan: The plan.
        skip: As given.
        memory: Allocates large arrays, and reuses their memory.
        skipped: (path, number in the file) of each damaged record found so far.
        is_local: Whether every file is on a local disk, or cached there when it is first read.
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
        self._reader = FramedReader(plan, self.memory.empty, cache)
        self.is_local = self._reader.is_local
        self.skipped: set[tuple[str, int]] = set()
        # Work on records is done with the records as they are stored.
        compiled = CompiledDecoder(plan.stored, self.memory.empty, verify_crc)
        self._compiled = compiled if compiled.is_able and plan.work is None else None
        self._decoder, self._framed = Decoder(plan.stored), self.decoder()

    @property
    def is_fetched(self) -> bool:
        """Whether every file is on a local disk by now, so that no record takes a request."""
        return self._reader.is_fetched

    def __len__(self) -> int:
        return self.plan.records

    def of_plan(self, plan: Plan) -> Records:
        """The records of another plan, read in the same way."""
        return Records(plan, self._verify_crc, self.skip, self._cache, self._own)

    def has_section(self, name: str, dtype: np.dtype[Any]) -> bool:
        """Whether the index of every file has a section of a dtype."""
        return self._reader.has_section(name, dtype)

    def section(self, name: str, dtype: np.dtype[Any], numbers: np.ndarray) -> np.ndarray:
        """What a section of the indexes has of the records of some numbers, int64 [B]; an array [B].

        Raises:
            DatasetError: (a ValueError) An index is damaged.
        """
        return self._reader.section(name, dtype, numbers)

    def reopened(self) -> Records:
        """The same records, opened anew, for a forked process."""
        return self.of_plan(self.plan)

    def __getstate__(self) -> dict[str, Any]:
        plan, skip = self.plan.without_versions(), self.skip
        how = {"verify_crc": self._verify_crc, "cache": self._cache, "own": self._own}
        return {"plan": plan, "skip": skip, **how}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def read(self, numbers: Sequence[int] | np.ndarray) -> list[dict[str, Any]]:
        """The records of some numbers, in the given order, before any work on them.

        Args:
            numbers: [B], each from 0 to the number of records - 1.

        Raises:
            CorruptRecordError: (a ValueError) A record fails its checksum; the message names the file
                and the byte.
            ValueError: A record does not fit the schema; the message also names the feature.
        """
        framed = self._reader.read(np.asarray(numbers, np.int64))
        if self._verify_crc:
            framed, kept = self._checked(framed)
        records = []
        for row in range(len(framed.starts)):
            if self._verify_crc and not kept[row]:
                self._verify(framed, row)  # Raises an error.
            records.append(self._framed.record(framed, row))
        return records

    def record(self, number: int) -> dict[str, Any]:
        """The record of one number, before any work on it, in a fifth of the time that `read` takes.

        Its arrays may be views of memory that the thread's next call reuses.

        Raises:
            CorruptRecordError: (a ValueError) The record fails its checksum.
            ValueError: The record does not fit the schema.
        """
        found = self._reader.read_one(number)
        if found is None:
            return self.read([number])[0]
        framed, path, offset = found
        try:
            data = framed[HEADER_BYTES:-FOOTER_BYTES]
            if self._verify_crc:
                data = unframe(framed, path, offset)
            return with_pixels(self._decoder.decode(data), self.plan.stored)
        except ValueError:
            return self.read([number])[0]  # Raises an error that names the record.

    def columns(
        self,
        numbers: np.ndarray,
        fetched: Sequence[FetchedRecords] = (),
        keys: np.ndarray | None = None,
    ) -> tuple[dict[str, FeatureColumn], np.ndarray]:
        """The records of some numbers as columns, which for many takes a tenth of `read`'s time.

        Args:
            numbers: int64 [B], each from 0 to the number of records - 1.
            fetched: Records in memory, which are not read again.
            keys: int64 [B], the keys of the records, which work on them needs.

        Returns:
            The column of each feature; and bool [B], which records the columns hold: all of them,
            unless damaged ones are skipped.

        Raises:
            CorruptRecordError: (a ValueError) A record fails its checksum, and is not to be skipped.
            ValueError: A record does not fit the schema.
        """
        framed, compiled = self._compiled_batches(numbers, (0, len(numbers)), fetched, {})
        if compiled is not None:
            return compiled[0], np.ones(len(numbers), bool)
        return self._decoded(framed, numbers, fetched, keys)

    def _compiled_batches(
        self,
        numbers: np.ndarray,
        bounds: Sequence[int],
        fetched: Sequence[FetchedRecords],
        rows: Mapping[str, RowFormat],
    ) -> tuple[FramedRecords | None, list[dict[str, FeatureColumn]] | None]:
        """The records if they had to be read, and the columns of batches if the kernel can decode them."""
        if self._compiled is None or not len(numbers):
            return None, None
        framed, places = None, None if fetched else self._reader.places(numbers)
        if places is None:
            framed = self._reader.read(numbers, fetched)
            places = framed.places()
        return framed, self._compiled.batches(places.addresses, places.sizes, bounds, rows)

    def _decoded(
        self,
        framed: FramedRecords | None,
        numbers: np.ndarray,
        fetched: Sequence[FetchedRecords],
        keys: np.ndarray | None,
    ) -> tuple[dict[str, FeatureColumn], np.ndarray]:
        """What `columns` returns, by NumPy."""
        framed, kept = self._intact(framed or self._reader.read(numbers, fetched))
        keys = keys if keys is None else keys[kept]
        return self._framed.columns(framed, keys), kept

    def framed(
        self, numbers: np.ndarray, fetched: Sequence[FetchedRecords] = ()
    ) -> tuple[FramedRecords, np.ndarray]:
        """The records of some numbers as they are stored, for a `decoder`.

        Args:
            numbers: int64 [B], each from 0 to the number of records - 1.
            fetched: Records in memory, which are not read again.

        Returns:
            The records; and bool [B], which of them these are: all, unless damaged ones are skipped.

        Raises:
            CorruptRecordError: (a ValueError) A record fails its checksum, and is not to be skipped.
        """
        return self._intact(self._reader.read(numbers, fetched))

    def _intact(self, framed: FramedRecords) -> tuple[FramedRecords, np.ndarray]:
        """What `framed` returns, of records that have been read."""
        kept = np.ones(len(framed.starts), bool)
        if self._verify_crc:
            framed, kept = self._checked(framed)
            if not kept.all():
                if not self.skip:
                    self._verify(framed, int(np.argmin(kept)))  # Raises an error.
                self._report_skipped(framed.select(~kept))
                framed = framed.select(kept)
        return framed, kept

    def _checked(self, framed: FramedRecords) -> tuple[FramedRecords, np.ndarray]:
        """Records that were read, and bool [B], which of them are not damaged where they are stored."""
        good = intact(framed.data, framed.stops - framed.starts)
        if not good.all():
            again = self._reader.read_from_store(framed, ~good)
            if again is not None:
                framed, good = again, intact(again.data, again.stops - again.starts)
        return framed, good

    def decoder(self, names: Sequence[str] | None = None) -> FramedDecoder:
        """A decoder of what `framed` returns.

        Args:
            names: The features to decode, before any work on records; None for all, after it.
        """
        plan, empty = self.plan, self.memory.empty
        if names is None:
            rows = self.memory.rows if self._own else None
            return FramedDecoder(plan, plan.stored, empty, plan.work, rows)
        return FramedDecoder(plan, plan.stored.select(tuple(names)), empty)

    def batches(
        self,
        numbers: np.ndarray,
        bounds: Sequence[int],
        following: Following,
        fetched: Sequence[FetchedRecords] = (),
        keys: np.ndarray | None = None,
        rows: Mapping[str, RowFormat] = MappingProxyType({}),
    ) -> list[dict[str, FeatureColumn]]:
        """The columns of batches, with each damaged record replaced by the next good one if they skip.

        Args:
            numbers: int64 [B], each from 0 to the number of records - 1.
            bounds: The row at which each batch begins, and the one at which the last ends.
            following: Which records come after each of them.
            fetched: Records in memory, which are not read again.
            keys: int64 [B], the keys of the rows, which work on records needs.
            rows: How features become rows. Their columns may be cut and padded so, or may not.

        Raises:
            CorruptRecordError: (a ValueError) A record is damaged, and is not to be skipped, or too
                many after it are damaged, too.
            ValueError: A record does not fit the schema.
        """
        framed, compiled = self._compiled_batches(numbers, bounds, fetched, rows)
        if compiled is not None:
            return compiled
        columns, kept = self._decoded(framed, numbers, fetched, keys)
        if not kept.all():
            columns = self._replaced(columns, kept, numbers, following, fetched, keys)
        parts = [column.split(bounds) for column in columns.values()]
        return [dict(zip(columns, batch, strict=True)) for batch in zip(*parts, strict=True)]

    def _replaced(
        self,
        columns: dict[str, FeatureColumn],
        kept: np.ndarray,
        numbers: np.ndarray,
        following: Following,
        fetched: Sequence[FetchedRecords],
        keys: np.ndarray | None,
    ) -> dict[str, FeatureColumn]:
        """The columns of all records, given those of the good ones, and which these are, bool [B]."""
        damaged = np.flatnonzero(~kept)
        found = [self.next_good(int(numbers[r]), following, r, fetched) for r in damaged.tolist()]
        others, _ = self.columns(
            np.array(found, np.int64), fetched, keys if keys is None else keys[damaged]
        )
        if not kept.any():
            return others
        good = np.flatnonzero(kept)
        return {
            name: merged(feature, [(good, columns[name]), (damaged, others[name])])
            for name, feature in self.plan.schema.items()
        }

    def next_good(
        self,
        number: int,
        following: Following,
        row: int = 0,
        fetched: Sequence[FetchedRecords] = (),
    ) -> int:
        """The number of the first intact record after a damaged one.

        Args:
            number: The number of the damaged record.
            following: Which records come after it.
            row: The row that `following` is asked about.
            fetched: Records in memory, which are not read again.

        Raises:
            CorruptRecordError: (a ValueError) None of the next records is good either.
        """
        first, count = 0, min(_MOST_DAMAGED_IN_A_ROW, len(self) - 1)
        while first < count:
            # Few at first: damaged records are rare, but where a disk failed there are many.
            end = min(4 * first + 1, count)
            numbers = following(row, first, end)
            if not len(numbers):  # None is left of those that fit.
                count = first
                break
            framed, good = self._checked(self._reader.read(numbers, fetched))
            self._report_skipped(framed.select(~good))
            if good.any():
                return int(numbers[np.argmax(good)])
            first = end
        framed = self._reader.read(np.array([number]))
        raise CorruptRecordError.at(
            self.plan.parts[framed.parts[0]].path,
            int(framed.offsets[0]),
            f"is damaged, and so are all of the {count:,} records after it: on_corrupt='skip' is for "
            "single damaged records; write the dataset again, or leave out this part of it with split=",
            int(framed.rows[0]),
        )

    def fetch(self, numbers: np.ndarray, fetched: Sequence[FetchedRecords] = ()) -> FetchedRecords:
        """Reads records, int64 [B], into memory, for later calls of `columns`.

        Those that are in memory already are copied. Each request to a store costs as long as a MiB takes
        to arrive, so it should fetch many records.
        """
        ascending = np.unique(numbers)
        return FetchedRecords(ascending, self._reader.read(ascending, fetched))

    def _report_skipped(self, damaged: FramedRecords) -> None:
        """Counts and logs damaged records, each of them once."""
        for row, (part, number) in enumerate(zip(damaged.parts, damaged.rows, strict=True)):
            path = self.plan.parts[part].path
            if (path, int(number)) not in self.skipped:
                self.skipped.add((path, int(number)))
                text = "%s: record %d at byte %d is damaged (%d so far)"
                _LOGGER.warning(text, path, number, damaged.offsets[row], len(self.skipped))

    def _verify(self, framed: FramedRecords, row: int) -> None:
        part = self.plan.parts[framed.parts[row]]
        offset, number = int(framed.offsets[row]), int(framed.rows[row])
        try:
            unframe(framed.record(row), part.path, offset, number)
        except CorruptRecordError as error:
            cure = CHANGED if is_changed(part) else _CURE
            raise CorruptRecordError(
                f"{error}: {cure}", error.file, error.record, error.offset
            ) from None
