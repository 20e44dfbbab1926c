"""Who takes part in `read_shards.py`, and what each has to say of itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from records import Kind, Records

IN_ORDER, SHUFFLED = "in order", "shuffled"
ORDERS = (IN_ORDER, SHUFFLED)

# The module of each, below this folder.
MODULES = {
    "ours": "ours",
    "bare": "rivals.bare",
    "per_record": "rivals.per_record",
    "tfds": "rivals.tfds_reader",
    "grain": "rivals.grain_reader",
    "webdataset": "rivals.webdataset_reader",
}
# They read this project's shards, in its environment.
PLAIN_TENSORFLOW = ("bare", "per_record")


@dataclass(frozen=True)
class Way:
    """A way to read.

    Attributes:
        contender: Of `MODULES`.
        name: As the tables show it.
        batchings: What it can make of records.
        orders: In which it is measured.
    """

    contender: str
    name: str
    batchings: tuple[str, ...] = ("dense", "padded")
    orders: tuple[str, ...] = ORDERS


_EVERY = ("dense", "padded", "ragged")
WAYS = (
    Way("bare", "bare TFRecordDataset", _EVERY, (IN_ORDER,)),
    Way("bare", "bare, shuffled", _EVERY, (SHUFFLED,)),
    Way("ours", "load", _EVERY),
    Way("ours", "load, interleave", _EVERY),
    Way("ours", "as_numpy", _EVERY),
    # What follows without ragged batches has none of its own: a list of arrays is all there is.
    Way("ours", "RecordSource"),
    Way("per_record", "tf.data by record", _EVERY),
    Way("tfds", "TFDS", _EVERY),
    Way("grain", "Grain"),
    Way("grain", "Grain, no threads"),
    Way("grain", "Grain, 2 workers"),
    Way("webdataset", "WebDataset"),
)
# The ways to a first batch of a large dataset.
FIRST_BATCH = (
    Way("ours", "load", ("dense",)),
    Way("ours", "load, interleave", ("dense",)),
    Way("ours", "as_numpy", ("dense",)),
    Way("ours", "as_numpy, interleave", ("dense",), (SHUFFLED,)),
    Way("ours", "RecordSource", ("dense",)),
)


@dataclass(frozen=True)
class Task:
    """What a contender is to read.

    Attributes:
        kind: What the records are.
        store: What the contender has written.
        batching: `dense`, `padded` or `ragged`.
        shuffle: Whether in a random order.
        epochs: How often; None for no end.
    """

    kind: Kind
    store: Path
    batching: str
    shuffle: bool
    epochs: int | None


def rows_of(batch: Any) -> Iterable[np.ndarray]:
    """The records of a batch: an array, a tensor, or a list, alone or under the name `x`."""
    value = batch["x"] if isinstance(batch, dict) else batch
    return value.numpy() if hasattr(value, "numpy") else value


def _imported_already(way: str) -> None:
    pass


@dataclass(frozen=True)
class Contender:
    """How a library stores records, and reads them as batches of `BATCH`.

    Attributes:
        ways: Name -> function that opens an iterable of batches.
        write: Writes the store, a new folder; None where it reads that of another.
        prepare: Imports what a way needs, so that the time of that does not count.
        rows: The records of a batch, to compare them.
    """

    ways: dict[str, Callable[[Task], Iterable[Any]]]
    write: Callable[[Kind, Records, Path], None] | None = None
    prepare: Callable[[str], None] = _imported_already
    rows: Callable[[Any], Iterable[np.ndarray]] = rows_of
