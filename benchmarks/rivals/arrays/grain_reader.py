"""Grain over ArrayRecord: random access, and a true global shuffle.

The pipeline follows Grain's README: source, shuffle, map, batch, then an iterator. The `MapDataset`
makes the batches, so that each thread makes whole ones; batching the iterator was a tenth as fast.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import grain
import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter
from reading import Reader, Task
from records import BATCH, Kind, Records, pad

# Grain's advice for data in memory, such as a warm page cache, where threads wait for each other.
_NO_THREADS = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)


def write(kind: Kind, records: Records, store: Path) -> None:
    """Writes the bytes of arrays: Grain leaves the encoding to its users, and none is parsed faster.

    Groups have one record, as Grain requires for random access. Nothing is compressed, because no
    other contender compresses.
    """
    store.mkdir()
    for number, shard in enumerate(records.shards()):
        writer = ArrayRecordWriter(
            str(store / f"{number:05d}.array_record"), "group_size:1,uncompressed"
        )
        for record in shard:
            writer.write(record.tobytes())
        writer.close()


def _parse(kind: Kind, data: bytes) -> np.ndarray:
    return np.frombuffer(data, kind.dtype).reshape(kind.any_shape)


def _paths(store: Path) -> list[str]:
    return sorted(str(path) for path in store.iterdir())


def _open(options: grain.ReadOptions | None, workers: int, task: Task) -> Iterable[Any]:
    records = grain.MapDataset.source(grain.sources.ArrayRecordDataSource(_paths(task.store)))
    if task.shuffle:
        records = records.shuffle(seed=0)
    collate = None if task.batching == "dense" else pad
    batches = (
        records.repeat(task.epochs)
        .map(partial(_parse, task.kind))
        .batch(BATCH, batch_fn=collate)
        .to_iter_dataset(options)
    )
    if workers:
        return batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers))
    return batches


READER = Reader(
    modes={
        "Grain": partial(_open, None, 0),
        "Grain, no threads": partial(_open, _NO_THREADS, 0),
        "Grain, 2 workers": partial(_open, _NO_THREADS, 2),
    },
    write=write,
)
