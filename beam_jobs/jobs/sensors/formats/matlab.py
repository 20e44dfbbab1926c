"""Recordings in MATLAB files of version 4 to 7.3."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from beam_jobs.jobs.sensors.formats.hdf5 import read_h5, stored_dataset
from beam_jobs.jobs.sensors.formats.stored_arrays import StoredArray, kind_of, read_stored
from beam_jobs.jobs.sensors.read_options import ReadOptions
from beam_jobs.jobs.sensors.recording import Recording
from beam_jobs.storage.limits import check_bytes

# The classes of numbers.
_NUMBERS = r"double|single|u?int\d+"
_Read = Callable[[], np.ndarray]


def read_mat(data: bytes, options: ReadOptions) -> Recording:
    """The chosen arrays of numbers, or all with more than one; those of a struct `s` are called `s/NAME`.

    MATLAB has no arrays of one dimension: rows [1, n] become [n].
    """
    if data[512:520] == b"\x89HDF\r\n\x1a\n":  # version 7.3
        return read_h5(data, options, _dataset)
    import scipy.io

    for name, shape, kind in scipy.io.whosmat(io.BytesIO(data)):
        if re.fullmatch(_NUMBERS, kind) and (not options.arrays or name in options.arrays):
            check_bytes(math.prod(shape) * np.dtype(kind).itemsize, options.max_bytes)
    # A double that is a small whole number is stored in a byte: `mat_dtype` undoes that, but it drops
    # imaginary parts, with a warning.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exact = scipy.io.loadmat(io.BytesIO(data), mat_dtype=True)
    plain = scipy.io.loadmat(io.BytesIO(data)) if caught else exact
    names = [name for name in plain if not name.startswith("__")]
    leaves = (leaf for name in names for leaf in _leaves(name, plain[name], exact[name]))
    return read_stored(dict(leaves), options, {})


def _leaves(path: str, plain: Any, exact: Any) -> Iterator[tuple[str, StoredArray]]:
    """The arrays in a variable of version 4 to 7, given it in the dtype of the file and in that of its class."""
    if type(plain) is not np.ndarray:
        yield path, StoredArray("sparse" if hasattr(plain, "nnz") else "object", plain.shape)
    elif plain.dtype.names and plain.size == 1:
        for name in plain.dtype.names:
            yield from _leaves(f"{path}/{name}", plain[name].item(), exact[name].item())
    else:
        array = plain if np.iscomplexobj(plain) else exact
        kind = "cell" if array.dtype == object else kind_of(array.dtype)
        yield path, _stored(kind, array.shape, array.nbytes, lambda: array)


def _dataset(item: Any) -> StoredArray:
    """A dataset of version 7.3, which is stored in MATLAB's order."""
    stored, of_class = stored_dataset(item), item.attrs.get("MATLAB_class", b"").decode()
    if "MATLAB_empty" in item.attrs:
        return StoredArray("empty", ())
    if "MATLAB_sparse" in item.parent.attrs:
        return StoredArray("part of a sparse matrix", ())
    if not re.fullmatch(f"{_NUMBERS}|logical|char|", of_class):
        return StoredArray(of_class, stored.shape)

    def read() -> np.ndarray:
        values = stored.read().T
        if of_class == "char":
            return np.array(["".join(map(chr, row)) for row in values])
        return values.astype(bool) if of_class == "logical" else values

    kind = "text" if of_class == "char" else stored.kind
    return _stored(kind, stored.shape[::-1], stored.nbytes, read)


def _stored(kind: str, shape: tuple[int, ...], nbytes: int, read: _Read) -> StoredArray:
    def read_row() -> np.ndarray:
        array = read()
        return array[0] if array.ndim == 2 and len(array) == 1 else array

    role = {0: "empty", 1: "single number"}.get(math.prod(shape), "")
    return StoredArray(kind, shape, nbytes, read_row, role)
