"""Which keys a dataset has, from the hashes in its indexes: no record is read."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

import google_crc32c
import numpy as np

from readers.format.index import HASH, HASH_LOW
from readers.format.lookup.rows import SeenRows
from readers.format.lookup.stored import stored_splits
from readers.format.manifest import Manifest, open_generation


class _Shard(NamedTuple):
    """The hashes of a shard, ascending, by halves, uint32 [n], and their rows in it, int64 [n]; None for 0 to n - 1."""

    split: int
    first: int
    seen: SeenRows | None
    high: np.ndarray
    low: np.ndarray
    order: np.ndarray | None

    def find(self, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of those among some hashes, uint64 [n], ascending, that seen records have, and their rows: int64 [k] each."""
        high, low = (wanted >> np.uint64(32)).astype(np.uint32), wanted.astype(np.uint32)
        first, last = high.searchsorted(self.high[0]), high.searchsorted(self.high[-1], "right")
        begins = self.high.searchsorted(high[first:last])
        counts = self.high.searchsorted(high[first:last], "right") - begins
        keys = np.repeat(np.arange(first, last), counts)
        places = np.arange(len(keys)) + np.repeat(begins - np.cumsum(counts) + counts, counts)
        is_same = self.low[places] == low[keys]
        keys, places = keys[is_same], places[is_same]
        rows = self.first + (places if self.order is None else self.order[places])
        if self.seen is not None:
            is_seen = self.seen.numbers_of(rows) >= 0
            keys, rows = keys[is_seen], rows[is_seen]
        return keys, rows


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
        wanted = np.sort(hashes)
        found = np.full((len(hashes), 2), -1, np.int64)
        for shard in _shards(self):
            keys, rows = shard.find(wanted)
            found[keys, 0], found[keys, 1] = shard.split, rows
        return found[wanted.searchsorted(hashes)]


@functools.lru_cache(maxsize=4)
def _shards(keys: StoredKeys) -> list[_Shard]:
    """The shards with records."""
    directory, manifest, _ = open_generation(keys.path)
    found = list[_Shard]()
    for number, split in enumerate(stored_splits(directory, manifest).values()):
        first, seen = 0, split.seen
        for columns in split.sections([HASH, HASH_LOW]):
            high, low, order = columns[HASH], columns[HASH_LOW], None
            if (
                high[1:] < high[:-1]
            ).any():  # Records were moved, or are in the order of another writer.
                order = np.argsort(high, kind="stable")
                high, low = high[order], low[order]
            if len(high):
                found.append(_Shard(number, first, seen, high, low, order))
            first += len(high)
    return found
