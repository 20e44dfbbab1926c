"""The keys in which two datasets, or two generations of one, differ, for `beam-shards diff`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from readers.format.features import Features
from readers.format.lookup.keys import order_seed
from readers.format.lookup.stored import StoredSplit
from readers.format.manifest import DatasetError, Generation, open_generation
from readers.source import RecordSource

# The number of keys that are read and listed together.
_TOGETHER = 256


def diff(first: str, second: str, lists_keys: bool = False) -> dict[str, dict[str, Any]]:
    """Split -> how many keys are `only_first`, `only_second` or in `both`, by the hashes in the indexes.

    Args:
        first, second: The datasets, each `DIR`, `DIR@3` or `DIR@TAG`.
        lists_keys: Whether to read the records of keys that are in one, and list these keys.

    Raises:
        DatasetError: (a ValueError) There is no such dataset, its records have no keys, or the seeds differ.
    """
    one, other = open_generation(first), open_generation(second)
    if order_seed(one.manifest) != order_seed(other.manifest):
        raise DatasetError(
            f"{first} and {second} have different seeds, so their hashes cannot be compared"
        )
    found = {}
    for name in dict.fromkeys([*one.manifest.splits, *other.manifest.splits]):
        (mine, theirs), sides = (_hashes(side, name) for side in (one, other)), {}
        for side, path, hashes, others in (
            ("only_first", first, mine, theirs),
            ("only_second", second, theirs, mine),
        ):
            numbers = np.flatnonzero(~np.isin(hashes, others))
            keys = list(_keys(path, name, numbers)) if lists_keys else len(numbers)
            sides[side] = keys
        found[name] = {**sides, "both": int(np.isin(mine, theirs).sum())}
    return found


def lines(found: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yields a result of `diff` as lines for people."""
    for name, sides in found.items():
        if isinstance(sides["only_first"], list):
            yield from (f"- {name}  {key}" for key in sides["only_first"])
            yield from (f"+ {name}  {key}" for key in sides["only_second"])
        else:
            removed, added, both = (sides[side] for side in ("only_first", "only_second", "both"))
            yield f"{name}  {removed:,} removed, {added:,} added, {both:,} in both"


def _hashes(generation: Generation, name: str) -> np.ndarray:
    """The hashes of the keys of the records of a split that readers see, uint64 [n]."""
    split = generation.manifest.splits.get(name)
    if split is None:
        return np.empty(0, np.uint64)
    return StoredSplit(generation.directory, generation.manifest, split).seen_hashes()


def _keys(path: str, split: str, numbers: np.ndarray) -> Iterator[str]:
    """Yields the keys of the records of a split with some numbers, int64 [n]."""
    if not len(numbers):
        return
    name = Features.of(open_generation(path).manifest).named("key")
    if not name:
        raise DatasetError(f"{path}: its records have no keys")
    source = RecordSource(path, split, [name])
    for first in range(0, len(numbers), _TOGETHER):
        for record in source.__getitems__(numbers[first : first + _TOGETHER].tolist()):
            yield record[name].decode("utf-8", "replace")
