"""Batches found by their step number: shared by `as_numpy` and by `load` with an index."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence

import numpy as np

from readers.batches.batch_slice import BatchSlice
from readers.batches.collate import truncate
from readers.batches.options import ReadOptions
from readers.batches.orders import order_of, schedule_of, shuffle_window
from readers.batches.read_sizes import CHUNK_RECORDS, ahead_end, records_at_once
from readers.format.decode.column import FeatureColumn
from readers.order.schedule import Step
from readers.order.state import State
from readers.shards.memory import RecyclingAllocator
from readers.shards.plan import Plan
from readers.shards.records import Records


class BatchesByStep:
    """Random access to the batches of a plan; safe to share between threads.

    Consecutive steps are read together.

    Args:
        plan: What to read; its number of records is known.
        options: How to read.
        every: Reads only each `every`th step, as one of several processes does that share the
            steps of a host.

    Attributes:
        schedule: Maps a step to places in an epoch.
        begin: The number of the first step.
        batch_bytes: The approximate size of a batch in the shards.

    Raises:
        ValueError: The state is of another dataset or order, or there are not enough records for
            one batch on each host.
    """

    def __init__(self, plan: Plan, options: ReadOptions, every: int = 1) -> None:
        self._plan, self.schedule, self._order_name = schedule_of(plan, options)
        self.begin, self._every = 0, every
        self._records = Records(self._plan, skip=options.on_corrupt == "skip", cache=options.cache)
        self._order = order_of(self._plan, options)
        self._window = shuffle_window(self._plan, options)
        self._format, self._size = options.format, self.schedule.batch_size
        self._pads = options.pads
        self.batch_bytes = (self._plan.record_bytes or 1) * self._size
        self._steps_at_once = max(records_at_once(self._plan) // self._size, 1)
        # The steps whose records were already fetched from a store.
        self._ahead = range(0)
        # A first step, and the record numbers of each step from it on.
        self._numbered: tuple[int, list[np.ndarray]] = 0, []
        # A first step, and the slices from it on that were read together and not yet handed out.
        self._first, self._slices = 0, list[BatchSlice | None]()
        self._lock = threading.Lock()

    @property
    def memory(self) -> RecyclingAllocator:
        """The allocator of large arrays."""
        return self._records.memory

    @property
    def skipped(self) -> int:
        """The number of damaged records replaced so far."""
        return len(self._records.skipped)

    def state(self, steps: int, seed: int) -> State:
        """The state to resume from after some number of steps."""
        epoch, place = self.schedule.after(steps)
        return State(epoch, place, seed, self._order_name, self._plan.digest)

    def bounds_of(self, number: int) -> tuple[int, int | None]:
        """The first step of a pass and the step after its last (None if it is endless)."""
        return self.schedule.steps_of_pass(number)

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
            if number not in self._numbers_from(self._first, len(self._slices)):
                self._first, self._slices = number, self._read(number)
            row = (number - self._first) // self._every
            # A step is hardly ever asked for twice, so release its memory.
            found, self._slices[row] = self._slices[row], None
        found = found or self._read_alone(number)
        return found.padded(self._plan.schema, self._size) if self._pads else found

    def _read(self, first: int) -> list[BatchSlice | None]:
        """The batches of a step and the steps read together with it, all of one epoch.

        They are None if one of the records is bad: read alone, each step fails by itself.
        """
        steps = self._steps(first, self._steps_at_once)
        if not self._records.is_local:
            if first not in self._ahead:
                self._fetch_ahead(first)
            # Later steps are fetched together with their successors.
            steps = steps[: len(self._ahead) - self._ahead.index(first)]
        if len(steps) == 1:
            return [self._read_alone(first)]
        places = _places(steps)
        numbers = [self._numbers(step) for step in self._numbers_from(first, len(steps))]
        try:
            columns = self._columns(np.concatenate(numbers), steps[0].epoch, places)
        except ValueError:
            return [None] * len(steps)
        ends = np.cumsum([0, *(step.stop - step.start for step in steps)]).tolist()
        parts = [column.split(ends) for column in columns.values()]
        return [
            BatchSlice(dict(zip(columns, several, strict=True)), steps[0].epoch, places[start:stop])
            for *several, (start, stop) in zip(*parts, itertools.pairwise(ends), strict=True)
        ]

    def _read_alone(self, number: int) -> BatchSlice:
        step = self.schedule.step(number)
        places = _places([step])
        columns = self._columns(self._numbers(number), step.epoch, places)
        return BatchSlice(columns, step.epoch, places)

    def _fetch_ahead(self, first: int) -> None:
        """Fetches the records of a step and of the steps after it together."""
        place = self.schedule.step(first).start
        end = ahead_end(self._plan, place, self._window)
        steps = self._steps(first, (end - place) // self._size + 1)
        if self._window is not None:
            steps = [step for step in steps if step.start < end]
        self._ahead = self._numbers_from(first, len(steps))
        self._records.prefetch(self._order(steps[0].epoch, _places(steps)))

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
        epoch = self.schedule.step(first).epoch
        several = map(self.schedule.step, self._numbers_from(first, most))
        return list(itertools.takewhile(lambda step: step.epoch == epoch, several))

    def _numbers_from(self, first: int, count: int) -> range:
        """The numbers of some steps that are read one after another."""
        return range(first, first + count * self._every, self._every)

    def _columns(
        self, numbers: np.ndarray, epoch: int, places: np.ndarray
    ) -> dict[str, FeatureColumn]:
        """The columns of records, given by their numbers and their places in an epoch."""

        def following(row: int, first: int, end: int) -> np.ndarray:
            later = places[row] + 1 + np.arange(first, end)
            return self._order(epoch, later % (self._plan.records or 1))

        columns = self._records.columns_of_good(numbers, following)
        return truncate(columns, self._plan.schema, self._format)


def _places(steps: Sequence[Step]) -> np.ndarray:
    """The places of steps of one epoch, int64 [k]."""
    return np.concatenate([np.arange(step.start, step.stop) for step in steps])
