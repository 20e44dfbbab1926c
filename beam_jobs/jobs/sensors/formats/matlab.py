"""Recordings in MATLAB files of version 4 to 7.3."""

from __future__ import annotations

import io
import itertools
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from beam_jobs.jobs.sensors.formats.hdf5 import is_outside, read_h5, stored_dataset
from beam_jobs.jobs.sensors.formats.stored_arrays import StoredArray, kind_of, read_stored
from beam_jobs.jobs.sensors.read_options import ReadOptions
from beam_jobs.jobs.sensors.recording import Recording


def read_mat(data: bytes, options: ReadOptions) -> Recording:
    """The chosen arrays of numbers, or all with more than one; those of a struct `s` are called `s/NAME`.

    MATLAB has no arrays of one dimension: rows [1, n] become [n].
    """
    if data[512:520] == b"\x89HDF\r\n\x1a\n":  # version 7.3
        return read_h5(data, options, _dataset)
    import scipy.io

    # A double that is a small whole number is stored in a byte: `mat_dtype` undoes that, but it drops
    # imaginary parts.
    plain, exact = (scipy.io.loadmat(io.BytesIO(data), mat_dtype=each) for each in (False, True))
    names = [name for name in plain if not name.startswith("__")]
    leaves = (_leaves(name, plain[name], exact[name]) for name in names)
    return read_stored(dict(itertools.chain.from_iterable(leaves)), options)


def _leaves(path: str, plain: Any, exact: Any) -> Iterator[tuple[str, StoredArray]]:
    """The arrays in a variable of version 4 to 7, given it in the dtype of the file and in that of its class."""
    if type(plain) is not np.ndarray:
        yield path, StoredArray("sparse" if hasattr(plain, "nnz") else "object", plain.shape)
    elif plain.dtype.names and plain.size == 1:
        for name in plain.dtype.names:
            yield from _leaves(f"{path}/{name}", plain[name].item(), exact[name].item())
    else:
        array = plain if np.iscomplexobj(plain) else exact
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        kind = {"O": "cell", "V": "struct array"}.get(array.dtype.kind) or kind_of(array.dtype)
        yield path, _stored(kind, array.shape, array.nbytes, lambda: array)


def _dataset(item: Any) -> StoredArray:
    """A dataset of version 7.3, which is stored in MATLAB's order."""
    stored = stored_dataset(item)
    if is_outside(item):
        return stored
    kind = item.attrs.get("MATLAB_class", b"").decode()
    if not re.fullmatch(r"double|single|logical|char|u?int\d+|", kind):
        return StoredArray(kind, stored.shape)
    if "MATLAB_empty" in item.attrs:
        return StoredArray("empty", ())
    holds = "part of a sparse matrix" if "MATLAB_sparse" in item.parent.attrs else stored.kind

    def read() -> np.ndarray:
        values = stored.read().T
        if kind == "char":
            return np.array(["".join(map(chr, row)) for row in values])
        return values.astype(bool) if kind == "logical" else values

    return _stored("text" if kind == "char" else holds, stored.shape[::-1], stored.nbytes, read)


def _stored(
    kind: str, shape: tuple[int, ...], nbytes: int, read: Callable[[], np.ndarray]
) -> StoredArray:
    role = {0: "empty", 1: "single number"}.get(math.prod(shape), "")
    return StoredArray(kind, shape, nbytes, lambda: _row(read()), role)


def _row(array: np.ndarray) -> np.ndarray:
    return array[0] if array.ndim == 2 and array.shape[0] == 1 else array
