"""Batches as arrays of JAX."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from readers.batches.batch_slice import BatchSlice, ToArrays
from readers.format.decode.column import Allocator

try:
    import jax
except ModuleNotFoundError:
    raise ImportError("readers.jax_batches needs JAX: pip install jax") from None


def this_process() -> tuple[int, int]:
    """(index, count) of this process among those of `jax.distributed`."""
    return jax.process_index(), jax.process_count()


@dataclass(frozen=True)
class ToJax(ToArrays):
    """Makes a batch of arrays on devices.

    Attributes:
        sharding: Of global arrays of all processes; None for arrays on the default device.
    """

    sharding: Any = None

    def __call__(self, records: BatchSlice, empty: Allocator) -> Any:
        batch = super().__call__(records, empty)
        if self.sharding is None:
            return jax.device_put(batch)
        return jax.tree.map(
            lambda array: jax.make_array_from_process_local_data(self.sharding, array), batch
        )
