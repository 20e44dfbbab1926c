"""Grain over ArrayRecord, decoded with OpenCV in Grain's threads or in worker processes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import grain
import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter
from pictures import BATCH, NUM_SHARDS, files_of
from reading import Reader, Task
from rivals.pictures.opencv import read

# Grain's advice for data in memory, such as a warm page cache, where threads wait for each other.
_NO_THREADS = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)


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


class _Read(grain.transforms.RandomMap):
    """Decodes a picture, with the numbers that Grain draws for its record."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def random_map(self, element: bytes, rng: np.random.Generator) -> np.ndarray:
        return read(self._task, element, rng)


def _open(in_processes: bool, task: Task) -> Iterable[Any]:
    cv2.setNumThreads(1)
    batches = (
        grain.MapDataset.source(grain.sources.ArrayRecordDataSource(paths_of(task.store)))
        .shuffle(seed=0)
        .repeat(task.epochs)
        .random_map(_Read(task), seed=0)
        .batch(BATCH)
    )
    if in_processes:
        options = grain.MultiprocessingOptions(num_workers=task.cores)
        return batches.to_iter_dataset(_NO_THREADS).mp_prefetch(options)
    # Grain would read 500 batches ahead, 18 GB.
    options = grain.ReadOptions(num_threads=task.cores, prefetch_buffer_size=2 * task.cores)
    return batches.to_iter_dataset(options)


READER = Reader(
    modes={"Grain, threads": partial(_open, False), "Grain, processes": partial(_open, True)},
    write=write,
)
