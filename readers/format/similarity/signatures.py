"""Pairs of texts whose MinHash signatures are similar, without comparing each with each.

Signatures are cut into bands. Texts that agree in all numbers of one band are compared. The size of a band
follows from the similarity that is asked for, so that at most one in a hundred pairs of just that similarity
is missed, and far fewer of a greater one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from readers.format.similarity.pairs import Pairs, equal_pairs, in_order
from readers.format.similarity.runs import pairs_in_runs

_MISSED = 0.01
_FACTOR = np.uint64(0xD6E8FEB86659FD93)


def similar_pairs(signatures: np.ndarray, similarity: float) -> Pairs:
    """The pairs of signatures of which at least the given part is equal.

    Of texts with one signature, each is paired with the first, and the first alone with other texts.

    Args:
        signatures: uint16 [n, size], of texts that have one.
        similarity: Above 0, and at most 1.
    """
    parts = list(similar_pairs_in_parts(signatures, similarity))
    return in_order(Pairs(*(np.concatenate(part) for part in zip(*parts, strict=True))))


def similar_pairs_in_parts(signatures: np.ndarray, similarity: float) -> Iterator[Pairs]:
    """Yields the pairs of `similar_pairs` in parts, for results that do not fit into memory."""
    if not 0 < similarity <= 1:
        raise ValueError(f"similarity={similarity}: expected a number above 0, and at most 1")
    if signatures.dtype != np.uint16 or signatures.ndim != 2 or not signatures.shape[1]:
        raise ValueError(
            f"signatures of {signatures.dtype} {list(signatures.shape)}: expected uint16 [n, size]"
        )
    _, first, number = np.unique(row_digests(signatures), return_index=True, return_inverse=True)
    yield equal_pairs(first[number.reshape(-1)].astype(np.int64), np.ones((), np.float32))
    different = np.sort(first).astype(np.int64)
    size = signatures.shape[1]
    rows = band_rows(size, similarity)
    for start in range(0, size - rows + 1, rows):
        keys = row_digests(signatures[different, start : start + rows])
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        for i, j in pairs_in_runs(keys[1:] == keys[:-1]):
            one, other = different[order[i]], different[order[j]]
            for begin in range(0, len(one), _PART):
                part = slice(begin, begin + _PART)
                yield _compared(signatures, one[part], other[part], similarity, start, rows)


# Pairs whose signatures are compared at a time.
_PART = 1 << 13


def _compared(
    signatures: np.ndarray,
    one: np.ndarray,
    other: np.ndarray,
    similarity: float,
    start: int,
    rows: int,
) -> Pairs:
    """The similar of some pairs, but for those that agree in a band before the one from `start` on."""
    equal = signatures[one] == signatures[other]
    alike = equal.mean(axis=1, dtype=np.float32)
    bands = equal[:, : start + rows].reshape(len(one), -1, rows).all(axis=2)
    found = (alike >= np.float32(similarity)) & bands[:, -1] & ~bands[:, :-1].any(axis=1)
    one, other = one[found], other[found]
    return Pairs(np.minimum(one, other), np.maximum(one, other), alike[found])


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
