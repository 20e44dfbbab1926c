"""The order of a weighted mixture of datasets, as pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from readers.order.orders import MIXTURE, OrderOfEpochs
from readers.order.permutation import Permutation

# In places. A long window can represent finer weights, a short one keeps every part of an epoch
# closer to them.
_MIN_WINDOW, _MAX_WINDOW = 256, 4096


def quotas(weights: Sequence[float]) -> np.ndarray:
    """How many places each dataset has in every window of an order, int64 [datasets].

    Their sum is the size of a window. They are exact if the weights, as fractions of their sum, have a
    common denominator of at most 4096; others are rounded to 4096ths.

    Args:
        weights: The weight of each dataset, greater than 0.

    Raises:
        ValueError: A weight is less than a 4096th of their sum.

    Example:
        >>> quotas([0.7, 0.3]).tolist()
        [182, 78]
    """
    exact = [Fraction(str(weight)) for weight in weights]
    total = sum(exact)
    common = math.lcm(*((weight / total).denominator for weight in exact))
    size = _MAX_WINDOW if common > _MAX_WINDOW else common * -(-_MIN_WINDOW // common)
    places = [weight * size / total for weight in exact]
    if min(places) < 1:
        raise ValueError(
            f"weights={list(weights)!r}: {min(weights)!r} is less than 1/{size} of their sum, the "
            "least that a dataset can have; leave it out, or give it more"
        )
    whole = [int(share) for share in places]
    # What rounding down left over goes to those that lost most.
    most_lost = sorted(range(len(places)), key=lambda number: whole[number] - places[number])
    for number in most_lost[: size - sum(whole)]:
        whole[number] += 1
    return np.array(whole, np.int64)


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

    Raises:
        ValueError: A weight is too small.
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
        self._quotas = quotas(weights)
        # The datasets of a window before they are shuffled, spread evenly.
        firsts = np.cumsum(self._quotas) - self._quotas
        datasets = np.repeat(np.arange(len(counts)), self._quotas)
        self._ranks = np.arange(len(datasets)) - firsts[datasets]
        turns = (self._ranks + 0.5) / self._quotas[datasets]
        self._spread = datasets[np.argsort(turns, kind="stable")]

    def __call__(self, epoch: int, places: np.ndarray) -> np.ndarray:
        positions = epoch * sum(self._counts) + places
        windows, within = np.divmod(positions, len(self._spread))
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
        datasets = self._spread
        if self._seed is not None:
            order = Permutation(len(datasets), self._seed, window, MIXTURE)
            datasets = datasets[order(np.arange(len(datasets)))]
        earlier = np.empty_like(datasets)
        # A stable sort puts the places of each dataset one after another, in their order.
        earlier[np.argsort(datasets, kind="stable")] = self._ranks
        return datasets, earlier + (self._quotas * window)[datasets]
