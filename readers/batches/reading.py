"""Reads the batches of a source one after another: several together, and ahead from a store."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from readers.batches.batch_slice import BatchSlice, Group
from readers.batches.batch_source import BatchSource
from readers.batches.prefetch import mapped_ahead
from readers.batches.read_sizes import (
    CHUNK_RECORDS,
    WINDOWS_AHEAD,
    records_ahead,
    records_together,
)
from readers.shards.framed import FramedRecords
from readers.shards.records import RECORD_ERRORS

# A batch or the error of its records, and the cursor of the next batch.
_Read = tuple[BatchSlice | Exception, Any]

# Groups; the numbers of the records to fetch for them; and of those among these that the group after them needs, too.
_Window = tuple[list[Group], np.ndarray, np.ndarray]


class BatchReader:
    """Reads the batches of one iterator; safe to share between threads.

    Iterators have readers of their own, because those at different places of a store would fetch
    their records again and again into a shared one.

    Args:
        source: The batches.
        turn: The number of this worker, and how many take turns.
        number: The number of the first batch in its pass.

    Attributes:
        memory: The allocator of large arrays.
        place: The cursor at which the reader reads on; None if it begins anew at any cursor.
    """

    def __init__(
        self, source: BatchSource[Any], turn: tuple[int, int] = (0, 1), number: int = 0
    ) -> None:
        self._source, self._turn, self._number = source, turn, number
        self._batches: Iterator[_Read] = iter(())
        self._lock = threading.Lock()
        self.memory = source.memory
        self.place: Any = None

    def batch(self, cursor: Any, end: Any) -> tuple[BatchSlice, Any] | None:
        """This worker's next batch from a cursor on, and the cursor after it; None at the end.

        Raises:
            CorruptRecordError, ValueError: A record is damaged or does not fit the schema, or there are too few.
        """
        with self._lock:
            if cursor != self.place:
                self._batches = _batches(self._source, cursor, end, self._turn, self._number)
            # A generator that raises has ended, so the next call starts another one.
            self.place = None
            item = next(self._batches, None)
            if item is None:
                return None
            batch, self.place = item
            if isinstance(batch, Exception):
                raise batch
            return batch, self.place


# Functions, not methods of the reader: a generator that refers to its holder is a reference cycle, and would
# keep files open until the garbage collector finds it.
def _batches(
    source: BatchSource[Any], cursor: Any, end: Any, turn: tuple[int, int], number: int
) -> Iterator[_Read]:
    (worker, workers), count = turn, itertools.count(number)
    # At first, a program waits for each batch, so few are read together.
    most, together = records_together(source.plan), 1
    for epoch, groups in source.epochs(cursor, end):
        mine = (group for group in groups if next(count) % workers == worker)
        for window, fetched in _fetched(source, _numbered(source, epoch, mine)):
            remaining = iter(window)
            while chunk := _taken(remaining, most, together):
                yield from _read(source, epoch, chunk, fetched)
                together = min(2 * together, CHUNK_RECORDS)
            del fetched  # Its memory is released before the next one is waited for.


def _taken(groups: Iterator[Group], records: int, most: int = CHUNK_RECORDS) -> list[Group]:
    """The next groups, at least one: up to `most` of them, with about as many records as given."""
    taken, total, size = list[Group](), 0, 0
    while len(taken) < most and total + size <= records and (group := next(groups, None)):
        taken.append(group)
        size = len(group.places)
        total += size
    return taken


def _numbered(source: BatchSource[Any], epoch: int, groups: Iterator[Group]) -> Iterator[Group]:
    """The groups with the numbers of their records."""
    # Many together: ordering takes 200 NumPy calls, however many records there are.
    while chunk := _taken(groups, CHUNK_RECORDS):
        numbers, start = source.order(epoch, np.concatenate([group.places for group in chunk])), 0
        for group in chunk:
            stop = start + len(group.places)
            yield group._replace(numbers=numbers[start:stop])
            start = stop


def _fetched(
    source: BatchSource[Any], groups: Iterator[Group]
) -> Iterator[tuple[Iterable[Group], list[FramedRecords]]]:
    """Yields groups, with their records in memory if they are in a store; threads fetch the next ones."""
    records = source.records
    if records.is_fetched:
        yield groups, []
        return

    def fetch(window: _Window) -> tuple[list[Group], list[FramedRecords], np.ndarray]:
        complete, numbers, waiting = window
        return complete, [] if records.is_fetched else [records.fetch(numbers)], waiting

    kept = list[FramedRecords]()
    windows = mapped_ahead(fetch, _windows(source, groups), WINDOWS_AHEAD)
    for complete, fetched, waiting in windows:
        fetched += kept
        yield complete, fetched
        kept = [records.fetch(waiting, fetched)] if fetched and len(waiting) else []
        del fetched  # Its memory is released before the next one is waited for.


def _windows(source: BatchSource[Any], groups: Iterator[Group]) -> Iterator[_Window]:
    """Yields what to fetch together: whole shuffle windows, whose records lie in a few ranges of the files.

    A batch across the edge of a window is among those of the next one, which has only the rest of its records.
    """
    window, nothing = source.options.order.buffer, np.empty(0, np.int64)
    if window is None or source.options.by_length:
        while chunk := _taken(groups, records_ahead(source.plan)):
            yield chunk, np.concatenate([group.numbers for group in chunk]), nothing
        return
    complete, added, end = list[Group](), [nothing], 0
    for group in groups:
        places, numbers = group.places, group.numbers
        while len(places) and places[-1] >= end:
            cut = int(np.searchsorted(places, end))
            if complete or cut:
                before = group.numbers[: len(group.places) - len(places) + cut]
                yield complete, np.concatenate([*added, numbers[:cut]]), before
            places, numbers, complete, added = places[cut:], numbers[cut:], [], [nothing]
            end = (int(places[0]) // window + 1) * window
        complete.append(group)
        added.append(numbers)
    if complete:
        yield complete, np.concatenate(added), nothing


def _read(
    source: BatchSource[Any], epoch: int, groups: list[Group], fetched: list[FramedRecords]
) -> Iterator[_Read]:
    """Reads the batches of groups together, and one by one if a record of them is bad."""
    try:
        batches: list[Any] = source.slices(epoch, groups, fetched)
    except RECORD_ERRORS as error:
        if len(groups) > 1:
            for group in groups:
                yield from _read(source, epoch, [group], fetched)
            return
        batches = [error]
    batches.reverse()
    for group in groups:
        yield batches.pop(), group.after  # Not kept: its memory can be used again.
