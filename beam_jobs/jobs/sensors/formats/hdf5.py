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
from beam_jobs.jobs.sensors.inside.columns import find_values
from beam_jobs.jobs.sensors.recording import (
    ReadOptions,
    Recording,
    choose_arrays,
    name_arrays,
)
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
    """Reads the wanted arrays of an HDF5 file by their paths, or all that are numbers along time.

    Args:
        skips: Whether to leave out an array, given its path, that is not wanted by name.
        values_of: Returns the values of an array in the file.
    """
    with h5py.File(io.BytesIO(data), "r") as file:
        found = _h5_datasets(file)
        read = functools.partial(_h5_value, file, found, len(data), options.max_bytes)
        columns, metadata = find_values(options.inside, read)
        chosen = choose_arrays(found, options)
        for name in chosen:
            _check_inside(name, found[name], options.max_bytes)
        series = {
            name: found[name]
            for name in chosen
            if found[name].dtype.kind in "biufc"
            and found[name].shape
            and (name in options.arrays or not skips(name, found[name]))
        }
        if other := [name for name in options.arrays if name not in series]:
            shape = format_shape(found[other[0]].shape or ())
            raise RejectError(
                f"array {other[0]!r} is {found[other[0]].dtype} {shape}: expected numbers along time"
            )
        if not series:
            raise RejectError("it holds no array of numbers")
        check_bytes(sum(array.nbytes for array in series.values()), options.max_bytes)
        arrays = {name: values_of(array) for name, array in series.items()}
        return Recording(name_arrays(arrays), columns=columns, metadata=metadata)


def _h5_value(
    file: Any, found: dict[str, Any], size: int, limit: int, name: str
) -> np.ndarray | None:
    """Returns a dataset, or an attribute of the file that is a single value; None without either.

    Args:
        size: The bytes of the file, in which each text of variable length is stored.
        limit: The most bytes that a value may take.
    """
    if name not in found:
        if name not in file.attrs or math.prod(file.attrs.get_id(name).shape or ()) != 1:
            return None
        return np.asarray(file.attrs[name]).reshape(())
    item = found[name]
    _check_inside(name, item, limit)
    if not h5py.check_string_dtype(item.dtype) or item.dtype.kind != "O":
        check_bytes(item.nbytes, limit)
        return np.asarray(item[()])
    texts = item.asstr()
    if not item.shape:
        return np.asarray(texts[()], object)
    # Many elements may refer to one long text: no more of them at a time than memory holds.
    step = max(1, limit // size)
    kept: dict[str, str] = {}
    found_texts = [
        kept.setdefault(text, text)
        for start in range(0, len(item), step)
        for text in texts[start : start + step].reshape(-1).tolist()
    ]
    return np.array(found_texts, object).reshape(item.shape)


def _h5_datasets(file: Any) -> dict[str, Any]:
    """Returns datasets and links to other files by path, sorted by path; soft links are skipped."""
    found, groups, seen = {}, [("", file["/"])], {file["/"]}
    while groups:
        path, group = groups.pop()
        for name in group:
            link = group.get(name, getlink=True)
            if isinstance(link, h5py.ExternalLink):
                found[path + name] = link
            if not isinstance(link, h5py.HardLink):
                continue
            item = group[name]
            if isinstance(item, h5py.Dataset):
                found[path + name] = item
            elif isinstance(item, h5py.Group) and item not in seen:  # a group may contain itself
                seen.add(item)
                groups.append((f"{path}{name}/", item))
    return dict(sorted(found.items()))


def _check_inside(name: str, item: Any, limit: int) -> None:
    """Rejects an array that is in another file, before that is opened, or whose chunks are too large."""
    if isinstance(item, h5py.ExternalLink) or item.external or item.is_virtual:
        raise RejectError(f"array {name!r} is in another file, which is never opened")
    # HDF5 unpacks whole chunks, even if an array has only a few of the values.
    check_bytes(math.prod(item.chunks or ()) * item.dtype.itemsize, limit)
