"""The order of a weighted mixture of datasets, as pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from readers.order.orders import MIXTURE, Order
from readers.order.permutation import Permutation

# In places. The proportions are exact over every period: a long one can represent finer weights, a
# short one keeps every part of an epoch closer to them.
_MIN_PERIOD, _MAX_PERIOD = 256, 4096


def quotas(weights: Sequence[float]) -> list[int]:
    """How many places of a period each dataset has: at least one, in proportion to its weight.

    The proportions are exact if the weights, as fractions of their sum, have a common denominator
    of at most 4096. Otherwise the period has 4096 places, and each number is rounded.

    Example:
        >>> quotas([0.7, 0.3])
        [182, 78]
    """
    exact = [Fraction(str(weight)) for weight in weights]
    shares = [weight / sum(exact) for weight in exact]
    common = math.lcm(*(share.denominator for share in shares))
    if common <= _MAX_PERIOD:
        period = common * -(-_MIN_PERIOD // common)
        return [int(share * period) for share in shares]
    found = [max(int(share * _MAX_PERIOD), 1) for share in shares]
    # The places that rounding left over go to the datasets that lost most by it.
    lost = [share * _MAX_PERIOD - count for share, count in zip(shares, found, strict=True)]
    for number in sorted(range(len(lost)), key=lambda n: -lost[n]):
        if sum(found) < _MAX_PERIOD:
            found[number] += 1
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
        seed: Determines how the datasets are shuffled within a period; None spreads them evenly.
    """

    def __init__(
        self,
        counts: Sequence[int],
        orders: Sequence[Order],
        weights: Sequence[float],
        seed: int | None,
    ) -> None:
        self._counts, self._orders, self._seed = counts, orders, seed
        self._firsts = (np.cumsum(counts) - np.array(counts)).tolist()
        self._quotas = np.array(quotas(weights), np.int64)
        middles = np.concatenate([(np.arange(n) + 0.5) / n for n in self._quotas])
        datasets = np.repeat(np.arange(len(counts)), self._quotas)
        self._even = datasets[np.argsort(middles, kind="stable")]

    def __call__(self, epoch: int, places: np.ndarray) -> np.ndarray:
        positions = epoch * sum(self._counts) + places
        periods, within = np.divmod(positions, len(self._even))
        datasets, turns = np.empty_like(places), np.empty_like(places)
        for period in np.unique(periods).tolist():
            rows = periods == period
            in_period, earlier = self._period(period)
            datasets[rows] = in_period[within[rows]]
            turns[rows] = earlier[within[rows]] + period * self._quotas[datasets[rows]]
        numbers = np.empty_like(places)
        for dataset in np.unique(datasets).tolist():
            rows = np.flatnonzero(datasets == dataset)
            epochs, own = np.divmod(turns[rows], self._counts[dataset])
            for own_epoch in np.unique(epochs).tolist():
                now = epochs == own_epoch
                found = self._orders[dataset](own_epoch, own[now])
                numbers[rows[now]] = self._firsts[dataset] + found
        return numbers

    def _period(self, period: int) -> tuple[np.ndarray, np.ndarray]:
        """The dataset at each place of a period, and how many earlier places in it that dataset has."""
        datasets = self._even
        if self._seed is not None:
            order = Permutation(len(datasets), self._seed, period, MIXTURE)
            datasets = datasets[order(np.arange(len(datasets)))]
        earlier = np.empty_like(datasets)
        for dataset in range(len(self._quotas)):
            rows = np.flatnonzero(datasets == dataset)
            earlier[rows] = np.arange(len(rows))
        return datasets, earlier
