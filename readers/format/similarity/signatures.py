"""Bands of MinHash signatures: texts that agree in all numbers of one band are compared.

The size of a band follows from the similarity that is asked for, so that at most one in a hundred pairs of just
that similarity is missed, and far fewer of a greater one.
"""

from __future__ import annotations

import numpy as np

_MISSED = 0.01
_FACTOR = np.uint64(0xD6E8FEB86659FD93)


def band_rows(size: int, similarity: float) -> int:
    """The most numbers of a band with which at most one in a hundred pairs is missed, or 1."""
    fitting = (
        rows for rows in range(size, 1, -1) if (1 - similarity**rows) ** (size // rows) <= _MISSED
    )
    return next(fitting, 1)


def row_digests(rows: np.ndarray) -> np.ndarray:
    """A hash of each row, uint64 [n]."""
    found = np.zeros(len(rows), np.uint64)
    for column in rows.T:
        found = (found ^ column) * _FACTOR
        found ^= found >> np.uint64(29)
    return found
