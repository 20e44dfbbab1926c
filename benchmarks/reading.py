"""The interface of a contender of `read_shards.py`, and the work of its process.

The module of a contender has a `READER`, and reads records of arrays (`records.py`) or photographs (`pictures.py`).
"""

from __future__ import annotations

import importlib
import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pictures
import records
from measure import session_cpu_seconds

# Not measured after the first batch: workers are filling their queues, and tf.data is still
# choosing its number of threads.
_WARM_SECONDS = 1.0


@dataclass(frozen=True)
class Task:
    """The records that a contender reads, and how.

    Attributes:
        kind: The kind of the records, a `records.Kind` or `pictures.PictureKind`.
        store: The contender's folder, or that of the photographs.
        epochs: Number of epochs; None repeats without end.
        batching: Of arrays: `dense`, `padded` or `ragged`.
        columns: Of arrays: `all`, or `chosen` for one feature and the label.
        dtype: Of pictures: the dtype of the results.
        cores: The cores that the process may use, and so the workers that a contender starts.
    """

    kind: Any
    store: Path
    epochs: int | None
    batching: str = "dense"
    columns: str = "all"
    dtype: str = "uint8"
    cores: int = 1


def epochs_of(loader: Any, task: Task) -> Iterator[Any]:
    """Yields the batches of all epochs of a loader."""
    for _ in itertools.count() if task.epochs is None else range(task.epochs):
        yield from loader


def rows_of(batch: Any) -> Any:
    """Returns the records of a batch: an array, a tensor or a list, or the only value of a dict."""
    return next(iter(batch.values())) if isinstance(batch, dict) else batch


def _nothing_to_import(mode: str) -> None:
    pass


@dataclass(frozen=True)
class Reader:
    """A library that stores records, and reads them in batches.

    Attributes:
        modes: Name of a mode -> function that opens an iterable of batches, in random order; or of the numbers of
            records that were taken within a graph.
        write: Writes the store, a new folder; None if it reads the store of another contender. Its arguments
            are the kind and the `Records` of arrays, or the folder of the photographs.
        prepare: Imports the modules of a mode, so that the time of imports is not measured.
        rows: Returns the pictures of a batch, [B, height, width, 3] or [B, 3, height, width]. Batches of arrays are
            dicts by feature name.
    """

    modes: dict[str, Callable[[Task], Iterable[Any]]]
    write: Callable[..., None] | None = None
    prepare: Callable[[str], None] = _nothing_to_import
    rows: Callable[[Any], Any] = rows_of


def _kind(name: str) -> Any:
    return records.KINDS.get(name) or pictures.KINDS[name]


def _reader(module: str) -> Reader:
    reader: Reader = importlib.import_module(module).READER
    return reader


def write(module: str, kind: str, folder: str, store: str) -> None:
    """Writes the store of a contender.

    Args:
        module: The module of the contender.
        kind: The name of the kind.
        folder: The folder with the records or the photographs.
        store: A new folder, or a file if the contender writes one.
    """
    reader = _reader(module)
    assert reader.write
    if kind in records.KINDS:
        reader.write(records.KINDS[kind], records.Records(Path(folder)), Path(store))
    else:
        reader.write(Path(folder), Path(store))


def check(module: str, mode: str, kind: str, folder: str, store: str, **how: Any) -> None:
    """Checks that an epoch of a mode has all records, whatever their order.

    Raises:
        BenchmarkError: It does not.
    """
    reader, task = _reader(module), Task(_kind(kind), Path(store), 1, **how)
    reader.prepare(mode)
    batches = reader.modes[mode](task)
    if kind in records.KINDS:
        expected = records.Records(Path(folder))
        records.check(task.kind, task.batching, task.columns, expected, batches)
    else:
        batches = map(reader.rows, batches)
        pictures.check(task.kind, task.dtype, Path(folder), batches)


def time_batches(
    module: str, mode: str, kind: str, store: str, seconds: float, **how: Any
) -> dict[str, float]:
    """Returns the seconds to the first batch, records per second, and processor time per record."""
    reader, task = _reader(module), Task(_kind(kind), Path(store), None, **how)
    reader.prepare(mode)
    clock, session = time.perf_counter, os.getsid(0)
    began = clock()
    batches = iter(reader.modes[mode](task))
    next(batches)
    first = clock() - began
    until = clock() + _WARM_SECONDS
    while clock() < until:
        next(batches)
    count, cpu, began = 0, session_cpu_seconds(session), clock()
    while (now := clock()) < began + seconds:
        # The last batch is released when the next one arrives, as in training.
        batch = next(batches)
        if isinstance(batch, int):
            count += batch
        else:  # Epochs of arrays have no partial batch.
            count += records.BATCH if kind in records.KINDS else len(reader.rows(batch))
    cpu = session_cpu_seconds(session) - cpu
    return {
        "first_seconds": first,
        "records_per_second": count / (now - began),
        "cpu_per_record": cpu / count,
    }
