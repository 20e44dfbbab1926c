"""The readers that give batches: `load`, `as_numpy`, `torch_batches` and `jax_batches`, with the same arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from readers.batches.batch_format import BatchFormat
from readers.batches.batch_slice import ToArrays, Transform
from readers.batches.options import OnCorrupt, Order
from readers.batches.planning import plan_of
from readers.batches.stream import Batches
from readers.decoders.decoder import Decoder
from readers.decoders.record_work import Map, RecordFunction
from readers.hosts import Shard
from readers.order.schedule import Remainder
from readers.order.state import State
from readers.shards.cache import Cache
from readers.shards.plan import Paths

if TYPE_CHECKING:
    import jax
    import tensorflow as tf

    from readers.tensors.torch_dataset import TorchBatches

_Reader = TypeVar("_Reader", bound=Callable[..., Any])

# `padded` and `ragged` are those of `readers.Padded()` and `readers.Ragged()`.
Batching = Literal["dense", "padded", "ragged"] | BatchFormat


def load(
    path: Paths,
    batch_size: int | Sequence[int],
    *,
    split: str | None = None,
    schema: Mapping[str, Any] | None = None,
    columns: Sequence[str] | None = None,
    as_supervised: Sequence[str] | None = None,
    batching: Batching = "dense",
    shuffle: bool | Order = False,
    seed: int | None = 0,
    repeat: int | None = 1,
    remainder: Remainder = "short",
    shard: Shard | None = None,
    state: State | str | int | None = None,
    decoders: Mapping[str, Decoder] | None = None,
    map: RecordFunction | Map | None = None,
    transform: Callable[[dict[str, Any], tf.Tensor], dict[str, Any]] | None = None,
    on_corrupt: OnCorrupt = "raise",
    cache: Cache | None = None,
) -> tf.data.Dataset[Any]:
    """Returns a `tf.data.Dataset` of batches: dicts of tensors by feature name, or tuples of them.

    Shapes are static wherever the schema knows them, and so is the cardinality if the number of
    batches is known. Every `iter(ds)` begins a pass, such as the one that Keras makes in an epoch:
    `next(iter(ds))` and `ds.take(1)` move the following pass on by `repeat` epochs, unless
    `repeat=None`. `transform` becomes part of the graph: it is given tensors.

    What to read:
        path: A dataset's directory; a list of directories, which are read one after another;
            `readers.Mix({DIR: weight, ...})`, which mixes them by weights; or, with `schema`,
            TFRecord files: a file, a list of files, a glob, or a directory.
        batch_size: Records per batch of this host, or rows per packed batch; with buckets, also a
            list with one size for each.
        split (None): `"train"`, `"train[:10%]"`, `"train[1000:2000]"`, or a sum of these,
            `"train[:20%]+val"`. None means the only split, or `train`. Files without a manifest have
            the single split `all`.
        schema (None): The features of files without a manifest, a `readers.Schema` or what it is
            made of; for a dataset, the features to read. It may fix sizes that are None in the
            manifest, ask for the bytes of pictures with `Feature("string")`, and give the dtype
            and shape of raw bytes that are stored as a string.
        columns (None): The features to read; the others are not decoded. None reads all.
        as_supervised (None): Feature names: each batch is a tuple of these instead of a dict. Name
            the arrays that `readers.Padded` adds, too: `("signal", "signal_mask", "label")`.
        batching ("dense"): For features of unknown shape. `"dense"` refuses them, unless the manifest
            states that all records of all splits are of one size. `"padded"` pads to the longest in
            the batch, and `readers.Padded(...)` says how. `"ragged"` keeps their sizes.
            `readers.Packed(512)` puts several records into each row. `Padded` and `Ragged` take
            `buckets`, too.

    In which order:
        shuffle (False): True gives each epoch its own random order of all records;
            `readers.Order(...)` says more.
        seed (0): The seed of the order, at least 0, and the same on all hosts. None draws one, for a
            single host.
        repeat (1): The number of epochs in each pass. The next pass reads the next ones, and a pass
            that resumes ends where it would have ended. None or True repeats without end.
        remainder ("short", "drop" in `jax_batches`): For the last batch of an epoch, if the records do
            not fill it. `short` makes it smaller; it shares the records evenly and leaves out those
            that remain, up to count - 1 of `shard`. With a shuffle, these are others in each epoch. By
            length, up to count - 1 rows of each bucket, or of the packed batches, are left out. `drop`
            drops the batch. `pad` reads every record: it fills the batch with rows of zeros, empty
            strings and padding, and adds bool `batch_mask` [B] to every batch, true where a row holds
            records.
        shard (None, "auto" in `torch_batches` and `jax_batches`): (index, count) of this host. In each
            step, all hosts have batches of the same size. `"auto"` finds them in
            `torch.distributed`, JAX, `TF_CONFIG`, or `RANK` and `WORLD_SIZE`, whichever is set up
            first in this list, and multiplies them by the worker processes of a PyTorch
            `DataLoader`. A `tf.distribute.InputContext` is accepted, too. None reads all records, and
            warns if there are several hosts.
        state (None): Where to begin: a `readers.State` of any reader, or its JSON; or a number of
            steps to skip. Their records are not read, unless buckets or packing need their lengths from them.

    What becomes of the records:
        decoders (None): How to decode images, by feature name, with the decoders of
            `readers.decoders`: for example to one size, so that images of many sizes become dense
            batches. They choose at random by each record's key.
        map (None): A function that is given each decoded record, a dict of NumPy arrays by feature
            name, and its key, and returns the record to use instead; or `readers.Map(function,
            schema)`, which states the features that it returns. Several threads call it at once. By
            length, the length before it decides.
        transform (None): A function that is given each batch and int64 keys [B], and returns the
            batch to use instead. A key is a pseudo-random number that depends only on the seed, the
            epoch and the record's place (and, with `interleave`, the host), so a resumed run
            augments in the same way. `readers.transforms` has functions for it.
        on_corrupt ("raise"): `raise`, or `skip`, which gives the next good record of the order in
            place of one whose checksum fails; by length, such a record is left out. They are logged
            (logger `readers`).
        cache (None): `readers.Cache("/local/cache", "500GiB")` keeps whole shards of a store on a
            local disk. None reads the records in place.

    Raises:
        ValueError: An argument is wrong; the message names it and what is expected.
        RecordError: (a ValueError) A record does not fit the schema, or `decoders` or `map` fail for it.
        CorruptRecordError: (a ValueError) The framing or the checksum of a record is wrong.
        DatasetError: (a ValueError) There is no manifest, or a shard differs from it.
        FileNotFoundError: A file is missing.
        StoreError: (an OSError) A store still fails after several retries.
        tf.errors.InvalidArgumentError: While batches of `load` are read, a record is damaged or does
            not fit the schema, or a store fails. A line of its message names the file, the record and
            the byte.

    Example:
        >>> ds = readers.load("shards/photos", 64, split="train", shuffle=True)
    """
    arguments = _arguments(locals())
    from readers.tfdata.dataset import in_strategy, open_dataset  # Imports TensorFlow.

    if shard is None and in_strategy():
        arguments["shard"] = 0, 1  # The strategy divides the batches.
    return open_dataset(arguments)


# AutoGraph calls what has this attribute as it is. `tf.autograph.experimental.do_not_convert` sets it, too, but TensorFlow
# is imported by `load` only.
vars(load)["autograph_info__"] = {}


def _arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that all readers have, from the local variables of one of them."""
    return {name: given[name] for name in inspect.signature(load).parameters}


