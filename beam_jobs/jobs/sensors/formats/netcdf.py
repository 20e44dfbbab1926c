"""Recordings in NetCDF files."""

from __future__ import annotations

import functools
import io
import math
from collections.abc import Iterator
from typing import Any

import h5py
import netCDF4
import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.formats.hdf5 import datasets, is_outside, reject_outside
from beam_jobs.jobs.sensors.formats.stored_arrays import (
    TEXT,
    StoredArray,
    kind_of,
    read_stored,
)
from beam_jobs.jobs.sensors.read_options import ReadOptions
from beam_jobs.jobs.sensors.recording import Recording

# The attributes that state which values are missing, and how values are packed.
_MISSING = {"_FillValue", "missing_value"}
_VALID = {"valid_min", "valid_max", "valid_range"}
_PACKING = {"scale_factor", "add_offset"}

# The library reads a little more than the values of a classic file.
_PADDING = 64


def read_nc(data: bytes, options: ReadOptions) -> Recording:
    """The chosen variables, or all that are numbers and not the coordinates of a dimension.

    Values are unpacked, and those that are missing, out of their valid range or never written are NaN.
    """
    if data.startswith(b"CDF"):
        data = _whole(data)
    else:
        with h5py.File(io.BytesIO(data), "r") as file:
            for path, item in datasets(file).items():
                if is_outside(item):  # the library would open it
                    reject_outside(path)
    notes: list[str] = []
    with netCDF4.Dataset("memory", memory=data) as file:
        stored = {path: _stored(path, each, notes) for path, each in _variables(file)}
        recording = read_stored(stored, options, functools.partial(_attribute, file))
    return recording._replace(notes=(*recording.notes, *notes))


def _whole(data: bytes) -> bytes:
    """A classic file with bytes after its end.

    Raises:
        ValueError: It is cut: the library takes any bytes, or zeros, for what is missing.
    """
    ends = []
    for padding in (bytes(_PADDING), b"\xff" * _PADDING):
        with netCDF4.Dataset("memory", memory=data + padding) as file:
            file.set_auto_maskandscale(False)
            variables = [each for each in file.variables.values() if each.size]
            ends.append([each[(-1,) * each.ndim].tobytes() for each in variables])
    if ends[0] != ends[1]:
        raise ValueError("it is cut")
    return data + padding


def _variables(group: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    for name, variable in group.variables.items():
        yield path + name, variable
    for name, inner in group.groups.items():
        yield from _variables(inner, f"{path}{name}/")


def _stored(path: str, variable: Any, notes: list[str]) -> StoredArray:
    if variable.dtype is str:
        kind = TEXT
    else:
        is_ragged = isinstance(variable.datatype, netCDF4.VLType)
        kind = "ragged" if is_ragged else kind_of(variable.dtype)
    size = math.prod(variable.shape) * 8
    read = functools.partial(_values, path, variable, notes)
    role = "coordinate" if variable.dimensions == (variable.name,) else ""
    return StoredArray(kind, variable.shape, size, read, role, str(getattr(variable, "units", "")))


def _values(path: str, variable: Any, notes: list[str]) -> np.ndarray:
    """The values of a variable: text, numbers as stored, or floats with NaN for missing values."""
    masked = variable[...]
    values, is_missing = np.asarray(np.ma.getdata(masked)), np.ma.getmaskarray(masked)
    if values.dtype.kind not in "biuf":
        return netCDF4.chartostring(values) if values.dtype == "S1" and values.ndim else values
    values = values.astype(values.dtype.newbyteorder("="))
    attributes = {name: variable.getncattr(name) for name in variable.ncattrs()}
    if values.dtype.kind == "f":
        result = values.copy()
        # The library does not compare with a value of another dtype, such as the double 1e20 with floats.
        for name in _MISSING if _PACKING.isdisjoint(attributes) else ():
            found = np.asarray(attributes.get(name, ()))
            if found.dtype.kind in "iuf":
                is_missing = is_missing | np.isin(values, found.astype(values.dtype))
    elif (_MISSING | _VALID).isdisjoint(attributes):
        if is_missing.any():
            fill = values[is_missing][0]
            notes.append(
                f"array {path}: {fill}, which also stands for values never written, is kept"
            )
        return values
    else:
        result = values.astype(np.float64)
        if (result.astype(values.dtype) != values)[~is_missing].any():
            raise RejectError(
                f"array {path!r} may have missing values, so it becomes float64, which does not hold all of its integers"
            )
    result[is_missing] = np.nan
    return result


def _attribute(file: Any, name: str) -> np.ndarray | None:
    """An attribute of the file that is a single value."""
    value = np.asarray(file.getncattr(name) if name in file.ncattrs() else ())
    return value.reshape(()) if value.size == 1 else None
