"""ArrayRecord's own batch call, and a pool of threads that decodes its records with OpenCV."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np
from array_record.python.array_record_data_source import ArrayRecordDataSource
from array_record.python.array_record_module import ArrayRecordWriter
from pictures.contender import Contender, Task
from pictures.kinds import BATCH, NUM_SHARDS
from pictures.truth import files_of
from rivals.pictures.opencv import read


def write(folder: Path, store: Path) -> None:
    """Writes the files' own bytes; groups have one record, as random access needs."""
    store.mkdir()
    files = files_of(folder)
    for number in range(NUM_SHARDS):
        path = store / f"{number:05d}.array_record"
        writer = ArrayRecordWriter(str(path), "group_size:1,uncompressed")
        for file in files[number::NUM_SHARDS]:
            writer.write(Path(file).read_bytes())
        writer.close()


def paths_of(store: Path) -> list[str]:
    """Returns the files of a store, sorted."""
    return sorted(str(path) for path in store.iterdir())


def _open(task: Task) -> Iterator[np.ndarray]:
    cv2.setNumThreads(1)  # the pool has as many threads as there are cores
    source = ArrayRecordDataSource(paths_of(task.store))
    rng = np.random.default_rng(0)

    def batches() -> Iterator[list[int]]:
        for _ in itertools.count() if task.epochs is None else range(task.epochs):
            order = rng.permutation(len(source)).tolist()
            yield from (order[first : first + BATCH] for first in range(0, len(order), BATCH))

    def read_one(item: tuple[bytes, np.random.Generator]) -> np.ndarray:
        return read(task, *item)

    def read_batch(pool: ThreadPoolExecutor, places: list[int]) -> Iterator[np.ndarray]:
        records = source.__getitems__(places)
        return pool.map(read_one, zip(records, rng.spawn(len(places)), strict=True))

    with ThreadPoolExecutor(task.cores) as pool:
        ahead = None  # the next batch is decoded while the caller has this one
        for places in batches():
            images = read_batch(pool, places)
            if ahead is not None:
                yield np.stack(list(ahead))
            ahead = images
        if ahead is not None:
            yield np.stack(list(ahead))


CONTENDER = Contender(modes={"ArrayRecord, batch call": _open}, write=write)
