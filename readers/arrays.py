"""`readers.as_numpy`: batches of NumPy arrays, in bounded memory and without TensorFlow."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from readers.collate import collate
from readers.dataset import Paths, resolve
from readers.format.columns import Column
from readers.format.schema import Schema
from readers.options import BatchOptions
from readers.order import permutation
from readers.records import Records

# Read and decoded at once: some 100 calls of NumPy are shared by as many records as are in the
# processor's cache together.
_READ_RECORDS, _READ_BYTES = 4096, 1 << 21

Batch = dict[str, np.ndarray] | tuple[np.ndarray, ...]


def as_numpy(
    path_or_files: Paths,
    *,
    batch_size: int,
    split: str | None = None,
    schema: Schema | None = None,
    columns: Sequence[str] | None = None,
    as_supervised: Sequence[str] | None = None,
    batching: str = "dense",
    mask: bool = False,
    shuffle: bool = False,
    seed: int | None = 0,
    repeat: int | None = 1,
    drop_remainder: bool = False,
) -> Iterator[Any]:
    """An iterator of batches: dicts of `np.ndarray` by feature name, or tuples of them.

    It holds one batch in memory, and 16 bytes for each record of the files it has read from.
    Every record's CRC32C is checked. Strings are object arrays of bytes.

    Args:
        path_or_files: A dataset's directory; or, with `schema`, TFRecord files from anywhere: a
            file, a list of them, a glob, or a directory; local, or of any filesystem of fsspec.
        batch_size: Records of a batch; the last one of an epoch may have fewer.
        split: `"train"`, `"train[:10%]"`, `"train[1000:2000]"`, ... None means the only split, or
            `train`. Files without a manifest have the one split `all`.
        schema: What is in files without a manifest; of a dataset, the features to read.
        columns: The features to read.
        as_supervised: Names of the features of a tuple to give instead of a dict.
        batching: What becomes of features of unknown shape: `dense` refuses them, `padded` fills
            them up to the longest of the batch, `ragged` gives object arrays [B] of arrays.
        mask: With `padded`, adds bool `<name>_mask`, true where there is a value.
        shuffle: Reads all records in a random order, another one in each epoch.
        seed: What that order follows from, at least 0; None for another one in every process.
        repeat: Epochs; None or True for no end.
        drop_remainder: Leaves out the shorter last batch of each epoch.

    Raises:
        ValueError: An argument is wrong; the message names it and what is expected. Or, while
            reading, a record is damaged or does not fit the schema.
        DatasetError: (a ValueError) There is no manifest, or a shard is not as it says.
        FileNotFoundError: A file is missing.

    Example:
        >>> for batch in readers.as_numpy("shards/runs", batch_size=64, batching="padded"):
        ...     print(batch["signal"].shape)
    """
    options = BatchOptions(
        batch_size=batch_size,
        batching=batching,
        mask=mask,
        shuffle=shuffle,
        seed=seed,
        repeat=repeat,
        as_supervised=as_supervised,
        drop_remainder=drop_remainder,
    )
    plan = resolve(path_or_files, split, schema, options.columns(columns), scan=True)
    options.check(plan.schema)
    return _batches(Records(plan), options)


def _batches(records: Records, options: BatchOptions) -> Iterator[Batch]:
    schema = records.plan.schema
    for epoch in itertools.count() if options.repeat is None else range(options.repeat):
        empty = True
        for columns in _columns(records, batch_numbers(len(records), options, epoch)):
            empty = False
            batch = collate(columns, schema, options.batching, options.mask)
            if options.as_supervised is None:
                yield batch
            else:
                yield tuple(batch[name] for name in options.as_supervised)
        if empty:
            return  # An endless repetition of nothing would never return.


def _columns(records: Records, batches: Iterator[np.ndarray]) -> Iterator[dict[str, Column]]:
    """Yields the columns of each batch; small batches are read several at a time."""
    record_bytes = records.plan.record_bytes or 1
    most = min(_READ_RECORDS, int(_READ_BYTES / record_bytes))
    first = next(batches, None)
    while first is not None:
        several = [first, *itertools.islice(batches, max(most // len(first), 1) - 1)]
        yield from _read(records, several)
        first = next(batches, None)


def _read(records: Records, batches: list[np.ndarray]) -> Iterator[dict[str, Column]]:
    ends = np.cumsum([len(numbers) for numbers in batches]).tolist()
    try:
        columns = records.columns(np.concatenate(batches))
    except ValueError:
        if len(batches) == 1:
            raise
        # The batches before the one with the bad record are whole.
        for numbers in batches:
            yield records.columns(numbers)
        return
    for start, end in itertools.pairwise([0, *ends]):
        yield {name: column.part(start, end) for name, column in columns.items()}


def batch_numbers(records: int, options: BatchOptions, epoch: int) -> Iterator[np.ndarray]:
    """The numbers, int64 [batch size], of the records of each batch of an epoch."""
    order = permutation(records, options.seed or 0, epoch) if options.shuffle else None
    last = records - records % options.batch_size if options.drop_remainder else records
    for start in range(0, last, options.batch_size):
        stop = min(start + options.batch_size, last)
        yield np.arange(start, stop) if order is None else order[start:stop]
