"""Candidates: the pairs of records of a partition that share a key.

Each record is paired with those that come before it: records to keep out, then those with a smaller place in
the global order. Of many records with one key, few can be compared with each other: each is compared with the
first ones alone, the fewer the more there are, so the work grows with the number of records and not with its square.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from beam_jobs.plan.near.blocks import NAME_BYTES, ROW
from beam_jobs.records.pieces import PIECE_BYTES
from readers.format.similarity.pairs import pairs_in_runs, popcount

# A pair: the rows of both in their blocks, and the name of the second's block.
PAIR = np.dtype([("first", "<u4"), ("second", "<u4"), ("block", f"V{NAME_BYTES}")])

# Records with one key of which each is paired with each. Of more, each is paired with the first: as many as
# make these pairs, but not fewer than `_FEWEST`.
_EACH = 2048
_MOST_PAIRS = 1 << 22
_FEWEST = 64

# The pairs of a record, and of all records with one key, whose probes are compared.
_CHOSEN, _ALL_CHOSEN = 32, 4096


def candidates(
    packed: Iterable[tuple[bytes, bool, bytes]], first_band: bool, distance: int, drops: bool
) -> Iterator[tuple[bytes, bytes]]:
    """Yields (name of the first's block, packed `PAIR`s).

    Args:
        packed: (name of a block, whether its records are to keep out, its packed `ROW`s) of a partition.
        first_band: Whether it is a partition of the first band, the only one that pairs equal records.
        distance: How many bits of the digests may differ; -1 for any.
        drops: Whether records of the job are near duplicates of others of it, and not of records to keep out alone.
    """
    blocks = sorted(packed)
    tables = [np.frombuffer(rows, ROW) for _, _, rows in blocks]
    rows = np.concatenate([np.empty(0, ROW), *tables])
    owners = np.repeat(np.arange(len(blocks)), [len(table) for table in tables])
    inside = np.array([not kept_out for _, kept_out, _ in blocks], bool)[owners]
    order = np.lexsort((rows["digest"], rows["order"], inside, rows["key"]))
    rows, owners, inside = rows[order], owners[order], inside[order]
    keys, digests = rows["key"], rows["digest"]

    def near(i: np.ndarray, j: np.ndarray) -> np.ndarray:
        found = inside[j] if drops else inside[j] & ~inside[i]
        if distance >= 0:
            found &= popcount(digests[i] ^ digests[j]) <= distance
        return found if first_band else found & (digests[i] != digests[j])

    first, second = _chosen(keys, near)
    pairs = np.empty(len(first), PAIR)
    pairs["first"], pairs["second"] = rows["row"][first], rows["row"][second]
    names = np.array([name for name, _, _ in blocks] or [b""], f"V{NAME_BYTES}")
    pairs["block"] = names[owners[second]]
    yield from _by_block([name for name, _, _ in blocks], owners[first], pairs)


def _chosen(
    keys: np.ndarray, near: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Places i < j of the pairs to compare, in sorted rows."""
    same = keys[1:] == keys[:-1]
    starts = np.flatnonzero(np.concatenate([[True], ~same]))[: len(keys)]
    sizes = np.diff(np.concatenate([starts, [len(keys)]]))
    sizes_of = np.repeat(sizes, sizes)
    most = np.clip(_ALL_CHOSEN // np.maximum(sizes_of, 1), 1, _CHOSEN)
    taken = np.zeros(len(keys), np.int64)
    found: list[tuple[np.ndarray, np.ndarray]] = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    small = same & (sizes_of[1:] <= _EACH) if len(keys) else same
    for i, j in _pairs(small, starts, sizes):
        wanted = near(i, j)
        i, j = i[wanted], j[wanted]
        # Of each record the first ones: its number among the pairs of the same second.
        by_second = np.lexsort((i, j))
        i, j = i[by_second], j[by_second]
        begins = np.flatnonzero(np.concatenate([[True], j[1:] != j[:-1]]))[: len(j)]
        counts = np.diff(np.concatenate([begins, [len(j)]]))
        numbers = np.arange(len(j)) - np.repeat(begins, counts) + taken[j]
        kept = numbers < most[j]
        taken[j[begins]] += counts
        found.append((i[kept], j[kept]))
    return np.concatenate([i for i, _ in found]), np.concatenate([j for _, j in found])


def _pairs(
    small: np.ndarray, starts: np.ndarray, sizes: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields all pairs of runs of up to `_EACH`, and of larger ones those with the first."""
    if len(small):
        yield from pairs_in_runs(small)
    for start, size in zip(starts[sizes > _EACH], sizes[sizes > _EACH], strict=True):
        for place in range(int(np.clip(_MOST_PAIRS // size, _FEWEST, _EACH))):
            later = np.arange(start + place + 1, start + size)
            yield np.full(len(later), start + place), later


def _by_block(
    names: list[bytes], owners: np.ndarray, pairs: np.ndarray
) -> Iterator[tuple[bytes, bytes]]:
    order = np.argsort(owners, kind="stable")
    found, starts = np.unique(owners[order], return_index=True)
    step = PIECE_BYTES // PAIR.itemsize
    for owner, some in zip(found.tolist(), np.split(pairs[order], starts[1:]), strict=False):
        for start in range(0, len(some), step):
            yield names[owner], some[start : start + step].tobytes()
