"""Batches as arrays of JAX."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from readers.batches.batch_slice import BatchSlice, ToArrays
from readers.format.decode.column import Allocator

try:
    import jax
except ModuleNotFoundError:
    raise ImportError("readers.jax_batches needs JAX: pip install jax") from None


# The advice if JAX would change numbers.
_CURE = "call jax.config.update('jax_enable_x64', True) first, or leave it out with columns="


def _check_fits(name: str, array: Any) -> None:
    """Raises ValueError if JAX has no such arrays, or would change integers, because it stores 32 bits."""
    dtype = getattr(array, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind in "OSU":
        raise ValueError(
            f"{name!r}: JAX has no arrays of strings, or of several shapes: leave it out with columns=, pad it "
            "with batching=readers.Padded(...), or convert it with transform="
        )
    if dtype in (np.float64, np.complex128) and not jax.config.read("jax_enable_x64"):
        warnings.warn(f"{name!r} is {dtype}, and JAX keeps half of its bits: {_CURE}", stacklevel=1)
    if dtype not in (np.int64, np.uint64) or not array.size:
        return
    bounds = np.iinfo(jax.dtypes.canonicalize_dtype(dtype))
    for number in (int(array.min()), int(array.max())):
        if not bounds.min <= number <= bounds.max:
            raise ValueError(
                f"{name!r} has the number {number}, which does not fit into the {bounds.dtype} that JAX uses for "
                f"{dtype}: {_CURE}"
            )


@dataclass(frozen=True)
class ToJax(ToArrays):
    """Makes a batch of arrays on the default device, or, with a sharding, global arrays of all processes."""

    sharding: Any = None

    def __call__(self, records: BatchSlice, empty: Allocator) -> Any:
        batch = super().__call__(records, empty)
        names = self.options.as_supervised
        named = batch.items() if names is None else zip(names, batch, strict=False)
        for name, array in named:
            _check_fits(name, array)
        if self.sharding is None:
            return jax.device_put(batch)
        return jax.tree.map(
            lambda array: jax.make_array_from_process_local_data(self.sharding, array), batch
        )
