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
        stored = {path: _stored(path, variable, notes) for path, variable in _variables(file)}
        recording = read_stored(stored, options, functools.partial(_attribute, file))
    return recording._replace(notes=(*recording.notes, *notes))


def _whole(data: bytes) -> bytes:
    """A classic file and bytes after its end, of which the library reads a few.

    Raises:
        ValueError: The file is cut: the library takes what follows for its values.
    """
    ends, more = [], 64
    for padded in (data + bytes(more), data + b"\xff" * more):
        with netCDF4.Dataset("memory", memory=padded) as file:
            file.set_auto_maskandscale(False)
            variables = [each for each in file.variables.values() if each.size]
            ends.append([each[(-1,) * each.ndim].tobytes() for each in variables])
    if ends[0] != ends[1]:
        raise ValueError("it is cut")
    return padded


def _variables(group: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    for name, variable in group.variables.items():
        yield path + name, variable
    for name, inner in group.groups.items():
        yield from _variables(inner, f"{path}{name}/")


def _stored(path: str, variable: Any, notes: list[str]) -> StoredArray:
    is_ragged = isinstance(variable.datatype, netCDF4.VLType) and variable.dtype is not str
    kind = "ragged" if is_ragged else kind_of(np.dtype(variable.dtype))
    size = math.prod(variable.shape) * 8
    read = functools.partial(_values, path, variable, notes)
    role = "coordinate" if variable.dimensions == (variable.name,) else ""
    return StoredArray(kind, variable.shape, size, read, role, str(getattr(variable, "units", "")))


def _values(path: str, variable: Any, notes: list[str]) -> np.ndarray:
    """The values of a variable: text, numbers as stored, or floats with NaN for missing values."""
    masked = variable[...]
    values, is_missing = np.asarray(np.ma.getdata(masked)), np.ma.getmaskarray(masked)
    if values.dtype.kind not in "iuf":
        return netCDF4.chartostring(values) if values.dtype == "S1" and values.ndim else values
    values = values.astype(values.dtype.newbyteorder("="))
    attributes = {name: variable.getncattr(name) for name in variable.ncattrs()}
    if values.dtype.kind != "f" and (_MISSING | _VALID).isdisjoint(attributes):
        if is_missing.any():
            mark = values[is_missing][0]
            notes.append(
                f"array {path}: {mark}, which also stands for values never written, is kept"
            )
        return values
    result = values.astype(values.dtype if values.dtype.kind == "f" else np.float64)
    with np.errstate(invalid="ignore"):
        is_rounded = result.astype(values.dtype) != values
    if (is_rounded & ~is_missing & ~np.isnan(result)).any():
        raise RejectError(
            f"array {path!r} may have missing values, so it becomes float64, which does not hold all of its integers"
        )
    # The library does not compare with a value of another dtype, such as the double 1e20 with floats.
    for name in _MISSING & attributes.keys() if _PACKING.isdisjoint(attributes) else ():
        mark = np.asarray(attributes[name])
        if mark.dtype.kind in "iuf":
            is_missing = is_missing | np.isin(result, mark.astype(result.dtype))
    result[is_missing] = np.nan
    return result


def _attribute(file: Any, name: str) -> np.ndarray | None:
    """An attribute of the file that is a single value."""
    value = np.asarray(file.getncattr(name) if name in file.ncattrs() else ())
    return value.reshape(()) if value.size == 1 else None
