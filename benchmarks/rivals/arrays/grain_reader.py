"""ArrayRecord's batch call, and Grain over it: random access, and a true global shuffle.

The pipeline follows Grain's README: source, shuffle, map, batch, then an iterator. The `MapDataset`
makes the batches, so that each thread makes whole ones; batching the iterator was a tenth as fast.
"""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grain
import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter
from reading import Reader, Task
from records import BATCH, Kind, Records, Row, collate

# Grain's advice for data in memory, such as a warm page cache, where threads wait for each other.
_NO_THREADS = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
_COLUMNS = "columns.json"

Columns = dict[str, tuple[str, list[int | None]]]


def write(kind: Kind, records: Records, store: Path) -> None:
    """Writes the bytes of values behind their sizes: Grain leaves the encoding to its users, and none is parsed faster.

    Groups have one record, as Grain requires for random access. Nothing is compressed, because no
    other contender compresses.
    """
    store.mkdir()
    (store / _COLUMNS).write_text(json.dumps(records.columns))
    for number, shard in enumerate(records.shards()):
        path = store / f"{number:05d}.array_record"
        writer = ArrayRecordWriter(str(path), "group_size:1,uncompressed")
        for record in shard:
            values = [
                v if isinstance(v, bytes) else np.asarray(v).tobytes() for v in record.values()
            ]
            sizes = struct.pack(f"<{len(values)}I", *map(len, values))
            writer.write(b"".join([sizes, *values]))
        writer.close()


def _parse(columns: Columns, names: set[str], data: bytes) -> Row:
    sizes, begin, row = struct.unpack_from(f"<{len(columns)}I", data), 4 * len(columns), {}
    for (name, (dtype, shape)), size in zip(columns.items(), sizes, strict=True):
        if name in names and dtype == "string":
            row[name] = data[begin : begin + size]
        elif name in names:
            flat = np.frombuffer(data[begin : begin + size], dtype)
            row[name] = flat.reshape([-1 if d is None else d for d in shape]) if shape else flat[0]
        begin += size
    return row


def _opened(task: Task) -> tuple[Any, Any, list[str]]:
    """Returns the source, the function that parses a record, and the names of what is read."""
    columns: Columns = json.loads((task.store / _COLUMNS).read_text())
    names = task.kind.names(task.columns, columns)
    paths = sorted(str(path) for path in task.store.glob("*.array_record"))
    source = grain.sources.ArrayRecordDataSource(paths)
    return source, partial(_parse, columns, {*names}), names


def _batch_call(task: Task) -> Iterator[Row]:
    source, parse, names = _opened(task)
    rng = np.random.default_rng(0)
    for _ in itertools.count() if task.epochs is None else range(task.epochs):
        order = rng.permutation(len(source))
        for first in range(0, len(order), BATCH):
            found = source.__getitems__(order[first : first + BATCH].tolist())
            yield collate([*map(parse, found)], names, task.batching)


def _collate(names: list[str], batching: str, rows: list[Row]) -> Row:
    return collate(rows, names, batching)


def _open(options: grain.ReadOptions | None, workers: int, task: Task) -> Iterable[Any]:
    source, parse, names = _opened(task)
    batches = (
        grain.MapDataset.source(source)
        .shuffle(seed=0)
        .repeat(task.epochs)
        .map(parse)
        .batch(BATCH, batch_fn=partial(_collate, names, task.batching))
        .to_iter_dataset(options)
    )
    if workers:
        return batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers))
    return batches


READER = Reader(
    modes={
        "ArrayRecord, batch call": _batch_call,
        "Grain": partial(_open, None, 0),
        "Grain, no threads": partial(_open, _NO_THREADS, 0),
        "Grain, 2 workers": partial(_open, _NO_THREADS, 2),
    },
    write=write,
)
