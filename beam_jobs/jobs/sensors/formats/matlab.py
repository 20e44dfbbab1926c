"""Recordings in MATLAB files of version 4 to 7.3."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator
from typing import Any

import h5py
import numpy as np

from beam_jobs.jobs.sensors.formats.hdf5 import datasets, is_outside, stored_dataset
from beam_jobs.jobs.sensors.formats.stored_arrays import (
    NUMBERS,
    TEXT,
    StoredArray,
    kind_of,
    read_stored,
)
from beam_jobs.jobs.sensors.read_options import ReadOptions
from beam_jobs.jobs.sensors.recording import Recording
from beam_jobs.storage.limits import check_bytes

# MATLAB's classes of arrays of numbers -> dtypes.
_DTYPES = {
    "double": "float64",
    "single": "float32",
    "logical": "bool",
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


def read_mat(data: bytes, options: ReadOptions) -> Recording:
    """The chosen arrays of numbers, or all with more than one; those of a struct `s` are called `s/NAME`.

    MATLAB has no arrays of one dimension: rows [1, n] become [n].
    """
    if data[512:520] != b"\x89HDF\r\n\x1a\n":
        return read_stored(_version_5(io.BytesIO(data), options), options)
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


def _version_5(stream: io.BytesIO, options: ReadOptions) -> dict[str, StoredArray]:
    """The arrays of a file of version 4 to 7, which are in memory."""
    import scipy.io

    chosen = {name.split("/")[0] for name in (*options.arrays, *options.own_columns)}
    listed = [each for each in scipy.io.whosmat(stream) if not each[0].startswith("__")]
    sizes = {
        name: math.prod(shape) * np.dtype(_DTYPES.get(kind, "V0")).itemsize
        for name, shape, kind in listed
        if kind in {*_DTYPES, "char", "struct"} and (name in chosen or not options.arrays)
    }
    check_bytes(sum(sizes.values()), options.max_bytes)
    # A double that is a small whole number is stored in a byte: `mat_dtype` undoes that, but it drops
    # imaginary parts.
    plain = scipy.io.loadmat(stream, variable_names=[*sizes])
    exact = scipy.io.loadmat(stream, variable_names=[*sizes], mat_dtype=True)
    stored = {}
    for name, shape, kind in listed:
        if name in sizes:
            stored.update(_leaves(name, plain[name], exact[name]))
        else:
            stored[name] = StoredArray(kind, shape)
    return stored


def _leaves(path: str, plain: Any, exact: Any) -> Iterator[tuple[str, StoredArray]]:
    """The arrays in a variable, given it in the dtype of the file and in that of its class."""
    if type(plain) is not np.ndarray:
        is_sparse = hasattr(plain, "nnz")
        yield path, StoredArray("sparse" if is_sparse else "object", plain.shape)
    elif plain.dtype.names and plain.size == 1:
        for name in plain.dtype.names:
            yield from _leaves(f"{path}/{name}", plain[name].item(), exact[name].item())
    else:
        array = _row(plain if np.iscomplexobj(plain) else exact)
        array = array.astype(array.dtype.newbyteorder("="))
        others = {"O": "cell", "V": "struct array"}
        kind = others.get(array.dtype.kind) or kind_of(array.dtype)
        yield path, _array(kind, array.shape, array.nbytes, lambda: array)


def _version_73(path: str, item: Any) -> StoredArray:
    """A dataset of version 7.3, which is stored in MATLAB's order."""
    stored = stored_dataset(path, item)
    if is_outside(item):
        return stored
    kind = item.attrs.get("MATLAB_class", b"").decode()
    if kind == "char":
        return _array(TEXT, stored.shape, stored.nbytes, lambda: _text(stored.read()))
    if kind not in {*_DTYPES, ""} or "MATLAB_object_decode" in item.attrs:
        return StoredArray(kind, stored.shape)
    if item.attrs.get("MATLAB_empty"):  # it holds the sizes
        empty = np.empty(tuple(map(int, stored.read().ravel())), _DTYPES[kind])
        return _array(NUMBERS, empty.shape, 0, lambda: _row(empty))
    if stored.kind == "references":
        return StoredArray("struct array", stored.shape)

    def read() -> np.ndarray:
        values = _row(stored.read().T)
        return values.astype(bool) if kind == "logical" else values

    return _array(stored.kind, stored.shape[::-1], stored.nbytes, read)


def _array(
    kind: str, shape: tuple[int, ...], nbytes: int, read: Callable[[], np.ndarray]
) -> StoredArray:
    role = {0: "empty", 1: "single number"}.get(math.prod(shape), "")
    return StoredArray(kind, shape, nbytes, read, role)


def _text(codes: np.ndarray) -> np.ndarray:
    """The rows of a char array, which is stored in MATLAB's order."""
    return np.array(["".join(map(chr, row)) for row in np.atleast_2d(codes.T)])


def _row(array: np.ndarray) -> np.ndarray:
    return array[0] if array.ndim == 2 and array.shape[0] == 1 else array
