"""Batches of records that a `DataLoader` of PyTorch makes, for the libraries that are read through one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from reading import Task
from records import Row, collate


class Collate:
    """Makes a batch of tensors, which workers hand over in shared memory; texts stay lists.

    Args:
        task: The records to read.
        columns: The names of all features.
    """

    def __init__(self, task: Task, columns: Iterable[str]) -> None:
        self._names, self._batching = task.kind.names(task.columns, columns), task.batching

    def __call__(self, rows: Sequence[Row]) -> dict[str, Any]:
        batch = collate(rows, self._names, self._batching)
        return {
            name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
            for name, value in batch.items()
        }
