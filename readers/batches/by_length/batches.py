"""Batches of records of similar length. Each host plans the batches of all hosts, and reads its share."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import numpy as np

from readers.batches.batch_slice import Group
from readers.batches.batch_source import BatchSource
from readers.batches.by_length.grouping import Chunk, grouping_of
from readers.batches.by_length.lengths import Lengths
from readers.batches.options import ReadOptions
from readers.batches.read_sizes import CHUNK_RECORDS
from readers.order.schedule import share
from readers.order.state import Cursor
from readers.shards.plan import Plan


class BatchesByLength(BatchSource):
    """The batches in buckets, or packed. Each is computed from the cursor before it."""

    def __init__(self, plan: Plan, options: ReadOptions) -> None:
        super().__init__(plan, options)
        self._grouping = grouping_of(plan.undecoded, options)
        self._order_name += f", {self._grouping.name}"
        self._begin = self._resumed()

    def after(self, cursor: Cursor, steps: int, end: Cursor | None) -> tuple[Cursor, int]:
        groups = itertools.chain.from_iterable(groups for _, groups in self.epochs(cursor, end))
        count = 0
        for group in itertools.islice(groups, steps):
            cursor, count = group.after, count + 1
        return cursor, count

    def _rest_of_epoch(self, cursor: Cursor) -> Iterator[Group]:
        """Yields this host's share of each batch, from a cursor to the end of its epoch; ValueError if an epoch has no batch."""
        epoch, total, any_batch = cursor.epoch, self.plan.records, cursor.place > 0
        drop = self.options.remainder == "drop"
        for group, end, held in self._grouping.groups(self._chunks(cursor), total, drop):
            mine = self._of_this_host(group)
            # Without a batch, no cursor is returned: a cursor after the epoch would end a pass before the check.
            if mine:
                any_batch = True
                waiting = tuple(held.tolist())
                more = waiting or end < total
                after = Cursor(epoch, end, waiting) if more else Cursor(epoch + 1)
                yield mine._replace(after=after)
        if total and not any_batch:
            raise ValueError(
                f"{self.plan.name} has {total} records, too few for one batch: "
                f"batch_size={self.options.batch_size}, {self._order_name}"
            )

    def _chunks(self, cursor: Cursor) -> Iterator[Chunk]:
        """Yields the records of the rest of an epoch, those that wait in `held` first."""
        total, waiting = self.plan.records, np.array(cursor.held, np.int64)
        yield waiting, self._lengths_of(cursor.epoch, waiting)
        for first in range(cursor.place, total, CHUNK_RECORDS):
            places = np.arange(first, min(first + CHUNK_RECORDS, total))
            yield places, self._lengths_of(cursor.epoch, places)

    def _of_this_host(self, group: Group) -> Group | None:
        """The share of this host; None if there are too few rows for the hosts to share."""
        (host, hosts), remainder = self.options.shard, self.options.remainder
        places, rows = group.places, group.rows
        count = len(places) if rows is None else int(rows.max()) + 1
        start, stop = share(count, host, hosts, remainder)
        if start == stop and remainder != "pad":
            return None
        if rows is None:
            return Group(places[start:stop], group.size // hosts, None, group.bucket)
        chosen = (start <= rows) & (rows < stop)
        return Group(places[chosen], group.size // hosts, rows[chosen] - start)

    @functools.cached_property
    def _lengths(self) -> Lengths:
        """The lengths, which may have to be decoded when first needed."""
        features = self._grouping.features
        return Lengths(self.records, features, [*map(self.options.format.limit, features)])

    def _lengths_of(self, epoch: int, places: np.ndarray) -> np.ndarray:
        """The lengths to group by, int64 [k, features], of the records at places of an epoch."""
        return self._lengths.of(self.order(epoch, places))

    def following(self, epoch: int, place: int, first: int, end: int) -> np.ndarray:
        """The next records of the same bucket, or that are not longer."""
        total = self.plan.records
        lengths, fitting = self._lengths_of(epoch, np.array([place]))[0], [np.empty(0, np.int64)]
        for begin in range(1, total, CHUNK_RECORDS):
            places = (place + np.arange(begin, min(begin + CHUNK_RECORDS, total))) % total
            numbers = self.order(epoch, places)
            fitting.append(numbers[self._grouping.fits(self._lengths.of(numbers), lengths)])
            if sum(map(len, fitting)) >= end:
                break
        return np.concatenate(fitting)[first:end]
