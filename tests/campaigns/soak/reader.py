"""A process that reads epoch after epoch from a store, in all ways in turn: `python -m tests.campaigns.soak.reader`."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np

import readers
from tests.campaigns.soak.inputs import checksum
from tests.campaigns.soak.slots import Slot, slots_of
from tests.campaigns.soak.steps import run_steps

_BATCH = 16
_EPOCHS = 4
# Less than the datasets of all slots: shards are evicted all the time.
_CACHE_SIZE = "300KB"
_VALUES = {"images": "image", "text": "text", "sensors": "signal"}

# The value of a record, and its key if it was read.
Value = tuple[bytes | np.ndarray, str | None]
Epochs = Iterator[list[Value]]


def _rows(batch: Mapping[str, np.ndarray], name: str) -> Iterator[Value]:
    """The records of a batch, without their padding."""
    keys, lengths = batch.get("key"), batch.get(f"{name}_length")
    for row, value in enumerate(batch[name]):
        cut = value if lengths is None else value[: lengths[row]]
        yield cut, None if keys is None else keys[row].decode()


def _kept(cache: str | None) -> dict[str, Any]:
    return {"cache_dir": cache, "cache_size": _CACHE_SIZE} if cache else {}


def _options(slot: Slot, cache: str | None, has_keys: bool = True) -> dict[str, Any]:
    name = _VALUES[slot.kind]
    padded = {"batching": "padded", "lengths": True} if slot.kind == "sensors" else {}
    columns = [name, "key"] if has_keys else [name]
    return {"columns": columns, **_kept(cache), **padded}


def _as_numpy(slot: Slot, split: str, cache: str | None, seed: int, **more: Any) -> Epochs:
    # Without keys, the compiled kernel decodes the records.
    options = _options(slot, cache, has_keys=bool(seed % 2) or slot.kind == "text") | more
    for epoch in range(_EPOCHS):
        batches = readers.as_numpy(
            slot.url, split=split, batch_size=_BATCH, shuffle=True, seed=seed + epoch, **options
        )
        yield [row for batch in batches for row in _rows(batch, _VALUES[slot.kind])]


def _load(slot: Slot, split: str, cache: str | None, seed: int, **more: Any) -> Epochs:
    options = _options(slot, cache) | more
    batches = readers.load(
        slot.url, split=split, batch_size=_BATCH, shuffle=True, seed=seed, **options
    )
    for _ in range(_EPOCHS):
        yield [
            row for batch in batches.as_numpy_iterator() for row in _rows(batch, _VALUES[slot.kind])
        ]


def _source(slot: Slot, split: str, cache: str | None, seed: int) -> Epochs:
    name = _VALUES[slot.kind]
    source = readers.RecordSource(slot.url, split, [name, "key"], **_kept(cache))
    for epoch in range(_EPOCHS):
        order = np.random.default_rng(seed + epoch).permutation(len(source)).tolist()
        one_by_one, at_once = order[: len(order) // 4], order[len(order) // 4 :]
        records = [source[at] for at in one_by_one] + source.__getitems__(at_once)
        yield [(record[name], record["key"].decode()) for record in records]


_WAYS: dict[str, tuple[Callable[..., Epochs], bool]] = {
    "as_numpy": (_as_numpy, False),
    "RecordSource": (_source, False),
    "load": (_load, False),
    "as_numpy, cache": (_as_numpy, True),
    "RecordSource, cache": (_source, True),
    "load, cache": (_load, True),
    "as_numpy, interleave": (partial(_as_numpy, order="interleave"), False),
    "load, global": (partial(_load, order="global"), False),
}


def _missing(records: list[Value], expected: Mapping[str, int]) -> str:
    """How an epoch differs from the records that were written; empty if it does not."""
    found = Counter((key, checksum(value)) for value, key in records)
    if records and records[0][1] is None:
        wanted = Counter((None, value) for value in expected.values())
    else:
        wanted = Counter(expected.items())
    more, less = found - wanted, wanted - found
    if not (more or less):
        return ""
    return f"{len(records)} records: {sorted(less.items(), key=str)[:3]} are missing, {sorted(more.items(), key=str)[:3]} are not of the dataset"


def read(slots: list[Slot], ways: list[str], cache: Path, number: int) -> dict[str, Any] | None:
    """Reads some epochs of the next slot that nobody writes, and returns what was done."""
    way = ways[number % len(ways)]
    for at in range(len(slots)):
        slot = slots[(number // len(ways) + number + at) % len(slots)]
        with slot.held(to_write=False) as is_free:
            expected = slot.expected() if is_free else None
            if expected is not None:
                return _read(slot, way, cache, number, expected)
    return None


def _read(
    slot: Slot, way: str, cache: Path, number: int, expected: dict[str, int]
) -> dict[str, Any]:
    epochs, has_cache = _WAYS[way]
    place = str(cache) if has_cache else None
    splits = [epochs(slot, split, place, number * _EPOCHS) for split in ("train", "val")]
    done = {"way": way, "dataset": slot.kind, "records": _EPOCHS * len(expected)}
    for number_of_epoch, parts in enumerate(zip(*splits, strict=True)):
        problem = _missing([record for part in parts for record in part], expected)
        if problem:
            return {**done, "epochs": number_of_epoch, "failure": f"{way} of {slot.url}: {problem}"}
    return {**done, "epochs": _EPOCHS}


def main(folder: Path, bucket: str, rest: float, begins: str) -> None:
    """Runs until the process is ended.

    Args:
        begins: How the names of the ways begin that are taken; a comma is between two. Empty for all.
    """
    ways = [way for way in _WAYS if way.startswith(tuple(begins.split(",")))]
    step = partial(read, slots_of(folder, bucket), ways, folder / "cache")
    run_steps("reader", step, folder, rest)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4])
