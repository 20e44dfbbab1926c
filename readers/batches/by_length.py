"""The batches of a stream in which the lengths of records decide what makes a batch."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from readers.batches.by_step import Taken
from readers.batches.collate import cut, lengths_of
from readers.batches.grouping import Group, GroupedBy, grouping_of
from readers.batches.options import ReadOptions
from readers.batches.orders import (
    ahead_of,
    check_state,
    kind_of,
    order_of,
    records_at_once,
    windows_of,
)
from readers.format.decode.column import Column, column_of
from readers.order.orders import Order
from readers.order.state import Cursor, State
from readers.shards.memory import Recycled
from readers.shards.plan import Plan
from readers.shards.records import Records


@dataclass(frozen=True)
class _Record:
    """A record that is in no batch yet.

    Attributes:
        values: By feature name.
        lengths: Those that decide.
    """

    values: dict[str, Any]
    lengths: list[int]

    def copied(self) -> _Record:
        """The record with values of its own, so that those it was read with are let go."""
        values = {
            name: value.copy() if isinstance(value, np.ndarray) else value
            for name, value in self.values.items()
        }
        return _Record(values, self.lengths)


def open_grouped(plan: Plan, options: ReadOptions) -> Grouped | None:
    """The batches of what options ask for; None where the lengths of records do not matter.

    Raises:
        ValueError: The state is not of this dataset, or of other batches.
    """
    grouping = grouping_of(plan.schema, options)
    if grouping is None:
        return None
    kind = f"{kind_of(plan, options)}, {grouping.kind}"
    if options.state:
        check_state(options.state, kind, plan)
    grouped = Grouped(Walk(plan, options, grouping, kind))
    for _ in range(options.start_step):
        found = grouped.step(grouped.begin, None)
        if found:
            grouped.begin = found[1]
    return grouped


class Grouped:
    """Batches one after another; each follows from a cursor alone.

    Every host finds the same batches of all hosts together, and takes its own rows of them.

    Args:
        walk: Gives the batches from a cursor on.

    Attributes:
        begin: Where the first batch begins.
    """

    def __init__(self, walk: Walk) -> None:
        state = walk.options.state
        self.begin = state.cursor if state else Cursor()
        self._walk = walk
        self._lock = threading.Lock()
        self._next, self._batches = Cursor(-1), walk.batches(self.begin)

    @property
    def memory(self) -> Recycled:
        """Where large arrays come from."""
        return self._walk.records.memory

    @property
    def skipped(self) -> int:
        """Damaged records that were left out so far."""
        return len(self._walk.records.skipped)

    def state(self, cursor: Cursor, seed: int) -> State:
        """Where to go on from a cursor."""
        walk = self._walk
        return State(cursor.epoch, cursor.place, seed, walk.kind, walk.plan.digest, cursor.held)

    def bounds_of(self, iteration: int) -> tuple[Cursor, int | None]:
        """Where an iteration begins, and the epoch before which it ends; None for no end.

        There is one after another. Each ends after an epoch whose number `repeat` divides.
        """
        repeat = self._walk.options.repeat
        if repeat is None:
            return self.begin, None
        end = (self.begin.epoch // repeat + 1) * repeat
        if not iteration:
            return self.begin, end
        return Cursor(end + (iteration - 1) * repeat), end + iteration * repeat

    def next(self, cursor: Cursor) -> tuple[Taken, Cursor] | None:
        """The next batch of the first iteration, and the cursor after it; None at the end."""
        return self.step(cursor, self.bounds_of(0)[1])

    def step(self, cursor: Cursor, end: int | None) -> tuple[Taken, Cursor] | None:
        """The next batch from a cursor on, and the cursor after it; None before the epoch `end`.

        Raises:
            CorruptRecordError, ValueError: As `Records.columns`; or no batch can be made.
        """
        with self._lock:
            if cursor != self._next:
                self._next, self._batches = cursor, self._walk.batches(cursor)
            while end is None or self._next.epoch < end:
                # After an error there is nothing to go on with.
                self._next = Cursor(-1)
                batch, self._next = next(self._batches)
                if batch is not None:
                    return batch, self._next
            return None


class Walk:
    """Batches from any cursor on.

    Not a part of `Grouped`, which would be in a cycle with the generator that it goes on with.

    Args:
        plan: What to read.
        options: How.
        grouping: What makes a batch.
        kind: What the order is called in a state.
    """

    def __init__(self, plan: Plan, options: ReadOptions, grouping: GroupedBy, kind: str) -> None:
        self.plan, self.options, self.kind = plan, options, kind
        self.records = Records(plan, skip=options.on_corrupt == "skip", cache=options.cache)
        self._window = windows_of(plan, options)
        self._grouping = grouping
        self._order: Order = order_of(plan, options)
        self._at_once = records_at_once(plan)
        self._is_packed = options.form.batching == "packed"

    def batches(self, cursor: Cursor) -> Iterator[tuple[Taken | None, Cursor]]:
        """The batches from a cursor on, each with the cursor after it; none at an epoch's end."""
        epoch, place = cursor.epoch, cursor.place
        held, grouping = dict[int, _Record](), self._grouping.new()
        for number, record in self._read(epoch, np.array(cursor.held, np.int64)):
            held[number] = record
            grouping.add(number, record.lengths)
        total = self.plan.records or 0

        def after(place: int) -> Cursor:
            waiting = tuple(grouping.held)
            return Cursor(epoch, place, waiting) if waiting or place < total else Cursor(epoch + 1)

        while True:
            made, ahead = place > 0, place
            while place < total:
                end = min(place + self._at_once, total)
                if not self.records.is_local:
                    if place >= ahead:
                        ahead = min(ahead_of(self.plan, place, self._window), total)
                        self.records.ahead(self._order(epoch, np.arange(place, ahead)))
                    end = min(end, ahead)
                places = np.arange(place, end)
                for number, record in self._read(epoch, places):
                    held[number] = record
                    group = grouping.add(number, record.lengths)
                    if group:
                        batch = self._batch(epoch, held, group)
                        made |= batch is not None
                        yield batch, after(number + 1)
                place = int(places[-1]) + 1
                for number in grouping.held:
                    if number >= places[0]:
                        held[number] = held[number].copied()
            while group := grouping.rest(self.options.drop_remainder):
                batch = self._batch(epoch, held, group)
                made |= batch is not None
                yield batch, after(total)
            if total and not made:
                raise ValueError(
                    f"{self.plan.name} has {total} records, of which no batch can be made: "
                    f"batch_size={self.options.batch_size}, {self.kind}"
                )
            epoch, place = epoch + 1, 0
            held.clear()
            yield None, Cursor(epoch)

    def _read(self, epoch: int, places: np.ndarray) -> Iterator[tuple[int, _Record]]:
        """The records at some places, int64 [k], of an epoch, each with its place."""
        if not len(places):
            return
        columns, kept = self.records.columns(self._order(epoch, places))
        schema = self.plan.schema
        columns = cut(columns, schema, self.options.form)
        lengths = np.stack(
            [lengths_of(schema[n], columns[n]) for n in self._grouping.names], axis=1
        )
        if lengths.ndim > 2:
            lengths = lengths[:, :, 0]
        values = zip(*(column.arrays() for column in columns.values()), strict=True)
        rows = zip(places[kept].tolist(), values, lengths.tolist(), strict=True)
        for place, row, several in rows:
            yield place, _Record(dict(zip(columns, row, strict=True)), several)

    def _batch(self, epoch: int, held: dict[int, _Record], group: Group) -> Taken | None:
        """This host's share of a group, whose records are held no longer."""
        records = {place: held.pop(place) for place in group.places}
        mine = group.of_host(*self.options.shard)
        if mine is None:
            return None
        columns: dict[str, Column] = {
            name: column_of(feature, [records[place].values[name] for place in mine.places])
            for name, feature in self.plan.schema.items()
        }
        rows = np.array(mine.rows, np.int64) if self._is_packed else None
        return Taken(columns, epoch, np.array(mine.places, np.int64), rows)
