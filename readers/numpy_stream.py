"""`readers.as_numpy`: batches of NumPy arrays, in bounded memory and without TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from readers.batches.by_length import Grouped, open_grouped
from readers.batches.by_step import Stream, open_stream
from readers.batches.options import Form, ReadOptions
from readers.batches.planning import planned
from readers.format.schema import Schema
from readers.order.state import State
from readers.shards.cache import cache_of
from readers.shards.plan import Paths

Batch = dict[str, np.ndarray] | tuple[np.ndarray, ...]


def as_numpy(
    path_or_files: Paths,
    *,
    batch_size: int | Sequence[int],
    split: str | None = None,
    schema: Schema | None = None,
    columns: Sequence[str] | None = None,
    as_supervised: Sequence[str] | None = None,
    batching: str = "dense",
    mask: bool = False,
    lengths: bool = False,
    padding_values: Any = None,
    max_length: int | Mapping[str, int] | None = None,
    bucket_boundaries: Sequence[int] | Mapping[str, Sequence[int]] | None = None,
    weights: Sequence[float] | None = None,
    shuffle: bool = False,
    shuffle_buffer: int | None = None,
    order: str | None = None,
    seed: int | None = 0,
    repeat: int | None = 1,
    drop_remainder: bool = False,
    shard: tuple[int, int] = (0, 1),
    start_step: int = 0,
    state: State | str | None = None,
    on_corrupt: str = "raise",
    cache_dir: str | os.PathLike[str] | None = None,
    cache_size: int | str | None = None,
) -> Batches:
    """An iterator of batches: dicts of `np.ndarray` by feature name, or tuples of them.

    It holds one batch in memory, or as many as 2 MiB of records make, their encoded bytes, and 16
    bytes for each record of the files it has read from; of files that are not local also what it has
    fetched, 32 MiB or a window. Every record's CRC32C is checked. Strings
    are object arrays of bytes.

    Args:
        path_or_files: A dataset's directory; or, with `schema`, TFRecord files from anywhere: a
            file, a list of them, a glob, or a directory; local, or of any filesystem of fsspec.
            Those compressed with GZIP are unpacked once to count their records, cannot be
            shuffled, and are read from the front again for each epoch.
        batch_size: Records of a batch, or rows of a packed one; the last one of an epoch may have
            fewer. With buckets, a number for all of them or a list with one for each.
        split: `"train"`, `"train[:10%]"`, `"train[1000:2000]"`, ... None means the only split, or
            `train`. Files without a manifest have the one split `all`.
        schema: What is in files without a manifest; of a dataset, the features to read.
        columns: The features to read.
        as_supervised: Names of the features of a tuple to give instead of a dict.
        batching: What becomes of features of unknown shape: `dense` refuses them, `padded` fills
            them up to the longest of the batch, `ragged` gives object arrays [B] of arrays, `packed`
            puts several records into each row of `max_length`, with int32 `<name>_segment_ids`
            (from 1, 0 where there is nothing) and `<name>_positions` (from 0) beside it.
        mask: With `padded`, adds bool `<name>_mask`, true where there is a value.
        lengths: With `padded`, adds int64 `<name>_length` [B]; [B, n] for n unknown dimensions.
        padding_values: What to fill up with, for all features of numbers or by name.
        max_length: What the first unknown dimension is cut to, for all features or by name.
        bucket_boundaries: Rising lengths at which the next bucket begins: batches are made of
            records of one bucket. `{name: [...]}` where several features have a length. Each host
            has to read the records of all.
        weights: Mixes several datasets, whose directories are then a list: a number for each. Each
            begins anew when it is through; an epoch has as many records as all together.
        shuffle: Another order in each epoch, which follows from `seed` and the epoch alone.
        order: `global` (or None) shuffles all records, read by their index. `interleave` mixes
            shards and windows of records, as `load` does where it reads shards as streams.
        shuffle_buffer: Records of such a window; None means what fits 32 MiB, or 1,024 if these
            fit 128.
        seed: At least 0; None for another order in every process.
        repeat: Epochs; None or True for no end.
        drop_remainder: Leaves out the shorter last batch of each epoch.
        shard: (index, count) of this host; as for `load`.
        start_step: Begins after so many steps, without reading what they read; with buckets and
            packed rows they have to be gone through, for which `state` is quicker.
        state: Begins where another reader has stopped: what `state()` of its iterator gave, or the
            JSON of that.
        on_corrupt: `raise`, or `skip`, which leaves out records whose checksum fails, and no others,
            so that a batch may have fewer. `skipped` of the iterator counts them, the log names
            them (logger `readers`).
        cache_dir: A local directory, for datasets of a store: whole shards are fetched there when they
            are first read, held against the manifest, and read as local files from then on; any
            number of processes may share it. None to read records where they are.
        cache_size: The most it takes, as `"500GiB"` or in bytes; None for 10 GiB. The least recently
            opened shards make room for others. Of a dataset that is larger, the first shards that
            fit are kept, and the others read from the store each time.

    Raises:
        ValueError: An argument is wrong; the message names it and what is expected. Or, while
            reading, a record is damaged or does not fit the schema.
        DatasetError: (a ValueError) There is no manifest, or a shard is not as it says.
        FileNotFoundError: A file is missing.

    Example:
        >>> for batch in readers.as_numpy("shards/runs", batch_size=64, batching="padded"):
        ...     print(batch["signal"].shape)
    """
    options = ReadOptions(
        batch_size=batch_size,
        form=Form(batching, mask, lengths, padding_values, max_length),
        bucket_boundaries=bucket_boundaries,
        weights=weights,
        shuffle=shuffle,
        seed=seed,
        repeat=repeat,
        as_supervised=as_supervised,
        drop_remainder=drop_remainder,
        order=order,
        window=shuffle_buffer,
        shard=shard,
        start_step=start_step,
        state=State.of(state),
        on_corrupt=on_corrupt,
        cache=cache_of(cache_dir, cache_size),
    )
    plan, options = planned(
        path_or_files, split, schema, columns, options, scan=True, any_order=options.shuffle
    )
    stream = open_grouped(plan, options) or open_stream(plan, options)
    return Batches(stream, plan.schema, options)


class Batches(Iterator[Any]):
    """The batches of `as_numpy`, one after another."""

    def __init__(self, stream: Stream | Grouped, schema: Schema, options: ReadOptions) -> None:
        self._stream: Any = stream
        self._schema, self._options = schema, options
        self._at = stream.begin

    def __next__(self) -> Batch:
        found = self._stream.next(self._at)
        if found is None:
            raise StopIteration
        taken, self._at = found
        batch = taken.batch(self._schema, self._options.form, self._stream.memory.empty)
        names = self._options.as_supervised
        return batch if names is None else tuple(batch[name] for name in names)

    @property
    def skipped(self) -> int:
        """Damaged records that were left out so far, with `on_corrupt="skip"`."""
        skipped: int = self._stream.skipped
        return skipped

    def state(self) -> State:
        """Where to go on after the batches given so far."""
        state: State = self._stream.state(self._at, self._options.seed or 0)
        return state
