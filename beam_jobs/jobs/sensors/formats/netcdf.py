"""Recordings in NetCDF files."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.io

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.formats.hdf5 import read_h5
from beam_jobs.jobs.sensors.read_options import ReadOptions, choose_arrays
from beam_jobs.jobs.sensors.recording import Recording, archive_recording
from beam_jobs.storage.limits import check_bytes

_PACKING = ("scale_factor", "add_offset")
_MISSING = ("_FillValue", "missing_value")


def read_nc(data: bytes, options: ReadOptions) -> Recording:
    """The chosen variables, or all that are numbers and not the coordinates of a dimension.

    Packed values are unpacked (`scale_factor`, `add_offset`), and missing ones are NaN.
    """
    if data.startswith(b"CDF"):
        return _read_classic(data, options)
    return read_h5(data, options, _is_coordinate, _of_hdf5)


def _is_coordinate(name: str, array: Any) -> bool:
    return array.attrs.get("CLASS") == b"DIMENSION_SCALE"


def _of_hdf5(array: Any) -> np.ndarray:
    return _values(array[()], array.attrs)


def _read_classic(data: bytes, options: ReadOptions) -> Recording:
    if data[3:4] == b"\x05":
        raise RejectError("it is in the variant CDF-5: convert it with nccopy -k nc4")
    with scipy.io.netcdf_file(io.BytesIO(data), mmap=False) as file:

        def read(name: str) -> np.ndarray | None:
            variable = file.variables.get(name)
            return None if variable is None else _values(np.asarray(variable.data), vars(variable))

        names = choose_arrays(file.variables, options)
        if not options.arrays:
            names = [name for name in names if (name,) != file.variables[name].dimensions]
        series = {
            name: file.variables[name]
            for name in names
            if file.variables[name].data.dtype.kind in "iuf" and file.variables[name].shape
        }
        if other := [name for name in options.arrays if name not in series]:
            raise RejectError(f"variable {other[0]!r} is not numbers along time")
        if not series:
            raise RejectError("it holds no array of numbers")
        check_bytes(8 * sum(array.data.size for array in series.values()), options.max_bytes)
        arrays = {name: _values(array[:], vars(array)) for name, array in series.items()}
        return archive_recording(arrays, options.inside, read)


def _values(array: np.ndarray, attributes: Mapping[str, Any]) -> np.ndarray:
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
