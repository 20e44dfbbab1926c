"""The records of one batch as columns, before they become arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from readers.batches.batch_format import BATCH_MASK, BatchFormat
from readers.batches.collate import collate, pack
from readers.format.decode.column import Allocator, FeatureColumn, column_of, merged
from readers.format.dtypes import numpy_dtype
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
        mask: bool [B], which rows of the batch hold records; None if all do, and no mask is wanted.
    """

    columns: Mapping[str, FeatureColumn]
    epoch: int
    places: np.ndarray
    rows: np.ndarray | None = None
    mask: np.ndarray | None = None

    def padded(self, schema: Mapping[str, Feature], size: int) -> BatchSlice:
        """The slice with a mask, and with rows that hold no record after its own.

        Such a row has zeros and empty strings, and 0 wherever a size is unknown.

        Args:
            schema: The features.
            size: The number of rows in the batch.
        """
        count = len(self.places) if self.rows is None else int(self.rows.max(initial=-1)) + 1
        columns = self.columns
        if self.rows is None and count < size:
            first, more = np.arange(count), np.arange(count, size)
            columns = {
                name: merged(
                    schema[name], [(first, column), (more, _blank(schema[name], len(more)))]
                )
                for name, column in columns.items()
            }
        return replace(self, columns=columns, mask=np.arange(size) < count)

    def arrays(
        self, schema: Mapping[str, Feature], batch_format: BatchFormat, empty: Allocator
    ) -> dict[str, np.ndarray]:
        """The arrays of the batch by name; large ones are allocated by `empty`."""
        if self.rows is None:
            batch = collate(self.columns, schema, batch_format, empty)
        else:
            count = int(self.rows.max()) + 1 if self.mask is None else len(self.mask)
            batch = pack(self.columns, schema, batch_format, self.rows, count, empty)
        return batch if self.mask is None else {**batch, BATCH_MASK: self.mask}


def _blank(feature: Feature, count: int) -> FeatureColumn:
    """A column of records without values."""
    filler: Any = b"" if feature.dtype == "string" else 0
    sizes = [size or 0 for size in feature.shape]
    if feature.is_sequence:
        blank: Any = [np.full(sizes[1:], filler, numpy_dtype(feature.dtype))] * sizes[0]
    else:
        blank = np.full(sizes, filler, numpy_dtype(feature.dtype))
    return column_of(feature, [blank] * count)
