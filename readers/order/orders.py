"""The order of an epoch: a place in it -> the number of a record, as pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from readers.order.permutation import Permutation

# What a permutation is for, as a part of its key.
GLOBAL, SHARDS, WINDOW, MIXTURE = 0, 1, 2, 3

# Shards read at once, and records taken from one before the next: more shards mix better, longer
# runs cost less.
CYCLE, BLOCK = 16, 16


class Order(Protocol):
    """The order of each epoch."""

    def __call__(self, epoch: int, places: np.ndarray) -> np.ndarray:
        """The numbers of the records, int64 [k], at some places of an epoch, int64 [k]."""
        ...


class InOrder:
    """One after another."""

    def __call__(self, epoch: int, places: np.ndarray) -> np.ndarray:
        return places


class GlobalOrder:
    """Every record is equally likely at every place.

    Args:
        records: How many there are.
        seed: What the order of each epoch follows from.
        dataset: The number of one of several, which makes the order another.
    """

    def __init__(self, records: int, seed: int, dataset: int | None = None) -> None:
        self._records, self._seed = records, seed
        self._key = (GLOBAL,) if dataset is None else (GLOBAL, dataset)

    def __call__(self, epoch: int, places: np.ndarray) -> np.ndarray:
        return Permutation(self._records, self._seed, epoch, *self._key)(places)


class InterleavedOrder:
    """What can be read as streams: shards in a random order, mixed, and shuffled by windows.

    In each epoch the shards are dealt out to groups of one size, at most `CYCLE`. Of a group, each
    shard in turn gives `BLOCK` records, until none has any left. The stream of all groups is cut
    into windows, and each of them is shuffled.

    Args:
        counts: Records of each shard.
        seed: What the order of each epoch follows from.
        window: Records of a window.
    """

    def __init__(self, counts: Sequence[int], seed: int, window: int) -> None:
        self._counts = np.array(counts, np.int64)
        self._firsts = np.cumsum(self._counts) - self._counts
        self._records = int(self._counts.sum())
        self._seed, self._window = seed, window

    def __call__(self, epoch: int, places: np.ndarray) -> np.ndarray:
        streamed = np.empty_like(places)
        windows = places // self._window
        for window in np.unique(windows).tolist():
            rows = windows == window
            first = window * self._window
            size = min(self._window, self._records - first)
            order = Permutation(size, self._seed, epoch, window, WINDOW)
            streamed[rows] = first + order(places[rows] - first)
        return self._of_stream(epoch, streamed)

    def shards(self, epoch: int) -> np.ndarray:
        """The shards in the order of an epoch, int64 [shards]."""
        shards = len(self._counts)
        return Permutation(shards, self._seed, epoch, SHARDS)(np.arange(shards))

    def rest(self, epoch: int, place: int) -> tuple[list[tuple[np.ndarray, np.ndarray]], int]:
        """What is left of the stream of an epoch from a place on.

        Returns:
            The groups, each as the shards that are left, int64 [k], and how many records of each
            are done, int64 [k]; and how many more are done, fewer than a round of blocks.
        """
        groups = []
        over = 0
        for group in self._groups(epoch):
            counts = self._counts[group]
            if place >= counts.sum():
                place -= int(counts.sum())
                continue
            done = np.zeros_like(counts)
            if place:
                done = np.minimum(counts, _rounds(counts, np.array([place]))[0] * BLOCK)
                over, place = place - int(done.sum()), 0
            left = done < counts
            groups.append((group[left], done[left]))
        return groups, over

    def _groups(self, epoch: int) -> list[np.ndarray]:
        shards = self.shards(epoch)
        return np.array_split(shards, max(-(-len(shards) // CYCLE), 1))

    def _of_stream(self, epoch: int, places: np.ndarray) -> np.ndarray:
        """The records at some places of the stream."""
        groups = self._groups(epoch)
        sizes = [int(self._counts[group].sum()) for group in groups]
        firsts = np.cumsum([0, *sizes])
        numbers = np.empty_like(places)
        found = np.searchsorted(firsts, places, side="right") - 1
        for number in np.unique(found).tolist():
            rows, group = found == number, groups[number]
            turn, within = dealt(self._counts[group], places[rows] - firsts[number])
            numbers[rows] = self._firsts[group][turn] + within
        return numbers


def dealt(counts: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which of some shards, int64 [k], and which of its records, int64 [k], stands at each place.

    Args:
        counts: int64 [shards], records of each.
        places: int64 [k], in what they give when each in turn gives `BLOCK` records.
    """
    rounds = _rounds(counts, places)
    before = np.minimum(counts, rounds[:, None] * BLOCK)
    turns = np.cumsum(np.minimum(counts, (rounds[:, None] + 1) * BLOCK) - before, axis=1)
    left = places - before.sum(axis=1)
    turn = (turns <= left[:, None]).sum(axis=1)
    row = np.arange(len(places))
    earlier = np.where(turn > 0, turns[row, turn - 1], 0)
    return turn, before[row, turn] + left - earlier


def _rounds(counts: np.ndarray, places: np.ndarray) -> np.ndarray:
    """How many rounds of blocks are done at each place, int64 [k]."""
    # At the end of these rounds a shard runs out; between them, all that are left give the same.
    ends = np.unique(np.append(0, -(-counts // BLOCK)))
    given = np.minimum(counts, ends[:, None] * BLOCK).sum(axis=1)
    alive = (counts > ends[:, None] * BLOCK).sum(axis=1)
    phase = np.searchsorted(given, places, side="right") - 1
    return ends[phase] + (places - given[phase]) // np.maximum(alive[phase] * BLOCK, 1)
