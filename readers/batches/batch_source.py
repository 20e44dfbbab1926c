"""A source of batches: which records each batch has, and how those of several batches are read together."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from readers.batches.batch_slice import BatchSlice
from readers.batches.collate import truncate
from readers.batches.options import ReadOptions
from readers.batches.orders import order_of
from readers.order.permutation import record_keys
from readers.order.state import State
from readers.shards.framed import FramedRecords
from readers.shards.memory import RecyclingAllocator
from readers.shards.plan import Plan
from readers.shards.records import Records

_Cursor = TypeVar("_Cursor")


class Group(NamedTuple):
    """The records of one batch, of all hosts together or of one.

    Attributes:
        places: int64 [k], the places of the records in their epoch, in order.
        size: The number of rows in a full batch.
        rows: int64 [k], the row of each record in the batch; None if each has a row of its own.
        bucket: The number of the bucket; None without buckets.
        after: The cursor of the next batch.
        numbers: int64 [k], the numbers of the records in the plan; empty until the order is asked for them.
    """

    places: np.ndarray
    size: int
    rows: np.ndarray | None = None
    bucket: int | None = None
    after: Any = None
    numbers: np.ndarray = np.empty(0, np.int64)


class BatchSource(abc.ABC, Generic[_Cursor]):
    """The batches of one host, each found by a cursor. Any number of iterators may share them.

    Attributes:
        plan: The part of a plan that this host reads; its number of records is known.
        options: How to read.
        order: The order of the records in each epoch.
        records: The records, whose files all iterators share.
        memory: The allocator of large arrays.
    """

    def __init__(self, plan: Plan, options: ReadOptions) -> None:
        self.plan, self.options, self.order = plan, options, order_of(plan, options)
        self.records = Records(plan, skip=options.on_corrupt == "skip", cache=options.cache)
        self.memory: RecyclingAllocator = self.records.memory
        # How features become rows, as far as this can be done where they are read.
        self._rows = options.format.rows(plan.schema) if options.truncates else {}

    @abc.abstractmethod
    def epochs(self, cursor: _Cursor, end: _Cursor | None) -> Iterator[tuple[int, Iterator[Group]]]:
        """Yields each epoch from a cursor to before another, with this host's records of its batches."""

    @abc.abstractmethod
    def following(self, epoch: int, place: int, first: int, end: int) -> np.ndarray:
        """The numbers of the records, int64 [k], that may take the place of a damaged one, from the `first` on."""

    @abc.abstractmethod
    def state(self, cursor: _Cursor) -> State:
        """The state to resume from at a cursor."""

    @abc.abstractmethod
    def bounds_of(self, number: int) -> tuple[_Cursor, _Cursor | None]:
        """The cursor of the first batch of a pass, and the one after its last batch; None without an end."""

    @abc.abstractmethod
    def after(self, steps: int, end: _Cursor | None) -> tuple[_Cursor, int]:
        """The cursor after the first batches, and how many these are: fewer than `steps` if the end comes before."""

    @abc.abstractmethod
    def _batches_of_pass(self, number: int) -> int: ...

    def batches_of_pass(self, number: int = 0) -> int:
        """The number of batches in a pass from the beginning of an epoch.

        Raises:
            TypeError: There is no end.
            ValueError: By length, there are too few records for one batch.
        """
        if self.options.repeat is None:
            raise TypeError("with repeat=None there is no last batch to count to")
        return self._batches_of_pass(number)

    def state_after(self, steps: int) -> State:
        """The state after the first batches, over all passes; ValueError if there are fewer before the end."""
        end = None if self.options.order.each_pass else self.bounds_of(0)[1]
        cursor, last = self.after(steps, end)
        if last < steps:
            raise ValueError(f"steps={steps}: there are {last} batches in a pass")
        return self.state(cursor)

    @property
    def skipped(self) -> int:
        """The number of damaged records replaced so far."""
        return len(self.records.skipped)

    def slices(
        self, epoch: int, groups: Sequence[Group], fetched: Sequence[FramedRecords]
    ) -> list[BatchSlice]:
        """Reads the batches of numbered groups of one epoch together, from memory as far as they were fetched before.

        Raises:
            CorruptRecordError, RecordError, DatasetError: (a ValueError) As for `Records.batches`.
        """
        options, schema = self.options, self.plan.schema
        places = np.concatenate([group.places for group in groups])
        numbers = np.concatenate([group.numbers for group in groups])
        bounds, keys = np.cumsum([0, *[len(group.places) for group in groups]]).tolist(), None
        if self.plan.work is not None:
            draws = (options.seed or 0, epoch, options.part_of_host or 0)
            keys = np.asarray(record_keys(places, draws))

        def following(row: int, first: int, end: int) -> np.ndarray:
            return self.following(epoch, int(places[row]), first, end)

        found = self.records.batches(numbers, bounds, following, fetched, keys, self._rows)
        slices = []
        for columns, group in zip(found, groups, strict=True):
            cut = truncate(columns, schema, options.format) if options.truncates else columns
            batch = BatchSlice(cut, epoch, group.places, group.rows, bucket=group.bucket)
            slices.append(batch.padded(schema, group.size) if options.pads else batch)
        return slices