def _with_arguments_of_load(reader: _Reader) -> _Reader:
    """Adds the arguments in the docstring of `load` to that of a reader."""
    text = inspect.cleandoc(load.__doc__ or "")
    shared = text[text.index("What to read:") : text.index("Raises:")]
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
    columns: Sequence[str] | None = None,
    as_supervised: Sequence[str] | None = None,
    batching: Batching = "dense",
    shuffle: bool | Order = False,
    seed: int | None = 0,
    repeat: int | None = 1,
    remainder: Remainder = "short",
    shard: Shard | None = None,
    state: State | str | int | None = None,
    decoders: Mapping[str, Decoder] | None = None,
    map: RecordFunction | Map | None = None,
    transform: Transform | None = None,
    on_corrupt: OnCorrupt = "raise",
    cache: Cache | None = None,
    prefetch: int = 0,
) -> Batches[Any]:
    """Returns an iterator of batches: dicts of `np.ndarray` by feature name, or tuples of them.

    It needs no TensorFlow, and keeps in memory one batch, or as many batches as 8 MiB of records make
    (2 MiB if they hold encoded images), and 4 or 8 bytes for each record of the shards it has read
    from; from a store also up to three times 32 MiB of fetched records, or three shuffle windows. It
    verifies the CRC32C of every record. Strings, and features of unknown shape with `"ragged"`, are
    object arrays.

    `prefetch` (0) is how many batches a thread makes ahead, while the program computes; 0 makes each
    when it is asked for. A state counts the batches returned, not those made ahead. All other
    arguments and errors are those of `readers.load`:

    Example:
        >>> for batch in readers.as_numpy("shards/runs", 64, batching="padded"):
        ...     print(batch["signal"].shape)
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
    columns: Sequence[str] | None = None,
    as_supervised: Sequence[str] | None = None,
    batching: Batching = "dense",
    shuffle: bool | Order = False,
    seed: int | None = 0,
    repeat: int | None = 1,
    remainder: Remainder = "short",
    shard: Shard | None = "auto",
    state: State | str | int | None = None,
    decoders: Mapping[str, Decoder] | None = None,
    map: RecordFunction | Map | None = None,
    transform: Transform | None = None,
    on_corrupt: OnCorrupt = "raise",
    cache: Cache | None = None,
    prefetch: int = 2,
    pin_memory: bool = False,
) -> TorchBatches:
    """Returns an `IterableDataset` of batches: dicts of tensors by feature name, or tuples of them.

    Pass it to a `DataLoader` with `batch_size=None`, or iterate over it. The workers of a loader
    take turns, batch by batch: the loader returns the same batches in the same order for any number
    of workers, and every record once. Workers are not hosts. Each pass reads the next epochs.

    Tensors share the memory of the arrays they are made from. Features of strings are left out,
    unless `columns` or `as_supervised` names them: then they are lists of bytes. With `"ragged"`, a
    feature of unknown shape is a list of tensors. `transform` is given a batch of NumPy arrays, and
    returns arrays or tensors.

    It has `len`, if the number of batches is known, and `state(steps)`, the `readers.State` after the
    first `steps` batches of the loader. Its iterators have `state_dict` and `load_state_dict` for
    torchdata's `StatefulDataLoader`.

    `prefetch` (2) is how many batches a thread makes ahead where there are no workers. `pin_memory`
    (False) puts tensors into pinned memory; in a `DataLoader` with workers, use its own argument
    instead, because workers have no device. All other arguments and errors are those of `readers.load`:

    Example:
        >>> batches = readers.torch_batches("shards/photos", 64, shuffle=True)
        >>> loader = DataLoader(batches, batch_size=None, num_workers=4, pin_memory=True)
    """
    arguments = _arguments(locals())
    from readers.tensors.torch_dataset import TorchBatches  # Imports PyTorch.

    # The host is asked for in each process that reads.
    plan, options = plan_of({**arguments, "shard": (0, 1)}, strings=False)
    drawn = seed is None and not isinstance(options.state, State)
    return TorchBatches(plan, options, shard, drawn, transform, pin_memory, prefetch)


@_with_arguments_of_load
def jax_batches(
    path: Paths,
    batch_size: int | Sequence[int],
    *,
    split: str | None = None,
    schema: Mapping[str, Any] | None = None,
    columns: Sequence[str] | None = None,
    as_supervised: Sequence[str] | None = None,
    batching: Batching = "dense",
    shuffle: bool | Order = False,
    seed: int | None = 0,
    repeat: int | None = 1,
    remainder: Remainder = "drop",
    shard: Shard | None = "auto",
    state: State | str | int | None = None,
    decoders: Mapping[str, Decoder] | None = None,
    map: RecordFunction | Map | None = None,
    transform: Transform | None = None,
    on_corrupt: OnCorrupt = "raise",
    cache: Cache | None = None,
    prefetch: int = 2,
    sharding: jax.sharding.Sharding | None = None,
) -> Batches[Any]:
    """Returns an iterator of batches: dicts of `jax.Array` by feature name, or tuples of them.

    A thread puts batches onto the devices while the program computes. Features of strings are left
    out, which JAX has no arrays of. All processes make the same number of steps, with batches of the
    same size, as programs on several hosts need: `remainder` is "drop" unless another one is given;
    "pad" reads every record, as evaluation needs. Recordings and texts have one shape, for which a
    step compiles once, with `batching=readers.Padded(max_length=..., to="max_length")`.

    `batch_size` counts the records of each process; a global batch has as many of every process.
    `sharding` (None) makes global arrays of the batches of all processes, and its first axis divides
    the records; None puts each batch onto the default device. `shard="auto"` is `jax.process_index()`
    and `jax.process_count()`. `transform` is given NumPy arrays. `prefetch` (2) is how many batches are
    put onto the devices ahead; 0 makes each when asked for.

    `state()` of the batches is the state after those returned so far, of all processes together; its
    JSON can be saved with the model, by Orbax for example, and resumes on any number of processes. All
    other arguments and errors are those of `readers.load`:

    Example:
        >>> sharding = NamedSharding(jax.make_mesh((8,), ("data",)), PartitionSpec("data"))
        >>> for batch in readers.jax_batches("shards/photos", 64, sharding=sharding):
        ...     state = train_step(state, batch)
    """
    arguments = _arguments(locals())
    from readers.tensors.jax_arrays import ToJax, this_process  # Imports JAX.

    if shard == "auto":
        arguments["shard"] = this_process()
    plan, options = plan_of(arguments, strings=False)
    convert = ToJax(plan.schema, options, transform, sharding)
    return Batches(plan, options, convert, prefetch)


def state_of(dataset: tf.data.Dataset[Any], steps: int) -> State:
    """The state after the first batches of a dataset of `load`, from which all readers resume.

    It is computed from the number of batches, so what is prefetched does not matter. In the global
    order it fits any number of hosts.

    Args:
        dataset: A dataset as `readers.load` returns it, before any `map` or `prefetch` of your own.
        steps: The number of batches read since `load`, over all passes, at least 0. A look at a batch
            counts as a whole pass, unless `repeat=None`. By length, these batches are read again.

    Raises:
        ValueError: The dataset is another one, or has fewer batches in a pass while all passes
            read the same epochs.
        CorruptRecordError: (a ValueError) By length, a record is damaged.

    Example:
        >>> ds = readers.load("shards/photos", 64, shuffle=True, repeat=None)
        >>> saved = readers.state_of(ds, int(optimizer.iterations)).to_json()
    """
    from readers.tfdata import dataset as opened  # Imports TensorFlow.

    return opened.state_of(dataset, steps)
