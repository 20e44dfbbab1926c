"""Which keys a dataset has, from the hashes in its indexes: no record is read."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

import google_crc32c
import numpy as np

from readers.format.index import HASH, HASH_LOW
from readers.format.lookup.rows import SeenRows
from readers.format.lookup.sections import sections
from readers.format.lookup.seen import seen_rows
from readers.format.manifest import Manifest, open_generation

_HALF = np.uint64(32)


class _Shard(NamedTuple):
    """The hashes of a shard in the order of its records, as far as they ascend, by halves, uint32 [n]."""

    split: int
    first: int
    high: np.ndarray
    low: np.ndarray


class _Known(NamedTuple):
    """The hashes of all shards; those of moved records, uint64 [n], ascending, with their splits and rows, int64 [n, 2]."""

    shards: list[_Shard]
    moved: np.ndarray
    places: np.ndarray
    seen: list[SeenRows | None]


@dataclass(frozen=True)
class StoredKeys:
    """The keys of the records of a generation that readers see.

    It is small; each process maps the indexes when it asks first. Two keys with the same hash of 64 bits are taken for one:
    among 10**8 records, this happens to one of a million new keys with a probability of five in a million.

    Attributes:
        path: The dataset, as `DIR@3`.
        crc32c: Of its manifest, because a directory may be deleted and written again while a process lives.
    """

    path: str
    crc32c: int

    @classmethod
    def of(cls, directory: str, manifest: Manifest) -> StoredKeys:
        """The keys of a generation, given its manifest."""
        crc32c = google_crc32c.value(manifest.to_bytes())
        return cls(f"{directory}@{manifest.generation}", crc32c)

    def find(self, hashes: np.ndarray) -> np.ndarray:
        """The number of the split and the row of each key, int64 [n, 2], given its hash of the order, uint64 [n]; -1 without."""
        known, wanted = _known(self), np.sort(hashes)
        hits = [_hits(shard, wanted) for shard in known.shards]
        if len(known.moved):
            at = np.minimum(known.moved.searchsorted(wanted), len(known.moved) - 1)
            rows = np.flatnonzero(known.moved[at] == wanted)
            hits.append(np.column_stack([rows, known.places[at[rows]]]))
        found = np.full((len(hashes), 2), -1, np.int64)
        for number, seen in enumerate(known.seen):
            for some in hits:
                of_split = some[some[:, 1] == number]
                if seen is not None:
                    of_split = of_split[seen.numbers_of(of_split[:, 2]) >= 0]
                found[of_split[:, 0]] = of_split[:, 1:]
        return found[wanted.searchsorted(hashes)]


def _hits(shard: _Shard, wanted: np.ndarray) -> np.ndarray:
    """(number of the key, split, row) of each record of a shard with one of some hashes, uint64 [n], ascending: int64 [k, 3]."""
    high, low = (wanted >> _HALF).astype(np.uint32), wanted.astype(np.uint32)
    first, last = high.searchsorted(shard.high[0]), high.searchsorted(shard.high[-1], "right")
    begins = shard.high.searchsorted(high[first:last])
    counts = shard.high.searchsorted(high[first:last], "right") - begins
    keys = np.repeat(np.arange(first, last), counts)
    places = np.arange(len(keys)) + np.repeat(begins - np.cumsum(counts) + counts, counts)
    is_same = shard.low[places] == low[keys]
    keys, places = keys[is_same], places[is_same]
    return np.column_stack([keys, np.full(len(keys), shard.split), shard.first + places])


@functools.lru_cache(maxsize=4)
def _known(keys: StoredKeys) -> _Known:
    directory, manifest, _ = open_generation(keys.path)
    shards, moved, places = list[_Shard](), [np.empty(0, np.uint64)], [np.empty((0, 2), np.int64)]
    splits = manifest.splits.values()
    for number, split in enumerate(splits):
        first = 0
        for columns in sections(directory, split.shards, (HASH, HASH_LOW)):
            high, low = columns[HASH], columns[HASH_LOW]
            falls = np.flatnonzero(high[1:] < high[:-1])
            ordered = int(falls[0]) + 1 if len(falls) else len(high)
            if ordered:
                shards.append(_Shard(number, first, high[:ordered], low[:ordered]))
            rows = np.arange(ordered, len(high))
            moved.append((high[rows].astype(np.uint64) << _HALF) | low[rows])
            places.append(np.column_stack([np.full(len(rows), number), first + rows]))
            first += len(high)
    every = np.concatenate(moved)
    order = np.argsort(every)
    seen = [seen_rows(directory, split) for split in splits]
    return _Known(shards, every[order], np.concatenate(places)[order], seen)
