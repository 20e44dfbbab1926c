"""Which records share a batch if their lengths decide: buckets and packed rows.

Groups depend only on the lengths of the records in their order, so any number of hosts finds the
same ones.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from readers.batches.options import ReadOptions
from readers.format.schema import Feature
from readers.order.schedule import Remainder, share


@dataclass(frozen=True)
class Group:
    """The records of one batch of all hosts together.

    Attributes:
        places: The places of the records in their epoch, in order.
        rows: The row of each record in the batch; 0, 1, 2, ... unless records share rows.
        size: The number of rows in a full batch.
        bucket: The number of the bucket; None without buckets.
    """

    places: list[int]
    rows: list[int]
    size: int
    bucket: int | None = None

    def of_host(self, host: int, hosts: int, remainder: Remainder) -> Group | None:
        """The share of one host; None if the rows are too few for the hosts to share."""
        start, stop = share(max(self.rows) + 1, host, hosts, remainder)
        if start == stop and remainder != "pad":
            return None
        chosen = [
            (place, row - start)
            for place, row in zip(self.places, self.rows, strict=True)
            if start <= row < stop
        ]
        places, rows = [place for place, _ in chosen], [row for _, row in chosen]
        return Group(places, rows, self.size // hosts, self.bucket)


class Grouping(Protocol):
    """Collects records until they make a batch."""

    def add(self, place: int, lengths: Sequence[int]) -> Group | None:
        """Adds the next record, by its place and lengths; returns a batch if it completes one."""
        ...

    def rest(self, drop_remainder: bool) -> Group | None:
        """A batch of the records left at the end of an epoch; None once there are none."""
        ...

    @property
    def held(self) -> list[int]:
        """The places of the records in no batch yet.

        Added to a new grouping, they restore this one.
        """
        ...

    def held_for(self, host: int, hosts: int) -> list[int]:
        """The places of the records in no batch yet that a host reads if their batch gets full."""
        ...


class Buckets:
    """Batches of records of similar length.

    Args:
        boundaries: The increasing lengths at which a new bucket starts.
        sizes: Records per batch from each bucket, one more than there are boundaries.
    """

    def __init__(self, boundaries: Sequence[int], sizes: Sequence[int]) -> None:
        self._boundaries, self._sizes = boundaries, sizes
        self._buckets: list[list[int]] = [[] for _ in sizes]

    def add(self, place: int, lengths: Sequence[int]) -> Group | None:
        number = bisect.bisect_right(self._boundaries, lengths[0])
        bucket = self._buckets[number]
        bucket.append(place)
        return self._emptied(number) if len(bucket) == self._sizes[number] else None

    def rest(self, drop_remainder: bool) -> Group | None:
        for number, bucket in enumerate(self._buckets):
            if bucket and not drop_remainder:
                return self._emptied(number)
            bucket.clear()
        return None

    @property
    def held(self) -> list[int]:
        return [place for bucket in self._buckets for place in bucket]

    def held_for(self, host: int, hosts: int) -> list[int]:
        found = []
        for bucket, size in zip(self._buckets, self._sizes, strict=True):
            each = size // hosts
            found += bucket[host * each : (host + 1) * each]
        return found

    def _emptied(self, number: int) -> Group:
        """The records of a bucket, which is empty afterwards."""
        places, self._buckets[number] = self._buckets[number], []
        return Group(places, list(range(len(places))), self._sizes[number], number)


class Packing:
    """Batches with several records per row; each record goes to the first row with room for it.

    A batch is complete when a record fits none of its rows.

    Args:
        rows: Rows per batch.
        limits: The length of a row for each feature.
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
            group = Group(self._places, self._rows, self._count)
            self._begin()
        row = int(fitting[0]) if len(fitting) else 0
        self._room[row] -= lengths
        self._places.append(place)
        self._rows.append(row)
        return group

    def rest(self, drop_remainder: bool) -> Group | None:
        group = Group(self._places, self._rows, self._count)
        self._begin()
        is_full = len(set(group.rows)) == self._count
        return group if group.places and (is_full or not drop_remainder) else None

    @property
    def held(self) -> list[int]:
        return self._places

    def held_for(self, host: int, hosts: int) -> list[int]:
        each = self._count // hosts
        rows = zip(self._places, self._rows, strict=True)
        return [place for place, row in rows if row // each == host]


@dataclass(frozen=True)
class GroupingRule:
    """How records are grouped.

    Attributes:
        features: The features whose lengths decide.
        new: Makes an empty grouping.
        name: The name of the rule in a saved state.
    """

    features: list[str]
    new: Callable[[], Grouping]
    name: str


def grouping_of(schema: Mapping[str, Feature], options: ReadOptions) -> GroupingRule | None:
    """The grouping that the options ask for; None if lengths do not decide."""
    hosts, sizes = options.shard[1], options.batch_size
    if options.boundaries is not None:
        boundaries = list(options.boundaries)
        each = [sizes] * (len(boundaries) + 1) if isinstance(sizes, int) else sizes
        together = [size * hosts for size in each]
        feature = options.bucket_feature(schema)
        name = f"in buckets of {feature!r} up to {boundaries} by {together}"
        return GroupingRule([feature], lambda: Buckets(boundaries, together), name)
    if options.format.batching == "packed":
        assert isinstance(sizes, int)
        limits = {name: options.format.limit(name) or 0 for name in schema}
        name = f"packed into {sizes * hosts} rows of {limits}"
        return GroupingRule(list(schema), lambda: Packing(sizes * hosts, [*limits.values()]), name)
    return None
