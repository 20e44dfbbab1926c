"""The records of one batch as columns, before they become arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from readers.batches.batch_format import BATCH_MASK, BatchFormat
from readers.batches.collate import collate, pack
from readers.batches.options import ReadOptions
from readers.format.decode.column import Allocator, FeatureColumn, column_of, merged
from readers.format.dtypes import numpy_dtype
from readers.format.schema import Feature, Schema
from readers.order.permutation import record_keys


class Group(NamedTuple):
    """The records of one batch, of all hosts together or of one.

    All arrays are int64 [k]: `places` in the epoch, in order; `rows` of the batch, None if each record has a separate
    row; `numbers` in the plan, empty until they are computed from the order. `size` is the number of rows in a full batch,
    `after` the cursor of the next one.
    """

    places: np.ndarray
    size: int
    rows: np.ndarray | None = None
    bucket: int | None = None
    after: Any = None
    numbers: np.ndarray = np.empty(0, np.int64)


@dataclass(frozen=True)
class BatchSlice:
    """This host's records of one batch, all of one epoch.

    `mask`, bool [B], is true for rows that hold records; None if the batch has no mask.
    """

    columns: Mapping[str, FeatureColumn]
    epoch: int
    group: Group
    mask: np.ndarray | None = None

    def padded(self, schema: Mapping[str, Feature]) -> BatchSlice:
        """Adds a mask, and fills the batch with rows of zeros and empty strings, with a size of 0 in unknown dimensions."""
        rows, size, columns = self.group.rows, self.group.size, self.columns
        count = len(self.group.places) if rows is None else int(rows.max(initial=-1)) + 1
        if rows is None and count < size:
            first, more = np.arange(count), np.arange(count, size)
            columns = {
                n: merged(schema[n], [(first, column), (more, _blank(schema[n], len(more)))])
                for n, column in columns.items()
            }
        return replace(self, columns=columns, mask=np.arange(size) < count)

    def keys(self, seed: int, part: int) -> np.ndarray:
        """A pseudo-random number for each row, int64 [B]: the key of its first record, 0 for padding."""
        places, rows = self.group.places, self.group.rows
        if rows is not None:
            places = places[np.unique(rows, return_index=True)[1]]
        keys = record_keys(places, (seed, self.epoch, part))
        return keys if self.mask is None else np.pad(keys, (0, len(self.mask) - len(keys)))

    def arrays(
        self, schema: Mapping[str, Feature], batch_format: BatchFormat, empty: Allocator
    ) -> dict[str, np.ndarray]:
        """The arrays of the batch by name; `empty` allocates large ones."""
        rows = self.group.rows
        if rows is None:
            batch = collate(self.columns, schema, batch_format, empty, self.group.bucket)
        else:
            count = int(rows.max()) + 1 if self.mask is None else len(self.mask)
            batch = pack(self.columns, schema, batch_format, rows, count, empty)
        return batch if self.mask is None else {**batch, BATCH_MASK: self.mask}


def _blank(feature: Feature, count: int) -> FeatureColumn:
    """A column of `count` records without values."""
    filler: Any = b"" if feature.dtype == "string" else 0
    sizes = [size or 0 for size in feature.shape]
    if feature.is_sequence:
        blank: Any = [np.full(sizes[1:], filler, numpy_dtype(feature.dtype))] * sizes[0]
    else:
        blank = np.full(sizes, filler, numpy_dtype(feature.dtype))
    return column_of(feature, [blank] * count)


Transform = Callable[[dict[str, Any], np.ndarray], dict[str, Any]]


@dataclass(frozen=True)
class ToArrays:
    """Makes a batch from records: a dict of arrays, transformed, or a tuple of some of them."""

    schema: Schema
    options: ReadOptions
    transform: Transform | None

    def __call__(self, records: BatchSlice, empty: Allocator) -> Any:
        options = self.options
        batch = records.arrays(self.schema, options.format, empty)
        if self.transform is not None:
            keys = records.keys(options.seed or 0, options.part_of_host or 0)
            batch = self.transform(batch, keys)
        names = options.as_supervised
        return batch if names is None else tuple(batch[name] for name in names)
