"""`readers.as_numpy`: batches of NumPy arrays, in bounded memory and without TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from readers.collate import collate
from readers.dataset import Paths, resolve
from readers.format.schema import Schema
from readers.options import BatchOptions
from readers.schedule import State
from readers.stream import Stream, open_stream

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
    shuffle_buffer: int | None = None,
    order: str | None = None,
    seed: int | None = 0,
    repeat: int | None = 1,
    drop_remainder: bool = False,
    shard: tuple[int, int] = (0, 1),
    start_step: int = 0,
    state: State | str | None = None,
    on_corrupt: str = "raise",
) -> Batches:
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
        shuffle: Another order in each epoch, which follows from `seed` and the epoch alone.
        order: `global` (or None) shuffles all records, read by their index. `interleave` mixes
            shards and windows of records, as `load` does where it reads shards as streams.
        shuffle_buffer: Records of such a window; None means what fits 128 MiB.
        seed: At least 0; None for another order in every process.
        repeat: Epochs; None or True for no end.
        drop_remainder: Leaves out the shorter last batch of each epoch.
        shard: (index, count) of this host; as for `load`.
        start_step: Begins after so many steps, without reading what they read.
        state: Begins where another reader has stopped: what `state()` of its iterator gave, or the
            JSON of that.
        on_corrupt: `raise`, or `skip`, which leaves out records whose checksum fails, and no others,
            so that a batch may have fewer. `skipped` of the iterator counts them, the log names
            them (logger `readers`).

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
        order=order,
        window=shuffle_buffer,
        shard=shard,
        start_step=start_step,
        state=State.of(state),
        on_corrupt=on_corrupt,
    )
    plan = resolve(
        path_or_files,
        split,
        schema,
        options.columns(columns),
        scan=True,
        cut=on_corrupt == "skip",
    )
    options.check(plan.schema)
    return Batches(open_stream(plan, options), plan.schema, options)


class Batches(Iterator[Any]):
    """The batches of `as_numpy`, one after another."""

    def __init__(self, stream: Stream, schema: Schema, options: BatchOptions) -> None:
        self._stream, self._schema, self._options = stream, schema, options
        self._step = 0

    def __next__(self) -> Batch:
        steps = self._stream.schedule.steps
        if steps is not None and self._step >= steps:
            raise StopIteration
        options = self._options
        columns = self._stream.columns(self._step)
        self._step += 1
        batch = collate(
            columns, self._schema, options.batching, options.mask, self._stream.memory.empty
        )
        if options.as_supervised is None:
            return batch
        return tuple(batch[name] for name in options.as_supervised)

    @property
    def skipped(self) -> int:
        """Damaged records that were left out so far, with `on_corrupt="skip"`."""
        return self._stream.skipped

    def state(self) -> State:
        """Where to go on after the batches given so far."""
        return self._stream.state(self._step, self._options.seed or 0)
