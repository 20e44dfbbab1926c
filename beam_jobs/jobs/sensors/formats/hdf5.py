"""Recordings in HDF5, MATLAB and NetCDF files, whose newer versions are HDF5."""

from __future__ import annotations

import functools
import io
import math
from collections.abc import Callable, Mapping
from typing import Any

import h5py
import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.read_options import ReadOptions, choose_arrays
from beam_jobs.jobs.sensors.recording import Recording, archive_recording
from beam_jobs.storage.limits import check_bytes
from readers.format.encodings.spec import format_shape

# Whether to leave out an array that is not chosen by name, given its path and itself.
Skips = Callable[[str, Any], bool]

# scipy's classes of arrays of numbers -> dtypes; others are text, cells, structs and objects.
_MATLAB_DTYPES = {
    "double": "float64",
    "single": "float32",
    "logical": "bool",
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}

_PACKING = ("scale_factor", "add_offset")
_MISSING = ("_FillValue", "missing_value")


def _series(arrays: Mapping[str, Any], options: ReadOptions, skips: Skips) -> dict[str, Any]:
    """The chosen arrays, or all that are numbers along time; none of them is read."""
    series = {
        name: arrays[name]
        for name in choose_arrays(arrays, options)
        if arrays[name].dtype.kind in "biufc"
        and arrays[name].shape
        and (name in options.arrays or not skips(name, arrays[name]))
    }
    if other := [name for name in options.arrays if name not in series]:
        shape = format_shape(arrays[other[0]].shape or ())
        raise RejectError(
            f"array {other[0]!r} is {arrays[other[0]].dtype} {shape}: expected numbers along time"
        )
    if not series:
        raise RejectError("it has no array of numbers")
    check_bytes(sum(array.nbytes for array in series.values()), options.max_bytes)
    return series


# HDF5.


def read_h5(data: bytes, options: ReadOptions) -> Recording:
    """The chosen arrays of an HDF5 file by their paths, or all that are numbers along time."""
    return _hdf5(data, options, lambda name, array: False, lambda array: array[()])


def _hdf5(
    data: bytes, options: ReadOptions, skips: Skips, values_of: Callable[[Any], np.ndarray]
) -> Recording:
    with h5py.File(io.BytesIO(data), "r") as file:
        datasets = _datasets(file)
        for name in choose_arrays(datasets, options):
            _check_in_file(name, datasets[name])
        series = _series(datasets, options, skips)
        arrays = {name: values_of(array) for name, array in series.items()}
        return archive_recording(
            arrays, options.own_columns, functools.partial(_value, file, datasets)
        )


def _value(file: Any, datasets: dict[str, Any], name: str) -> np.ndarray | None:
    """A dataset, or an attribute of the file that is a single value; None without either."""
    if name not in datasets:
        if name not in file.attrs or math.prod(file.attrs.get_id(name).shape or ()) != 1:
            return None
        return np.asarray(file.attrs[name]).reshape(())
    item = datasets[name]
    _check_in_file(name, item)
    if h5py.check_string_dtype(item.dtype) and item.dtype.kind == "O":
        return np.asarray(item.asstr()[()], object)
    return np.asarray(item[()])


def _datasets(file: Any) -> dict[str, Any]:
    """Datasets and links to other files by path, sorted by path; soft links are skipped."""
    items, groups, seen = {}, [("", file["/"])], {file["/"]}
    while groups:
        path, group = groups.pop()
        for name in group:
            link = group.get(name, getlink=True)
            if isinstance(link, h5py.ExternalLink):
                items[path + name] = link
            if not isinstance(link, h5py.HardLink):
                continue
            item = group[name]
            if isinstance(item, h5py.Dataset):
                items[path + name] = item
            elif isinstance(item, h5py.Group) and item not in seen:  # a group may contain itself
                seen.add(item)
                groups.append((f"{path}{name}/", item))
    return dict(sorted(items.items()))


def _check_in_file(name: str, item: Any) -> None:
    """Rejects an array that is in another file, before that is opened."""
    if isinstance(item, h5py.ExternalLink) or item.external or item.is_virtual:
        raise RejectError(f"array {name!r} is in another file, which is never opened")


# MATLAB.


