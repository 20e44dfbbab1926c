"""`readers.torch_batches`: batches of PyTorch tensors for a `DataLoader`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from readers.batches.batch_slice import Transform
from readers.batches.prefetch import check_prefetch
from readers.numpy_stream import plan_of_numbers
from readers.shards.plan import Paths

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from readers.batches.planning import Reading
    from readers.tensors.torch_dataset import TorchBatches


def torch_batches(
    path_or_files: Paths,
    *,
    batch_size: int | Sequence[int],
    as_supervised: Sequence[str] | None = None,
    shard: tuple[int, int] | str = "auto",
    transform: Transform | None = None,
    pin_memory: bool = False,
    prefetch: int = 2,
    **reading: Unpack[Reading],
) -> TorchBatches:
    """An `IterableDataset` of batches: dicts of tensors by feature name, or tuples of them.

    Pass it to a `DataLoader` with `batch_size=None`, or iterate over it. The workers of a loader
    take turns, batch by batch: the loader returns the same batches in the same order for any number
    of workers, and every record once. Each pass reads the next epochs, as with `readers.load`.

    Tensors share the memory of the arrays they are made from. Features of strings are left out,
    unless `columns` or `as_supervised` names them: then they are lists of bytes. With
    `batching="ragged"`, a feature of unknown shape is a list of tensors.

    Args:
        path_or_files: A dataset's directory, or what else `readers.as_numpy` takes.
        batch_size: Records per batch on each host.
        as_supervised: Feature names: each batch is a tuple of these instead of a dict.
        shard: (index, count) of this host. `auto` is the rank and the world size of
            `torch.distributed`, or else what `readers.as_numpy` finds. Workers are not hosts.
        transform: A function that is given each batch of NumPy arrays and int64 keys [B], and
            returns the batch to use instead, of arrays or tensors. A key is a pseudo-random number
            that depends only on the seed, the epoch and the record's place, so any number of workers
            augments in the same way. `readers.transforms` has functions for it.
        pin_memory: Puts tensors into pinned memory; without a device, it warns and pins nothing. In
            a `DataLoader` with workers, use its own argument instead, because workers have no device.
        prefetch: How many batches a thread makes ahead where there are no workers; 0 makes none.
        reading: All other arguments of `readers.as_numpy`. `repeat` is the number of epochs in each
            pass.

    Returns:
        A dataset with `len`, if the number of batches is known, and `state(steps)`, the
        `readers.State` after the first `steps` batches of the loader. Its iterators have
        `state_dict` and `load_state_dict` for torchdata's `StatefulDataLoader`.

    Raises:
        ValueError: An argument is wrong; the message names it and what is expected.
        DatasetError: (a ValueError) There is no manifest, or a shard differs from it.
        FileNotFoundError: A file is missing.
        StoreError: (an OSError) A store still fails after several retries.

    Example:
        >>> batches = readers.torch_batches("shards/photos", batch_size=64, shuffle=True)
        >>> loader = DataLoader(batches, batch_size=None, num_workers=4, pin_memory=True)
    """
    from readers.tensors.torch_dataset import TorchBatches

    check_prefetch(prefetch)
    plan, options = plan_of_numbers(
        path_or_files,
        batch_size=batch_size,
        as_supervised=as_supervised,
        transform=transform,
        **reading,
    )
    drawn = reading.get("seed", 0) is None and options.state is None
    return TorchBatches(plan, options, shard, drawn, transform, pin_memory, prefetch)
