"""The hash that orders the records of a dataset by their keys, and the rows that may have a key."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

import numpy as np

from readers.format.index import HASH
from readers.format.lookup.sections import sections
from readers.format.manifest import DatasetError, Manifest
from readers.format.schema import Feature
from readers.format.splits import Shard, Split

# The feature that identifies a record.
KEY = "key"

# The purpose of the hash that is a record's place in the order.
ORDER = b"order"


def hash64(seed: int, purpose: bytes, text: str) -> int:
    """A uniform 64-bit hash, the same on every machine: BLAKE2b keyed with the seed.

    Hashes for different purposes, of at most 16 bytes, are independent.
    """
    state = _keyed(seed, purpose).copy()
    state.update(text.encode("utf-8", "surrogateescape"))
    return int.from_bytes(state.digest(), "little")


def hashes64(seed: int, purpose: bytes, texts: Iterable[bytes]) -> np.ndarray:
    """The `hash64` of many texts, given as UTF-8: uint64 [n], in half the time."""
    keyed = _keyed(seed, purpose)
    digests = []
    for text in texts:
        state = keyed.copy()
        state.update(text)
        digests.append(state.digest())
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64, copy=False)


@functools.lru_cache(maxsize=64)
def _keyed(seed: int, purpose: bytes) -> hashlib.blake2b:
    # Mixing in the seed takes half the time of hashing a key, so it is done once.
    key = seed.to_bytes(8, "little", signed=True)
    return hashlib.blake2b(digest_size=8, key=key, person=purpose)


def has_keys(schema: Mapping[str, Feature]) -> bool:
    """Whether records of another writer have a key: a text or a byte string."""
    return schema.get(KEY) in (Feature("string"), Feature("string", (), "list"))


def order_seed(manifest: Manifest) -> int:
    """The seed of the hashes that order a dataset.

    Raises:
        DatasetError: (a ValueError) Its records have no keys, or keys that they were not ordered by.
    """
    seed = manifest.options.get("seed", 0)
    if manifest.options.get("job") == "reshard":
        raise DatasetError(
            "reshard orders records by the files that they were in, so their keys cannot be looked up"
        )
    if manifest.options.get("job") == "index" and not has_keys(manifest.schema):
        raise DatasetError(
            f"its records have no feature {KEY!r}, so they cannot be looked up by key"
        )
    if type(seed) is not int or not -(2**63) <= seed < 2**63:
        raise DatasetError(f"options: seed {str(seed)[:80]!r}: expected a number of 64 bits")
    return seed


def candidates(
    directory: str, split: Split, seed: int, keys: Iterable[str | bytes]
) -> Iterator[np.ndarray]:
    """Yields the rows of a split whose records may have one of some keys, int64 [n], ascending in each array.

    A row is the number of a record among all records of the split's shards. Records with another key may have the same 32
    bits of a hash, so their keys must be compared. The shards in whose range a key is come first: who looks for a few keys
    may stop when they are found, and has read the indexes of as many shards. A record that a job moved to balance shards,
    or that another program wrote, may be in any shard, so only the last array shows that a key is not there.

    Raises:
        FileNotFoundError: An index is missing.
        DatasetError: (a ValueError) An index is damaged, or has no hashes.
    """
    octets = (
        key.encode("utf-8", "surrogateescape") if isinstance(key, str) else key for key in keys
    )
    wanted = np.unique((hashes64(seed, ORDER, octets) >> np.uint64(32)).astype(np.uint32))
    if not len(wanted):
        return
    shards = split.shards
    firsts = np.cumsum([0, *(shard.records for shard in shards)])
    likely = [n for n, ends in enumerate(_ranges(shards)) if _has_any(wanted, *ends)]
    others = sorted(set(range(len(shards))).difference(likely))
    for numbers in (likely, others):
        chosen = [shards[n] for n in numbers]
        for n, found in zip(numbers, sections(directory, chosen, [HASH]), strict=True):
            places = np.searchsorted(wanted, found[HASH])
            rows = np.flatnonzero(wanted[np.minimum(places, len(wanted) - 1)] == found[HASH])
            if len(rows):
                yield firsts[n] + rows


def _ranges(shards: Iterable[Shard]) -> Iterator[tuple[int, int]]:
    """The smallest and the largest hash of the records of each shard, if none was moved.

    The shards of each generation follow one another in the order of their hashes.
    """
    smallest = [shard.smallest_hash for shard in shards]
    for low, following in pairwise([*smallest, 0]):
        yield low, following if following >= low else 0xFFFFFFFF


def _has_any(wanted: np.ndarray, low: int, high: int) -> bool:
    """Whether some of the sorted numbers are from `low` to `high`."""
    return bool(np.searchsorted(wanted, low) < np.searchsorted(wanted, high, side="right"))
