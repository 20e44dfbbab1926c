"""Batches that are computed from the number of their step, without those before them."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from readers.batches.batch_slice import Group
from readers.batches.batch_source import BatchSource, check_state, order_name
from readers.batches.options import ReadOptions
from readers.order.schedule import Schedule
from readers.order.state import State
from readers.shards.plan import Plan


class BatchesByStep(BatchSource[int]):
    """Random access to the batches of a plan; the cursor is the number of a step."""

    def __init__(self, plan: Plan, options: ReadOptions) -> None:
        assert isinstance(options.batch_size, int)
        host, hosts = options.shard
        records = total = plan.records
        absent = 0
        self._order_name = order_name(plan, options)
        if options.part_of_host is not None:
            self._order_name += f", part {host} of {hosts}"
            start, stop = total * host // hosts, total * (host + 1) // hosts
            plan = plan.slice(start, stop)
            # A part with one record more or less must not change the number of steps.
            records = -(-total // hosts) if options.pads else total // hosts
            absent = max(records - (stop - start), 0)
            host, hosts = 0, 1
        schedule = Schedule(
            records=records,
            batch_size=options.batch_size,
            host=host,
            hosts=hosts,
            epochs=options.repeat,
            remainder=options.remainder,
            absent=absent,
        )
        if total and not schedule.steps_from(0):
            raise ValueError(
                f"{plan.name} has {total} records, too few for one batch: batch_size="
                f"{options.batch_size}, shard={options.shard}, remainder={options.remainder!r}"
            )
        epoch, place = 0, 0
        if isinstance(options.state, State):
            check_state(options.state, self._order_name, plan)
            epoch, place = options.state.epoch, options.state.place
            if place and not schedule.steps_from(place):
                # Batches larger than those already read may not find enough records in the rest of an epoch.
                epoch, place = epoch + 1, 0
        elif options.state:
            epoch, place = schedule.after(options.state)
        self.schedule = replace(schedule, epoch=epoch, place=place)
        super().__init__(plan, options)

    def epochs(self, cursor: int, end: int | None) -> Iterator[tuple[int, Iterator[Group]]]:
        numbers = itertools.count(cursor) if end is None else range(cursor, end)
        groups = map(self._group, numbers)
        for epoch, several in itertools.groupby(groups, operator.itemgetter(0)):
            yield epoch, (group for _, group in several)

    def _group(self, number: int) -> tuple[int, Group]:
        epoch, span = self.schedule.step(number)
        places = np.arange(span.start, span.stop)
        return epoch, Group(places, self.schedule.batch_size, after=number + 1)

    def following(self, epoch: int, place: int, first: int, end: int) -> np.ndarray:
        later = place + 1 + np.arange(first, end)
        return self.order(epoch, later % (self.plan.records or 1))

    def state(self, cursor: int) -> State:
        epoch, place = self.schedule.after(cursor)
        seed = self.options.seed or 0
        plan = self.plan
        return State(epoch, place, seed, self._order_name, plan.digest, (), plan.generations)

    def bounds_of(self, number: int) -> tuple[int, int | None]:
        return self.schedule.steps_of_pass(number if self.options.order.each_pass else 0)

    def after(self, cursor: int, steps: int, end: int | None) -> tuple[int, int]:
        last = cursor + steps if end is None else min(cursor + steps, end)
        return last, last - cursor

    def _batches_of_pass(self, number: int) -> int:
        return (self.options.repeat or 1) * self.schedule.steps_from(0)
