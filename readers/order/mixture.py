"""Several datasets as one: which of them a place belongs to, by weights, as pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from readers.order.orders import MIXTURE, Order
from readers.order.permutation import Permutation

# Places after which the proportions are exact again. Longer periods hold finer weights, shorter ones
# keep any part of an epoch closer to them.
_MAX_PERIOD, _MIN_PERIOD = 4096, 256


def quotas(weights: Sequence[float]) -> list[int]:
    """How many of each dataset's records stand in a period, at least one.

    They are as the weights where these have a common denominator of at most 4096, and otherwise
    within 1/4096 of the period.

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
    # What rounding has left goes to those that lost most by it.
    lost = [share * _MAX_PERIOD - count for share, count in zip(shares, found, strict=True)]
    for number in sorted(range(len(lost)), key=lambda n: -lost[n]):
        if sum(found) < _MAX_PERIOD:
            found[number] += 1
    return found


class MixedOrder:
    """The orders of several datasets, mixed by weights.

    The records of all are numbered one dataset after another. Each dataset begins anew when it is
    through, in the order of its next epoch. An epoch of the mixture has as many records as all
    datasets together, and goes on in each of them where the epoch before has stopped.

    Args:
        counts: Records of each dataset, at least one.
        orders: Of each.
        weights: Of each, above 0.
        seed: What mixes them within a period; None to spread them evenly.
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
            dealt, earlier = self._period(period)
            datasets[rows] = dealt[within[rows]]
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
        """The dataset at each place of a period, and how many of its records stand before it."""
        datasets = self._even
        if self._seed is not None:
            order = Permutation(len(datasets), self._seed, period, MIXTURE)
            datasets = datasets[order(np.arange(len(datasets)))]
        earlier = np.empty_like(datasets)
        for dataset in range(len(self._quotas)):
            rows = np.flatnonzero(datasets == dataset)
            earlier[rows] = np.arange(len(rows))
        return datasets, earlier
