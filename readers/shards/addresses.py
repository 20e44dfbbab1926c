"""The addresses of records in memory, for the kernel, which reads shards on a local disk in place."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np

from readers.format.compiled import library
from readers.format.tfrecord import MAX_FRAMED_BYTES
from readers.shards.opened.local_shard import LONG_RUN, LocalShard
from readers.shards.opened.open_shards import MOST_OPEN, OpenShards

# Numbers the calls of the kernel, which asks once per call whether a file was truncated.
_CALLS = itertools.count(1)


class Addresses(NamedTuple):
    """The addresses of framed records and their sizes in bytes, int64 [B] each. `owner` keeps their memory alive."""

    addresses: np.ndarray
    sizes: np.ndarray
    owner: Any


class MappedRecords:
    """Finds the records of a plan in its mapped shards. It is safe to share between threads."""

    def __init__(self, shards: OpenShards) -> None:
        self._shards = shards
        self.forget()

    def forget(self) -> None:
        """Forgets all shards, whose files may have been replaced."""
        # FILE [parts], and the owners of their memory.
        self._known = np.zeros(len(self._shards.parts), library.FILE), list[LocalShard]()

    def of(self, numbers: np.ndarray) -> Addresses | None:
        """The addresses of the records with some numbers, int64 [B].

        None if a record is not on a local disk or is cut off, or if records are in long runs, which are faster to read.
        Raises DatasetError if a file or its index was changed, or an index is damaged.
        """
        shards, (files, owners) = self._shards, self._known
        if not shards.is_fetched or len(files) > MOST_OPEN:
            return None
        stored = np.ascontiguousarray(shards.stored(numbers))
        for _ in range(2):
            found, addresses, sizes = library.locate(
                stored, shards.ends, shards.firsts, files, next(_CALLS), MAX_FRAMED_BYTES, LONG_RUN
            )
            if found == len(numbers):
                return Addresses(addresses, sizes, owners)
            if found < 0 or not self._open(numbers, files, owners):
                break
        return None

    def _open(self, numbers: np.ndarray, files: np.ndarray, owners: list[LocalShard]) -> bool:
        """Maps the shards of some records, and checks the blocks of their indexes; false if a shard cannot be mapped."""
        shards = self._shards
        parts, rows = shards.locate(numbers)
        found = np.flatnonzero(np.bincount(parts, minlength=len(files))).tolist()
        shards.load_indexes(found)
        shards.indexes.of(rows, parts)
        for number in found:
            if files["map"][number]:
                continue
            shard = shards.open(shards.parts[number].path)
            here = shard.in_memory() if shard else None
            if shard is None or here is None:
                return False
            owners.append(shard)
            for member, value in shards.indexes.in_memory(number).items():
                files[member][number] = value
            address, files["of_file"][number] = here
            # The file may have been shorter when it was mapped.
            files["bytes"][number] = min(files["bytes"][number], here[1][3])
            files["map"][number] = address  # Set last, because other threads may look.
        return True
