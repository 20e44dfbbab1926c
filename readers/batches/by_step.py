"""Batches found by their step number: shared by `as_numpy` and by `load` with an index."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence

import numpy as np

from readers.batches.batch_slice import BatchSlice
from readers.batches.options import ReadOptions
from readers.batches.orders import schedule_of, shuffle_window
from readers.batches.prefetch import mapped_ahead
from readers.batches.read_sizes import CHUNK_RECORDS, WINDOWS_AHEAD, ahead_end, records_of_steps
from readers.batches.reading import BatchReader, Group
from readers.order.schedule import Step
from readers.order.state import State
from readers.shards.framed import FramedRecords
from readers.shards.plan import Plan
from readers.shards.records import RECORD_ERRORS


class BatchesByStep(BatchReader):
    """Random access to the batches of a plan.

    Args:
        plan: What to read; its number of records is known.
        options: How to read.
        every: Reads only each `every`th step, as one of several processes does that share the
            steps of a host.

    Attributes:
        schedule: Maps a step to places in an epoch.
        window: How many records are shuffled together; None if the order has no windows.
        begin: The number of the first step.
        every: As given.

    Raises:
        ValueError: The state is of another dataset or order, or there are not enough records for
            one batch on each host.
    """

    def __init__(self, plan: Plan, options: ReadOptions, every: int = 1) -> None:
        part, self.schedule, self._order_name = schedule_of(plan, options)
        super().__init__(part, options)
        self.begin, self.every = 0, every
        self.window = shuffle_window(part, options.order)

    def reader(self, turn: tuple[int, int] = (0, 1), number: int = 0) -> StepReader:
        """A reader for one iterator; which of several workers it is for follows from the first step."""
        return StepReader(self)

    def state(self, steps: int, seed: int) -> State:
        """The state to resume from after some number of steps."""
        epoch, place = self.schedule.after(steps)
        return State(epoch, place, seed, self._order_name, self.plan.digest)

    def bounds_of(self, number: int) -> tuple[int, int | None]:
        """The first step of a pass and the step after its last (None if it is endless)."""
        return self.schedule.steps_of_pass(number if self.options.order.each_pass else 0)


class StepReader:
    """Reads the batches of one iterator; safe to share between threads.

    Consecutive steps are read together. Iterators have readers of their own, because those at
    different places of a store would fetch their records again and again into a shared one.

    Args:
        batches: The batches to read.

    Attributes:
        memory: The allocator of large arrays.
        place: The step that the iterator is expected to ask for next; None before its first.
    """

    def __init__(self, batches: BatchesByStep) -> None:
        self._batches, self._schedule, self._every = batches, batches.schedule, batches.every
        self._plan, self._records, self._order = batches.plan, batches.records, batches.order
        self._size = batches.schedule.batch_size
        # How many steps to read together: few at first, for which a program waits.
        self._together, self._most = 1, max(records_of_steps(batches.plan) // self._size, 1)
        # The steps whose records were already fetched from a store, these records, and the next ones.
        self._ahead = range(0)
        self._fetched: list[FramedRecords] = []
        self._windows: Iterator[tuple[range, FramedRecords]] = iter(())
        # A first step, and the record numbers of each step from it on.
        self._numbered: tuple[int, list[np.ndarray]] = 0, []
        # A first step, and the slices from it on that were read together and not yet handed out.
        self._first, self._slices = 0, list[BatchSlice | None]()
        self._lock = threading.Lock()
        self.memory = batches.memory
        self.place: int | None = None

    def batch(self, step: int, end: int | None) -> tuple[BatchSlice, int] | None:
        """The batch of a step, and the number of the next step; None at the step `end`."""
        return (self.step(step), step + self._every) if end is None or step < end else None

    def step(self, number: int) -> BatchSlice:
        """The batch of a step.

        Raises:
            CorruptRecordError: (a ValueError) A record is damaged.
            ValueError: A record does not fit the schema.
        """
        with self._lock:
            self.place = number + self._every
            if number not in self._numbers_from(self._first, len(self._slices)):
                self._first, self._slices = number, self._read(number)
            row = (number - self._first) // self._every
            # A step is hardly ever asked for twice, so release its memory.
            found, self._slices[row] = self._slices[row], None
        return found or self._read_alone(number)

    def _read(self, first: int) -> list[BatchSlice | None]:
        """The batches of a step and the steps read together with it, all of one epoch.

        They are None if one of the records is bad: read alone, each step fails by itself.
        """
        steps = self._steps(first, self._together)
        self._together = min(2 * self._together, self._most)
        if self._records.is_fetched:
            self._ahead, self._fetched, self._windows = range(0), [], iter(())
        else:
            if first not in self._ahead:
                self._fetch_ahead(first)
            # Later steps are fetched together with their successors.
            steps = steps[: len(self._ahead) - self._ahead.index(first)]
        if len(steps) == 1:
            return [self._read_alone(first)]
        try:
            return [*self._slices_of(first, steps)]
        except RECORD_ERRORS:
            return [None] * len(steps)

    def _read_alone(self, number: int) -> BatchSlice:
        (found,) = self._slices_of(number, [self._schedule.step(number)])
        return found

    def _slices_of(self, first: int, steps: Sequence[Step]) -> list[BatchSlice]:
        """The batches of steps of one epoch, given the number of the first one."""
        groups = [Group(np.arange(step.start, step.stop), self._size) for step in steps]
        numbers = [self._numbers(step) for step in self._numbers_from(first, len(steps))]

        def following(row: int, begin: int, end: int) -> np.ndarray:
            later = _places(steps)[row] + 1 + np.arange(begin, end)
            return self._order(steps[0].epoch, later % (self._plan.records or 1))

        read, fetched = self._batches.slices, self._fetched
        return read(steps[0].epoch, groups, np.concatenate(numbers), following, fetched)

    def _fetch_ahead(self, first: int) -> None:
        """Fetches the records of a step and of the steps after it, while threads fetch the next."""
        steps, fetched = self._ahead, self._fetched
        # The steps stay unknown if fetching fails.
        self._ahead, self._fetched = range(0), []
        if first != steps.stop:
            self._windows = iter(())
        while first not in steps:
            # Of the records before them, only those in an incomplete batch are kept.
            fetched = self._kept(self._numbers(first), fetched)
            window = next(self._windows, None)
            if window is None:
                self._windows, fetched = _fetched_windows(self._batches, first), []
                window = next(self._windows)
            steps = window[0]
            fetched.append(window[1])
        self._ahead, self._fetched = steps, fetched

    def _kept(self, numbers: np.ndarray, fetched: list[FramedRecords]) -> list[FramedRecords]:
        """Copies of the records of some numbers, as far as they are in memory."""
        here = [records.find(numbers)[1] for records in fetched]
        found = numbers[np.any(here, axis=0)] if here else numbers[:0]
        return [self._records.fetch(found, fetched)] if len(found) else []

    def _numbers(self, number: int) -> np.ndarray:
        """The record numbers of a step, int64 [k]."""
        first, numbers = self._numbered
        if number not in self._numbers_from(first, len(numbers)):
            # Many steps together: ordering takes 200 NumPy calls, however many records there are.
            steps = self._steps(number, max(CHUNK_RECORDS // self._size, 1))
            ordered = self._order(steps[0].epoch, _places(steps))
            ends = np.cumsum([step.stop - step.start for step in steps])
            first, numbers = self._numbered = number, np.split(ordered, ends[:-1])
        return numbers[(number - first) // self._every]

    def _steps(self, first: int, most: int) -> list[Step]:
        """A step and the steps after it in the same epoch, up to `most` of them."""
        epoch = self._schedule.step(first).epoch
        several = map(self._schedule.step, self._numbers_from(first, most))
        return list(itertools.takewhile(lambda step: step.epoch == epoch, several))

    def _numbers_from(self, first: int, count: int) -> range:
        """The numbers of some steps that are read one after another."""
        return range(first, first + count * self._every, self._every)


def _places(steps: Sequence[Step]) -> np.ndarray:
    """The places of steps of one epoch, int64 [k]."""
    return np.concatenate([np.arange(step.start, step.stop) for step in steps])


def _fetched_windows(batches: BatchesByStep, first: int) -> Iterator[tuple[range, FramedRecords]]:
    """The steps from one on, to the end of its epoch, with their records, a window at a time.

    A batch across the edge of a window is among the steps of the later one, which has only the rest
    of its records. Not a method: it would refer to the reader that holds it.
    """
    epoch, order, records = batches.schedule.step(first).epoch, batches.order, batches.records

    def fetch(window: tuple[range, np.ndarray]) -> tuple[range, FramedRecords]:
        steps, places = window
        return steps, records.fetch(order(epoch, places))

    return mapped_ahead(fetch, _windows(batches, first), WINDOWS_AHEAD)


def _windows(batches: BatchesByStep, number: int) -> Iterator[tuple[range, np.ndarray]]:
    """The steps that each window completes, from a step on, and the places that it adds, int64 [k]."""
    schedule, window = batches.schedule, batches.window
    step = schedule.step(number)
    epoch, place = step.epoch, step.start
    while step.epoch == epoch:
        first, added = number, list[np.ndarray]()
        begin = max(step.start, place)
        end = ahead_end(batches.plan, begin, window)
        most = (end - begin) // schedule.batch_size + 1
        while step.epoch == epoch and (step.start < end if window else len(added) < most):
            stop = min(step.stop, end) if window else step.stop
            added.append(np.arange(max(step.start, place), stop))
            if stop < step.stop:
                break
            number += batches.every
            step = schedule.step(number)
        yield range(first, number, batches.every), np.concatenate(added)
        place = end if window else step.start
