"""Batches of records grouped by length (buckets or packed rows), found from a cursor."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from readers.batches.batch_slice import BatchSlice
from readers.batches.collate import lengths_of, truncate
from readers.batches.grouping import Group, GroupingRule, grouping_of
from readers.batches.options import ReadOptions
from readers.batches.orders import check_state, order_name, order_of, shuffle_window
from readers.batches.prefetch import mapped_ahead
from readers.batches.read_sizes import CHUNK_RECORDS, ahead_end, records_at_once, windows_ahead
from readers.format.decode.column import FeatureColumn, column_of
from readers.format.tfrecord import CorruptRecordError
from readers.order.permutation import record_keys
from readers.order.state import Cursor, State
from readers.shards.framed import FetchedRecords, FramedRecords
from readers.shards.memory import RecyclingAllocator
from readers.shards.plan import Plan
from readers.shards.records import Records

# Several hosts decode a part of what they scan: that many chunks share the calls of one scan.
_MOST_CHUNKS = 4


def open_by_length(plan: Plan, options: ReadOptions) -> BatchesByLength | None:
    """The batches of a plan by length; None if the lengths of records do not decide.

    Raises:
        ValueError: The state is of another dataset, order or grouping.
    """
    rule = grouping_of(plan.undecoded, options)
    if rule is None:
        return None
    order = f"{order_name(plan, options)}, {rule.name}"
    if options.state:
        check_state(options.state, order, plan)
    batches = BatchesByLength(_Source(plan, options, rule, order))
    for cursor in itertools.islice(batches.cursors(None), options.start_step):
        batches.begin = cursor
    return batches


class BatchesByLength:
    """Batches in sequence, each found from the cursor before it, which several iterators may share.

    Every host finds the same batches of all hosts together, and takes its own rows of each.

    Args:
        source: Finds the batches from a cursor on.

    Attributes:
        begin: The cursor before the first batch.
    """

    def __init__(self, source: _Source) -> None:
        state = source.options.state
        self.begin = state.cursor if state else Cursor()
        self._source = source

    def reader(self) -> LengthReader:
        """A reader for one iterator."""
        return LengthReader(self._source)

    @property
    def memory(self) -> RecyclingAllocator:
        """The allocator of large arrays."""
        return self._source.records.memory

    @property
    def skipped(self) -> int:
        """The number of damaged records left out so far."""
        return len(self._source.records.skipped)

    def state(self, cursor: Cursor, seed: int) -> State:
        """The state to resume from at a cursor."""
        order, dataset = self._source.order_name, self._source.plan.digest
        return State(cursor.epoch, cursor.place, seed, order, dataset, cursor.held)

    def bounds_of(self, iteration: int) -> tuple[Cursor, int | None]:
        """Where a pass over the batches begins, and the epoch before which it ends, if it does.

        Each pass ends after an epoch whose number `repeat` divides, and the next one begins there.
        """
        repeat = self._source.options.repeat
        if repeat is None:
            return self.begin, None
        end = (self.begin.epoch // repeat + 1) * repeat
        if not iteration:
            return self.begin, end
        return Cursor(end + (iteration - 1) * repeat), end + iteration * repeat

    def cursors(self, end: int | None) -> Iterator[Cursor]:
        """The cursor after each batch until the epoch `end`, found from the lengths alone.

        Raises:
            CorruptRecordError: (a ValueError) A record is damaged.
            ValueError: A length does not fit the schema, or there are too few records for one batch.
        """
        cursor = self.begin
        while end is None or cursor.epoch < end:
            for _, groups, _ in self._source.grouped(cursor, whole=False):
                yield from (after for _, after in groups)
            cursor = Cursor(cursor.epoch + 1)


class LengthReader:
    """Reads the batches of one iterator; safe to share between threads.

    Args:
        source: Finds the batches from a cursor on.

    Attributes:
        memory: The allocator of large arrays.
        place: The cursor from which the next batch is found without reading records again; None if
            they must be read.
    """

    def __init__(self, source: _Source) -> None:
        self._source = source
        self._batches: Iterator[tuple[BatchSlice | None, Cursor]] = iter(())
        self._lock = threading.Lock()
        self.memory = source.records.memory
        self.place: Cursor | None = None

    def batch(self, cursor: Cursor, end: int | None) -> tuple[BatchSlice, Cursor] | None:
        """The batch after a cursor and the next cursor; None when the epoch `end` is reached.

        Raises:
            CorruptRecordError: (a ValueError) A record is damaged.
            ValueError: A record does not fit the schema, or there are too few for one batch.
        """
        with self._lock:
            if cursor != self.place:
                self.place, self._batches = cursor, self._source.batches(cursor)
            while end is None or cursor.epoch < end:
                # If this raises, the generator is finished: the next call starts a new one.
                self.place = None
                batch, cursor = next(self._batches)
                self.place = cursor
                if batch is not None:
                    return batch, cursor
            return None


@dataclass(frozen=True)
class _Chunk:
    """Records that were read together.

    Attributes:
        epoch: The epoch.
        places: The places of the records in it.
        lengths: The lengths that decide, of each record.
        framed: The records as they are stored.
        columns: The features that are decoded, truncated to their limits.
    """

    epoch: int
    places: list[int]
    lengths: list[list[int]]
    framed: FramedRecords
    columns: Mapping[str, FeatureColumn]


class _Source:
    """Finds batches from any cursor on.

    Separate from `LengthReader`, which holds the generator: a generator that refers back to its
    holder is a reference cycle, and would keep files open until the garbage collector finds it.
    """

    def __init__(
        self, plan: Plan, options: ReadOptions, rule: GroupingRule, order_name: str
    ) -> None:
        self.plan, self.options, self.order_name = plan, options, order_name
        self.records = Records(plan, skip=options.on_corrupt == "skip", cache=options.cache)
        self._rule, self._order = rule, order_of(plan, options)
        self._window = shuffle_window(plan, options)
        self._at_once = min(
            records_at_once(plan) * min(options.shard[1], _MOST_CHUNKS), CHUNK_RECORDS
        )
        self._lengths, self._whole = self.records.decoder(rule.features), self.records.decoder()
        # Work on records needs all of their features together, and before they are truncated.
        self._has_work = plan.work is not None or not options.truncates
        others = [name for name in plan.schema if self._has_work or name not in rule.features]
        self._others = None
        if others:
            self._others = self._whole if self._has_work else self.records.decoder(others)

    def batches(self, cursor: Cursor) -> Iterator[tuple[BatchSlice | None, Cursor]]:
        """The batches from a cursor on, each with the next cursor; None marks the end of an epoch."""
        while True:
            yield from self._rest_of_epoch(cursor)
            cursor = Cursor(cursor.epoch + 1)
            yield None, cursor

    def _rest_of_epoch(self, cursor: Cursor) -> Iterator[tuple[BatchSlice, Cursor]]:
        held: dict[int, dict[str, Any]] = {}
        # Of records that another host reads, only the lengths are needed.
        for chunk, groups, waiting in self.grouped(cursor, whole=self.options.shard[1] == 1):
            wanted = {*waiting, *(place for group, _ in groups for place in group.places)}
            wanted.difference_update(held)
            # The last batches may be shared in another way than full ones.
            chunk = chunk or self._read(cursor.epoch, np.array(sorted(wanted), np.int64), True)
            held |= self._values(chunk, wanted)
            if not wanted.issubset(held):
                raise CorruptRecordError(
                    f"{self.plan.name}: a record was damaged while it was read"
                )
            for group, after in groups:
                yield self._batch(cursor.epoch, held, group), after
            for place in held.keys() & chunk.places:
                held[place] = _copied(held[place])

    def grouped(
        self, cursor: Cursor, whole: bool
    ) -> Iterator[tuple[_Chunk | None, list[tuple[Group, Cursor]], list[int]]]:
        """The batches of the rest of an epoch, from the lengths of its records.

        Args:
            cursor: Where to begin.
            whole: Whether to decode all features at once, not only the lengths.

        Yields:
            The records of a chunk, or None for the last batches of the epoch; this host's share of each
            batch that is complete, and the cursor after it; and the places of the records in no batch
            yet that this host is likely to read.

        Raises:
            CorruptRecordError: (a ValueError) A record is damaged.
            ValueError: A length does not fit the schema, or there are too few records for one batch.
        """
        epoch, total = cursor.epoch, self.plan.records or 0
        grouping, share = self._rule.new(), self.options.shard

        def shared(group: Group, end: int) -> list[tuple[Group, Cursor]]:
            mine = group.of_host(*share, self.options.remainder)
            # Without a batch no cursor is given: one after the epoch would end a pass before the check.
            if not mine:
                return []
            waiting = tuple(grouping.held)
            more = waiting or end < total
            return [(mine, Cursor(epoch, end, waiting) if more else Cursor(epoch + 1))]

        if cursor.held:
            chunk = self._read(epoch, np.array(cursor.held, np.int64), whole)
            for place, lengths in zip(chunk.places, chunk.lengths, strict=True):
                grouping.add(place, lengths)
            yield chunk, [], grouping.held_for(*share)
        any_batch = cursor.place > 0
        groups: list[tuple[Group, Cursor]] = []
        for chunk in self._chunks(epoch, cursor.place, whole):
            groups = []
            for place, lengths in zip(chunk.places, chunk.lengths, strict=True):
                if group := grouping.add(place, lengths):
                    groups += shared(group, place + 1)
            any_batch |= bool(groups)
            yield chunk, groups, grouping.held_for(*share)
        groups = []
        while group := grouping.rest(self.options.remainder == "drop"):
            groups += shared(group, total)
        if total and len(self.records.skipped) == total:
            raise CorruptRecordError(f"{self.plan.name}: all {total} records are damaged")
        if total and not groups and not any_batch:
            raise ValueError(
                f"{self.plan.name} has {total} records, too few for one batch: "
                f"batch_size={self.options.batch_size}, {self.order_name}"
            )
        yield None, groups, []

    def _chunks(self, epoch: int, place: int, whole: bool) -> Iterator[_Chunk]:
        """The records of an epoch from a place on.

        Records in a store are fetched for several chunks at once.
        """

        def fetch(window: range) -> tuple[range, list[FetchedRecords]]:
            if self.records.is_fetched:
                return window, []
            return window, [
                self.records.fetch(self._order(epoch, np.arange(window.start, window.stop)))
            ]

        for window, fetched in mapped_ahead(fetch, self._windows(place), windows_ahead(self.plan)):
            for begin in window:
                end = min(begin + self._at_once, window.stop)
                yield self._read(epoch, np.arange(begin, end), whole, fetched)
            del fetched  # Its memory is released before the next one is waited for.

    def _windows(self, place: int) -> Iterator[range]:
        """The beginnings of chunks from a place on, a window of what is fetched together at a time."""
        total = self.plan.records or 0
        while place < total:
            end = total
            if not self.records.is_fetched:
                end = min(ahead_end(self.plan, place, self._window), total)
            yield range(place, end, self._at_once)
            place = end

    def _read(
        self,
        epoch: int,
        places: np.ndarray,
        whole: bool,
        fetched: Sequence[FetchedRecords] = (),
    ) -> _Chunk:
        """The records at some places of an epoch, int64 [k], and their lengths."""
        framed, kept = self.records.framed(self._order(epoch, places), fetched)
        schema = self.plan.undecoded
        decoder = self._whole if whole and not self._has_work else self._lengths
        columns = truncate(decoder.columns(framed), schema, self.options.format)
        lengths = np.stack(
            [lengths_of(schema[name], columns[name]) for name in self._rule.features], axis=1
        )
        if lengths.ndim > 2:
            lengths = lengths[:, :, 0]
        return _Chunk(epoch, places[kept].tolist(), lengths.tolist(), framed, columns)

    def _values(self, chunk: _Chunk, wanted: Container[int]) -> dict[int, dict[str, Any]]:
        """The values of the wanted records of a chunk: place -> feature -> value."""
        kept = np.array([place in wanted for place in chunk.places], bool)
        places, found = [*itertools.compress(chunk.places, kept)], dict[str, list[Any]]()
        if not self._has_work:
            for name, column in chunk.columns.items():
                found[name] = [*itertools.compress(column.arrays(), kept)]
        if self._others and len(found) < len(self.plan.schema):
            framed, keys = chunk.framed.select(kept), self._keys(chunk.epoch, places)
            others = self._others.columns(framed, keys)
            if self.options.truncates:
                others = truncate(others, self.plan.schema, self.options.format)
            found |= {name: column.arrays() for name, column in others.items()}
        rows = zip(places, *found.values(), strict=True)
        return {place: dict(zip(found, row, strict=True)) for place, *row in rows}

    def _keys(self, epoch: int, places: list[int]) -> np.ndarray:
        key = self.options.seed or 0, epoch, self.options.part_of_host or 0
        return np.asarray(record_keys(np.array(places, np.int64), key))

    def _batch(self, epoch: int, held: dict[int, dict[str, Any]], mine: Group) -> BatchSlice:
        """The batch of this host's share of a group, whose records leave `held`."""
        records = [held.pop(place) for place in mine.places]
        columns = {
            name: column_of(feature, [record[name] for record in records])
            for name, feature in self.plan.schema.items()
        }
        is_packed = self.options.format.batching == "packed"
        rows = np.array(mine.rows, np.int64) if is_packed else None
        places = np.array(mine.places, np.int64)
        found = BatchSlice(columns, epoch, places, rows, bucket=mine.bucket)
        return found.padded(self.plan.schema, mine.size) if self.options.pads else found


def _copied(values: dict[str, Any]) -> dict[str, Any]:
    """The values of a record without the memory of the records read together with it."""
    return {
        name: value.copy() if isinstance(value, np.ndarray) else value
        for name, value in values.items()
    }
