"""Recordings in NetCDF files."""

from __future__ import annotations

import functools
import io
from collections.abc import Iterator
from typing import Any

import h5py
import netCDF4
import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.formats.hdf5 import datasets
from beam_jobs.jobs.sensors.formats.stored_arrays import StoredArray, kind_of, read_stored
from beam_jobs.jobs.sensors.read_options import ReadOptions
from beam_jobs.jobs.sensors.recording import Recording

# Integers become float64 if one of these attributes states which of them are missing.
_MISSING = {"_FillValue", "missing_value", "valid_min", "valid_max", "valid_range"}


def read_nc(data: bytes, options: ReadOptions) -> Recording:
    """The chosen variables, or all that are numbers and not the coordinates of a dimension.

    Values are unpacked, and those that are missing, out of their valid range or never written are NaN.
    """
    if data.startswith(b"CDF"):
        # The library takes whatever follows a file that is cut for its values.
        if _ends(data + bytes(64)) != _ends(data + b"\xff" * 64):
            raise ValueError("it is cut")
        data += bytes(64)
    else:
        with h5py.File(io.BytesIO(data), "r") as file:
            if None in datasets(file).values():
                raise RejectError("it has an array in another file, which is never opened")
    with netCDF4.Dataset("memory", memory=data) as file:
        return read_stored(dict(_variables(file)), options, file.__dict__)


def _ends(data: bytes) -> list[bytes]:
    """The last value of each variable, as stored."""
    with netCDF4.Dataset("memory", memory=data) as file:
        file.set_auto_maskandscale(False)
        return [each[(-1,) * each.ndim].tobytes() for each in file.variables.values() if each.size]


def _variables(group: Any, path: str = "") -> Iterator[tuple[str, StoredArray]]:
    for name, variable in group.variables.items():
        is_ragged = isinstance(variable.datatype, netCDF4.VLType) and variable.dtype is not str
        kind = "ragged" if is_ragged else kind_of(np.dtype(variable.dtype))
        role = "coordinate" if variable.dimensions == (name,) else ""
        size, unit = int(variable.size) * 8, str(getattr(variable, "units", ""))
        read = functools.partial(_values, variable)
        yield path + name, StoredArray(kind, variable.shape, size, read, role, unit)
    for name, inner in group.groups.items():
        yield from _variables(inner, f"{path}{name}/")


def _values(variable: Any) -> np.ndarray:
    attributes = variable.__dict__
    is_stated = not _MISSING.isdisjoint(attributes)
    if np.dtype(variable.dtype).itemsize == 1 and not is_stated:
        variable.set_auto_mask(False)  # no value of a byte means that it was never written
    masked = variable[...]
    values, is_missing = np.asarray(np.ma.getdata(masked)), np.ma.getmaskarray(masked)
    if values.dtype == "S1" and values.ndim:
        return netCDF4.chartostring(values)
    if values.dtype.kind in "iu" and (is_stated or is_missing.any()):
        stored, values = values, values.astype(np.float64)
        if (values.astype(stored.dtype) != stored)[~is_missing].any():
            raise RejectError("it has missing values and integers that float64 does not hold")
    if values.dtype.kind == "f":
        # The library ignores marks that are doubles, such as 1e20 among floats.
        for name in {"_FillValue", "missing_value"} & attributes.keys():
            mark = np.asarray(attributes[name])
            if mark.dtype.kind == variable.dtype.kind == "f" and "scale_factor" not in attributes:
                is_missing = is_missing | np.isin(values, mark.astype(values.dtype))
        values[is_missing] = np.nan
    return values
