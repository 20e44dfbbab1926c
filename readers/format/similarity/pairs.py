"""All pairs of hashes of 64 bits that differ in few bits, without comparing each with each.

Hashes that differ in d bits, cut into b blocks, agree in at least b - d of them. For each choice of b - d
blocks, hashes are sorted by these, and those that agree in them are compared. As many blocks are used as cost
the least for the number of hashes. No pair is missed, and memory does not depend on how many are compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from readers.format.similarity.runs import pairs_in_runs

_BITS = 64
# What a hash costs in each sorting, in comparisons of two hashes: 60 ns and 4 ns.
_SORTING = 15


class Pairs(NamedTuple):
    """Near duplicates, in the order of `first`, then of `second`.

    Attributes:
        first: int64 [pairs], the number of a record.
        second: int64 [pairs], that of a later record.
        alike: How alike the two are, [pairs]: the number of bits that differ, uint8, or the similarity
            from 0 to 1, float32.
    """

    first: np.ndarray
    second: np.ndarray
    alike: np.ndarray


def near_pairs(hashes: np.ndarray, distance: int) -> Pairs:
    """All pairs of hashes that differ in at most `distance` bits.

    Of records whose hashes are equal, each is paired with the first, and the first alone with records of
    other hashes: a million equal hashes make a million pairs.

    Args:
        hashes: uint64 [n].
        distance: From 0 to 63.
    """
    parts = list(near_pairs_in_parts(hashes, distance))
    return in_order(Pairs(*(np.concatenate(part) for part in zip(*parts, strict=True))))


def near_pairs_in_parts(hashes: np.ndarray, distance: int) -> Iterator[Pairs]:
    """Yields the pairs of `near_pairs` in parts, for results that do not fit into memory."""
    if not 0 <= distance < _BITS:
        raise ValueError(f"distance={distance}: expected 0 to {_BITS - 1} bits")
    if hashes.dtype != np.uint64 or hashes.ndim != 1:
        raise ValueError(f"hashes of {hashes.dtype} {list(hashes.shape)}: expected uint64 [n]")
    different, first, number = np.unique(hashes, return_index=True, return_inverse=True)
    first = first.astype(np.int64)
    yield equal_pairs(first[number.reshape(-1)], np.zeros((), np.uint8))
    for one, other in _different_pairs(different, distance):
        found = popcount(one ^ other)
        ends = first[np.searchsorted(different, [one, other])]
        yield Pairs(ends.min(axis=0), ends.max(axis=0), found)


def equal_pairs(first: np.ndarray, alike: np.ndarray) -> Pairs:
    """The pairs of each record with the first of its equals, in order.

    Args:
        first: int64 [n], for each record, the number of the first that is equal to it.
        alike: What to say of all pairs, a scalar.
    """
    copies = np.flatnonzero(first != np.arange(len(first)))
    return Pairs(first[copies], copies, np.full(len(copies), alike))


def in_order(pairs: Pairs) -> Pairs:
    """The pairs in the order of `first`, then of `second`."""
    order = np.lexsort((pairs.second, pairs.first))
    return Pairs(pairs.first[order], pairs.second[order], pairs.alike[order])


def _different_pairs(hashes: np.ndarray, distance: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields the two hashes of each pair of different hashes, once."""
    if distance == 0:
        return
    blocks = _blocks(len(hashes), distance)
    edges = [_BITS * place // blocks for place in range(blocks + 1)]
    for chosen in combinations(range(blocks), blocks - distance):
        moved, back, bits = _chosen_first(edges, chosen)
        keys = np.sort(_moved(hashes, moved))
        # A shift by 64 bits would be a shift by none.
        groups = keys >> np.uint64(_BITS - bits) if bits else np.zeros_like(keys)
        for i, j in pairs_in_runs(groups[1:] == groups[:-1]):
            difference = keys[i] ^ keys[j]
            near = popcount(difference) <= distance
            difference = _moved(difference[near], back)
            # Pairs that agree in more blocks are found by several choices, and yielded by the first.
            new = np.ones(len(difference), bool)
            for block in set(range(chosen[-1] if chosen else 0)) - set(chosen):
                new &= (difference & _mask(edges, block)) != 0
            yield _moved(keys[i][near][new], back), _moved(keys[j][near][new], back)


def _blocks(hashes: int, distance: int) -> int:
    """How many blocks cost the least; from `distance` on, with which each is compared with each."""

    def cost(blocks: int) -> float:
        compared = hashes / 2 ** (1 + _BITS * (blocks - distance) / blocks)
        return math.comb(blocks, distance) * hashes * (_SORTING + compared)

    return min(range(distance, min(distance + 8, _BITS) + 1), key=cost)


_Moves = Sequence[tuple[int, int, np.uint64]]


def _mask(edges: Sequence[int], block: int) -> np.uint64:
    return np.uint64((1 << edges[block + 1]) - (1 << edges[block]))


def _chosen_first(edges: Sequence[int], chosen: tuple[int, ...]) -> tuple[_Moves, _Moves, int]:
    """Moves of blocks that put the chosen in the highest bits, moves back, and the bits of the chosen."""
    moves, back, top = [], [], _BITS
    for block in (*chosen, *(set(range(len(edges) - 1)) - set(chosen))):
        size = edges[block + 1] - edges[block]
        top -= size
        low = np.uint64((1 << size) - 1)
        moves.append((edges[block], top, low))
        back.append((top, edges[block], low))
    return moves, back, sum(edges[block + 1] - edges[block] for block in chosen)


def _moved(hashes: np.ndarray, moves: _Moves) -> np.ndarray:
    found = np.zeros_like(hashes)
    for start, end, low in moves:
        found |= ((hashes >> np.uint64(start)) & low) << np.uint64(end)
    return found


def popcount(numbers: np.ndarray) -> np.ndarray:
    """How many bits of each uint64 number are set, uint8."""
    if hasattr(np, "bitwise_count"):
        return np.bitwise_count(numbers)
    # NumPy 1 counts no bits.
    pairs = numbers - ((numbers >> np.uint64(1)) & np.uint64(0x5555555555555555))
    low = np.uint64(0x3333333333333333)
    fours = (pairs & low) + ((pairs >> np.uint64(2)) & low)
    octets = (fours + (fours >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return ((octets * np.uint64(0x0101010101010101)) >> np.uint64(56)).astype(np.uint8)
