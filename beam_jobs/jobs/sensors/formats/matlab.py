"""Recordings in MATLAB's .mat files."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import scipy.io

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.formats.hdf5 import read_h5
from beam_jobs.jobs.sensors.read_options import ReadOptions, choose_arrays
from beam_jobs.jobs.sensors.recording import Recording, archive_recording
from beam_jobs.storage.limits import check_bytes

# The dtypes of what scipy calls arrays of numbers; the others are text, cells, structs and objects.
_DTYPES = {
    "double": "float64",
    "single": "float32",
    "logical": "bool",
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


def read_mat(data: bytes, options: ReadOptions) -> Recording:
    """The chosen arrays of numbers, or all but single numbers, of a file of version 4 to 7.3.

    MATLAB has no arrays of one dimension: rows [1, n] become [n].
    """
    if data[512:520] == b"\x89HDF\r\n\x1a\n":  # version 7.3
        return read_h5(data, options, _is_internal, _of_hdf5)
    stream = io.BytesIO(data)
    dtypes, shapes = {}, {}
    for name, shape, kind in scipy.io.whosmat(stream):
        if kind in _DTYPES and not name.startswith("__"):
            dtypes[name], shapes[name] = np.dtype(_DTYPES[kind]), shape
    names = choose_arrays(dtypes, options)
    if not options.arrays:
        names = [name for name in names if max(shapes[name], default=1) > 1]
    used = [*names, *(name for name in options.inside if name in dtypes)]
    check_bytes(
        sum(math.prod(shapes[name]) * dtypes[name].itemsize for name in used), options.max_bytes
    )
    stored = scipy.io.loadmat(stream, variable_names=used) if used else {}
    # A double that is a small whole number is stored in a byte; `mat_dtype` would undo that, but
    # drops imaginary parts. Sparse matrices may be called logical.
    arrays = {
        name: _series(stored[name].astype(_dtype(dtypes[name], stored[name])))
        for name in used
        if isinstance(stored[name], np.ndarray)
    }
    series = {name: arrays[name] for name in names if name in arrays}
    if not series:
        raise RejectError("it holds no array of numbers")
    return archive_recording(series, options.inside, arrays.get)


def _dtype(stated: np.dtype, array: np.ndarray) -> np.dtype:
    return np.result_type(stated, "complex64" if np.iscomplexobj(array) else "bool")


def _is_internal(name: str, array: Any) -> bool:
    """Whether an array is a single number, text, or a part of a cell array or an object."""
    return array.size < 2 or name.startswith("#") or array.attrs.get("MATLAB_class") == b"char"


def _of_hdf5(array: Any) -> np.ndarray:
    values = array[()].T  # which are stored in MATLAB's order
    is_logical = array.attrs.get("MATLAB_class") == b"logical"
    return _series(values.astype(bool) if is_logical else values)


def _series(array: np.ndarray) -> np.ndarray:
    return array[0] if array.ndim == 2 and array.shape[0] == 1 else array
