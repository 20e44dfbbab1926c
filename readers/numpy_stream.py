"""`readers.as_numpy`: batches of NumPy arrays, in bounded memory and without TensorFlow."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from readers.batches.batch_format import Batching, PadTo
from readers.batches.batch_slice import ToArrays, Transform
from readers.batches.options import OnCorrupt, OrderName, ReadOptions
from readers.batches.planning import make_plan, options_of
from readers.batches.prefetch import check_prefetch
from readers.batches.stream import Batches
from readers.decoders.decoder import Decoder
from readers.decoders.record_work import RecordFunction
from readers.format.schema import Feature, Schema
from readers.order.schedule import Remainder
from readers.order.state import State
from readers.shards.plan import Paths, Plan

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from readers.batches.planning import Reading

    class _Others(Reading, total=False):
        """The arguments of `as_numpy` on which the type of a batch does not depend."""

        shard: tuple[int, int] | Literal["auto"]
        transform: Transform | None
        prefetch: int


@overload
def as_numpy(
    path_or_files: Paths,
    *,
    batch_size: int | Sequence[int],
    as_supervised: None = None,
    **others: Unpack[_Others],
) -> Batches[dict[str, NDArray[Any]]]: ...


@overload
def as_numpy(
    path_or_files: Paths,
    *,
    batch_size: int | Sequence[int],
    as_supervised: Sequence[str],
    **others: Unpack[_Others],
) -> Batches[tuple[NDArray[Any], ...]]: ...


def as_numpy(
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
    shard: tuple[int, int] | Literal["auto"] = (0, 1),
    start_step: int = 0,
    state: State | str | None = None,
    on_corrupt: OnCorrupt = "raise",
    cache_dir: str | os.PathLike[str] | None = None,
    cache_size: int | str | None = None,
    decoders: Mapping[str, Decoder] | None = None,
    map: RecordFunction | None = None,
    map_schema: Mapping[str, Feature | tuple[Any, ...]] | None = None,
    transform: Transform | None = None,
    prefetch: int = 0,
) -> Batches[Any]:
    """An iterator of batches: dicts of `np.ndarray` by feature name, or tuples of them.

    It keeps in memory one batch, or as many batches as 8 MiB of records make (2 MiB if they hold
    encoded images), and 4 or 8 bytes for each record of the shards it has read from; from a store
    also up to three times 32 MiB of fetched records, or three shuffle windows. It verifies the
    CRC32C of every record. Strings are object arrays of bytes. GZIP files are unpacked once to count
    their records and once in each epoch, and cannot be shuffled.
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
            holds records.
        drop_remainder (False): True is the same as `remainder="drop"`.
        batching ("dense"): For features of unknown shape: `dense` refuses them, unless the manifest
            states that all records of all splits are of one size; `padded` pads to the longest in
            the batch; `ragged` returns object arrays [B] of arrays; `packed` puts several records
            into each row and adds int32 `<name>_segment_ids` (0 is padding) and `<name>_positions`.
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
            MiB of records, or 1,024 records if these fit into 128 MiB.
        seed (0): At least 0, and the same on all hosts. None draws one, for a single host alone.
        repeat (1): The number of epochs in a `for` loop over the batches; the loop after it reads
            the next ones. A run that resumes ends where it would have ended, so a state from its
            end gives nothing. None or True repeats without end.

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
            (logger `readers`) and counted by the iterator's `skipped`.
        cache_dir (None): A local directory in which to keep whole shards of a store, for any number
            of processes (docs/object_stores.md). None reads the records in place.
        cache_size (None): The maximum size of the cache, as `"500GiB"` or in bytes; None means 10
            GiB.

    Records, as in `decoders={"image": readers.decoders.RandomResizedCrop(224)}, map=mix`:
        decoders (None): How to decode images, by feature name, with the decoders of
            `readers.decoders`: for example to one size, so that images of many sizes become dense
            batches. They choose at random by each record's key.
        map (None): A function that is given each decoded record, a dict by feature name, and its
            key, an int; it returns the record to use instead. Several threads call it at once. By
            length, the length before it decides.
        map_schema (None): The features of the records that `map` returns, as for `Schema`:
            `{"tokens": ("int32", [None])}`. None: those of its result for the first record. A
            feature that fits the one of its name in the dataset stays that one; the sizes of all
            others hold for every record.

    Augmentation, as in `transform=augment`:
        transform (None): A function that is given each batch and int64 keys [B], and returns the
            batch to use instead. A key is a pseudo-random number that depends only on the seed, the
            epoch and the record's place (and, with `interleave`, the host), so a resumed run
            augments in the same way. `readers.transforms` has functions for it.
        prefetch (0): How many batches a thread makes ahead, while the program computes; 0 makes
            each when it is asked for. A state counts the batches returned, not those made ahead.

    Raises:
        ValueError: An argument is wrong; the message names it and what is expected. Or, while
            batches are read, a record does not fit the schema.
        CorruptRecordError: (a ValueError) The framing or the checksum of a record is wrong.
        DatasetError: (a ValueError) There is no manifest, or a shard differs from it.
        FileNotFoundError: A file is missing.
        StoreError: (an OSError) A store still fails after several retries.

    Example:
        >>> for batch in readers.as_numpy("shards/runs", batch_size=64, batching="padded"):
        ...     print(batch["signal"].shape)
    """
    check_prefetch(prefetch)
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
        map=map,
        map_schema=map_schema,
        keys=transform is not None,
    )
    plan, options = make_plan(path_or_files, split, schema, columns, options)
    return Batches(plan, options, ToArrays(plan.schema, options, transform), prefetch)


def plan_of_numbers(path_or_files: Paths, **arguments: Any) -> tuple[Plan, ReadOptions]:
    """What arguments of `as_numpy` ask for, without features of strings that none of them names."""
    bound = inspect.signature(as_numpy).bind(path_or_files, **arguments)
    bound.apply_defaults()
    given = bound.arguments
    split, schema, columns = (given.pop(name) for name in ("split", "schema", "columns"))
    del given["path_or_files"], given["prefetch"]
    keys = given.pop("transform") is not None
    options = options_of(**given, keys=keys)
    return make_plan(path_or_files, split, schema, columns, options, strings=False)
