"""The records of one batch as columns, before they become arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from readers.batches.batch_format import BatchFormat
from readers.batches.collate import collate, pack
from readers.format.decode.column import Allocator, FeatureColumn
from readers.format.schema import Feature


@dataclass(frozen=True)
class BatchSlice:
    """This host's records of one batch; all are of one epoch.

    Attributes:
        columns: The features by name, truncated to their limits.
        epoch: The epoch.
        places: int64 [records], the place of each record in the epoch.
        rows: int64 [records], the row of each record in a packed batch; None if every record has a
            row of its own.
    """

    columns: Mapping[str, FeatureColumn]
    epoch: int
    places: np.ndarray
    rows: np.ndarray | None = None

    def arrays(
        self, schema: Mapping[str, Feature], batch_format: BatchFormat, empty: Allocator
    ) -> dict[str, np.ndarray]:
        """The arrays of the batch by name; large ones are allocated by `empty`."""
        if self.rows is None:
            return collate(self.columns, schema, batch_format, empty)
        return pack(self.columns, schema, batch_format, self.rows, empty)
