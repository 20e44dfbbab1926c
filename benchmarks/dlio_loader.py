"""Our reader as a data loader of DLIO, the program that MLPerf Storage runs.

    dlio_benchmark workload=resnet50_h100 ++workload.reader.data_loader_classname=dlio_loader.Loader …

It reads the TFRecord files that DLIO writes in a random order of all records, which DLIO's own reader
does not, and shares them between DLIO's ranks. docs/figures.md has the commands.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from dlio_benchmark.common.enumerations import DataLoaderType
from dlio_benchmark.data_loader.base_data_loader import BaseDataLoader

import readers


class Loader(BaseDataLoader):
    """Batches of `readers.as_numpy`."""

    def __init__(self, format_type: Any, dataset_type: Any, epoch: int) -> None:
        super().__init__(format_type, dataset_type, epoch, DataLoaderType.TENSORFLOW)

    def read(self) -> None:
        """Opens the files of the training set."""
        image = math.isqrt(int(self._args.record_length)) ** 2  # DLIO writes square images.
        schema = readers.Schema({"image": readers.Feature("uint8", (image,), encoding="raw")})
        self._batches = readers.as_numpy(
            self._args.file_list_train,
            schema=schema,
            batch_size=self.batch_size,
            shuffle=True,
            seed=self._args.seed,
            shard=(self._args.my_rank, self._args.comm_size),
            remainder="drop",
            repeat=None,
            prefetch=2,
        )

    def next(self) -> Iterator[Any]:
        """Yields batches without end; DLIO counts the steps."""
        super().next()
        yield from self._batches

    def finalize(self) -> None:
        """Closes nothing: the reader is released with this object."""
