"""Batches that are computed from their place in an epoch, without those before them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from readers.batches.batch_slice import Group
from readers.batches.batch_source import BatchSource
from readers.batches.options import ReadOptions
from readers.order.schedule import Schedule
from readers.order.state import Cursor
from readers.shards.plan import Plan


class BatchesByStep(BatchSource):
    """Random access to the batches of a plan."""

    def __init__(self, plan: Plan, options: ReadOptions) -> None:
        assert isinstance(options.batch_size, int)
        (host, hosts), total = options.shard, plan.records
        records, absent, part = total, 0, ""
        if options.part_of_host is not None:
            part = f", part {host} of {hosts}"
            start, stop = total * host // hosts, total * (host + 1) // hosts
            plan = plan.slice(start, stop)
            # A part with one record more or less must not change the number of steps.
            records = -(-total // hosts) if options.pads else total // hosts
            absent = max(records - (stop - start), 0)
            host, hosts = 0, 1
        schedule = Schedule(records, options.batch_size, host, hosts, options.remainder, absent)
        if total and not schedule.steps_from(0):
            raise ValueError(
                f"{plan.name} has {total} records, too few for one batch: batch_size="
                f"{options.batch_size}, shard={options.shard}, remainder={options.remainder!r}"
            )
        super().__init__(plan, options)
        self._schedule = schedule
        self._order_name += part
        begin = self._resumed()
        # Batches larger than those already read may not find enough records in the rest of an epoch.
        is_over = begin.place and not schedule.steps_from(begin.place)
        self._begin = Cursor(begin.epoch + 1) if is_over else begin

    def _rest_of_epoch(self, cursor: Cursor) -> Iterator[Group]:
        schedule, size = self._schedule, self._schedule.global_batch_size
        stop = cursor.place + size * schedule.steps_from(cursor.place)
        for place in range(cursor.place, stop, size):
            span, end = schedule.step(place), place + size
            after = Cursor(cursor.epoch, end) if end < stop else Cursor(cursor.epoch + 1)
            yield Group(np.arange(span.start, span.stop), schedule.batch_size, after=after)

    def following(self, epoch: int, place: int, first: int, end: int) -> np.ndarray:
        later = place + 1 + np.arange(first, end)
        return self.order(epoch, later % (self.plan.records or 1))

    def after(self, cursor: Cursor, steps: int, end: Cursor | None) -> tuple[Cursor, int]:
        return self._schedule.after(cursor, steps, end)
