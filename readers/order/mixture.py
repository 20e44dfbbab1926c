"""The order of a weighted mixture of datasets, as pure functions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from readers.order.orders import MIXTURE, OrderOfEpochs
from readers.order.permutation import Permutation

# In places. A long window can represent finer weights exactly, a short one keeps every part of an
# epoch closer to them.
_MIN_WINDOW, _MAX_WINDOW = 256, 4096

# Fractions of a place are counted in units of 2**-32.
_BITS = 32


class Quotas:
    """How many places each dataset has in each window of an order, in proportion to its weight.

    If the weights, as fractions of their sum, have a common denominator of at most 4096, these are
    the same numbers in every window. Otherwise a dataset has one place more in some windows: the
    datasets lie one after another on a line as long as a window, each place takes the dataset at
    its number plus an offset below 1, and the offsets of the windows are the van der Corput
    sequence. It fills the gaps between its numbers evenly, so in the windows from a multiple of a
    power of two up to the next each dataset is within two places of its weight, however many there
    are.

    Args:
        weights: The weight of each dataset, greater than 0.

    Attributes:
        size: The number of places in a window.

    Example:
        >>> Quotas([0.7, 0.3]).of(0).tolist()
        [182, 78]
    """

    def __init__(self, weights: Sequence[float]) -> None:
        exact = [Fraction(str(weight)) for weight in weights]
        total = sum(exact)
        shares = [weight / total for weight in exact]
        common = math.lcm(*(share.denominator for share in shares))
        is_fine = common > _MAX_WINDOW
        self.size = _MAX_WINDOW if is_fine else common * -(-_MIN_WINDOW // common)
        # Where each dataset ends on the line.
        ends = [int(end * self.size * 2**_BITS) for end in itertools.accumulate(shares)]
        whole, parts = zip(*(divmod(end, 2**_BITS) for end in ends), strict=True)
        self._whole, self._parts = np.array(whole, np.int64), np.array(parts, np.int64)

    def of(self, window: int) -> np.ndarray:
        """The number of places of each dataset in a window, int64 [datasets]."""
        ends = self._whole + (self._parts > _van_der_corput(window))
        return np.diff(ends, prepend=0)

    def before(self, window: int) -> np.ndarray:
        """The number of places of each dataset in all windows before one, int64 [datasets]."""
        ends = self._whole * window + _numbers_below(self._parts, window)
        return np.diff(ends, prepend=0)


def _van_der_corput(number: int) -> int:
    """A number of the van der Corput sequence, in units of 2**-32: the bits in reverse."""
    return int(f"{number % 2**_BITS:0{_BITS}b}"[::-1], 2)


def _numbers_below(bounds: np.ndarray, count: int) -> np.ndarray:
    """How many of the first `count` numbers of the sequence are below each bound, int64 [k]."""
    rounds, rest = divmod(count, 2**_BITS)
    found = bounds * rounds
    for bit in range(_BITS):
        if rest >> bit & 1:
            # These 2**bit numbers follow each other at equal distances from the first of them.
            first = _van_der_corput(rest >> bit + 1 << bit + 1)
            distance = 2 ** (_BITS - bit)
            found = found + np.maximum(bounds - first + distance - 1, 0) // distance
    return found


class MixedOrder:
    """The order of a mixture of datasets by weights.

    The records are numbered consecutively, one dataset after another. When all records of a dataset
    were read, it starts over in the order of its next epoch. An epoch of the mixture has as many
    records as all datasets together. In each dataset it continues where the epoch before it
    stopped.

    Args:
        counts: The number of records in each dataset, at least one.
        orders: The order of each dataset.
        weights: The weight of each dataset, greater than 0.
        seed: Determines how the datasets are shuffled within a window; None spreads them evenly.
    """

    def __init__(
        self,
        counts: Sequence[int],
        orders: Sequence[OrderOfEpochs],
        weights: Sequence[float],
        seed: int | None,
    ) -> None:
        self._counts, self._orders, self._seed = counts, orders, seed
        self._firsts = (np.cumsum(counts) - np.array(counts)).tolist()
        self._quotas = Quotas(weights)

    def __call__(self, epoch: int, places: np.ndarray) -> np.ndarray:
        positions = epoch * sum(self._counts) + places
        windows, within = np.divmod(positions, self._quotas.size)
        datasets, turns = np.empty_like(places), np.empty_like(places)
        for window in np.unique(windows).tolist():
            rows = windows == window
            in_window, earlier = self._window(window)
            datasets[rows] = in_window[within[rows]]
            turns[rows] = earlier[within[rows]]
        numbers = np.empty_like(places)
        for dataset in np.unique(datasets).tolist():
            rows = np.flatnonzero(datasets == dataset)
            epochs, own = np.divmod(turns[rows], self._counts[dataset])
            numbers[rows] = self._firsts[dataset] + self._orders[dataset](epochs, own)
        return numbers

    def _window(self, window: int) -> tuple[np.ndarray, np.ndarray]:
        """The dataset at each place of a window, and how many earlier places that dataset has."""
        counts = self._quotas.of(window)
        firsts = np.cumsum(counts) - counts
        datasets = np.repeat(np.arange(len(counts)), counts)
        ranks = np.arange(len(datasets)) - firsts[datasets]
        datasets = datasets[np.argsort((ranks + 0.5) / counts[datasets], kind="stable")]
        if self._seed is not None:
            order = Permutation(len(datasets), self._seed, window, MIXTURE)
            datasets = datasets[order(np.arange(len(datasets)))]
        earlier = np.empty_like(datasets)
        # A stable sort puts the places of each dataset one after another, in their order.
        earlier[np.argsort(datasets, kind="stable")] = ranks
        return datasets, earlier + self._quotas.before(window)[datasets]
