"""Where records are in memory, for the kernel, which reads shards on a local disk in place."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np

from readers.format.compiled import library
from readers.format.tfrecord import MAX_FRAMED_BYTES
from readers.shards.opened.fetch import ShardBytes
from readers.shards.opened.local_shard import LONG_RUN
from readers.shards.opened.open_shards import OpenShards

# Numbers of calls of the kernel, which asks once a call whether a file was truncated.
_CALLS = itertools.count(1)


class Addresses(NamedTuple):
    """Where B records with their framing are in memory.

    Attributes:
        addresses, sizes: int64 [B], the address and the size of each record, in bytes.
        owner: Keeps the memory.
    """

    addresses: np.ndarray
    sizes: np.ndarray
    owner: Any


class MappedRecords:
    """Finds the records of a plan in its mapped shards. It is safe to share between threads.

    The first records of a shard are found by NumPy; then the kernel knows the shard.

    Args:
        shards: The shards.
    """

    def __init__(self, shards: OpenShards) -> None:
        self._shards = shards
        # Without descriptors the kernel cannot ask for the size of a file.
        self._knows = library.is_compiled() and shards.has_descriptors
        self.forget()

    def forget(self) -> None:
        """Forgets all shards, which may be other files now."""
        # FILE [parts], and what keeps their memory.
        self._known = np.zeros(len(self._shards.parts), library.FILE), list[ShardBytes]()

    def of(self, numbers: np.ndarray) -> Addresses | None:
        """Where the records of some numbers, int64 [B], are.

        None if one of them is not on a local disk, or is cut off, or if they are in long runs,
        which are read faster than they are mapped.
        """
        shards, (files, owners) = self._shards, self._known
        if not shards.is_fetched:
            return None
        if self._knows:
            located = library.locate(
                np.ascontiguousarray(numbers), shards.ends, shards.firsts, files, next(_CALLS),
                MAX_FRAMED_BYTES, LONG_RUN,
            )  # fmt: skip
            if located is not None:
                return Addresses(*located, owners)
        parts, rows = shards.locate(numbers)
        found = np.flatnonzero(np.bincount(parts, minlength=len(files))).tolist()
        shards.load_indexes(found)
        index = shards.indexes.of(rows, parts)
        starts, sizes = index[:, 0], np.ascontiguousarray(index[:, 1])
        stops = starts + sizes
        follows = (starts[1:] == stops[:-1]) & (parts[1:] == parts[:-1])
        if sizes.sum() >= LONG_RUN * (len(numbers) - np.count_nonzero(follows)):
            return None
        maps = np.zeros((2, len(files)), np.int64)
        opened = []
        for number in found:
            shard = shards.open(shards.parts[number].path)
            here = shard.local.in_memory() if shard.local else None
            if here is None:
                return None
            maps[:, number] = here
            opened.append(shard)
        addresses, present = maps[:, parts]
        if not (stops <= present).all():
            return None
        for number, shard in zip(found, opened, strict=True):
            self._note(files, owners, number, shard)
        return Addresses(addresses + starts, sizes, opened)

    def _note(
        self, files: np.ndarray, owners: list[ShardBytes], number: int, shard: ShardBytes
    ) -> None:
        """Lets the kernel find the records of a file, if it can ask whether the file was truncated."""
        index, local = self._shards.indexes.in_memory(number), shard.local
        if not self._knows or index is None or local is None or files["map"][number]:
            return
        found = local.in_memory()
        if local.descriptor is None or found is None:
            return
        owners.append(shard)
        file = files[number]
        file["descriptor"] = local.descriptor
        for member, value in index.items():
            file[member] = value
        file["map"] = found[0]  # At last: other threads may look.
