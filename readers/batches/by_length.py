"""Batches of records grouped by length (buckets or packed rows), found from a cursor."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from readers.batches.batch_slice import BatchSlice
from readers.batches.collate import lengths_of, truncate
from readers.batches.grouping import Buckets, Group, Grouping, Packing
from readers.batches.options import ReadOptions
from readers.batches.orders import check_state, order_name, order_of, shuffle_window
from readers.batches.read_sizes import ahead_end, records_at_once
from readers.format.decode.column import column_of
from readers.format.schema import Schema
from readers.format.tfrecord import CorruptRecordError
from readers.order.state import Cursor, State
from readers.shards.memory import RecyclingAllocator
from readers.shards.plan import Plan
from readers.shards.records import Records


@dataclass(frozen=True)
class GroupingRule:
    """How records are grouped.

    Attributes:
        features: The features whose lengths decide.
        new: Makes an empty grouping.
        name: The name of the rule in a saved state.
    """

    features: list[str]
    new: Callable[[], Grouping]
    name: str


def grouping_of(schema: Schema, options: ReadOptions) -> GroupingRule | None:
    """The grouping that the options ask for; None if lengths do not decide."""
    hosts, sizes = options.shard[1], options.batch_size
    if options.boundaries is not None:
        boundaries = list(options.boundaries)
        each = [sizes] * (len(boundaries) + 1) if isinstance(sizes, int) else sizes
        together = [size * hosts for size in each]
        feature = options.bucket_feature(schema)
        name = f"in buckets of {feature!r} up to {boundaries} by {together}"
        return GroupingRule([feature], lambda: Buckets(boundaries, together), name)
    if options.format.batching == "packed":
        assert isinstance(sizes, int)
        limits = {name: options.format.limit(name) or 0 for name in schema}
        name = f"packed into {sizes * hosts} rows of {limits}"
        return GroupingRule(list(schema), lambda: Packing(sizes * hosts, [*limits.values()]), name)
    return None


def open_by_length(plan: Plan, options: ReadOptions) -> BatchesByLength | None:
    """The batches of a plan by length; None if the lengths of records do not decide.

    Raises:
        ValueError: The state is of another dataset, order or grouping.
    """
    rule = grouping_of(plan.schema, options)
    if rule is None:
        return None
    order = f"{order_name(plan, options)}, {rule.name}"
    if options.state:
        check_state(options.state, order, plan)
    batches = BatchesByLength(_Reader(plan, options, rule, order))
    for _ in range(options.start_step):
        found = batches.batch(batches.begin, None)
        if found:
            batches.begin = found[1]
    return batches


class BatchesByLength:
    """Batches in sequence, each found from the cursor before it; safe to share between threads.

    Every host finds the same batches of all hosts together, and takes its own rows of each.

    Args:
        reader: Reads the batches from a cursor on.

    Attributes:
        begin: The cursor before the first batch.
    """

    def __init__(self, reader: _Reader) -> None:
        state = reader.options.state
        self.begin = state.cursor if state else Cursor()
        self._reader = reader
        self._lock = threading.Lock()
        self._next, self._batches = Cursor(-1), reader.batches(self.begin)

    @property
    def memory(self) -> RecyclingAllocator:
        """The allocator of large arrays."""
        return self._reader.records.memory

    @property
    def skipped(self) -> int:
        """The number of damaged records left out so far."""
        return len(self._reader.records.skipped)

    def state(self, cursor: Cursor, seed: int) -> State:
        """The state to resume from at a cursor."""
        order, dataset = self._reader.order_name, self._reader.plan.digest
        return State(cursor.epoch, cursor.place, seed, order, dataset, cursor.held)

    def bounds_of(self, iteration: int) -> tuple[Cursor, int | None]:
        """Where a pass over the batches begins, and the epoch before which it ends, if it does.

        Each pass ends after an epoch whose number `repeat` divides, and the next one begins there.
        """
        repeat = self._reader.options.repeat
        if repeat is None:
            return self.begin, None
        end = (self.begin.epoch // repeat + 1) * repeat
        if not iteration:
            return self.begin, end
        return Cursor(end + (iteration - 1) * repeat), end + iteration * repeat

    def batch(self, cursor: Cursor, end: int | None) -> tuple[BatchSlice, Cursor] | None:
        """The batch after a cursor and the next cursor; None when the epoch `end` is reached.

        Raises:
            CorruptRecordError: (a ValueError) A record is damaged.
            ValueError: A record does not fit the schema, or there are too few for one batch.
        """
        with self._lock:
            if cursor != self._next:
                self._next, self._batches = cursor, self._reader.batches(cursor)
            while end is None or self._next.epoch < end:
                # If this raises, the generator is finished: the next call starts a new one.
                self._next = Cursor(-1)
                batch, self._next = next(self._batches)
                if batch is not None:
                    return batch, self._next
            return None


@dataclass(frozen=True)
class _Record:
    """A record that is in no batch yet.

    Attributes:
        values: The values by feature name.
        lengths: The lengths that decide.
    """

    values: dict[str, Any]
    lengths: list[int]

    def copied(self) -> _Record:
        """A copy that does not keep the memory of the records read together with this one."""
        values = {
            name: value.copy() if isinstance(value, np.ndarray) else value
            for name, value in self.values.items()
        }
        return _Record(values, self.lengths)


class _Reader:
    """Reads batches from any cursor on.

    Separate from `BatchesByLength`, which holds the generator: a generator that refers back to its
    holder is a reference cycle, and would keep files open until the garbage collector finds it.
    """

    def __init__(
        self, plan: Plan, options: ReadOptions, rule: GroupingRule, order_name: str
    ) -> None:
        self.plan, self.options, self.order_name = plan, options, order_name
        self.records = Records(plan, skip=options.on_corrupt == "skip", cache=options.cache)
        self._rule, self._order = rule, order_of(plan, options)
        self._window = shuffle_window(plan, options)
        self._at_once = records_at_once(plan)

    def batches(self, cursor: Cursor) -> Iterator[tuple[BatchSlice | None, Cursor]]:
        """The batches from a cursor on, each with the next cursor; None marks the end of an epoch."""
        while True:
            yield from self._rest_of_epoch(cursor)
            cursor = Cursor(cursor.epoch + 1)
            yield None, cursor

    def _rest_of_epoch(self, cursor: Cursor) -> Iterator[tuple[BatchSlice | None, Cursor]]:
        epoch, total = cursor.epoch, self.plan.records or 0
        held, grouping = dict[int, _Record](), self._rule.new()
        for place, record in self._read(epoch, np.array(cursor.held, np.int64)):
            held[place] = record
            grouping.add(place, record.lengths)

        def after(place: int) -> Cursor:
            waiting = tuple(grouping.held)
            return Cursor(epoch, place, waiting) if waiting or place < total else Cursor(epoch + 1)

        any_batch = cursor.place > 0
        for places in self._chunks(epoch, cursor.place):
            for place, record in self._read(epoch, places):
                held[place] = record
                group = grouping.add(place, record.lengths)
                if group:
                    batch = self._batch(epoch, held, group)
                    any_batch |= batch is not None
                    yield batch, after(place + 1)
            for place in grouping.held:
                if place >= places[0]:
                    held[place] = held[place].copied()
        while group := grouping.rest(self.options.remainder == "drop"):
            batch = self._batch(epoch, held, group)
            # Without a batch no cursor is given: one after the epoch would end a pass before the check.
            if batch is not None:
                any_batch = True
                yield batch, after(total)
        if total and len(self.records.skipped) == total:
            raise CorruptRecordError(f"{self.plan.name}: all {total} records are damaged")
        if total and not any_batch:
            raise ValueError(
                f"{self.plan.name} has {total} records, too few for one batch: "
                f"batch_size={self.options.batch_size}, {self.order_name}"
            )

    def _chunks(self, epoch: int, place: int) -> Iterator[np.ndarray]:
        """The places of an epoch from one on, int64 [k], to be read together.

        Records in a store are fetched for several chunks at once.
        """
        total = self.plan.records or 0
        ahead = place
        while place < total:
            end = min(place + self._at_once, total)
            if not self.records.is_local:
                if place >= ahead:
                    ahead = min(ahead_end(self.plan, place, self._window), total)
                    self.records.prefetch(self._order(epoch, np.arange(place, ahead)))
                end = min(end, ahead)
            yield np.arange(place, end)
            place = end

    def _read(self, epoch: int, places: np.ndarray) -> Iterator[tuple[int, _Record]]:
        """The records at some places of an epoch, int64 [k], each with its place."""
        if not len(places):
            return
        columns, kept = self.records.columns(self._order(epoch, places))
        schema = self.plan.schema
        columns = truncate(columns, schema, self.options.format)
        lengths = np.stack(
            [lengths_of(schema[name], columns[name]) for name in self._rule.features], axis=1
        )
        if lengths.ndim > 2:
            lengths = lengths[:, :, 0]
        values = zip(*(column.arrays() for column in columns.values()), strict=True)
        rows = zip(places[kept].tolist(), values, lengths.tolist(), strict=True)
        for place, row, deciding in rows:
            yield place, _Record(dict(zip(columns, row, strict=True)), deciding)

    def _batch(self, epoch: int, held: dict[int, _Record], group: Group) -> BatchSlice | None:
        """This host's share of a group, whose records leave `held`."""
        records = {place: held.pop(place) for place in group.places}
        mine = group.of_host(*self.options.shard, self.options.remainder)
        if mine is None:
            return None
        columns = {
            name: column_of(feature, [records[place].values[name] for place in mine.places])
            for name, feature in self.plan.schema.items()
        }
        is_packed = self.options.format.batching == "packed"
        rows = np.array(mine.rows, np.int64) if is_packed else None
        length = None if is_packed else records[group.places[0]].lengths[0]
        places = np.array(mine.places, np.int64)
        found = BatchSlice(columns, epoch, places, rows, length=length)
        return found.padded(self.plan.schema, mine.size) if self.options.pads else found
