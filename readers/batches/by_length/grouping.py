"""Buckets and packed rows: plans batches by the lengths of records, the same on any number of hosts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from readers.batches.batch_slice import Group
from readers.batches.options import ReadOptions

# The places of records in order, int64 [k], and their lengths, int64 [k, features].
Chunk = tuple[np.ndarray, np.ndarray]

# A batch; the place after the record that completes it; and int64 [m], the places of earlier records that
# are in no batch yet. Read again before the records after it, they give the same following batches.
Grouped = tuple[Group, int, np.ndarray]

_NONE = np.empty(0, np.int64)


class Buckets:
    """Batches of records of similar length. `sizes` are the records per batch of each bucket, of all hosts together.

    The lengths of `feature` determine the bucket. `name` identifies this way of batching in a saved state.
    """

    def __init__(self, feature: str, boundaries: Sequence[int], sizes: Sequence[int]) -> None:
        self.features = [feature]
        self.name = f"in buckets of {feature!r} up to {[*boundaries]} by {[*sizes]}"
        self._boundaries, self._sizes = np.array(boundaries, np.int64), sizes

    def groups(self, chunks: Iterable[Chunk], end: int, drop: bool) -> Iterator[Grouped]:
        """Yields the batches of an epoch up to the place `end`; `drop` leaves out batches that are not full."""
        held = [_NONE] * len(self._sizes)
        for places, lengths in chunks:
            buckets = self._buckets(lengths)
            # In each bucket, places ascend: those that waited come first.
            every = [np.append(records, places[buckets == n]) for n, records in enumerate(held)]
            complete = sorted(
                (int(records[stop - 1]), number, stop)
                for number, (records, size) in enumerate(zip(every, self._sizes, strict=True))
                for stop in range(size, len(records) + 1, size)
            )
            for at, number, stop in complete:
                size = self._sizes[number]
                waiting = self._waiting(every, [int(r.searchsorted(at, "right")) for r in every])
                group = Group(every[number][stop - size : stop], size, None, number)
                yield group, at + 1, np.concatenate(waiting)
            held = self._waiting(every, [len(records) for records in every])
        for number, records in enumerate(() if drop else held):
            if len(records):
                group = Group(records, self._sizes[number], None, number)
                yield group, end, np.concatenate([_NONE, *held[number + 1 :]])

    def _waiting(self, every: Sequence[np.ndarray], counts: Sequence[int]) -> list[np.ndarray]:
        """The first `counts` records of each bucket, without those that fill batches."""
        rows = zip(every, counts, self._sizes, strict=True)
        return [records[count - count % size : count] for records, count, size in rows]

    def _buckets(self, lengths: np.ndarray) -> np.ndarray:
        return np.searchsorted(self._boundaries, lengths[:, 0], side="right")

    def fits(self, lengths: np.ndarray, place_of: np.ndarray) -> np.ndarray:
        """Whether each record, with lengths [k, 1], may replace one with lengths [1]; bool [k]."""
        return self._buckets(lengths) == self._buckets(place_of[None])


class Packing:
    """Batches of rows with several records each. A record goes into the first row with room for it.

    A batch is complete when a record does not fit into any of its rows. `limits` are the lengths of a row, `rows` is the
    number of rows of all hosts together. Attributes and methods are as for `Buckets`.
    """

    def __init__(self, limits: Mapping[str, int], rows: int) -> None:
        self.features = [*limits]
        self.name = f"packed into {rows} rows of {dict(limits)}"
        self._limits, self._count = [*limits.values()], rows

    def groups(self, chunks: Iterable[Chunk], end: int, drop: bool) -> Iterator[Grouped]:
        # The places and rows of the records of a batch, and the room left in each row.
        places, rows, room = list[int](), list[int](), list[list[int]]()
        for several, lengths in chunks:
            for place, needed in zip(several.tolist(), lengths.tolist(), strict=True):
                row = self._fitting(room, needed)
                full = self._group(places, rows) if row is None else None
                if row is None:
                    places, rows, room, row = [], [], [], 0
                if row == len(room):
                    room.append([*self._limits])
                room[row] = [free - n for free, n in zip(room[row], needed, strict=True)]
                places.append(place)
                rows.append(row)
                if full:
                    yield full, place + 1, np.array(places, np.int64)
        if places and not (drop and len(room) < self._count):
            yield self._group(places, rows), end, _NONE

    def _fitting(self, room: Sequence[Sequence[int]], needed: Sequence[int]) -> int | None:
        """The first row with room for a record; None if the batch is complete."""
        for row, frees in enumerate(room):
            for free, length in zip(frees, needed, strict=True):
                if free < length:
                    break
            else:
                return row
        return len(room) if len(room) < self._count else None

    def _group(self, places: Sequence[int], rows: Sequence[int]) -> Group:
        return Group(np.array(places, np.int64), self._count, np.array(rows, np.int64))

    def fits(self, lengths: np.ndarray, place_of: np.ndarray) -> np.ndarray:
        return np.asarray(np.all(lengths <= place_of, axis=1))


def grouping_of(schema: Iterable[str], options: ReadOptions) -> Buckets | Packing:
    """The grouping that the options ask for."""
    hosts, sizes = options.shard[1], options.batch_size
    if not isinstance(options.format.buckets, Mapping):
        assert isinstance(sizes, int)
        return Packing({name: options.format.limit(name) or 0 for name in schema}, sizes * hosts)
    ((feature, boundaries),) = options.format.buckets.items()
    each = [sizes] * (len(boundaries) + 1) if isinstance(sizes, int) else sizes
    return Buckets(feature, boundaries, [size * hosts for size in each])
