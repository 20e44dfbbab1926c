"""Recordings in MATLAB files of version 4 to 7.3."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np

from beam_jobs.jobs.sensors.formats.hdf5 import datasets, is_outside, stored_dataset
from beam_jobs.jobs.sensors.formats.stored_arrays import TEXT, StoredArray, kind_of, read_stored
from beam_jobs.jobs.sensors.read_options import ReadOptions
from beam_jobs.jobs.sensors.recording import Recording

# The dtypes of MATLAB's classes of arrays of numbers.
_DTYPES = {"double": "float64", "single": "float32", "logical": "bool"}
_DTYPES |= {
    f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}


def read_mat(data: bytes, options: ReadOptions) -> Recording:
    """The chosen arrays of numbers, or all with more than one; those of a struct `s` are called `s/NAME`.

    MATLAB has no arrays of one dimension: rows [1, n] become [n].
    """
    if data[512:520] != b"\x89HDF\r\n\x1a\n":
        return read_stored(_version_5(data), options)
    with h5py.File(io.BytesIO(data), "r") as file:  # version 7.3
        stored = {}
        for path, item in datasets(file).items():
            group = path.rpartition("/")[0]
            if path.startswith("#"):  # a part of a cell or an object
                continue
            if group and "MATLAB_sparse" in file[group].attrs:
                stored[group] = StoredArray("sparse", ())
            else:
                stored[path] = _version_73(path, item)
        return read_stored(stored, options)


def _version_5(data: bytes) -> dict[str, StoredArray]:
    """The arrays of a file of version 4 to 7, which are in memory."""
    import scipy.io

    # A double that is a small whole number is stored in a byte: `mat_dtype` undoes that, but it drops
    # imaginary parts.
    plain, exact = (scipy.io.loadmat(io.BytesIO(data), mat_dtype=each) for each in (False, True))
    variables = [name for name in plain if not name.startswith("__")]
    return {
        path: array for name in variables for path, array in _leaves(name, plain[name], exact[name])
    }


def _leaves(path: str, plain: Any, exact: Any) -> Iterator[tuple[str, StoredArray]]:
    """The arrays in a variable, given it in the dtype of the file and in that of its class."""
    if type(plain) is not np.ndarray:
        yield path, StoredArray("sparse" if hasattr(plain, "nnz") else "object", plain.shape)
    elif plain.dtype.names and plain.size == 1:
        for name in plain.dtype.names:
            yield from _leaves(f"{path}/{name}", plain[name].item(), exact[name].item())
    else:
        array = _row(plain if np.iscomplexobj(plain) else exact)
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        kind = {"O": "cell", "V": "struct array"}.get(array.dtype.kind) or kind_of(array.dtype)
        yield path, StoredArray(kind, array.shape, array.nbytes, lambda: array, _role(array.shape))


def _version_73(path: str, item: Any) -> StoredArray:
    """A dataset of version 7.3, which is stored in MATLAB's order."""
    stored = stored_dataset(path, item)
    if is_outside(item):
        return stored
    kind = item.attrs.get("MATLAB_class", b"").decode()
    if kind not in {*_DTYPES, "char", ""}:
        return StoredArray(kind, stored.shape)
    if item.attrs.get("MATLAB_empty"):  # it holds the sizes
        empty = np.empty(tuple(map(int, stored.read().ravel())), _DTYPES.get(kind, "U1"))
        return StoredArray(kind_of(empty.dtype), empty.shape, 0, lambda: _row(empty), "empty")

    def read() -> np.ndarray:
        values = np.atleast_2d(stored.read().T)
        if kind == "char":
            return np.array(["".join(map(chr, row)) for row in values])
        return _row(values.astype(bool) if kind == "logical" else values)

    holds = TEXT if kind == "char" else stored.kind.replace("references", "struct array")
    shape = stored.shape[::-1]
    return StoredArray(holds, shape, stored.nbytes, read, _role(shape))


def _role(shape: tuple[int, ...]) -> str:
    return {0: "empty", 1: "single number"}.get(math.prod(shape), "")


def _row(array: np.ndarray) -> np.ndarray:
    return array[0] if array.ndim == 2 and array.shape[0] == 1 else array
