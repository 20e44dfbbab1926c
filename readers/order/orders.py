"""The orders of an epoch: which record is at each place, as pure functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from readers.order.permutation import Permutation

# The purpose of a permutation, as part of its key.
GLOBAL, SHARDS, WINDOW, MIXTURE = 0, 1, 2, 3

# The number of shards read in turn, and of records from one shard before the next. More shards mix
# better; longer runs cost less.
CYCLE, BLOCK = 16, 16


# An epoch and places in it, int64 [k] -> the numbers of the records at these places, int64 [k].
RecordOrder = Callable[[int, np.ndarray], np.ndarray]


def as_stored(epoch: int, places: np.ndarray) -> np.ndarray:
    """The order in which the records are stored, the same in every epoch."""
    return places


class GlobalOrder:
    """A random order in which every record is equally likely at every place."""

    def __init__(self, records: int, seed: int) -> None:
        self._records, self._seed = records, seed

    def __call__(self, epoch: int, places: np.ndarray) -> np.ndarray:
        return Permutation(self._records, self._seed, epoch, GLOBAL)(places)


class InterleavedOrder:
    """A random order that reads shards from front to back: interleaved, and shuffled in windows.

    In each epoch, the shards are put in random order and split into groups of about equal size, at most `CYCLE`. Within a
    group, `BLOCK` records are read from each shard in turn until none has any left. This stream of records is cut into windows,
    and each window is shuffled. `counts` has the number of records in each shard, `window` that of a window.
    """

    def __init__(self, counts: Sequence[int], seed: int, window: int) -> None:
        every = np.array(counts, np.int64)
        self._counts, self._firsts = every[every > 0], (np.cumsum(every) - every)[every > 0]
        self._records = int(self._counts.sum())
        self._seed, self._window = seed, window

    def __call__(self, epoch: int, places: np.ndarray) -> np.ndarray:
        in_stream = np.empty_like(places)
        windows = places // self._window
        for window in np.unique(windows).tolist():
            rows = windows == window
            first = window * self._window
            size = min(self._window, self._records - first)
            order = Permutation(size, self._seed, epoch, window, WINDOW)
            in_stream[rows] = first + order(places[rows] - first)
        return self._records_at(epoch, in_stream)

    def _records_at(self, epoch: int, places: np.ndarray) -> np.ndarray:
        """The numbers of the records at places of the stream, int64 [k]."""
        count = len(self._counts)
        shards = Permutation(count, self._seed, epoch, SHARDS)(np.arange(count))
        groups = np.array_split(shards, max(-(-count // CYCLE), 1))
        sizes = [int(self._counts[group].sum()) for group in groups]
        firsts = np.cumsum([0, *sizes])
        numbers = np.empty_like(places)
        found = np.searchsorted(firsts, places, side="right") - 1
        for number in np.unique(found).tolist():
            rows, group = found == number, groups[number]
            turn, within = round_robin(self._counts[group], places[rows] - firsts[number])
            numbers[rows] = self._firsts[group][turn] + within
        return numbers


def round_robin(counts: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The shard, and the number in it, int64 [k] each, at places of a stream that takes `BLOCK` records from each shard in turn."""
    rounds = _rounds(counts, places)
    before = np.minimum(counts, rounds[:, None] * BLOCK)
    turns = np.cumsum(np.minimum(counts, (rounds[:, None] + 1) * BLOCK) - before, axis=1)
    left = places - before.sum(axis=1)
    turn = (turns <= left[:, None]).sum(axis=1)
    row = np.arange(len(places))
    earlier = np.where(turn > 0, turns[row, turn - 1], 0)
    return turn, before[row, turn] + left - earlier


def _rounds(counts: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The number of complete rounds of blocks before each place, int64 [k]."""
    # At the end of each of these rounds a shard runs out. In between, every round takes the same number of records.
    ends = np.unique(np.append(0, -(-counts // BLOCK)))
    given = np.minimum(counts, ends[:, None] * BLOCK).sum(axis=1)
    alive = (counts > ends[:, None] * BLOCK).sum(axis=1)
    phase = np.searchsorted(given, places, side="right") - 1
    return ends[phase] + (places - given[phase]) // np.maximum(alive[phase] * BLOCK, 1)
