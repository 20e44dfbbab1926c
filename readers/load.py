"""`readers.load`: the `tf.data` pipeline over a dataset."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from readers.batches.options import Form, ReadOptions
from readers.format.schema import Schema
from readers.order.state import State
from readers.shards.cache import cache_of
from readers.shards.plan import Paths

if TYPE_CHECKING:
    import tensorflow as tf


def load(
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
    order: str | None = None,
    shuffle_buffer: int | None = None,
    seed: int | None = 0,
    repeat: int | None = 1,
    drop_remainder: bool = False,
    shard: tuple[int, int] = (0, 1),
    start_step: int = 0,
    state: State | str | None = None,
    on_corrupt: str = "raise",
    cache_dir: str | os.PathLike[str] | None = None,
    cache_size: int | str | None = None,
    transform: Callable[[dict[str, Any], tf.Tensor], dict[str, Any]] | None = None,
) -> tf.data.Dataset:
    """A `tf.data.Dataset` of batches: dicts of tensors by feature name, or tuples of them.

    Shapes are static wherever the schema knows them, and the cardinality is known wherever the
    number of records is. An epoch ends with a shorter batch, unless it is dropped.

    Args:
        path_or_files: A dataset's directory; or, with `schema`, TFRecord files from anywhere: a
            file, a list of them, a glob, or a directory; plain, or compressed with GZIP, which is
            read with `interleave`.
        batch_size: Records of a batch, or rows of a packed one. With buckets, a number for all of
            them or a list with one for each.
        split: `"train"`, `"train[:10%]"`, `"train[1000:2000]"`, ... None means the only split, or
            `train`. Files without a manifest have the one split `all`; slices of it need `.idx`
            files.
        schema: What is in files without a manifest; of a dataset, the features to read.
        columns: The features to read; others cost nothing.
        as_supervised: Names of the features of a tuple to give instead of a dict, for `model.fit`.
        batching: What becomes of features of unknown shape: `dense` refuses them, `padded` fills
            them up to the longest of the batch, `ragged` gives `tf.RaggedTensor`s, `packed` puts
            several records into each row of `max_length`, with int32 `<name>_segment_ids`
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
        order: `global` finds records by their index, so that a shuffle is a true one: every record
            is equally likely at every place. `interleave` reads shards as streams, with nothing
            but a graph of TensorFlow where that knows their filesystem (not s3://) and there is no
            cache; a shuffle deals out the shards to groups of 16, mixes each
            group by blocks of 16 records, and shuffles windows of that. None means `global` for
            local files with an index, `interleave` for others.
        shuffle_buffer: Records of such a window; up to three windows are held in memory. None means
            what fits 32 MiB, or 1,024 if these fit 128.
        seed: At least 0; None for another order in every process.
        repeat: Epochs; None or True for no end.
        drop_remainder: Leaves out the shorter last batch, so that the batch size is static too.
        shard: (index, count) of this host. All hosts make as many steps. With `global` they read
            the batches of one order side by side; with `interleave` each has its own part of the
            split, and of n hosts' records at most n - 1 are left out.
        start_step: Begins after so many steps, without reading what they read; with buckets and
            packed rows they have to be gone through, for which `state` is quicker.
        state: Begins where another reader has stopped: a `readers.State`, or its JSON.
        on_corrupt: `raise`, or `skip`, which leaves out records whose checksum fails, and no others,
            so that a batch may have fewer; the log names them (logger `readers`). After an error
            there is nothing to go on with: `ignore_errors` of tf.data may wait for ever, be it for a
            batch by lengths or for the end of a dataset whose cardinality is known.
        cache_dir: A local directory, for datasets of a store: whole shards are fetched there when they
            are first read, held against the manifest, and read as local files from then on; any
            number of processes may share it. None to read records where they are.
        cache_size: The most it takes, as `"500GiB"` or in bytes; None for 10 GiB. The least recently
            opened shards make room for others. Of a dataset that is larger, the first shards that
            fit are kept, and the others read from the store each time.
        transform: Is given each batch and int64 keys [B], and returns what takes its place; it
            becomes a part of the graph. A key is a pseudo-random number for a record, which follows
            from the seed, the epoch and the place of the record in the order: what draws from it,
            as `readers.transforms` does, is the same after going on and on any number of hosts.

    Raises:
        ValueError: An argument is wrong; the message names it and what is expected.
        DatasetError: (a ValueError) There is no manifest, or a shard is not as it says.
        FileNotFoundError: A file is missing.

    Example:
        >>> ds = readers.load("shards/photos", split="train", batch_size=64, shuffle=True)
    """
    from readers.tfdata.dataset import open_dataset  # Imports TensorFlow.

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
        keys=transform is not None,
    )
    return open_dataset(path_or_files, split, schema, columns, options, transform)
