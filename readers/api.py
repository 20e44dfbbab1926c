"""The batch readers `load`, `as_numpy`, `torch_batches` and `jax_batches`, which share their arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from readers.batches.batch_format import Packed, Padded, Ragged
from readers.batches.batch_slice import ToArrays, Transform
from readers.batches.options import OnCorrupt, Order
from readers.batches.planning import plan_of
from readers.batches.stream import Batches
from readers.decoders.decoder import Decoder
from readers.decoders.record_work import Map, RecordFunction
from readers.hosts import HostShard, jax_host
from readers.order.schedule import Remainder
from readers.order.state import State
from readers.shards.cache import Cache
from readers.shards.plan import ColumnNames, Paths

if TYPE_CHECKING:
    import jax
    import tensorflow as tf

    from readers.tensors.torch_dataset import TorchBatches

_Reader = TypeVar("_Reader", bound=Callable[..., Any])

# `"padded"` means `readers.Padded()`, and `"ragged"` means `readers.Ragged()`.
Batching = Literal["dense", "padded", "ragged"] | Padded | Ragged | Packed


def load(
    path: Paths,
    batch_size: int | Sequence[int],
    *,
    split: str | None = None,
    schema: Mapping[str, Any] | None = None,
    columns: ColumnNames | None = None,
    as_supervised: Sequence[str] | None = None,
    batching: Batching = "dense",
    shuffle: bool | Order = False,
    seed: int | None = 0,
    repeat: int | None = 1,
    remainder: Remainder = "short",
    shard: HostShard | None = None,
    state: State | str | int | None = None,
    decoders: Mapping[str, Decoder] | None = None,
    map: RecordFunction | Map | None = None,
    transform: Callable[[dict[str, Any], tf.Tensor], dict[str, Any]] | None = None,
    on_corrupt: OnCorrupt = "raise",
    cache: Cache | None = None,
) -> tf.data.Dataset[Any]:
    """Returns a `tf.data.Dataset` of batches: dicts of tensors by feature name, or tuples of tensors.

    Shapes are static wherever the schema fixes them, and the cardinality is set if the number of
    batches is known. Every `iter(ds)` starts a pass, as Keras does for each epoch, and each pass reads
    the next `repeat` epochs. So `next(iter(ds))` or `ds.take(1)` also uses up a pass, unless
    `repeat=None`. `transform` becomes part of the graph and receives tensors.

    Records to read:
        path: A dataset's directory; a list of directories, read one after another;
            `readers.Mix({DIR: weight, ...})`, which mixes datasets by weight; or, with `schema`,
            TFRecord files: a file, a list of files, a glob or a directory.
        batch_size: Records per batch on this host, or rows per packed batch. With buckets, it may be
            a list with one size per bucket.
        split (None): `"train"`, `"train[:10%]"`, `"train[1000:2000]"`, or a sum such as
            `"train[:20%]+val"`. None means the only split, or `train`. Files without a manifest have
            a single split, `all`.
        schema (None): For files without a manifest, their features: a `readers.Schema` or a mapping
            that one can be made from. For a dataset, the features to read; it may fix sizes that are
            None in the manifest, read an image's bytes with `Feature("string")`, or give the dtype
            and shape of raw bytes that are stored as a string.
        columns (None): The features to read; others are not decoded. None reads all. A dict also chooses
            channels by their names in the files: `{"signal": ["x", "z"], "label": None}`.
        as_supervised (None): Feature names: each batch is then a tuple of these instead of a dict. It
            may include the arrays that `readers.Padded` adds: `("signal", "signal_mask", "label")`.
        batching ("dense"): How to batch features of unknown shape. `"dense"` requires one shape: it
            raises an error unless the manifest shows that all records have the same size. `"padded"`
            pads to the longest record of the batch; `readers.Padded(...)` sets how. `"ragged"` keeps
            all sizes. `readers.Packed(512)` puts several records into each row. `Padded` and `Ragged`
            can also group records into buckets by length.

    Order:
        shuffle (False): True shuffles all records, in a new order each epoch. `readers.Order(...)` has
            more options.
        seed (0): The seed of the order, at least 0, and the same on all hosts. None draws one at
            random, on a single host only.
        repeat (1): Epochs per pass. The next pass continues with the following epochs, and a resumed
            pass ends where it would have ended. None or True repeats forever.
        remainder ("short", or "drop" in `jax_batches`): What to do with the last batch of an epoch if
            too few records are left to fill it. `short` makes a smaller batch, split evenly between
            hosts, so up to count - 1 records are left out (count is from `shard`); a shuffle leaves
            out different ones each epoch. With buckets or packing, up to count - 1 rows of each bucket
            or of the packed batches are left out. `drop` drops the batch. `pad` reads every record: it
            fills the batch with rows of zeros, empty strings and padding, and adds bool `batch_mask`
            [B] to every batch, true for rows that hold records.
        shard (None, or "auto" in `torch_batches` and `jax_batches`): (index, count) of this host. At
            each step, all hosts get batches of the same size. `"auto"` takes the first that is set up
            of `torch.distributed`, JAX, `TF_CONFIG`, and `RANK` with `WORLD_SIZE`, multiplied by the
            worker processes of a PyTorch `DataLoader`. A `tf.distribute.InputContext` is accepted.
            None reads all records, and warns if there are several hosts.
        state (None): Where to start: a `readers.State` from any reader, or its JSON; or a number of
            steps to skip. Skipped records are not read, unless buckets or packing need their lengths.

    Processing:
        decoders (None): Feature name -> how to decode its images, from `readers.decoders`: for example
            all to one size, so that images of many sizes become dense batches. Random decoders depend
            only on each record's key.
        map (None): A function that receives each decoded record, a dict of NumPy arrays by feature
            name, and its key, and returns the record to use instead; or `readers.Map(function,
            schema)`, which declares the features it returns. Several threads call it at once. Buckets
            are chosen by the length before it.
        transform (None): A function that receives each batch and int64 keys [B], and returns the
            batch to use instead. A key is a pseudo-random number that depends only on the seed, the
            epoch and the record's position (with `interleave`, also on the host), so a resumed run
            augments in the same way. `readers.transforms` has functions for it.
        on_corrupt ("raise"): `raise`, or `skip`, which replaces a record that fails its checksum with
            the next good one: with buckets of the same bucket, in packed rows one that is not longer.
            Skipped records are logged (logger `readers`).
        cache (None): `readers.Cache("/local/cache", "500GiB")` keeps whole shards of an object store on
            a local disk. None reads the records from the store.

    Raises:
        ValueError: An argument is wrong; the message names it and says what is expected.
        RecordError: (a ValueError) A record does not fit the schema, or `decoders` or `map` fail on it.
        CorruptRecordError: (a ValueError) The framing or the checksum of a record is wrong.
        DatasetError: (a ValueError) There is no manifest, or a shard differs from it.
        FileNotFoundError: A file is missing.
        StoreError: (an OSError) A store still fails after several retries.
        tf.errors.InvalidArgumentError: While batches of `load` are read, a record is damaged or does
            not fit the schema, or a store fails. The message names the file, the record and the byte.

    Example:
        >>> ds = readers.load("shards/images", 32, split="train", shuffle=True)
        >>> ds.element_spec["image"].shape
        TensorShape([None, 64, 64, 3])
    """
    arguments = _arguments(locals())
    from readers.tfdata.dataset import open_dataset  # Imports TensorFlow.

    return open_dataset(arguments)


# Keeps AutoGraph from converting `load`, as `tf.autograph.experimental.do_not_convert` does, which would import TensorFlow
# here.
vars(load)["autograph_info__"] = {}


def _arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """Selects the shared arguments from the local variables of a reader."""
    return {name: given[name] for name in inspect.signature(load).parameters}


def _with_arguments_of_load(reader: _Reader) -> _Reader:
    """Adds the arguments of `load` to the docstring of a reader."""
    text = inspect.cleandoc(load.__doc__ or "")
    shared = text[text.index("Records to read:") : text.index("Raises:")]
    parts = inspect.cleandoc(reader.__doc__ or "").partition("Example:")
    reader.__doc__ = f"{parts[0]}{shared}{parts[1]}{parts[2]}"
    return reader


@_with_arguments_of_load
def as_numpy(
    path: Paths,
    batch_size: int | Sequence[int],
    *,
    split: str | None = None,
    schema: Mapping[str, Any] | None = None,
    columns: ColumnNames | None = None,
    as_supervised: Sequence[str] | None = None,
    batching: Batching = "dense",
    shuffle: bool | Order = False,
    seed: int | None = 0,
    repeat: int | None = 1,
    remainder: Remainder = "short",
    shard: HostShard | None = None,
    state: State | str | int | None = None,
    decoders: Mapping[str, Decoder] | None = None,
    map: RecordFunction | Map | None = None,
    transform: Transform | None = None,
    on_corrupt: OnCorrupt = "raise",
    cache: Cache | None = None,
    prefetch: int = 0,
) -> Batches[Any]:
    """Returns an iterator of batches: dicts of `np.ndarray` by feature name, or tuples of arrays.

    It does not need TensorFlow, and verifies the CRC32C of every record. It keeps in memory one batch,
    or as many batches as fit in 8 MiB of records (2 MiB for encoded images), and 4 or 8 bytes for each
    record of the shards read so far; from a store, also up to three times 32 MiB of fetched records,
    or three shuffle windows. Strings, and features of unknown shape with `"ragged"`, are object
    arrays.

    `prefetch` (0) is the number of batches that a thread prepares ahead while the program computes; 0
    prepares each on demand. A state counts batches returned, not batches prepared. All other arguments
    and errors are those of `readers.load`:

    Example:
        >>> for batch in readers.as_numpy("shards/images", 48, split="train", shuffle=True):
        ...     print(batch["image"].shape, batch["image"].dtype)
        (48, 64, 64, 3) uint8
        (48, 64, 64, 3) uint8
    """
    plan, options = plan_of(_arguments(locals()))
    return Batches(plan, options, ToArrays(plan.schema, options, transform), prefetch)


@_with_arguments_of_load
def torch_batches(
    path: Paths,
    batch_size: int | Sequence[int],
    *,
    split: str | None = None,
    schema: Mapping[str, Any] | None = None,
    columns: ColumnNames | None = None,
    as_supervised: Sequence[str] | None = None,
    batching: Batching = "dense",
    shuffle: bool | Order = False,
    seed: int | None = 0,
    repeat: int | None = 1,
    remainder: Remainder = "short",
    shard: HostShard | None = "auto",
    state: State | str | int | None = None,
    decoders: Mapping[str, Decoder] | None = None,
    map: RecordFunction | Map | None = None,
    transform: Transform | None = None,
    on_corrupt: OnCorrupt = "raise",
    cache: Cache | None = None,
    prefetch: int = 2,
) -> TorchBatches:
    """Returns an `IterableDataset` of batches: dicts of tensors by feature name, or tuples of tensors.

    Pass it to a `DataLoader` with `batch_size=None`, or iterate over it. The workers of a loader take
    turns, batch by batch: any number of workers returns the same batches in the same order, and reads
    each record once. Workers do not count as hosts. Each pass reads the next epochs.

    Tensors share memory with the arrays they are made from. String features are left out unless
    `columns` or `as_supervised` names them; they become lists of bytes. With `"ragged"`, a feature of
    unknown shape is a list of tensors. `transform` receives a batch of NumPy arrays, and returns
    arrays or tensors.

    `len` works if the number of batches is known. `state(steps)` returns the `readers.State` after the
    first `steps` batches of the loader. Iterators have `state_dict` and `load_state_dict` for
    torchdata's `StatefulDataLoader`.

    `prefetch` (2) is the number of batches that a thread prepares ahead when there are no workers.
    All other arguments and errors are those of `readers.load`:

    Example:
        >>> batches = readers.torch_batches("shards/images", 64, shuffle=True)
        >>> loader = DataLoader(batches, batch_size=None, num_workers=4, pin_memory=True)
    """
    arguments = _arguments(locals())
    from readers.tensors.torch_dataset import TorchBatches  # Imports PyTorch.

    # Each process that reads finds its own host.
    plan, options = plan_of({**arguments, "shard": (0, 1)}, strings=False)
    drawn = seed is None and not isinstance(options.state, State)
    return TorchBatches(plan, options, shard, drawn, transform, prefetch)


@_with_arguments_of_load
def jax_batches(
    path: Paths,
    batch_size: int | Sequence[int],
    *,
    split: str | None = None,
    schema: Mapping[str, Any] | None = None,
    columns: ColumnNames | None = None,
    as_supervised: Sequence[str] | None = None,
    batching: Batching = "dense",
    shuffle: bool | Order = False,
    seed: int | None = 0,
    repeat: int | None = 1,
    remainder: Remainder = "drop",
    shard: HostShard | None = "auto",
    state: State | str | int | None = None,
    decoders: Mapping[str, Decoder] | None = None,
    map: RecordFunction | Map | None = None,
    transform: Transform | None = None,
    on_corrupt: OnCorrupt = "raise",
    cache: Cache | None = None,
    prefetch: int = 2,
    sharding: jax.sharding.Sharding | None = None,
) -> Batches[Any]:
    """Returns an iterator of batches: dicts of `jax.Array` by feature name, or tuples of arrays.

    A thread puts batches on the devices while the program computes. String features are left out,
    because JAX has no string arrays. All processes make the same number of steps, with batches of the
    same size, as multi-host programs require: `remainder` is "drop" by default, and "pad" reads every
    record, for evaluation. For recordings and texts, `batching=readers.Padded(max_length=...,
    to="max_length")` gives all batches one shape, so that a step compiles once.

    `batch_size` counts the records of each process; a global batch combines those of all processes.
    `sharding` (None) makes global arrays from the batches of all processes, and its first axis divides
    the records; None puts each batch on the default device. `shard="auto"` is `jax.process_index()`
    and `jax.process_count()`. `transform` receives NumPy arrays. `prefetch` (2) is the number of
    batches put on the devices ahead; 0 prepares each on demand.

    `state()` of the result is the state of all processes together after the batches returned so far.
    Its JSON can be saved with the model, by Orbax for example, and resumes on any number of processes.
    All other arguments and errors are those of `readers.load`:

    Example:
        >>> sharding = NamedSharding(Mesh(jax.devices(), ("data",)), PartitionSpec("data"))
        >>> for batch in readers.jax_batches("shards/images", 64, sharding=sharding):
        ...     state = train_step(state, batch)
    """
    arguments = _arguments(locals())
    from readers.tensors.jax_arrays import ToJax  # Imports JAX.

    if shard == "auto":
        import jax

        arguments["shard"] = jax_host((jax.process_index(), jax.process_count()))
    plan, options = plan_of(arguments, strings=False)
    convert = ToJax(plan.schema, options, transform, sharding)
    return Batches(plan, options, convert, prefetch)


def state_of(dataset: tf.data.Dataset[Any], steps: int) -> State:
    """Returns the state after the first `steps` batches of a dataset of `load`; any reader can resume from it.

    It is computed from the number of batches, so prefetched batches do not matter. In the global order
    it fits any number of hosts.

    Args:
        dataset: A dataset as `readers.load` returns it, before any `map` or `prefetch` of your own.
        steps: The number of batches read since `load`, over all passes, at least 0. Looking at one
            batch counts as a whole pass, unless `repeat=None`. With buckets or packing, the batches
            are read again to find the state.

    Raises:
        ValueError: The dataset is not one of `load`, or has fewer batches in a pass while all passes
            read the same epochs.
        CorruptRecordError: (a ValueError) With buckets or packing, a record is damaged.

    Example:
        >>> ds = readers.load("shards/images", 64, shuffle=True, repeat=None)
        >>> saved = readers.state_of(ds, int(optimizer.iterations)).to_json()
    """
    from readers.tfdata import dataset as opened  # Imports TensorFlow.

    return opened.state_of(dataset, steps)
