"""The columns of each step: what `as_numpy` and `load` with an index share."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from readers.dataset import Plan
from readers.format.column import Column
from readers.options import BatchOptions
from readers.order import CYCLE, GlobalOrder, InOrder, InterleavedOrder, Order
from readers.records import Records
from readers.recycled import Recycled
from readers.schedule import Schedule, State, Step

Columns = dict[str, Column]

# Read and decoded at once: the some 100 calls of NumPy are shared by as many records, and what they
# look at stays in the processor's cache.
_CHUNK_RECORDS, _CHUNK_BYTES = 4096, 2 << 20

# What a window of an interleaved order takes: it fits a laptop, and is filled in about a second.
WINDOW_BYTES, WINDOW_RECORDS = 128 << 20, 65_536


def open_stream(plan: Plan, options: BatchOptions) -> Stream:
    """The stream of what options ask for.

    Raises:
        ValueError: As `scheduled`.
    """
    plan, schedule, kind = scheduled(plan, options)
    seed = options.seed or 0
    order: Order = InOrder()
    if options.shuffle and options.order == "interleave":
        counts = [part.take or 0 for part in plan.parts]
        order = InterleavedOrder(counts, seed, options.window or window_of(plan))
    elif options.shuffle:
        order = GlobalOrder(schedule.records, seed)
    records = Records(plan, skip=options.on_corrupt == "skip")
    return Stream(records, schedule, order, kind)


def scheduled(plan: Plan, options: BatchOptions) -> tuple[Plan, Schedule, str]:
    """The plan of this host, its steps, and what its order is called in a state.

    Args:
        plan: One that knows its number of records.

    Raises:
        ValueError: The state is not of this dataset, or of another order; or there are fewer
            records than each host needs for a batch.
    """
    host, hosts = options.shard
    records = total = plan.records or 0
    kind = "in order"
    if options.shuffle and options.order == "interleave":
        kind = f"interleaved in windows of {options.window or window_of(plan)}"
    elif options.shuffle:
        kind = "in a global shuffle"
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
        _check(state, kind, plan)
        schedule = replace(schedule, epoch=state.epoch, place=state.place)
    elif options.start_step:
        epoch, place = schedule.after(options.start_step)
        schedule = replace(schedule, epoch=epoch, place=place)
    return plan, schedule, kind


def _check(state: State, order: str, plan: Plan) -> None:
    if state.dataset != plan.digest:
        raise ValueError(
            f"the state is of the dataset {state.dataset}, this one is {plan.digest}: other records, "
            "another split, or another slice of one"
        )
    if state.order != order:
        raise ValueError(f"the state is of records {state.order}, not {order}")
    if plan.records is None or state.place > plan.records:
        raise ValueError(f"the state is at record {state.place} of {plan.records}")


def window_of(plan: Plan) -> int:
    """The records of a window, by their number and mean size."""
    if plan.records is None or plan.record_bytes is None:
        return WINDOW_RECORDS // CYCLE
    fitting = int(WINDOW_BYTES / plan.record_bytes)
    return max(1, min(plan.records, fitting, WINDOW_RECORDS))


class Stream:
    """The records of a schedule, step by step; safe to share between threads.

    Steps that follow each other are read together.

    Args:
        records: To read from.
        schedule: Places of an epoch by step.
        order: Records by their places.
        kind: What the order is called in a state.
    """

    def __init__(self, records: Records, schedule: Schedule, order: Order, kind: str) -> None:
        self.schedule = schedule
        self._records, self._order, self._kind = records, order, kind
        step_bytes = schedule.batch_size * (records.plan.record_bytes or 1)
        fitting = min(_CHUNK_RECORDS // schedule.batch_size, int(_CHUNK_BYTES / step_bytes))
        self._steps = max(fitting, 1)
        # The first step of those that were read together, and what is left of them.
        self._first, self._chunk = 0, list[Columns | None]()
        self._lock = threading.Lock()

    @property
    def memory(self) -> Recycled:
        """Where large arrays come from."""
        return self._records.memory

    def columns(self, step: int) -> Columns:
        """The columns of the records of a step.

        Raises:
            CorruptRecordError, ValueError: As `Records.columns`.
        """
        with self._lock:
            if not self._first <= step < self._first + len(self._chunk):
                self._first, self._chunk = step, self._read(step)
            found = self._chunk[step - self._first]
            # Let go of what will hardly be asked for again.
            self._chunk[step - self._first] = None
        return found or self._records.columns(self._numbers([self.schedule.step(step)]))[0]

    @property
    def skipped(self) -> int:
        """Damaged records that were left out so far."""
        return len(self._records.skipped)

    def state(self, steps: int, seed: int) -> State:
        """Where to go on after so many steps."""
        epoch, place = self.schedule.after(steps)
        return State(epoch, place, seed, self._kind, self._records.plan.digest)

    def _read(self, first: int) -> list[Columns | None]:
        """The columns of a step and of those that are read with it, all of one epoch.

        None where a bad record is yet to be told from others.
        """
        epoch = self.schedule.step(first).epoch
        several = (self.schedule.step(first + more) for more in range(self._steps))
        steps = list(itertools.takewhile(lambda step: step.epoch == epoch, several))
        if len(steps) == 1:
            return [self._records.columns(self._numbers(steps))[0]]
        try:
            columns, kept = self._records.columns(self._numbers(steps))
        except ValueError:
            return [None] * len(steps)
        ends = np.cumsum([step.stop - step.start for step in steps])
        ends = np.append(0, np.cumsum(kept)[ends - 1]).tolist()
        parts = [column.parts(ends) for column in columns.values()]
        return [dict(zip(columns, several, strict=True)) for several in zip(*parts, strict=True)]

    def _numbers(self, steps: Sequence[Step]) -> np.ndarray:
        """The numbers of the records of some steps of one epoch, int64 [records]."""
        places = [np.arange(step.start, step.stop) for step in steps]
        return self._order(steps[0].epoch, np.concatenate(places))
