"""Reading the records of batches, whichever way these are found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from readers.batches.batch_slice import BatchSlice
from readers.batches.collate import truncate
from readers.batches.options import ReadOptions
from readers.batches.orders import order_of
from readers.order.permutation import record_keys
from readers.order.schedule import Remainder, share
from readers.shards.framed import FramedRecords
from readers.shards.memory import RecyclingAllocator
from readers.shards.plan import Plan
from readers.shards.records import Following, Records


class Group(NamedTuple):
    """The records of one batch, of all hosts together or of one.

    Attributes:
        places: int64 [k], the places of the records in their epoch, in order.
        size: The number of rows in a full batch.
        rows: int64 [k], the row of each record in the batch; None if each has a row of its own.
        bucket: The number of the bucket; None without buckets.
    """

    places: np.ndarray
    size: int
    rows: np.ndarray | None = None
    bucket: int | None = None

    def of_host(self, host: int, hosts: int, remainder: Remainder) -> Group | None:
        """The share of one host; None if the rows are too few for the hosts to share."""
        count = len(self.places) if self.rows is None else int(self.rows.max()) + 1
        start, stop = share(count, host, hosts, remainder)
        if start == stop and remainder != "pad":
            return None
        if self.rows is None:
            return Group(self.places[start:stop], self.size // hosts, None, self.bucket)
        chosen = (start <= self.rows) & (self.rows < stop)
        return Group(self.places[chosen], self.size // hosts, self.rows[chosen] - start)


class BatchReader:
    """Reads the batches of a plan, which any number of iterators may share.

    Args:
        plan: The part of a plan that this host reads; its number of records is known.
        options: How to read.

    Attributes:
        plan, options: As given.
        order: The order of the records in each epoch.
        records: The records, whose files all iterators share.
        memory: The allocator of large arrays.
    """

    def __init__(self, plan: Plan, options: ReadOptions) -> None:
        self.plan, self.options, self.order = plan, options, order_of(plan, options)
        self.records = Records(plan, skip=options.on_corrupt == "skip", cache=options.cache)
        self.memory: RecyclingAllocator = self.records.memory
        self._pads = options.pads
        # How features become rows, as far as this can be done where they are read.
        self._rows = options.format.rows(plan.schema)

    @property
    def skipped(self) -> int:
        """The number of damaged records replaced so far."""
        return len(self.records.skipped)

    def slices(
        self,
        epoch: int,
        groups: Sequence[Group],
        numbers: np.ndarray,
        following: Following,
        fetched: Sequence[FramedRecords],
    ) -> list[BatchSlice]:
        """The batches of some groups of one epoch, which are read together.

        Args:
            epoch: The epoch.
            groups: The groups.
            numbers: int64 [k], the numbers of all of their records.
            following: Which records come after each of them.
            fetched: Records in memory, which are not read again.

        Raises:
            CorruptRecordError: (a ValueError) A record is damaged.
            RecordError, DatasetError: (a ValueError) As for `Records.batches`.
        """
        options, schema = self.options, self.plan.schema
        bounds, keys = np.cumsum([0, *[len(group.places) for group in groups]]).tolist(), None
        if self.plan.work is not None:
            places = np.concatenate([group.places for group in groups])
            draws = (options.seed or 0, epoch, options.part_of_host or 0)
            keys = np.asarray(record_keys(places, draws))
        found = self.records.batches(numbers, bounds, following, fetched, keys, self._rows)
        slices = []
        for columns, (places, size, rows, bucket) in zip(found, groups, strict=True):
            cut = truncate(columns, schema, options.format)
            batch = BatchSlice(cut, epoch, places, rows, bucket=bucket)
            slices.append(batch.padded(schema, size) if self._pads else batch)
        return slices
