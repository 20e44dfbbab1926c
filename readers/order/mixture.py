"""`readers.Mix`: several datasets that are read as one, and the order of their records."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from readers.order.orders import GLOBAL, MIXTURE
from readers.order.permutation import Permutation

# The window in places. A short one keeps every part of an epoch close to the weights.
_WINDOW = 256

# Windows whose places are kept for the next batches.
_KEPT_WINDOWS = 4


@dataclass(frozen=True)
class Mix:
    """Several datasets to read as one, each with a weight: a path for all readers of batches.

    In any run of records, each dataset has its exact share, give or take the records of one window of 256. A dataset that runs
    out starts over in the order of its next epoch. An epoch of the mixture has as many records as all datasets together.

    Attributes:
        weights: Path of a dataset -> its weight, a number above 0. Only their ratios matter.

    Raises:
        ValueError: There are no datasets, or a weight is not a number above 0.

    Example:
        >>> mixed = readers.Mix({"shards/images": 3, "shards/more_images": 1})
        >>> batches = readers.as_numpy(mixed, 64, shuffle=True)
    """

    weights: Mapping[str | os.PathLike[str], float]

    def __post_init__(self) -> None:
        weights = self.weights.values() if isinstance(self.weights, Mapping) else ()
        if not weights or not all(map(_is_weight, weights)):
            raise ValueError(
                f"Mix({self.weights!r}): expected a dict of each dataset's path and its weight above "
                "0, as in {'shards/web': 3, 'shards/books': 1}"
            )


def _is_weight(value: object) -> bool:
    is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    return is_number and 0 < value < math.inf  # type: ignore[operator]


class MixedOrder:
    """The order of a weighted mixture of datasets, whose records are numbered one dataset after another.

    In each dataset, an epoch continues where the previous one stopped. The places are divided into windows.
    Of the first n windows, a dataset with a share s of the weights has floor(n * size * s) places, so its share
    is exact in the long run, for any weights. `counts` and `weights` are above 0. `seed` shuffles each dataset, and the
    datasets within a window; None spreads them evenly.
    """

    def __init__(self, counts: Sequence[int], weights: Sequence[float], seed: int | None) -> None:
        self._counts, self._seed = np.array(counts, np.int64), seed
        self._firsts, self._records = np.cumsum(self._counts) - self._counts, sum(counts)
        exact = [Fraction(str(weight)) for weight in weights]
        scale = math.lcm(*(weight.denominator for weight in exact))
        # Python's integers have no largest one.
        self._shares = np.array([int(weight * scale) for weight in exact], object)
        self._total = int(self._shares.sum())
        # With a window longer than the number of datasets, each window starts at most one window late.
        self._size = max(_WINDOW, 4 * len(counts))
        self._window = functools.lru_cache(_KEPT_WINDOWS)(self._made_window)

    def __call__(self, epoch: int, places: np.ndarray) -> np.ndarray:
        datasets, turns = self.turns(epoch, places)
        epochs, own = np.divmod(turns, self._counts[datasets])
        if self._seed is not None and len(own):
            of, orders = np.unique(np.stack([datasets, epochs]), axis=1, return_inverse=True)
            key = self._seed, of[1][:, None], GLOBAL, of[0][:, None]
            own = Permutation(self._counts[of[0]], *key)(own, orders.reshape(-1))
        return self._firsts[datasets] + own

    def turns(self, epoch: int, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The dataset at some places, int64 [k], and how many places this dataset had before, in all epochs, int64 [k]."""
        positions = epoch * self._records + places
        windows = positions // self._size
        datasets, turns = np.empty_like(places), np.empty_like(places)
        for window in np.unique(windows).tolist():
            # Rounding down makes windows start early, so the last positions may be in the next one.
            rows = np.flatnonzero(windows == window)
            windows[rows] += positions[rows] >= self._before(window + 1).sum()
        for window in np.unique(windows).tolist():
            rows = np.flatnonzero(windows == window)
            in_window, earlier, first = self._window(window)
            within = positions[rows] - first
            datasets[rows], turns[rows] = in_window[within], earlier[within]
        return datasets, turns

    def _before(self, window: int) -> np.ndarray:
        """The number of places of each dataset before a window, int64 [datasets]."""
        before: np.ndarray = window * self._size * self._shares // self._total
        return before.astype(np.int64)

    def _made_window(self, window: int) -> tuple[np.ndarray, np.ndarray, int]:
        """The dataset at each place of a window, how many earlier places this dataset has, and the first position."""
        before = self._before(window)
        places = self._before(window + 1) - before
        datasets = np.repeat(np.arange(len(places)), places)
        ranks = np.arange(len(datasets)) - (np.cumsum(places) - places)[datasets]
        spread = datasets[np.argsort((ranks + 0.5) / places[datasets], kind="stable")]
        if self._seed is not None:
            spread = spread[
                Permutation(len(spread), self._seed, window, MIXTURE)(np.arange(len(spread)))
            ]
        earlier = np.empty_like(spread)
        # A stable sort groups the places of each dataset, in order.
        earlier[np.argsort(spread, kind="stable")] = ranks
        return spread, earlier + before[spread], int(before.sum())
