"""`readers.jax_batches`: batches of JAX arrays, global ones of several processes included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from readers.batches.prefetch import check_prefetch
from readers.batches.stream import Batches
from readers.numpy_stream import plan_of_numbers
from readers.shards.plan import Paths

if TYPE_CHECKING:
    import jax
    from typing_extensions import Unpack

    from readers.batches.planning import Reading


def jax_batches(
    path_or_files: Paths,
    *,
    batch_size: int | Sequence[int],
    as_supervised: Sequence[str] | None = None,
    sharding: jax.sharding.Sharding | None = None,
    shard: tuple[int, int] | str = "auto",
    transform: Callable[[dict[str, Any], np.ndarray], dict[str, Any]] | None = None,
    prefetch: int = 2,
    **reading: Unpack[Reading],
) -> Batches[Any]:
    """An iterator of batches: dicts of `jax.Array` by feature name, or tuples of them.

    A thread puts batches onto the devices while the program computes. Features of strings are left
    out, which JAX has no arrays of. All processes make the same number of steps, with batches of the
    same size, as programs on several hosts need: `remainder` is "drop" unless another one is given;
    "pad" reads every record, as evaluation needs. Recordings and texts have one shape, for which a
    step compiles once, with `batching="padded", max_length=..., pad_to="max_length"`.

    Args:
        path_or_files: A dataset's directory, or what else `readers.as_numpy` takes.
        batch_size: Records per batch of each process. A global batch has as many of every process.
        as_supervised: Feature names: each batch is a tuple of these instead of a dict.
        sharding: Makes global arrays of the batches of all processes, with this sharding; its first
            axis divides the records. None puts each batch onto the default device.
        shard: (index, count) of this process. `auto` is `jax.process_index()` and
            `jax.process_count()`.
        transform: A function that is given each batch of NumPy arrays and int64 keys [B], and
            returns the batch to use instead (see `readers.as_numpy`).
        prefetch: How many batches are put onto the devices ahead; 0 makes each when asked for.
        reading: All other arguments of `readers.as_numpy`.

    Returns:
        The batches. `state()` is the state after the batches returned so far, of all processes
        together; its JSON can be saved with the model, by Orbax for example, and resumes on any
        number of processes.

    Raises:
        ValueError: An argument is wrong; the message names it and what is expected.
        DatasetError: (a ValueError) There is no manifest, or a shard differs from it.
        FileNotFoundError: A file is missing.
        StoreError: (an OSError) A store still fails after several retries.

    Example:
        >>> sharding = NamedSharding(jax.make_mesh((8,), ("data",)), PartitionSpec("data"))
        >>> for batch in readers.jax_batches("shards/photos", batch_size=64, sharding=sharding):
        ...     state = train_step(state, batch)
    """
    from readers.tensors.jax_arrays import ToJax, this_process

    check_prefetch(prefetch)
    if reading.get("remainder") is None:
        reading["remainder"] = "drop"
    plan, options = plan_of_numbers(
        path_or_files,
        batch_size=batch_size,
        as_supervised=as_supervised,
        transform=transform,
        shard=this_process() if shard == "auto" else shard,
        **reading,
    )
    return Batches(plan, options, ToJax(plan.schema, options, transform, sharding), prefetch)
