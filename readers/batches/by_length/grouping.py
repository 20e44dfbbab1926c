"""Which records share a batch if their lengths decide: buckets and packed rows.

Groups depend only on the lengths of the records in their order, so any number of hosts finds the
same ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from readers.batches.options import ReadOptions
from readers.batches.reading import Group
from readers.format.schema import Feature


class Grouped(NamedTuple):
    """A batch, and what is left when it is complete.

    Attributes:
        group: The records of the batch.
        end: The place after the record with which it is complete.
        held: int64 [m], the places of the records before `end` that are in no batch yet. Added to a new
            grouping, they restore the one that has found the batch.
    """

    group: Group
    end: int
    held: np.ndarray


class Grouping(Protocol):
    """Collects records until they make a batch."""

    def add(self, places: np.ndarray, lengths: np.ndarray) -> Iterator[Grouped]:
        """Adds the next records, int64 [k], by their lengths, int64 [k, features]; yields the batches they complete."""
        ...

    def rest(self, end: int, drop_remainder: bool) -> Iterator[Grouped]:
        """Yields batches of the records left at the end of an epoch, which is a place."""
        ...


class Buckets:
    """Batches of records of similar length.

    Args:
        boundaries: The increasing lengths at which a new bucket starts.
        sizes: Records per batch from each bucket, one more than there are boundaries.
    """

    def __init__(self, boundaries: Sequence[int], sizes: Sequence[int]) -> None:
        self._boundaries, self._sizes = boundaries, sizes
        self._held = [np.empty(0, np.int64)] * len(sizes)

    def add(self, places: np.ndarray, lengths: np.ndarray) -> Iterator[Grouped]:
        buckets = buckets_of(self._boundaries, lengths)
        # Of each bucket: its records, those that waited first, and how many of these come before a place.
        mine = [np.flatnonzero(buckets == number) for number in range(len(self._sizes))]
        waited = [len(held) for held in self._held]
        every = [np.append(h, places[m]) for h, m in zip(self._held, mine, strict=True)]
        complete = [
            (int(mine[number][end - waited[number] - 1]), number, end - size, end)
            for number, size in enumerate(self._sizes)
            for end in range(size, len(every[number]) + 1, size)
        ]
        for at, bucket, start, end in sorted(complete):
            counts = [
                w + int(m.searchsorted(at, "right")) for w, m in zip(waited, mine, strict=True)
            ]
            left = [
                records[count - count % size : count]
                for records, count, size in zip(every, counts, self._sizes, strict=True)
            ]
            group = Group(every[bucket][start:end], self._sizes[bucket], None, bucket)
            yield Grouped(group, int(places[at]) + 1, np.concatenate(left))
        self._held = [
            records[len(records) - len(records) % size :]
            for records, size in zip(every, self._sizes, strict=True)
        ]

    def rest(self, end: int, drop_remainder: bool) -> Iterator[Grouped]:
        held = [np.empty(0, np.int64)] * len(self._sizes) if drop_remainder else self._held
        for number, places in enumerate(held):
            if len(places):
                left = np.concatenate([np.empty(0, np.int64), *held[number + 1 :]])
                yield Grouped(Group(places, self._sizes[number], None, number), end, left)


class Packing:
    """Batches with several records per row; each record goes to the first row with room for it.

    A batch is complete when a record fits none of its rows.

    Args:
        rows: Rows per batch.
        limits: The length of a row for each feature.
    """

    def __init__(self, rows: int, limits: Sequence[int]) -> None:
        self._count, self._limits = rows, limits
        self._begin()

    def _begin(self) -> None:
        self._places: list[int] = []
        self._rows: list[int] = []
        # The room in each row that has a record; any other one has the room of an empty row.
        self._room: list[list[int]] = []

    def add(self, places: np.ndarray, lengths: np.ndarray) -> Iterator[Grouped]:
        for place, needed in zip(places.tolist(), lengths.tolist(), strict=True):
            row = self._fitting(needed)
            if row is None:
                group = self._group()
                self._begin()
                self._put(0, place, needed)
                yield Grouped(group, place + 1, np.array(self._places, np.int64))
            else:
                self._put(row, place, needed)

    def rest(self, end: int, drop_remainder: bool) -> Iterator[Grouped]:
        if self._places and not (drop_remainder and len(self._room) < self._count):
            yield Grouped(self._group(), end, np.empty(0, np.int64))

    def _fitting(self, needed: list[int]) -> int | None:
        """The first row with room for a record; None if there is none."""
        for row, room in enumerate(self._room):
            for free, length in zip(room, needed, strict=True):
                if free < length:
                    break
            else:
                return row
        return len(self._room) if len(self._room) < self._count else None

    def _put(self, row: int, place: int, needed: list[int]) -> None:
        if row == len(self._room):
            self._room.append([*self._limits])
        self._room[row] = [free - n for free, n in zip(self._room[row], needed, strict=True)]
        self._places.append(place)
        self._rows.append(row)

    def _group(self) -> Group:
        rows = np.array(self._rows, np.int64)
        return Group(np.array(self._places, np.int64), self._count, rows)


def buckets_of(boundaries: Sequence[int], lengths: np.ndarray) -> np.ndarray:
    """The bucket of each record, int64 [k], by its lengths, int64 [k, 1]."""
    return np.searchsorted(np.array(boundaries, np.int64), lengths[:, 0], side="right")


@dataclass(frozen=True)
class GroupingRule:
    """How records are grouped.

    Attributes:
        features: The features whose lengths decide.
        boundaries: The lengths at which a new bucket starts; None if records are packed.
        sizes: Records per batch from each bucket, or rows per packed batch, of all hosts together.
        limits: The length of a packed row for each feature.
        name: The name of the rule in a saved state.
    """

    features: list[str]
    boundaries: Sequence[int] | None
    sizes: Sequence[int]
    limits: Sequence[int]
    name: str

    def new(self) -> Grouping:
        """An empty grouping."""
        if self.boundaries is None:
            return Packing(self.sizes[0], self.limits)
        return Buckets(self.boundaries, self.sizes)

    def fits(self, lengths: np.ndarray, place_of: np.ndarray) -> np.ndarray:
        """Which records, by their lengths [k, features], may take the place of one of lengths [features]; bool [k]."""
        if self.boundaries is None:
            return np.all(lengths <= place_of, axis=1)
        bucket = buckets_of(self.boundaries, place_of[None])
        return buckets_of(self.boundaries, lengths) == bucket


def grouping_of(schema: Mapping[str, Feature], options: ReadOptions) -> GroupingRule | None:
    """The grouping that the options ask for; None if lengths do not decide."""
    hosts, sizes = options.shard[1], options.batch_size
    if options.format.boundaries is not None:
        boundaries = list(options.format.boundaries)
        each = [sizes] * (len(boundaries) + 1) if isinstance(sizes, int) else sizes
        together = [size * hosts for size in each]
        feature = options.bucket_feature(schema)
        name = f"in buckets of {feature!r} up to {boundaries} by {together}"
        return GroupingRule([feature], boundaries, together, [], name)
    if options.format.batching == "packed":
        assert isinstance(sizes, int)
        limits = {name: options.format.limit(name) or 0 for name in schema}
        name = f"packed into {sizes * hosts} rows of {limits}"
        return GroupingRule(list(schema), None, [sizes * hosts], [*limits.values()], name)
    return None