def read_mat(data: bytes, options: ReadOptions) -> Recording:
    """The chosen arrays of numbers, or all but single numbers, of a file of version 4 to 7.3.

    MATLAB has no arrays of one dimension: rows [1, n] become [n].
    """
    if data[512:520] == b"\x89HDF\r\n\x1a\n":  # version 7.3
        return _hdf5(data, options, _is_internal, _matlab_values)
    import scipy.io

    stream = io.BytesIO(data)
    # In place of arrays that are not read yet; these take no memory.
    stated = {
        name: np.broadcast_to(np.zeros((), _MATLAB_DTYPES[kind]), shape)
        for name, shape, kind in scipy.io.whosmat(stream)
        if kind in _MATLAB_DTYPES and not name.startswith("__")
    }
    chosen = _series(stated, options, lambda name, array: max(array.shape, default=1) < 2)
    used = [*chosen, *(name for name in options.own_columns if name in stated)]
    # A double that is a small whole number is stored in a byte; `mat_dtype` would undo that, but
    # drops imaginary parts. Sparse matrices, which are not arrays, may be called logical.
    arrays = {
        name: _row(array.astype(_matlab_dtype(stated[name].dtype, array)))
        for name, array in scipy.io.loadmat(stream, variable_names=used).items()
        if name in used and isinstance(array, np.ndarray)
    }
    series = {name: arrays[name] for name in chosen if name in arrays}
    return archive_recording(series, options.own_columns, arrays.get)


def _matlab_dtype(stated: np.dtype, array: np.ndarray) -> np.dtype:
    return np.result_type(stated, "complex64" if np.iscomplexobj(array) else "bool")


def _is_internal(name: str, array: Any) -> bool:
    """Whether an array is a single number, text, or a part of a cell array or an object."""
    return array.size < 2 or name.startswith("#") or array.attrs.get("MATLAB_class") == b"char"


def _matlab_values(array: Any) -> np.ndarray:
    values = array[()].T  # which are stored in MATLAB's order
    is_logical = array.attrs.get("MATLAB_class") == b"logical"
    return _row(values.astype(bool) if is_logical else values)


def _row(array: np.ndarray) -> np.ndarray:
    return array[0] if array.ndim == 2 and array.shape[0] == 1 else array


# NetCDF.


def read_nc(data: bytes, options: ReadOptions) -> Recording:
    """The chosen variables, or all that are numbers and not the coordinates of a dimension.

    Packed values are unpacked (`scale_factor`, `add_offset`), and missing ones are NaN.
    """
    if not data.startswith(b"CDF"):
        return _hdf5(
            data,
            options,
            lambda name, array: array.attrs.get("CLASS") == b"DIMENSION_SCALE",
            lambda array: _unpacked(array[()], array.attrs),
        )
    if data[3:4] == b"\x05":
        raise RejectError("it is in the variant CDF-5: convert it with nccopy -k nc4")
    import scipy.io

    with scipy.io.netcdf_file(io.BytesIO(data), mmap=False) as file:
        variables = file.variables

        def read(name: str) -> np.ndarray | None:
            item = variables.get(name)
            return None if item is None else _unpacked(np.asarray(item.data), vars(item))

        stored = {name: variable.data for name, variable in variables.items()}
        series = _series(stored, options, lambda name, _: variables[name].dimensions == (name,))
        arrays = {
            name: _unpacked(array[:], vars(variables[name])) for name, array in series.items()
        }
        return archive_recording(arrays, options.own_columns, read)


def _unpacked(array: np.ndarray, attributes: Mapping[str, Any]) -> np.ndarray:
    """The values of a variable as its attributes define them."""
    stated = {
        name: np.ravel(attributes[name])[0] for name in _PACKING + _MISSING if name in attributes
    }
    if not stated:
        return array.astype(array.dtype.newbyteorder("="))
    missing = np.isin(array, [stated[name] for name in _MISSING if name in stated])
    kept = array.dtype if array.dtype.kind == "f" else np.dtype(np.float64)
    values = array.astype(kept.newbyteorder("="))
    if any(name in stated for name in _PACKING):
        values = values * stated.get("scale_factor", 1) + stated.get("add_offset", 0)
    values[missing] = np.nan
    return values
