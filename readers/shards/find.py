"""Finds the record with a key among those of a plan, by the hashes in the indexes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from readers.format.index import HASH, HASH_LOW
from readers.format.lookup.index_file import sections_of
from readers.format.lookup.keys import ORDER, hashes64
from readers.format.lookup.rows import SeenRows
from readers.format.manifest import DatasetError
from readers.shards.plan import Part, Plan


def find(plan: Plan, key: str | bytes) -> int:
    """The number of the first record with a key, in the first dataset that has it.

    Raises:
        KeyError: There is no such record.
        DatasetError: (a ValueError) The records have no keys, or are not ordered by them.
    """
    end = 0
    octets = key.encode("utf-8", "surrogateescape") if isinstance(key, str) else key
    for keys, group in itertools.groupby(plan.parts, lambda part: part.keys):
        parts = list(group)
        if keys is None:
            raise DatasetError(
                f"{plan.name}: its records have no keys, or are ordered by other ones, as those of reshard are"
            )
        first, end = end, end + sum(part.take for part in parts)
        starts = first + np.cumsum([0, *(part.take for part in parts)])
        (wanted,) = hashes64(keys.seed, ORDER, [octets]).tolist()
        for number, rows in _matches(parts, wanted):
            rows = rows - parts[number].skip
            rows = starts[number] + rows[(rows >= 0) & (rows < parts[number].take)]
            if len(found := _numbers(plan.rows, rows)):
                return int(found[0])
    raise KeyError(f"no record of {plan.name} has the key {key!r}")


def _matches(parts: Sequence[Part], wanted: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yields the number of each part whose file has records with a hash, and their numbers in it, int64 [n].

    The files in whose ranges the hash is come first: the index of one is enough for most keys. A record that was moved to
    balance shards may be in any.
    """
    high, low = wanted >> 32, wanted & 0xFFFFFFFF
    smallest = [part.smallest_hash for part in parts]
    # The shards of each generation are in the order of their hashes.
    pairs = zip(smallest, [*smallest[1:], 0], strict=True)
    likely = [
        n for n, (start, end) in enumerate(pairs) if start <= high and not start < end <= high
    ]
    others = sorted({*range(len(parts))} - {*likely})
    for numbers in (likely, others):
        read = sections_of([parts[number].index for number in numbers], [HASH, HASH_LOW])
        for number, columns in zip(numbers, read, strict=True):
            yield number, np.flatnonzero((columns[HASH] == high) & (columns[HASH_LOW] == low))


def _numbers(seen: SeenRows | None, rows: np.ndarray) -> np.ndarray:
    """The numbers of those among some rows that a reader sees."""
    if seen is None:
        return rows
    if not seen.are_gone:  # Those of several subsets do not ascend.
        return np.flatnonzero(np.isin(seen.listed, rows))
    numbers = seen.numbers_of(rows)
    return numbers[numbers >= 0]
