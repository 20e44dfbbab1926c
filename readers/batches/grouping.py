"""Which records make a batch, where that depends on their lengths: buckets and packed rows.

Pure, and a function of the records in their order: the same whatever the number of hosts.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from readers.batches.options import ReadOptions
from readers.format.schema import Schema


@dataclass(frozen=True)
class Group:
    """The records of one batch of all hosts together.

    Attributes:
        places: Of the records, in their order.
        rows: The row of the batch that each stands in, rising from 0 where rows are not shared.
    """

    places: list[int]
    rows: list[int]

    def of_host(self, host: int, hosts: int) -> Group | None:
        """The share of a host; None where there is less than a row for each."""
        each, more = divmod(max(self.rows) + 1, hosts)
        if not each:
            return None
        start = host * each + min(host, more)
        stop = start + each + (host < more)
        chosen = [
            (place, row - start)
            for place, row in zip(self.places, self.rows, strict=True)
            if start <= row < stop
        ]
        return Group([place for place, _ in chosen], [row for _, row in chosen])


class Grouping(Protocol):
    """Collects records until they are a batch."""

    def add(self, place: int, lengths: Sequence[int]) -> Group | None:
        """Takes the next record; a batch, if there is one now."""
        ...

    def rest(self, drop_remainder: bool) -> Group | None:
        """A batch of what is left at the end of an epoch, and None when there is none."""
        ...

    @property
    def held(self) -> list[int]:
        """The places of records that are in no batch yet. Added again, they lead to the same."""
        ...


class Buckets:
    """Batches of records of like length.

    Args:
        boundaries: Lengths at which the next bucket begins, rising.
        sizes: Records of a batch from each bucket: one more than boundaries.
    """

    def __init__(self, boundaries: Sequence[int], sizes: Sequence[int]) -> None:
        self._boundaries, self._sizes = boundaries, sizes
        self._buckets: list[list[int]] = [[] for _ in sizes]

    def add(self, place: int, lengths: Sequence[int]) -> Group | None:
        number = bisect.bisect_right(self._boundaries, lengths[0])
        bucket = self._buckets[number]
        bucket.append(place)
        return self._taken(number) if len(bucket) == self._sizes[number] else None

    def rest(self, drop_remainder: bool) -> Group | None:
        for number, bucket in enumerate(self._buckets):
            if bucket and not drop_remainder:
                return self._taken(number)
            bucket.clear()
        return None

    @property
    def held(self) -> list[int]:
        return [place for bucket in self._buckets for place in bucket]

    def _taken(self, number: int) -> Group:
        places, self._buckets[number] = self._buckets[number], []
        return Group(places, list(range(len(places))))


class Packing:
    """Several records in each row of a batch: each in the first that has room for it.

    A batch is done when a record fits none of its rows.

    Args:
        rows: Of a batch.
        limits: The length of a row, for each feature.
    """

    def __init__(self, rows: int, limits: Sequence[int]) -> None:
        self._count, self._limits = rows, np.array(limits, np.int64)
        self._begin()

    def _begin(self) -> None:
        self._places: list[int] = []
        self._rows: list[int] = []
        self._room = np.tile(self._limits, (self._count, 1))

    def add(self, place: int, lengths: Sequence[int]) -> Group | None:
        group = None
        fitting = np.flatnonzero(np.all(self._room >= lengths, axis=1))
        if not len(fitting):
            group = Group(self._places, self._rows)
            self._begin()
        row = int(fitting[0]) if len(fitting) else 0
        self._room[row] -= lengths
        self._places.append(place)
        self._rows.append(row)
        return group

    def rest(self, drop_remainder: bool) -> Group | None:
        group = Group(self._places, self._rows)
        self._begin()
        full = len(set(group.rows)) == self._count
        return group if group.places and (full or not drop_remainder) else None

    @property
    def held(self) -> list[int]:
        return self._places


@dataclass(frozen=True)
class GroupedBy:
    """How records are grouped.

    Attributes:
        names: The features whose lengths decide.
        new: Gives an empty grouping.
        kind: What it is called in a state.
    """

    names: list[str]
    new: Callable[[], Grouping]
    kind: str


def grouping_of(schema: Schema, options: ReadOptions) -> GroupedBy | None:
    """How options group records; None where their lengths do not matter."""
    hosts, sizes = options.shard[1], options.batch_size
    if options.boundaries is not None:
        boundaries = list(options.boundaries)
        each = [sizes] * (len(boundaries) + 1) if isinstance(sizes, int) else sizes
        together = [size * hosts for size in each]
        name = options.bucketed_by(schema)
        kind = f"in buckets of {name!r} up to {boundaries} by {together}"
        return GroupedBy([name], lambda: Buckets(boundaries, together), kind)
    if options.form.batching == "packed":
        assert isinstance(sizes, int)
        limits = {name: options.form.limit(name) or 0 for name in schema}
        kind = f"packed into {sizes * hosts} rows of {limits}"
        return GroupedBy(list(schema), lambda: Packing(sizes * hosts, [*limits.values()]), kind)
    return None
