"""The shards of a plan and their indexes, opened when their first record is read."""

from __future__ import annotations

import functools
import resource
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np

from readers.files.in_threads import map_in_threads
from readers.files.local import is_local, open_local
from readers.format.manifest import DatasetError
from readers.shards.cache import Cache
from readers.shards.opened.indexes import ShardIndexes
from readers.shards.opened.local_shard import CHANGED, LocalShard
from readers.shards.plan import Part, Plan

# Linux allows a process 65,530 maps, and a process may read several datasets.
MOST_OPEN = 8_192

# Plans of more shards keep no descriptors. The limit is an eighth of the descriptors that the process may have, often 1,024.
_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
_DESCRIPTORS = MOST_OPEN if _FILES == resource.RLIM_INFINITY else _FILES // 8

# Shards that the cache fetches at a time, each with 32 MiB of requests. Four are 1.3 times as fast as two.
_CACHED_AT_ONCE = 4


class OpenShards:
    """The shards of a plan, by the number of their part; safe to share between threads.

    Attributes:
        is_local: Whether every file is on a local disk, or cached there when first read.
        rows: The records of the parts that are read; None for all.
        open: Opens the shard at a path; None if it is in a store.
        ends: int64 [parts], the number, among the records of all parts, of the record after the last of each part.
        firsts: int64 [parts], the same number of the first record of each part's file.
    """

    def __init__(
        self, plan: Plan, cache: Cache | None, cacheable: frozenset[str] = frozenset()
    ) -> None:
        self.parts, self.rows = plan.parts, plan.rows
        cached = cacheable & {part.path for part in plan.parts}
        self.is_local = all(is_local(part.path) or part.path in cached for part in plan.parts)
        self._cache, self._cacheable = cache, cached
        # The files to read from the cache, and those that it does not have yet, or no longer.
        self._cached, self._uncached = set(cached), set(cached)
        self.ends = np.cumsum(plan.takes, dtype=np.int64)
        before = [part.take + part.skip for part in plan.parts]
        self.firsts = self.ends - np.array(before, np.int64)
        has_descriptors = len(plan.parts) <= _DESCRIPTORS
        self.indexes = ShardIndexes([part.index for part in plan.parts], has_descriptors)
        # The least recently used shard is dropped; it is closed when its last reader has finished.
        by_path = {part.path: part for part in plan.parts}
        how = by_path, cache, self._cached, has_descriptors
        self.open = functools.lru_cache(MOST_OPEN)(functools.partial(_opened, *how))
        self._lock = threading.Lock()

    @property
    def is_fetched(self) -> bool:
        """Whether every file is on a local disk by now, so that no record needs a request."""
        return self.is_local and not self._uncached

    def stored(self, numbers: np.ndarray) -> np.ndarray:
        """The numbers among all records of the parts, int64 [B], of the records with some numbers in the plan, int64 [B]."""
        return self.rows.of(numbers) if self.rows is not None else numbers

    def locate(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The part of each record, and its number in the part's file, int64 [B] each."""
        rows = self.stored(numbers)
        parts = np.searchsorted(self.ends, rows, side="right")
        return parts, rows - self.firsts[parts]

    def fill_cache(self, paths: Set[str]) -> None:
        """Opens the shards that are to be cached, which fetches several at a time."""
        missing = sorted(paths & self._uncached)
        opened = map_in_threads(self.open, missing, False, _CACHED_AT_ONCE)
        # Shards that could not be kept are read from the store.
        kept = [path for path, shard in zip(missing, opened, strict=True) if shard]
        self._uncached.difference_update(kept)

    def drop_copies(self, numbers: Iterable[int]) -> bool:
        """Deletes the copies of parts in the cache, whose files are then read from the store.

        A disk that damaged one copy may damage the next. Returns whether one of the parts may have had a copy.
        """
        found = [self.parts[number] for number in numbers]
        copied = {part.path for part in found} & self._cacheable
        if not self._cache or not copied:
            return False
        with self._lock:  # Another thread may have found the same damage.
            for part in found:
                if part.path in self._cached & copied and self.open(part.path):
                    self._cache.drop(part)
            self._cached -= copied
            self._uncached |= copied
            self.open.cache_clear()
        return True

    def has_section(self, name: str, dtype: np.dtype[Any]) -> bool:
        """Whether the index of every file has a section with a dtype. The indexes of a dataset are alike, so only one is read."""
        numbers = [number for number, part in enumerate(self.parts) if part.take]
        foreign = [number for number in numbers if self.parts[number].index.crc32c is None]
        asked = numbers[:1] + foreign
        self.load_indexes(asked)
        return all(self.indexes.has(name, dtype, number) for number in asked)

    def section(self, name: str, dtype: np.dtype[Any], numbers: np.ndarray) -> np.ndarray:
        """The numbers of a section, int64 [B], for the records with some numbers, int64 [B]."""
        parts, rows = self.locate(numbers)
        self.load_indexes(np.unique(parts).tolist())
        return self.indexes.numbers(name, (dtype.str,), rows, parts)

    def load_index(self, number: int) -> None:
        """Loads the index of a part, unless it is loaded."""
        if self.indexes.is_loaded(number):
            return
        part = self.parts[number]
        if is_local(part.path):
            self.open(part.path)  # Raises an error if the file is not the one in the plan.
        self.indexes.load(number)

    def load_indexes(self, numbers: Sequence[int]) -> None:
        """Loads the indexes of parts."""
        missing = self.indexes.missing(numbers)
        map_in_threads(self.load_index, missing, all(is_local(self.parts[n].path) for n in missing))


def _opened(
    parts: Mapping[str, Part], cache: Cache | None, cached: Collection[str], keep: bool, path: str
) -> LocalShard | None:
    """Opens the shard at a path. Not a method: the shards, which keep its results, would never be freed."""
    copy = cache.open(parts[path]) if cache and path in cached else None
    if copy is None and not is_local(path):
        return None
    with copy or open_local(path, buffering=0) as file:
        shard = LocalShard(file, None if copy else path, keep)
    if parts[path].version not in (None, shard.version):
        raise DatasetError(f"{path}: {CHANGED}")
    return shard
