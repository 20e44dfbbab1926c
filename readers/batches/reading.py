"""Reads the batches of a source in order: several together, and ahead from a store."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import numpy as np

from readers.batches.batch_slice import BatchSlice, Group
from readers.batches.batch_source import BatchSource
from readers.batches.prefetch import mapped_ahead
from readers.batches.read_sizes import CHUNK_RECORDS, WINDOWS_AHEAD, records_ahead, records_together
from readers.format.decode.column import Allocator
from readers.order.state import Cursor
from readers.shards.records import RECORD_ERRORS, Framed

_Batch = TypeVar("_Batch")

# Groups; the numbers of the records to fetch for them; and those of these records that the next group needs, too.
_Window = tuple[list[Group], np.ndarray, np.ndarray]


def batches_from(
    source: BatchSource,
    convert: Callable[[BatchSlice, Allocator], _Batch],
    first: tuple[Cursor, int],
    end: Cursor | None,
    turn: tuple[int, int] = (0, 1),
) -> Iterator[tuple[_Batch, tuple[Cursor, int]]]:
    """Yields a worker's batches of a pass, each with the cursor and the number of the next batch.

    `first` is the cursor and the number of the first batch of all workers; `turn` is (worker, number of workers). It is
    not a method, because a generator that refers to the object holding it would keep files open until the garbage
    collector finds the cycle.
    """
    (cursor, number), (worker, workers) = first, turn
    count = itertools.count(number)
    # A program waits for the first batches, so few are read together.
    most, together = records_together(source.plan), 1
    for epoch, groups in source.epochs(cursor, end):
        mine = (group for group in groups if next(count) % workers == worker)
        for window, fetched in _fetched(source, _numbered(source, epoch, mine)):
            remaining = iter(window)
            while chunk := _taken(remaining, most, together):
                for records, after in _read(source, epoch, chunk, fetched):
                    number += (worker - number) % workers + 1
                    yield convert(records, source.records.memory.empty), (after, number)
                together = min(2 * together, CHUNK_RECORDS)
            del fetched  # Its memory can be reused while waiting for the next one.


def _taken(groups: Iterator[Group], records: int, most: int = CHUNK_RECORDS) -> list[Group]:
    """Takes groups until they have about `records` records: at most `most`, and at least one if any is left."""
    taken, total, size = list[Group](), 0, 0
    while len(taken) < most and total + size <= records and (group := next(groups, None)):
        taken.append(group)
        size = len(group.places)
        total += size
    return taken


def _numbered(source: BatchSource, epoch: int, groups: Iterator[Group]) -> Iterator[Group]:
    """Adds the numbers of their records to groups."""
    # Many together: computing an order takes 200 NumPy calls, however many records there are.
    while chunk := _taken(groups, CHUNK_RECORDS):
        numbers, start = source.order(epoch, np.concatenate([group.places for group in chunk])), 0
        for group in chunk:
            stop = start + len(group.places)
            yield group._replace(numbers=numbers[start:stop])
            start = stop


def _fetched(
    source: BatchSource, groups: Iterator[Group]
) -> Iterator[tuple[Iterable[Group], list[Framed]]]:
    """Yields groups, with their records in memory if they are in a store; threads fetch the next ones."""
    records = source.records
    if records.is_fetched:
        yield groups, []
        return

    def fetch(window: _Window) -> tuple[list[Group], list[Framed], np.ndarray]:
        complete, numbers, waiting = window
        return complete, [] if records.is_fetched else [records.fetch(numbers)], waiting

    kept = list[Framed]()
    windows = mapped_ahead(fetch, _windows(source, groups), WINDOWS_AHEAD)
    for complete, fetched, waiting in windows:
        fetched += kept
        yield complete, fetched
        kept = [records.fetch(waiting, fetched)] if fetched and len(waiting) else []
        del fetched  # Its memory can be reused while waiting for the next one.


def _windows(source: BatchSource, groups: Iterator[Group]) -> Iterator[_Window]:
    """Yields the groups to fetch together: shuffle windows, whose records are in a few ranges of the files.

    A batch that spans two windows belongs to the groups of the second. The first fetches its records of that batch.
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
    source: BatchSource, epoch: int, groups: list[Group], fetched: list[Framed]
) -> Iterator[tuple[BatchSlice, Cursor]]:
    """Reads the batches of groups together; one by one if a record is bad, so that batches before it are returned."""
    yielded = 0
    try:
        for batch in source.slices(epoch, groups, fetched):
            yield batch, groups[yielded].after
            yielded += 1
            del batch  # Its memory can be used again.
    except RECORD_ERRORS:
        if len(groups) == 1:
            raise
        for group in groups[yielded:]:
            yield from _read(source, epoch, [group], fetched)
