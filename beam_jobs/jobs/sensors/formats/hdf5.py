"""Recordings in HDF5 files."""

from __future__ import annotations

import functools
import io
import math
from typing import Any, NoReturn

import h5py
import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.formats.stored_arrays import (
    NUMBERS,
    StoredArray,
    kind_of,
    read_stored,
)
from beam_jobs.jobs.sensors.read_options import ReadOptions
from beam_jobs.jobs.sensors.recording import Recording

# The parts of complex numbers as MATLAB, Octave and Julia write them; h5py knows its own, `r` and `i`.
_COMPLEX = ("real", "imag")


def read_h5(data: bytes, options: ReadOptions) -> Recording:
    """The chosen arrays of an HDF5 file by their paths, or all that are numbers along time."""
    with h5py.File(io.BytesIO(data), "r") as file:
        stored = {path: stored_dataset(path, item) for path, item in datasets(file).items()}
        return read_stored(stored, options, functools.partial(_attribute, file))


def datasets(file: Any) -> dict[str, Any]:
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


def is_outside(item: Any) -> bool:
    """Whether a dataset or link leads to another file."""
    return isinstance(item, h5py.ExternalLink) or bool(item.external) or item.is_virtual


def reject_outside(path: str) -> NoReturn:
    """Rejects an array that is in another file, before that is opened."""
    raise RejectError(f"array {path!r} is in another file, which is never opened")


def stored_dataset(path: str, item: Any) -> StoredArray:
    """A dataset, or a link to another file."""
    if is_outside(item):
        return StoredArray(NUMBERS, (0,), 0, functools.partial(reject_outside, path))
    kind = "empty" if item.shape is None else _kind(item.dtype)
    read = functools.partial(_values, path, item)
    unit = item.attrs.get("units", item.attrs.get("unit"))
    unit = unit.decode(errors="replace") if isinstance(unit, bytes) else unit
    return StoredArray(
        kind, item.shape or (), item.nbytes, read, unit=unit if isinstance(unit, str) else ""
    )


def _kind(dtype: np.dtype) -> str:
    if h5py.check_string_dtype(dtype):
        return "text"
    if h5py.check_ref_dtype(dtype):
        return "references"
    if h5py.check_vlen_dtype(dtype):
        return "ragged"
    return NUMBERS if dtype.names == _COMPLEX else kind_of(dtype)


def _values(path: str, item: Any) -> np.ndarray:
    plan = item.id.get_create_plist()
    for code, _, _, name in map(plan.get_filter, range(plan.get_nfilters())):
        if not h5py.h5z.filter_avail(code):
            raise RejectError(
                f"array {path!r} is compressed with {name.decode(errors='replace') or f'filter {code}'}, which "
                "h5py does not have: rewrite the file with h5repack -f GZIP=4"
            )
    if h5py.check_string_dtype(item.dtype) and item.dtype.kind == "O":
        return np.asarray(item.asstr()[()], object)
    values = np.asarray(item[()])
    if item.dtype.names != _COMPLEX:
        return values
    parts = [values[name] for name in _COMPLEX]
    result = np.empty(values.shape, np.result_type(*parts, "complex64"))
    result.real, result.imag = parts
    return result


def _attribute(file: Any, name: str) -> np.ndarray | None:
    """An attribute of the file that is a single value."""
    if name not in file.attrs or math.prod(file.attrs.get_id(name).shape or ()) != 1:
        return None
    return np.asarray(file.attrs[name]).reshape(())
