"""The columns of each step: what `as_numpy` and `load` with an index share."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from readers.batches.collate import collate, cut, pack
from readers.batches.options import Form, ReadOptions
from readers.batches.orders import (
    _CHUNK_RECORDS,
    ahead_of,
    order_of,
    records_at_once,
    scheduled,
    windows_of,
)
from readers.format.decode.column import Column, Empty
from readers.format.schema import Feature
from readers.order.orders import Order
from readers.order.schedule import Schedule, Step
from readers.order.state import State
from readers.shards.memory import Recycled
from readers.shards.plan import Plan
from readers.shards.records import Records

Columns = dict[str, Column]


@dataclass(frozen=True)
class Taken:
    """Records of one epoch.

    Attributes:
        columns: Their features, cut to their limits.
        epoch: The epoch.
        places: Of the records in it, int64 [records].
        rows: int64 [records], the row of the batch that each stands in, where rows are shared.
    """

    columns: Columns
    epoch: int
    places: np.ndarray
    rows: np.ndarray | None = None

    def batch(
        self, schema: Mapping[str, Feature], form: Form, empty: Empty
    ) -> dict[str, np.ndarray]:
        """The arrays of a batch of them, by name."""
        if self.rows is None:
            return collate(self.columns, schema, form, empty)
        return pack(self.columns, schema, form, self.rows, empty)


def open_stream(plan: Plan, options: ReadOptions) -> Stream:
    """The stream of what options ask for.

    Raises:
        ValueError: As `scheduled`.
    """
    plan, schedule, kind = scheduled(plan, options)
    records = Records(plan, skip=options.on_corrupt == "skip", cache=options.cache)
    order = order_of(plan, options)
    return Stream(records, schedule, order, kind, options.form, windows_of(plan, options))


class Stream:
    """The records of a schedule, step by step; safe to share between threads.

    Steps that follow each other are read together.

    Args:
        records: To read from.
        schedule: Places of an epoch by step.
        order: Records by their places.
        kind: What the order is called in a state.
        form: Of the batches.
        window: Records that the order shuffles at a time; None where it has no windows.

    Attributes:
        schedule: The same.
        begin: The number of the first step.
        batch_bytes: What a batch takes in its files, about.
    """

    def __init__(
        self,
        records: Records,
        schedule: Schedule,
        order: Order,
        kind: str,
        form: Form,
        window: int | None = None,
    ) -> None:
        self.schedule, self.begin = schedule, 0
        self._records, self._order, self._kind, self._form = records, order, kind, form
        size = schedule.batch_size
        self._steps_at_once = max(records_at_once(records.plan) // size, 1)
        self.batch_bytes = (records.plan.record_bytes or 1) * size
        self._window, self._size = window, size
        # The steps whose records a store has given already.
        self._ahead = range(0)
        # The first step of those whose records are known, and their numbers.
        self._known: tuple[int, list[np.ndarray]] = 0, []
        # The first step of those that were read together, and what is left of them.
        self._first, self._chunk = 0, list[Taken | None]()
        self._lock = threading.Lock()

    @property
    def memory(self) -> Recycled:
        """Where large arrays come from."""
        return self._records.memory

    def next(self, step: int) -> tuple[Taken, int] | None:
        """The records of a step, and the number of the step after it; None at the end."""
        steps = self.schedule.steps
        return (self.step(step), step + 1) if steps is None or step < steps else None

    def step(self, number: int) -> Taken:
        """The records of a step.

        Raises:
            CorruptRecordError, ValueError: As `Records.columns`.
        """
        with self._lock:
            if not self._first <= number < self._first + len(self._chunk):
                self._first, self._chunk = number, self._read(number)
            found = self._chunk[number - self._first]
            # Let go of what will hardly be asked for again.
            self._chunk[number - self._first] = None
        return found or self._alone(number)

    @property
    def skipped(self) -> int:
        """Damaged records that were left out so far."""
        return len(self._records.skipped)

    def state(self, steps: int, seed: int) -> State:
        """Where to go on after so many steps."""
        epoch, place = self.schedule.after(steps)
        return State(epoch, place, seed, self._kind, self._records.plan.digest)

    def _read(self, first: int) -> list[Taken | None]:
        """The records of a step and of those that are read with it, all of one epoch.

        None where a bad record is yet to be told from others.
        """
        steps = self._steps(first, self._steps_at_once)
        if not self._records.is_local:
            if first not in self._ahead:
                self._read_ahead(first)
            # What is behind them comes with others.
            steps = steps[: self._ahead.stop - first]
        if len(steps) == 1:
            return [self._alone(first)]
        places = _places(steps)
        numbers = [self._numbers(first + more) for more in range(len(steps))]
        try:
            columns, kept = self._columns(np.concatenate(numbers))
        except ValueError:
            return [None] * len(steps)
        ends = np.cumsum([step.stop - step.start for step in steps])
        ends = np.append(0, np.cumsum(kept)[ends - 1]).tolist()
        parts = [column.parts(ends) for column in columns.values()]
        places = places[kept]
        return [
            Taken(dict(zip(columns, several, strict=True)), steps[0].epoch, places[start:stop])
            for *several, (start, stop) in zip(*parts, itertools.pairwise(ends), strict=True)
        ]

    def _read_ahead(self, first: int) -> None:
        """Fetches the records of a step and of those after it together."""
        place = self.schedule.step(first).start
        most = (ahead_of(self._records.plan, place, self._window) - place) // self._size + 1
        steps = self._steps(first, most)
        if self._window is not None:
            end = ahead_of(self._records.plan, place, self._window)
            steps = [step for step in steps if step.start < end]
        self._ahead = range(first, first + len(steps))
        self._records.ahead(self._order(steps[0].epoch, _places(steps)))

    def _alone(self, number: int) -> Taken:
        step = self.schedule.step(number)
        columns, kept = self._columns(self._numbers(number))
        return Taken(columns, step.epoch, _places([step])[kept])

    def _numbers(self, number: int) -> np.ndarray:
        """The records of a step, int64 [k]."""
        first, known = self._known
        if not first <= number < first + len(known):
            # Many at once: the order of a batch takes 200 calls of NumPy.
            steps = self._steps(number, max(_CHUNK_RECORDS // self.schedule.batch_size, 1))
            numbers = self._order(steps[0].epoch, _places(steps))
            ends = np.cumsum([step.stop - step.start for step in steps])
            first, known = self._known = number, np.split(numbers, ends[:-1])
        return known[number - first]

    def _steps(self, first: int, most: int) -> list[Step]:
        """A step and those after it, at most so many, of its epoch."""
        epoch = self.schedule.step(first).epoch
        several = (self.schedule.step(first + more) for more in range(most))
        return list(itertools.takewhile(lambda step: step.epoch == epoch, several))

    def _columns(self, numbers: np.ndarray) -> tuple[Columns, np.ndarray]:
        columns, kept = self._records.columns(numbers)
        return cut(columns, self._records.plan.schema, self._form), kept


def _places(steps: Sequence[Step]) -> np.ndarray:
    """The places of steps of one epoch, int64 [k]."""
    return np.concatenate([np.arange(step.start, step.stop) for step in steps])
