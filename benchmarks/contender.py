"""The contenders of `read_shards.py`, and the interface that each implements."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from records import Kind, Records

IN_ORDER, SHUFFLED = "in order", "shuffled"
ORDERS = (IN_ORDER, SHUFFLED)

# The module of each contender, in this folder.
MODULES = {
    "ours": "ours",
    "bare": "rivals.bare",
    "per_record": "rivals.per_record",
    "tfds": "rivals.tfds_reader",
    "grain": "rivals.grain_reader",
    "webdataset": "rivals.webdataset_reader",
}


def writer_of(contender: str) -> str:
    """Returns the contender that writes the store of a contender, and in whose environment it runs.

    Plain TensorFlow reads this project's shards.
    """
    return "ours" if contender in ("bare", "per_record") else contender


@dataclass(frozen=True)
class Mode:
    """A mode in which a contender reads.

    Attributes:
        contender: The contender's name in `MODULES`.
        name: The mode's name in the tables.
        batchings: The batchings that it supports.
        orders: The orders in which it is measured.
    """

    contender: str
    name: str
    batchings: tuple[str, ...] = ("dense", "padded")
    orders: tuple[str, ...] = ORDERS


_ALL_BATCHINGS = ("dense", "padded", "ragged")
MODES = (
    Mode("bare", "bare TFRecordDataset", _ALL_BATCHINGS, (IN_ORDER,)),
    Mode("bare", "bare, shuffled", _ALL_BATCHINGS, (SHUFFLED,)),
    Mode("ours", "load", _ALL_BATCHINGS),
    Mode("ours", "load, interleave", _ALL_BATCHINGS),
    Mode("ours", "as_numpy", _ALL_BATCHINGS),
    # The modes without ragged batches have no such type: they would return a list of arrays.
    Mode("ours", "RecordSource"),
    Mode("per_record", "tf.data by record", _ALL_BATCHINGS),
    Mode("tfds", "TFDS", _ALL_BATCHINGS),
    Mode("grain", "Grain"),
    Mode("grain", "Grain, no threads"),
    Mode("grain", "Grain, 2 workers"),
    Mode("grain", "ArrayRecord, batch call"),
    Mode("webdataset", "WebDataset"),
)
# The modes whose first batch of a large dataset is timed.
FIRST_BATCH = (
    Mode("ours", "load", ("dense",)),
    Mode("ours", "load, interleave", ("dense",)),
    Mode("ours", "as_numpy", ("dense",)),
    Mode("ours", "as_numpy, interleave", ("dense",), (SHUFFLED,)),
    Mode("ours", "RecordSource", ("dense",)),
)


@dataclass(frozen=True)
class Task:
    """The dataset that a contender reads, and how.

    Attributes:
        kind: The kind of the records.
        store: The folder that the contender wrote.
        batching: `dense`, `padded` or `ragged`.
        shuffle: Read in a random order.
        epochs: Number of epochs; None repeats without end.
    """

    kind: Kind
    store: Path
    batching: str
    shuffle: bool
    epochs: int | None


def rows_of(batch: Any) -> Iterable[np.ndarray]:
    """Returns the records of a batch: an array, a tensor or a list, alone or under the name `x`."""
    value = batch["x"] if isinstance(batch, dict) else batch
    return value.numpy() if hasattr(value, "numpy") else value


def _nothing_to_import(mode: str) -> None:
    pass


@dataclass(frozen=True)
class Contender:
    """A library that stores records, and reads them as batches of `BATCH`.

    Attributes:
        modes: Name of a mode -> function that opens an iterable of batches.
        write: Writes the store, a new folder; None if it reads this project's shards.
        prepare: Imports the modules of a mode, so that the time of imports is not measured.
        rows: Returns the records of a batch, to compare them.
    """

    modes: dict[str, Callable[[Task], Iterable[Any]]]
    write: Callable[[Kind, Records, Path], None] | None = None
    prepare: Callable[[str], None] = _nothing_to_import
    rows: Callable[[Any], Iterable[np.ndarray]] = rows_of
