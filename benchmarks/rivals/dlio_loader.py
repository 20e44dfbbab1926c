"""Our reader as a data loader of DLIO, the program that MLPerf Storage runs; `dlio.py` calls it.

DLIO gives the files that it wrote, the size of a batch and the number of the process. The loader makes
the batches with `readers.as_numpy`, in a random order of all records.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from dlio_benchmark.common.enumerations import DataLoaderType
from dlio_benchmark.data_loader.base_data_loader import BaseDataLoader

import readers


class Loader(BaseDataLoader):
    """Batches of all values of the pictures, uint8; DLIO's own reader decodes none of them."""

    def __init__(self, format_type: Any, dataset_type: Any, epoch: int) -> None:
        super().__init__(format_type, dataset_type, epoch, DataLoaderType.TENSORFLOW)

    def read(self) -> None:
        """Begins to read the training files, whose pictures are squares, or of many sizes."""
        varies = self._args.record_length_stdev > 0
        size = None if varies else math.isqrt(int(self._args.record_length)) ** 2
        schema = readers.Schema({"image": readers.Feature("uint8", (size,), encoding="raw")})
        batches = readers.as_numpy(
            self._args.file_list_train,
            schema=schema,
            batch_size=self.batch_size,
            batching="padded" if varies else "dense",
            shuffle=True,
            seed=self._args.seed,
            shard=(self._args.my_rank, self._args.comm_size),
            remainder="drop",
            repeat=None,
            prefetch=2,
        )
        self._batches = iter(batches)

    def next(self) -> Iterator[Any]:
        """Yields batches without end; DLIO counts the steps of an epoch."""
        super().next()
        yield from self._batches

    def finalize(self) -> None:
        """Keeps the files open: DLIO calls this after each epoch."""
