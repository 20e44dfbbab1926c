"""`readers.load`: a `tf.data` pipeline over a dataset."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from readers.batches.batch_format import Batching, PadTo
from readers.batches.options import OnCorrupt, OrderName
from readers.batches.planning import options_of
from readers.decoders.decoder import Decoder
from readers.format.schema import Feature, Schema
from readers.hosts import InputContext
from readers.order.schedule import Remainder
from readers.order.state import State
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
    batching: Batching = "dense",
    mask: bool = False,
    lengths: bool = False,
    padding_values: Any = None,
    max_length: int | Mapping[str, int] | None = None,
    pad_to: PadTo = "longest",
    bucket_boundaries: Sequence[int] | Mapping[str, Sequence[int]] | None = None,
    weights: Sequence[float] | None = None,
    shuffle: bool = False,
    order: OrderName | None = None,
    shuffle_buffer: int | None = None,
    seed: int | None = 0,
    repeat: int | None = 1,
    remainder: Remainder | None = None,
    drop_remainder: bool = False,
    shard: tuple[int, int] | Literal["auto"] | InputContext = (0, 1),
    start_step: int = 0,
    state: State | str | None = None,
    on_corrupt: OnCorrupt = "raise",
    cache_dir: str | os.PathLike[str] | None = None,
    cache_size: int | str | None = None,
    decoders: Mapping[str, Decoder] | None = None,
    map: Callable[[dict[str, Any], tf.Tensor], dict[str, Any]] | None = None,
    map_schema: Mapping[str, Feature | tuple[Any, ...]] | None = None,
    transform: Callable[[dict[str, Any], tf.Tensor], dict[str, Any]] | None = None,
    reshuffle_each_iteration: bool = True,
) -> tf.data.Dataset[Any]:
    """A `tf.data.Dataset` of batches: dicts of tensors by feature name, or tuples of them.

    Shapes are static wherever the schema knows them, and so is the cardinality if the number of
    records is known. Each new pass over the dataset reads the next epochs; a look at a batch is a pass too.
    The arguments follow in groups, each with its default; docs/reading.md explains them.

    What to read, as in `split="train[:90%]", columns=["image", "label"]`:
        path_or_files: A dataset's directory; a list of directories, which are read one after
            another or mixed by `weights`; or, with `schema`, TFRecord files: a file, a list of
            files, a glob, or a directory.
        split (None): `"train"`, `"train[:10%]"`, `"train[1000:2000]"`, ... None means the only
            split, or `train`. Files without a manifest have the single split `all`.
        schema (None): The features of files without a manifest; for a dataset, the features to
            read. It may fix sizes that are None in the manifest, ask for the bytes of pictures with
            `Feature("string")`, and give the dtype and shape of raw bytes that are stored as a
            string.
        columns (None): The features to read; the others are not decoded. None reads all.
        as_supervised (None): Feature names: each batch is a tuple of these instead of a dict. Name
            the arrays that `mask` and `lengths` add, too: `("signal", "signal_mask", "label")`.
        weights (None): Mixes several datasets: one number for each. A dataset that runs out starts
            over; an epoch has as many records as all of them together.

    Batches, as in `batch_size=64, batching="padded", mask=True, max_length=400`:
        batch_size: Records per batch, or rows per packed batch; with buckets, also a list with one
            size for each. `remainder` says what becomes of the last batch of an epoch.
        remainder (None): For the last batch of an epoch, if the records do not fill it. `short` (or
            None) makes it smaller; it shares the records evenly and leaves out those that remain,
            up to count - 1 of `shard`. With a shuffle, these are others in each epoch. By length,
            up to count - 1 rows of each bucket, or of the packed batches, are left out. `drop`
            drops the batch. `pad` reads every record: it fills the batch with rows of zeros, empty
            strings and padding, and adds bool `batch_mask` [B] to every batch, true where a row
            holds records. Both `drop` and `pad` make the batch size static.
        drop_remainder (False): True is the same as `remainder="drop"`.
        batching ("dense"): For features of unknown shape: `dense` refuses them, unless the manifest
            states that all records of all splits are of one size; `padded` pads to the longest in
            the batch; `ragged` returns `tf.RaggedTensor`s; `packed` puts several records into each
            row and adds int32 `<name>_segment_ids` (0 is padding) and `<name>_positions`.
        mask (False): With `padded`, adds bool `<name>_mask`, true where there is a value.
        lengths (False): With `padded`, adds int64 `<name>_length` [B], or [B, n] for n unknown
            dimensions.
        padding_values (None): The padding, for all numeric features or by name; None means 0 and
            b"".
        max_length (None): Truncates the first unknown dimension to this size, for all features or
            by name; with `packed`, the length of a row.
        pad_to ("longest"): With `padded`, `longest` pads to the longest in the batch. `max_length`
            pads the first unknown dimension to `max_length`, in buckets to the longest length of
            the bucket (boundary - 1; max_length in the last one), so that `jax.jit` compiles once,
            or once for each bucket. Further unknown dimensions are padded to the longest in the
            batch.
        bucket_boundaries (None): Increasing lengths at which a new bucket starts: all records of a
            batch are from one bucket. `{name: [...]}` if several features have a length.

    Order, as in `shuffle=True, seed=7, repeat=None`:
        shuffle (False): Gives each epoch its own random order, which depends only on `seed` and the
            epoch.
        order (None): `global` makes every record equally likely at every place of a shuffle. `interleave`
            reads shards from front to back, 16 at a time, and shuffles windows. None means `global`
            for shards on local disks or in the cache, else `interleave`.
        shuffle_buffer (None): Records shuffled together in the order `interleave`. None means 32
            MiB of records, or 1,024 records if these fit into 128 MiB. Up to three windows are in
            memory.
        seed (0): At least 0, and the same on all hosts. None draws one, for a single host alone.
        repeat (1): The number of epochs in each pass over the dataset, such as the one that Keras
            makes in an epoch; None or True repeats without end. A pass that resumes ends where it
            would have ended, and one that resumes there reads the epochs of the next pass.
        reshuffle_each_iteration (True): Whether each new pass over the dataset reads the next
            epochs. Every `iter(ds)` begins a pass: `next(iter(ds))` and `ds.take(1)` move the
            following pass on by `repeat` epochs. False makes all passes read the same epochs from
            the same start, and so does `repeat=None`.

    Hosts, as in `shard="auto"`:
        shard ((0, 1)): (index, count) of this host. In each step, all hosts have batches of the
            same size. `"auto"` finds them in `torch.distributed`, JAX, `TF_CONFIG`, or `RANK` and
            `WORLD_SIZE`, whichever is set up first in this list, and multiplies them by the worker
            processes of a PyTorch `DataLoader`. A `tf.distribute.InputContext` is accepted, too.

    Resuming, as in `start_step=12_000`:
        start_step (0): Starts after this many steps without reading their records, in the order
            that a run from step 0 has. By length, the records must be read: use `state` to avoid
            that.
        state (None): Resumes where another reader stopped: a `readers.State`, as
            `as_numpy(...).state()` returns, or its JSON.

    Damage and stores, as in `on_corrupt="skip", cache_dir="/local/cache", cache_size="500GiB"`:
        on_corrupt ("raise"): `raise`, or `skip`, which gives the next good record of the order in
            place of one whose checksum fails; by length, such a record is left out. They are logged
            (logger `readers`). Do not use `ignore_errors` of tf.data instead: after an error the
            dataset may hang.
        cache_dir (None): A local directory in which to keep whole shards of a store, for any number
            of processes (docs/object_stores.md). None reads the records in place.
        cache_size (None): The maximum size of the cache, as `"500GiB"` or in bytes; None means 10
            GiB.

    Records, as in `decoders={"image": readers.decoders.RandomResizedCrop(224)}, map=mix`:
        decoders (None): How to decode images, by feature name, with the decoders of
            `readers.decoders`: for example to one size, so that images of many sizes become dense
            batches. They choose at random by each record's key.
        map (None): A function that is given each decoded record, a dict of tensors by feature name, and
            its key, int64 []; it returns the record to use instead, and becomes part of the graph. By
            length, the length before it decides.
        map_schema (None): The features of the records that `map` returns, as for `Schema`:
            `{"tokens": ("int32", [None])}`. None: those that TensorFlow infers.

    Augmentation, as in `transform=augment`:
        transform (None): A function that is given each batch and int64 keys [B], and returns the
            batch to use instead; it becomes part of the graph. A key is a pseudo-random number that
            depends only on the seed, the epoch and the record's place (and, with `interleave`, the
            host), so a resumed run augments in the same way.

    Raises:
        ValueError: An argument is wrong; the message names it and what is expected.
        DatasetError: (a ValueError) There is no manifest, or a shard differs from it.
        CorruptRecordError: (a ValueError) A file is damaged whose records must be counted first.
        FileNotFoundError: A file is missing.
        StoreError: (an OSError) A store still fails after several retries.
        tf.errors.OpError: While batches are read, a record is damaged or does not fit the schema,
            or a store fails. It is an `InvalidArgumentError`, in whose message a line of its own names
            the file, the record and the byte.

    Example:
        >>> ds = readers.load("shards/photos", split="train", batch_size=64, shuffle=True)
    """
    from readers.tfdata.dataset import open_dataset  # Imports TensorFlow.

    options = options_of(
        batch_size=batch_size,
        as_supervised=as_supervised,
        batching=batching,
        mask=mask,
        lengths=lengths,
        padding_values=padding_values,
        max_length=max_length,
        pad_to=pad_to,
        bucket_boundaries=bucket_boundaries,
        weights=weights,
        shuffle=shuffle,
        order=order,
        shuffle_buffer=shuffle_buffer,
        seed=seed,
        repeat=repeat,
        remainder=remainder,
        drop_remainder=drop_remainder,
        shard=shard,
        start_step=start_step,
        state=state,
        on_corrupt=on_corrupt,
        cache_dir=cache_dir,
        cache_size=cache_size,
        decoders=decoders,
        map_schema=map_schema,
        keys=transform is not None,
        next_epochs=reshuffle_each_iteration,
    )
    return open_dataset(path_or_files, split, schema, columns, options, map, transform)


def state_of(dataset: tf.data.Dataset[Any], steps: int) -> State:
    """The state after the first batches of a dataset, from which all readers resume.

    It is computed from the number of batches, so what is prefetched does not matter. In the global
    order it fits any number of hosts.

    Args:
        dataset: A dataset as `readers.load` returns it, before any `map` or `prefetch` of your own.
        steps: The number of batches read since `load`, over all passes, at least 0. A look at a batch
            counts as a whole pass, unless `repeat=None`. By length, these batches are read again.

    Raises:
        ValueError: The dataset is another one, or has fewer batches in a pass while
            `reshuffle_each_iteration` is False.
        CorruptRecordError: (a ValueError) By length, a record is damaged.

    Example:
        >>> ds = readers.load("shards/photos", batch_size=64, shuffle=True, repeat=None)
        >>> saved = readers.state_of(ds, int(optimizer.iterations)).to_json()
    """
    from readers.tfdata import dataset as opened  # Imports TensorFlow.

    return opened.state_of(dataset, steps)
