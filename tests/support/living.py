"""Small datasets that commands change, and what readers see of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import readers
from beam_jobs.changes.command import change
from beam_jobs.writing.write import write
from readers.format.manifest import Manifest
from readers.format.schema import Schema
from tests.support.images import encoded

SCHEMA = Schema(
    {
        "key": ("string", ()),
        "label": ("int64", ()),
        "signal": ("float32", (None,)),
        "levels": ("float32", (2, 3)),
        "picture": ("uint8", (None, None, 1), "png"),
    }
)

SPLITS = {"train": 0.7, "val": 0.3}


def record(number: int) -> dict[str, Any]:
    """A record whose values follow from its number."""
    signal = np.arange(number % 5, dtype=np.float32) * number
    levels = np.array([[number, 1, 2], [3, 4, number / 7]], np.float32)
    picture = encoded(np.full((1 + number % 3, 2), number, np.uint8), "PNG")
    return {"label": number % 4, "signal": signal, "levels": levels, "picture": picture}


def write_living(directory: Path, numbers: Iterable[int], **options: Any) -> Manifest:
    """Writes the records with some numbers, whose keys are k0, k1 and so on."""
    records = [(f"k{number}", record(number)) for number in numbers]
    how = {"splits": SPLITS, "num_shards": 2, **options}
    return write(records, directory, SCHEMA, **how)


def command(*arguments: object) -> str:
    """Runs a command that changes a dataset; returns its output."""
    return change([str(argument) for argument in arguments])


def living(path: object) -> dict[str, list[int]]:
    """The numbers of the records of each split, in the order of reading."""
    found = {}
    for split in Manifest.read(str(path)).splits:
        source = readers.RecordSource(str(path), split, ["key"])
        found[split] = [int(record["key"][1:]) for record in source]
    return found


def batches(path: object, split: str) -> list[dict[str, list[Any]]]:
    """All batches of a shuffled epoch."""
    found = readers.as_numpy(
        str(path), 3, split=split, shuffle=True, batching="padded", remainder="short"
    )
    return [{name: np.array(value).tolist() for name, value in b.items()} for b in found]


def files_of(directory: Path) -> dict[str, bytes]:
    """Name -> content of each file of a dataset."""
    files = (path for path in Path(directory).rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}
