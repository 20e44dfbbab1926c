"""Batches of records grouped by length (buckets or packed rows), found from a cursor.

Which records share a batch follows from numbers alone: their order, and their lengths in the indexes. So each
host finds the batches of all hosts together, and reads its own records.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence

import numpy as np

from readers.batches.batch_slice import BatchSlice
from readers.batches.by_length.grouping import Grouped, GroupingRule, grouping_of
from readers.batches.by_length.lengths import Lengths
from readers.batches.options import ReadOptions
from readers.batches.orders import check_state, order_name
from readers.batches.prefetch import mapped_ahead
from readers.batches.read_sizes import CHUNK_RECORDS, WINDOWS_AHEAD, ahead_end, records_of_steps
from readers.batches.reading import BatchReader, Group
from readers.order.state import Cursor, State
from readers.shards.framed import FramedRecords
from readers.shards.plan import Plan
from readers.shards.records import RECORD_ERRORS

# A batch of this host, and the cursor after it.
_Found = tuple[Group, Cursor]


def open_by_length(plan: Plan, options: ReadOptions) -> BatchesByLength | None:
    """The batches of a plan by length; None if the lengths of records do not decide.

    Raises:
        ValueError: The state is of another dataset, order or grouping.
    """
    rule = grouping_of(plan.undecoded, options)
    if rule is None:
        return None
    order = f"{order_name(plan, options)}, {rule.name}"
    state = options.state
    if isinstance(state, State):
        check_state(state, order, plan)
    batches = BatchesByLength(plan, options, rule, order)
    if isinstance(state, State):
        batches.begin = state.cursor
    else:
        for cursor in itertools.islice(batches.cursors(None), state or 0):
            batches.begin = cursor
    return batches


class BatchesByLength(BatchReader):
    """Batches in sequence, each found from the cursor before it, which several iterators may share.

    Args:
        plan: What to read; its number of records is known.
        options: How to read.
        rule: How records are grouped.
        order_name: The name of the order and the rule in a saved state.

    Attributes:
        begin: The cursor before the first batch.
    """

    def __init__(
        self, plan: Plan, options: ReadOptions, rule: GroupingRule, order_name: str
    ) -> None:
        super().__init__(plan, options)
        self._rule, self._order_name, self._opened = rule, order_name, threading.Lock()
        self._lengths: Lengths | None = None
        self.begin = Cursor()

    def reader(self, turn: tuple[int, int] = (0, 1), number: int = 0) -> LengthReader:
        """A reader for one iterator.

        Args:
            turn: The number of this worker, and how many take turns.
            number: The number of the first batch.
        """
        return LengthReader(self, turn, number)

    def state(self, cursor: Cursor, seed: int) -> State:
        """The state to resume from at a cursor."""
        order, dataset = self._order_name, self.plan.digest
        return State(cursor.epoch, cursor.place, seed, order, dataset, cursor.held)

    def bounds_of(self, iteration: int) -> tuple[Cursor, int | None]:
        """Where a pass over the batches begins, and the epoch before which it ends, if it does.

        Each pass ends after an epoch whose number `repeat` divides, and the next one begins there, unless
        all passes read the same epochs.
        """
        repeat = self.options.repeat
        if repeat is None:
            return self.begin, None
        end = (self.begin.epoch // repeat + 1) * repeat
        if not iteration or not self.options.order.each_pass:
            return self.begin, end
        return Cursor(end + (iteration - 1) * repeat), end + iteration * repeat

    def cursors(self, end: int | None) -> Iterator[Cursor]:
        """The cursor after each batch from the first one until the epoch `end`.

        Raises:
            ValueError: There are too few records for one batch.
        """
        return (after for _, after in self.groups(self.begin, end))

    def steps_of_pass(self, iteration: int) -> int:
        """The number of batches in a pass that begins with an epoch; it must have an end.

        Raises:
            ValueError: There are too few records for one batch.
        """
        _, end = self.bounds_of(iteration)
        assert end is not None
        return sum(1 for _ in self.groups(Cursor(end - (self.options.repeat or 1)), end))

    def groups(self, cursor: Cursor, end: int | None) -> Iterator[_Found]:
        """This host's share of each batch from a cursor until the epoch `end`, and the cursor after each.

        Raises:
            ValueError: There are too few records for one batch.
        """
        while end is None or cursor.epoch < end:
            yield from self.rest_of_epoch(cursor)
            cursor = Cursor(cursor.epoch + 1)

    def rest_of_epoch(self, cursor: Cursor) -> Iterator[_Found]:
        """This host's share of each batch from a cursor to the end of its epoch, and the cursor after each.

        Raises:
            ValueError: There are too few records for one batch.
        """
        epoch, total, any_batch = cursor.epoch, self.plan.records, cursor.place > 0
        for grouped in self._grouped(cursor, total):
            mine = grouped.group.of_host(*self.options.shard, self.options.remainder)
            # Without a batch no cursor is given: one after the epoch would end a pass before the check.
            if mine:
                held = tuple(grouped.held.tolist())
                more = held or grouped.end < total
                any_batch = True
                yield mine, Cursor(epoch, grouped.end, held) if more else Cursor(epoch + 1)
        if total and not any_batch:
            raise ValueError(
                f"{self.plan.name} has {total} records, too few for one batch: "
                f"batch_size={self.options.batch_size}, {self._order_name}"
            )

    def _grouped(self, cursor: Cursor, total: int) -> Iterator[Grouped]:
        """The batches of all hosts in the rest of an epoch."""
        grouping, epoch = self._rule.new(), cursor.epoch
        waiting = np.array(cursor.held, np.int64)
        yield from grouping.add(waiting, self.lengths(epoch, waiting))
        for first in range(cursor.place, total, CHUNK_RECORDS):
            places = np.arange(first, min(first + CHUNK_RECORDS, total))
            yield from grouping.add(places, self.lengths(epoch, places))
        yield from grouping.rest(total, self.options.remainder == "drop")

    def numbers(self, epoch: int, places: np.ndarray) -> np.ndarray:
        """The numbers of the records at places, int64 [k], of an epoch."""
        return np.asarray(self.order(epoch, places))

    def lengths(self, epoch: int, places: np.ndarray) -> np.ndarray:
        """The lengths that decide, int64 [k, features], of the records at places of an epoch."""
        with self._opened:
            if self._lengths is None:
                limits = [self.options.format.limit(name) for name in self._rule.features]
                self._lengths = Lengths(self.records, self._rule.features, limits)
        return self._lengths.of(self.numbers(epoch, places))

    def fitting(self, epoch: int, place: int, count: int) -> np.ndarray:
        """The numbers of the next records of an epoch that may take the place of one, int64 [at most `count`].

        They are of its bucket, or not longer.
        """
        total = self.plan.records
        lengths, found = self.lengths(epoch, np.array([place]))[0], list[np.ndarray]()
        for first in range(1, total, CHUNK_RECORDS):
            places = (place + np.arange(first, min(first + CHUNK_RECORDS, total))) % total
            fits = self._rule.fits(self.lengths(epoch, places), lengths)
            found.append(self.numbers(epoch, places[fits]))
            if sum(map(len, found)) >= count:
                break
        return np.concatenate([np.empty(0, np.int64), *found])[:count]


class LengthReader:
    """Reads the batches of one iterator; safe to share between threads.

    Args:
        batches: The batches to read.
        turn: The number of this worker, and how many take turns.
        number: The number of the first batch.

    Attributes:
        memory: The allocator of large arrays.
        place: The cursor from which the next batch is found without reading records again; None if
            they must be read.
    """

    def __init__(self, batches: BatchesByLength, turn: tuple[int, int], number: int) -> None:
        self._batches, self._turn, self._number = batches, turn, number
        self._slices: Iterator[tuple[BatchSlice | None, Cursor]] = iter(())
        self._lock = threading.Lock()
        self.memory = batches.memory
        self.place: Cursor | None = None

    def batch(self, cursor: Cursor, end: int | None) -> tuple[BatchSlice, Cursor] | None:
        """This worker's next batch after a cursor, and the cursor after it; None when the epoch `end` is reached.

        Raises:
            CorruptRecordError: (a ValueError) A record is damaged.
            ValueError: A record does not fit the schema, or there are too few for one batch.
        """
        with self._lock:
            if cursor != self.place:
                self.place = cursor
                self._slices = _slices(self._batches, cursor, self._turn, self._number)
            while end is None or cursor.epoch < end:
                # If this raises, the generator is finished: the next call starts a new one.
                self.place = None
                batch, cursor = next(self._slices)
                self.place = cursor
                if batch is not None:
                    return batch, cursor
            return None


# Functions, not methods of the reader: a generator that refers to its holder is a reference cycle, and would
# keep files open until the garbage collector finds it.
def _slices(
    batches: BatchesByLength, cursor: Cursor, turn: tuple[int, int], number: int
) -> Iterator[tuple[BatchSlice | None, Cursor]]:
    """The batches of a worker from a cursor on, each with the next cursor; None marks the end of an epoch."""
    worker, workers = turn
    count = itertools.count(number)
    while True:
        groups = batches.rest_of_epoch(cursor)
        mine = (found for found in groups if next(count) % workers == worker)
        yield from _slices_of_epoch(batches, cursor.epoch, mine)
        cursor = Cursor(cursor.epoch + 1)
        yield None, cursor


def _slices_of_epoch(
    batches: BatchesByLength, epoch: int, groups: Iterator[_Found]
) -> Iterator[tuple[BatchSlice, Cursor]]:
    """Reads batches, several at a time; records in a store are fetched for more of them, and ahead."""
    plan, records = batches.plan, batches.records

    def fetch(window: list[_Found]) -> tuple[list[_Found], list[FramedRecords]]:
        if records.is_fetched:
            return window, []
        places = np.concatenate([group.places for group, _ in window])
        return window, [records.fetch(batches.numbers(epoch, places))]

    def windows() -> Iterator[list[_Found]]:
        while window := _some(groups, _most_together(batches)):
            yield window

    is_here = records.is_fetched
    found = map(fetch, windows()) if is_here else mapped_ahead(fetch, windows(), WINDOWS_AHEAD)
    for window, fetched in found:
        left = iter(window)
        while together := _some(left, records_of_steps(plan)):
            yield from _read(batches, epoch, together, fetched)
        del fetched  # Its memory is released before the next one is waited for.


def _most_together(batches: BatchesByLength) -> int:
    """How many records to read, or to fetch from a store, together."""
    if batches.records.is_fetched:
        return records_of_steps(batches.plan)
    return ahead_end(batches.plan, 0, None)


def _some(groups: Iterator[_Found], most: int) -> list[_Found]:
    """The next batches with about so many records."""
    found, count = list[_Found](), 0
    while count < most and (batch := next(groups, None)):
        found.append(batch)
        count += len(batch[0].places)
    return found


def _read(
    batches: BatchesByLength, epoch: int, found: list[_Found], fetched: Sequence[FramedRecords]
) -> Iterator[tuple[BatchSlice, Cursor]]:
    """The batches of some groups, which are read together; one by one if a record of them is bad."""
    groups = [group for group, _ in found]
    places = np.concatenate([group.places for group in groups])

    def following(row: int, first: int, end: int) -> np.ndarray:
        return batches.fitting(epoch, int(places[row]), end)[first:]

    numbers = batches.numbers(epoch, places)
    try:
        slices = batches.slices(epoch, groups, numbers, following, fetched)
    except RECORD_ERRORS:
        if len(found) == 1:
            raise
        for each in found:
            yield from _read(batches, epoch, [each], fetched)
    else:
        yield from zip(slices, (after for _, after in found), strict=True)
