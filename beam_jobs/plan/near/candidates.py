"""Candidates: the pairs of records of a partition that share a key.

Each record is paired with those that come before it: records to keep out, then those with a smaller place in
the global order. Of many records with one key, few can be compared with each other: each is compared with the
first ones alone, the fewer the more there are, so the work grows with the number of records and not with its square.
Of equal records, each is compared with the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from beam_jobs.plan.near.blocks import NAME_BYTES, ROW, duplicate_key
from beam_jobs.records.pieces import PIECE_BYTES
from readers.format.similarity.likeness import Equality, Similarity
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


class Keys(NamedTuple):
    """The keys of the records of a block in a partition.

    Attributes:
        block: The name of the block.
        owner: The id of the task that the records are dropped from.
        kept_out: Whether they are records to keep out.
        rows: Packed `ROW`s.
    """

    block: bytes
    owner: str
    kept_out: bool
    rows: bytes


def candidates(
    partition: Iterable[Keys], first_band: bool, likeness: Similarity, drops: bool
) -> Iterator[tuple[bytes, bytes]]:
    """Yields (name of the first's block, packed `PAIR`s).

    Args:
        partition: The keys of all records in a partition.
        first_band: Whether it is a partition of the first band, the only one that pairs equal records.
        likeness: Says which records are near.
        drops: Whether records of the job are near duplicates of others of it, and not of records to keep out alone.

    Raises:
        UsageError: Two records have the same key.
    """
    blocks, distance = sorted(partition), likeness.distance
    tables = [np.frombuffer(block.rows, ROW) for block in blocks]
    rows = np.concatenate([np.empty(0, ROW), *tables])
    owners = np.repeat(np.arange(len(blocks)), [len(table) for table in tables])
    inside = np.array([not block.kept_out for block in blocks], bool)[owners]
    equal = isinstance(likeness, Equality)
    columns = [rows["order"], inside]
    columns.insert(2 if equal else 0, rows["digest"])
    order = np.lexsort((*columns, rows["key"]))
    rows, owners, inside = rows[order], owners[order], inside[order]
    keys, digests, orders = rows["key"], rows["digest"], rows["order"]

    def near(i: np.ndarray, j: np.ndarray) -> np.ndarray:
        found = inside[j] if drops else inside[j] & ~inside[i]
        if distance >= 0:
            found &= popcount(digests[i] ^ digests[j]) <= distance
        return found if first_band else found & (digests[i] != digests[j])

    first, second = _firsts(keys, digests) if equal else _chosen(keys, near)
    same_key = (orders[first] == orders[second]) & inside[first] & inside[second]
    if same_key.any():
        raise duplicate_key(min(blocks[owner].owner for owner in owners[second[same_key]]))
    pairs = np.empty(len(first), PAIR)
    pairs["first"], pairs["second"] = rows["row"][first], rows["row"][second]
    names = [block.block for block in blocks]
    pairs["block"] = np.array(names or [b""], f"V{NAME_BYTES}")[owners[second]]
    yield from _by_block(names, owners[first], pairs)


def _firsts(keys: np.ndarray, digests: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places of pairs of equal records, sorted by digest: the first of each and, in turn, all others."""
    is_equal = (keys[1:] == keys[:-1]) & (digests[1:] == digests[:-1])
    starts = np.concatenate([[True], ~is_equal])[: len(keys)]
    first = np.flatnonzero(starts)[np.cumsum(starts) - 1]
    second = np.flatnonzero(~starts)
    return first[second], second


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
