"""Grain over ArrayRecord, decoded with OpenCV in Grain's threads or in worker processes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import cv2
import grain
import numpy as np
from pictures.contender import Contender, Task
from pictures.kinds import BATCH
from rivals.pictures.array_record_reader import paths_of
from rivals.pictures.opencv import read

# Grain's advice for data in memory, such as a warm page cache, where threads wait for each other.
_NO_THREADS = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)


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


CONTENDER = Contender(
    modes={"Grain, threads": partial(_open, False), "Grain, processes": partial(_open, True)}
)
