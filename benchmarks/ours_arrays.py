"""This project: datasets that its jobs wrote, read by `load`, `as_numpy` and `RecordSource`."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from reading import Reader, Task
from records import BATCH, Kind, Records, Row, collate

import readers


def write(kind: Kind, records: Records, store: Path) -> None:
    """Links the dataset, which the job wrote."""
    store.symlink_to(records.folder / "dataset")


def _prepare(mode: str) -> None:
    if mode not in ("as_numpy", "RecordSource"):
        importlib.import_module("readers.tfdata.dataset")  # imports TensorFlow


def _columns(task: Task) -> list[str] | None:
    return None if task.columns == "all" else task.kind.names(task.columns, ())


def _read(reader: Any, by: Any, task: Task) -> Any:
    return reader(
        task.store,
        BATCH,
        columns=_columns(task),
        batching=task.batching,
        shuffle=readers.Order(by=by),
        repeat=task.epochs,
    )


def _in_graph(by: Any, task: Task) -> Iterator[int]:
    from rivals.arrays.in_graph import read_in_graph

    return read_in_graph(_read(readers.load, by, task))


def _from_source(task: Task) -> Iterator[Row]:
    """Yields batches like PyTorch's DataLoader: fetches the records of a list of indices, stacks them."""
    source = readers.RecordSource(task.store, columns=_columns(task))
    rng, names = np.random.default_rng(0), list(source.schema)
    for _ in itertools.count() if task.epochs is None else range(task.epochs):
        order = rng.permutation(len(source))
        for first in range(0, len(order), BATCH):
            records = source.__getitems__(order[first : first + BATCH].tolist())
            yield collate(records, names, task.batching)


READER = Reader(
    modes={
        "as_numpy": partial(_read, readers.as_numpy, "global"),
        "as_numpy, interleave": partial(_read, readers.as_numpy, "interleave"),
        "load, loop": partial(_read, readers.load, "global"),
        "load, graph": partial(_in_graph, "global"),
        "load, graph, interleave": partial(_in_graph, "interleave"),
        "RecordSource": _from_source,
    },
    write=write,
    prepare=_prepare,
)
