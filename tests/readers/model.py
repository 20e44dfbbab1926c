"""A model of the readers in plain Python: which records each host gets in each step.

It uses no code of the readers. It is given the order of the records of each epoch, and works on lists.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

# Epoch, place, and the places of the records that were read but are in no batch yet.
State = tuple[int, int, tuple[int, ...]]

# A record by its number; a row of a packed batch has several.
Row = list[int]


class TooFewRecordsError(Exception):
    """An epoch has too few records for one batch."""


@dataclass(frozen=True)
class Way:
    """How records become batches.

    Attributes:
        orders: The records of an epoch in their order; one list, or one for each host where hosts
            read parts of their own.
        length: The length of a record.
        sizes: Records or rows in a batch of one host; with buckets, one number for each.
        hosts: The number of hosts.
        remainder: `short`, `drop` or `pad`.
        repeat: The number of epochs in a pass; None for no end.
        boundaries: The lengths at which a new bucket starts.
        row: The length of a row in packed batches.
    """

    orders: Callable[[int], list[list[int]]]
    length: Callable[[int], int]
    sizes: list[int]
    hosts: int
    remainder: str
    repeat: int | None
    boundaries: list[int] | None = None
    row: int | None = None

    @property
    def by_length(self) -> bool:
        return self.boundaries is not None or self.row is not None


class Step(NamedTuple):
    """One step: the rows of each host, how many a full batch has, and the state after it."""

    epoch: int
    hosts: list[list[Row]]
    size: int
    after: State


def shared(rows: list[Row], way: Way) -> list[list[Row]]:
    """The rows of each host: equally many, or with `pad` one more on the first hosts."""
    each, more = divmod(len(rows), way.hosts)
    left = iter(rows)
    sizes = [each + (way.remainder == "pad" and host < more) for host in range(way.hosts)]
    return [list(itertools.islice(left, size)) for size in sizes]


def by_number(way: Way, epoch: int, place: int) -> Iterator[Step]:
    """The steps of an epoch from a place on, if each takes the next records of the order."""
    orders = way.orders(epoch)
    counts, sharing = [len(order) for order in orders], way.hosts // len(orders)
    total = max(counts) if way.remainder == "pad" else min(counts)
    together = way.sizes[0] * sharing
    fewest = {"short": sharing, "drop": together, "pad": 1}[way.remainder]
    for begin in range(place, total - fewest + 1, together):
        parts = [[[n] for n in order[begin : min(begin + together, total)]] for order in orders]
        hosts = shared(parts[0], way) if sharing == way.hosts else parts
        is_last = total - begin - together < fewest
        after = (epoch + 1, 0, ()) if is_last else (epoch, begin + together, ())
        yield Step(epoch, hosts, way.sizes[0], after)


def by_length(way: Way, epoch: int, place: int, held: tuple[int, ...]) -> Iterator[Step]:
    """The steps of an epoch from a place on, if records wait until they fill a batch."""
    (order,) = way.orders(epoch)
    groups: list[list[list[int]]] = [[] for _ in way.sizes]  # Rows of places.

    def completed(at: int) -> int | None:
        """Adds the record at a place; returns the number of the group that it completes."""
        size = way.length(order[at])
        if way.row is None:
            number = sum(size >= boundary for boundary in way.boundaries or [])
            groups[number].append([at])
            return number if len(groups[number]) == way.sizes[number] * way.hosts else None
        for row in groups[0]:
            if sum(way.length(order[p]) for p in row) + size <= way.row:
                row.append(at)
                return None
        if len(groups[0]) < way.sizes[0] * way.hosts:
            groups[0].append([at])
            return None
        return 0

    def step(number: int, read: int, following: list[list[int]]) -> Step | None:
        rows, groups[number] = groups[number], following
        places = [at for group in groups for row in group for at in row]
        waiting = tuple(places if way.row is None else sorted(places))
        more = waiting or read < len(order)
        hosts = shared([[order[at] for at in row] for row in rows], way)
        after = (epoch, read, waiting) if more else (epoch + 1, 0, ())
        return Step(epoch, hosts, way.sizes[number], after) if hosts[0] else None

    for at in held:
        assert completed(at) is None
    for at in range(place, len(order)):
        number = completed(at)
        if number is not None:
            found = step(number, at + 1, [] if way.row is None else [[at]])
            assert found
            yield found
    for number, rows in enumerate(groups):
        is_full = len(rows) == way.sizes[number] * way.hosts
        if way.remainder == "drop" and not is_full:
            groups[number] = []
        elif rows and (found := step(number, len(order), [])):
            yield found


class Run:
    """One run of all hosts, from a state on.

    Attributes:
        state: The state after the steps so far.
    """

    def __init__(self, way: Way, state: State = (0, 0, ()), steps: int = 0) -> None:
        self._way, self.state = way, state
        self._end: int | None = None
        if state[1] and not way.by_length and not any(by_number(way, *state[:2])):
            self.state = state[0] + 1, 0, ()
        for _ in range(steps):
            step = self.next()
            assert step
        epoch, place, _ = self.state
        if way.repeat:
            is_end = epoch and not (epoch % way.repeat or place)
            self._end = epoch if is_end else (epoch // way.repeat + 1) * way.repeat

    def next(self) -> Step | None:
        """The next step; None at the end of a pass."""
        epoch, place, held = self.state
        while self._end is None or epoch < self._end:
            if self._way.by_length:
                steps = by_length(self._way, epoch, place, held)
            else:
                steps = by_number(self._way, epoch, place)
            for step in steps:
                self.state = step.after
                return step
            if not place and any(self._way.orders(epoch)):
                raise TooFewRecordsError
            epoch, place, held = epoch + 1, 0, ()
        return None

    def next_pass(self) -> None:
        """Begins the pass after one that has ended."""
        assert self._end is not None and self._way.repeat
        self.state, self._end = (self._end, 0, ()), self._end + self._way.repeat
