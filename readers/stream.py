"""The columns of each step: what `as_numpy` and `load` with an index share."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from readers.collate import collate, cut
from readers.dataset import Plan
from readers.form import Form
from readers.format.column import Column
from readers.format.pieces import Empty
from readers.format.schema import Feature
from readers.mixture import MixedOrder
from readers.options import ReadOptions
from readers.order import CYCLE, GlobalOrder, InOrder, InterleavedOrder, Order
from readers.packed import pack
from readers.records import Records
from readers.recycled import Recycled
from readers.schedule import Schedule, State, Step

Columns = dict[str, Column]

# Fetched from a store at once, in many requests side by side, and held until it is decoded.
_AHEAD_BYTES, _AHEAD_RECORDS = 32 << 20, 65_536

# Read and decoded at once: the some 100 calls of NumPy are shared by as many records, and what they
# look at stays in the processor's cache.
_CHUNK_RECORDS, _CHUNK_BYTES = 4096, 2 << 20

# What a window of an interleaved order takes. TensorFlow's memory for a large one is new each time: by
# windows of 32 MiB pictures come twice as fast as by 128. Few records shuffle badly, though.
WINDOW_BYTES, WINDOW_RECORDS = 32 << 20, 65_536
_FEW_RECORDS, _MOST_BYTES = 1024, 128 << 20


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


def order_of(plan: Plan, options: ReadOptions) -> Order:
    """The order of the epochs of a plan."""
    seed = options.seed or 0
    if options.weights:
        orders: list[Order] = [
            GlobalOrder(count, seed, number) if options.shuffle else InOrder()
            for number, count in enumerate(plan.mixed)
        ]
        return MixedOrder(plan.mixed, orders, options.weights, seed if options.shuffle else None)
    if is_windowed(options):
        counts = [part.take or 0 for part in plan.parts]
        return InterleavedOrder(counts, seed, options.window or window_of(plan))
    return GlobalOrder(plan.records or 0, seed) if options.shuffle else InOrder()


def scheduled(plan: Plan, options: ReadOptions) -> tuple[Plan, Schedule, str]:
    """The plan of this host, its steps, and what its order is called in a state.

    Args:
        plan: One that knows its number of records.

    Raises:
        ValueError: The state is not of this dataset, or of another order; or there are fewer
            records than each host needs for a batch.
    """
    assert isinstance(options.batch_size, int)
    host, hosts = options.shard
    records = total = plan.records or 0
    kind = kind_of(plan, options)
    if options.order == "interleave" and hosts > 1:
        kind += f", by host {host} of {hosts}"
        records //= hosts
        plan = plan.cut(host * records, (host + 1) * records)
        host, hosts = 0, 1
    schedule = Schedule(
        records=records,
        batch_size=options.batch_size,
        host=host,
        hosts=hosts,
        epochs=options.repeat,
        drop_remainder=options.drop_remainder,
    )
    if total and not schedule.steps_of_epoch:
        raise ValueError(
            f"{plan.name} has {total} records, of which no batch can be made: batch_size="
            f"{options.batch_size}, shard={options.shard}, drop_remainder={options.drop_remainder}"
        )
    state = options.state
    if state:
        check_state(state, kind, plan)
        schedule = replace(schedule, epoch=state.epoch, place=state.place)
    elif options.start_step:
        epoch, place = schedule.after(options.start_step)
        schedule = replace(schedule, epoch=epoch, place=place)
    return plan, schedule, kind


def is_windowed(options: ReadOptions) -> bool:
    """Whether shards are mixed, and windows of records shuffled."""
    return options.weights is None and options.shuffle and options.order == "interleave"


def kind_of(plan: Plan, options: ReadOptions) -> str:
    """What the order of a plan is called in a state."""
    if is_windowed(options):
        return f"interleaved in windows of {options.window or window_of(plan)}"
    kind = "in a global shuffle" if options.shuffle else "in order"
    return f"{kind}, mixed by {list(options.weights)}" if options.weights else kind


def check_state(state: State, order: str, plan: Plan) -> None:
    """Holds a state against what is read.

    Raises:
        ValueError: It is of other records, or of another order.
    """
    if state.dataset != plan.digest:
        raise ValueError(
            f"the state is of the dataset {state.dataset}, this one is {plan.digest}: other records, "
            "another split, or another slice of one"
        )
    if state.order != order:
        raise ValueError(f"the state is of records {state.order}, not {order}")
    if max((state.place, *(place + 1 for place in state.held))) > (plan.records or 0):
        raise ValueError(f"the state is at record {state.place} of {plan.records}")


def records_at_once(plan: Plan) -> int:
    """How many records are read and decoded at once."""
    return max(min(_CHUNK_RECORDS, int(_CHUNK_BYTES / (plan.record_bytes or 1))), 1)


def ahead_of(plan: Plan, place: int, window: int | None) -> int:
    """The place in an order up to which records are fetched from a store together.

    Of a window they are all in a few places of files, of which each is to be fetched once.
    """
    if window is not None:
        return (place // window + 1) * window
    return place + max(1, int(min(_AHEAD_BYTES / (plan.record_bytes or 1), _AHEAD_RECORDS)))


def windows_of(plan: Plan, options: ReadOptions) -> int | None:
    """The records of a window of the order; None where it has none."""
    return (options.window or window_of(plan)) if is_windowed(options) else None


def window_of(plan: Plan) -> int:
    """The records of a window, by their number and mean size."""
    # The first record alone may be unlike the others.
    most = WINDOW_RECORDS // CYCLE if plan.records is None else plan.records
    size = plan.record_bytes or 1
    fitting = max(WINDOW_BYTES / size, min(_FEW_RECORDS, _MOST_BYTES / size))
    return max(1, min(most, int(fitting), WINDOW_RECORDS))


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
