"""The batches of one host: which records each has, and how several are read together."""

from __future__ import annotations

import abc
import sys
from collections.abc import Iterator, Sequence

import numpy as np

from readers.batches.batch_slice import BatchSlice, Group
from readers.batches.collate import truncate
from readers.batches.options import ReadOptions
from readers.order.mixture import MixedOrder
from readers.order.orders import GlobalOrder, InterleavedOrder, RecordOrder, as_stored
from readers.order.permutation import record_keys
from readers.order.schedule import bounds_of_pass
from readers.order.state import Cursor, State
from readers.shards.plan import Plan
from readers.shards.records import Framed, Records


class BatchSource(abc.ABC):
    """The batches of one host, for any number of iterators. A cursor is the position of a batch."""

    # The cursor of the first batch of all.
    _begin: Cursor

    def __init__(self, plan: Plan, options: ReadOptions) -> None:
        self.plan, self.options, self.order = plan, options, _order_of(plan, options)
        self.records = Records(plan, skip=options.on_corrupt == "skip", cache=options.cache)
        # Work on records needs complete records.
        self._rows = {} if plan.work else options.format.rows(plan.schema)
        self._order_name = _order_name(plan, options)

    def epochs(self, cursor: Cursor, end: Cursor | None) -> Iterator[tuple[int, Iterator[Group]]]:
        """Yields the number and the batches of each epoch, from a cursor to before another."""
        while end is None or cursor.epoch < end.epoch:
            yield cursor.epoch, self._rest_of_epoch(cursor)
            cursor = Cursor(cursor.epoch + 1)

    @abc.abstractmethod
    def _rest_of_epoch(self, cursor: Cursor) -> Iterator[Group]: ...

    @abc.abstractmethod
    def following(self, epoch: int, place: int, first: int, end: int) -> np.ndarray:
        """The numbers of the records that may replace a damaged one, int64 [k], from `first` to before `end`."""

    def state(self, cursor: Cursor) -> State:
        """The state to resume from at a cursor."""
        how = self.options.seed or 0, self._order_name, self.plan.digest
        return State(cursor.epoch, cursor.place, *how, cursor.held, self.plan.generations)

    def _resumed(self) -> Cursor:
        """The cursor at which the options say to begin; ValueError if a state belongs to other records or another order."""
        state, plan = self.options.state, self.plan
        if not isinstance(state, State):
            return self.after(Cursor(), state, None)[0] if state else Cursor()
        if state.dataset != plan.digest:
            raise ValueError(
                f"the state is of the dataset {state.dataset}, but this is {plan.digest}: the records, "
                "the split or its slice differ"
            )
        if state.order != self._order_name:
            raise ValueError(f"the state is of records {state.order}, not {self._order_name}")
        if state.place > plan.records:
            raise ValueError(f"the state is at record {state.place} of {plan.records}")
        return Cursor(state.epoch, state.place, state.held)

    def bounds_of(self, number: int) -> tuple[Cursor, Cursor | None]:
        """The cursor of the first batch of a pass, and the cursor after its last batch; None for an endless pass."""
        number = number if self.options.order.each_pass else 0
        return bounds_of_pass(self._begin, self.options.repeat, number)

    @abc.abstractmethod
    def after(self, cursor: Cursor, steps: int, end: Cursor | None) -> tuple[Cursor, int]:
        """The cursor after `steps` more batches, or after the last batch before `end`; and the number of batches."""

    def batches_of_pass(self, number: int = 0) -> int:
        """The number of batches in a pass that starts with an epoch; TypeError if the passes are endless.

        Raises ValueError if, with buckets or packing, an epoch has too few records for one batch.
        """
        _, end = self.bounds_of(number)
        if end is None or self.options.repeat is None:
            raise TypeError("repeat=None: the batches never end, so they have no number")
        return self.after(Cursor(end.epoch - self.options.repeat), sys.maxsize, end)[1]

    def state_after(self, steps: int) -> State:
        """The state after the first `steps` batches of all passes; ValueError if there are fewer."""
        begin, end = self.bounds_of(0)
        cursor, last = self.after(begin, steps, None if self.options.order.each_pass else end)
        if last < steps:
            raise ValueError(f"steps={steps}: there are {last} batches in a pass")
        return self.state(cursor)

    def slices(
        self, epoch: int, groups: Sequence[Group], fetched: Sequence[Framed]
    ) -> Iterator[BatchSlice]:
        """Yields batches of one epoch, read together, from numbered groups; errors as for `Records.batches`."""
        options, schema = self.options, self.plan.schema
        places = np.concatenate([group.places for group in groups])
        numbers = np.concatenate([group.numbers for group in groups])
        bounds, keys = np.cumsum([0, *[len(group.places) for group in groups]]).tolist(), None
        if self.plan.work is not None:
            draws = (options.seed or 0, epoch, options.part_of_host or 0)
            keys = record_keys(places, draws)

        def following(row: int, first: int, end: int) -> np.ndarray:
            return self.following(epoch, int(places[row]), first, end)

        found = self.records.batches(numbers, bounds, following, fetched, keys, self._rows)
        for columns, group in zip(found, groups, strict=True):
            batch = BatchSlice(truncate(columns, schema, options.format), epoch, group)
            yield batch.padded(schema) if options.pads else batch


def _order_of(plan: Plan, options: ReadOptions) -> RecordOrder:
    seed, shuffle = options.seed or 0, options.order.shuffle
    if plan.mixed:
        counts, weights = zip(*plan.mixed, strict=True)
        return MixedOrder(counts, weights, seed if shuffle else None)
    if options.order.buffer is not None:
        return InterleavedOrder(plan.counts, seed, options.order.buffer)
    return GlobalOrder(plan.records, seed) if shuffle else as_stored


def _order_name(plan: Plan, options: ReadOptions) -> str:
    """The name of the order in a saved state."""
    if options.order.buffer is not None:
        return f"interleaved in windows of {options.order.buffer}"
    name = "in a global shuffle" if options.order.shuffle else "in order"
    return f"{name}, mixed by {[weight for _, weight in plan.mixed]}" if plan.mixed else name
