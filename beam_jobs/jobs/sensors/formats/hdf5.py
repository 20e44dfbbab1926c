"""Recordings in HDF5 files."""

from __future__ import annotations

import functools
import io
import math
from collections.abc import Callable
from typing import Any

import h5py
import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.read_options import ReadOptions, choose_arrays
from beam_jobs.jobs.sensors.recording import Recording, archive_recording
from beam_jobs.storage.limits import check_bytes
from readers.format.schema import format_shape


def _skips_none(name: str, array: Any) -> bool:
    return False


def _as_stored(array: Any) -> np.ndarray:
    return array[()]


def read_h5(
    data: bytes,
    options: ReadOptions,
    skips: Callable[[str, Any], bool] = _skips_none,
    values_of: Callable[[Any], np.ndarray] = _as_stored,
) -> Recording:
    """The chosen arrays of an HDF5 file by their paths, or all that are numbers along time.

    Args:
        skips: Whether to leave out an array, given its path, that is not chosen by name.
        values_of: Returns the values of an array in the file.
    """
    with h5py.File(io.BytesIO(data), "r") as file:
        datasets = _datasets(file)
        chosen = choose_arrays(datasets, options)
        for name in chosen:
            _check_in_file(name, datasets[name])
        series = {
            name: datasets[name]
            for name in chosen
            if datasets[name].dtype.kind in "biufc"
            and datasets[name].shape
            and (name in options.arrays or not skips(name, datasets[name]))
        }
        if other := [name for name in options.arrays if name not in series]:
            shape = format_shape(datasets[other[0]].shape or ())
            raise RejectError(
                f"array {other[0]!r} is {datasets[other[0]].dtype} {shape}: expected numbers along time"
            )
        if not series:
            raise RejectError("it holds no array of numbers")
        check_bytes(sum(array.nbytes for array in series.values()), options.max_bytes)
        arrays = {name: values_of(array) for name, array in series.items()}
        return archive_recording(arrays, options.inside, functools.partial(_value, file, datasets))


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
