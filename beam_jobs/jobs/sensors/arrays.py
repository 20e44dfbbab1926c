"""Recordings in .npy, .npz and HDF5 files."""

from __future__ import annotations

import functools
import io
import math
import zipfile
from typing import Any

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.inside.columns import find_values
from beam_jobs.jobs.sensors.recording import (
    ReadOptions,
    Recording,
    check_size,
    choose_arrays,
    name_arrays,
    single_signal,
)
from beam_jobs.packages import require
from readers.format.schema import format_shape
from readers.format.tfrecord import MAX_RECORD_BYTES


def load_npy(data: bytes, options: ReadOptions) -> Recording:
    """Reads the array of a `.npy` file."""
    return single_signal(parse_npy(data), options)


def parse_npy(data: bytes) -> np.ndarray:
    """Returns the array that `np.load` reads from the bytes of a `.npy` file; never unpickles.

    Raises:
        RejectError: the array holds Python objects.
        ValueError: the bytes are not a complete `.npy` file.
    """
    # Cached, because NumPy takes 30 us to parse a header and a dataset has few different ones.
    shape, fortran_order, dtype = _npy_header(data[: _npy_header_bytes(data)])
    if dtype.hasobject:
        raise RejectError("it holds pickled objects, which are never loaded")
    count = math.prod(shape)
    array = (
        np.frombuffer(data, dtype, count, _npy_header_bytes(data)) if count else np.empty(0, dtype)
    )
    return array.reshape(shape[::-1]).T if fortran_order else array.reshape(shape)


def _npy_header_bytes(data: bytes) -> int:
    wide = data[6:7] > b"\x01"
    return (12 if wide else 10) + int.from_bytes(data[8 : 12 if wide else 10], "little")


@functools.lru_cache(maxsize=4096)
def _npy_header(head: bytes) -> tuple[tuple[int, ...], bool, np.dtype]:
    stream = io.BytesIO(head)
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"version {version}")
    # Version 3 is version 2 with field names in UTF-8, which no recording has.
    wide = version != (1, 0)
    read = np.lib.format.read_array_header_2_0 if wide else np.lib.format.read_array_header_1_0
    shape, fortran_order, dtype = read(stream)
    if min(shape, default=0) < 0:
        raise ValueError(f"shape {shape}")
    return shape, fortran_order, dtype


def load_npz(data: bytes, options: ReadOptions) -> Recording:
    """Reads the wanted arrays of a `.npz` archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        check_size(sum(member.file_size for member in archive.infolist()))
        members = {
            member.filename.removesuffix(".npy"): member
            for member in archive.infolist()
            if member.filename.endswith(".npy")
        }

        def read(name: str) -> np.ndarray | None:
            return parse_npy(archive.read(members[name])) if name in members else None

        columns, metadata = find_values(options.inside, read)
        names = choose_arrays((n for n in members if n not in options.inside), options.arrays)
        arrays = {name: parse_npy(archive.read(members[name])) for name in names}
        return Recording(name_arrays(arrays), columns=columns, metadata=metadata)


def load_h5(data: bytes, options: ReadOptions) -> Recording:
    """Reads the wanted arrays of an HDF5 file by their paths, or all that are numbers along time."""
    h5py = require("h5py", "hdf5", ".h5 files")
    with h5py.File(io.BytesIO(data), "r") as file:
        found = _h5_datasets(h5py, file)
        read = functools.partial(_h5_value, h5py, file, found, len(data))
        columns, metadata = find_values(options.inside, read)
        chosen = choose_arrays((n for n in found if n not in options.inside), options.arrays)
        for name in chosen:
            _check_inside(h5py, name, found[name])
        series = {
            name: found[name]
            for name in chosen
            if found[name].dtype.kind in "biufc" and found[name].shape
        }
        if other := [name for name in options.arrays if name not in series]:
            shape = format_shape(found[other[0]].shape or ())
            raise RejectError(
                f"array {other[0]!r} is {found[other[0]].dtype} {shape}: expected numbers along time"
            )
        if not series:
            raise RejectError("it holds no array of numbers")
        check_size(sum(array.nbytes for array in series.values()))
        arrays = {name: array[()] for name, array in series.items()}
        return Recording(name_arrays(arrays), columns=columns, metadata=metadata)


def _h5_value(
    h5py: Any, file: Any, found: dict[str, Any], size: int, name: str
) -> np.ndarray | None:
    """Returns a dataset, or an attribute of the file that is a single value; None without either.

    Args:
        size: The bytes of the file, in which each text of variable length is stored.
    """
    if name not in found:
        if name not in file.attrs or math.prod(file.attrs.get_id(name).shape or ()) != 1:
            return None
        return np.asarray(file.attrs[name]).reshape(())
    item = found[name]
    _check_inside(h5py, name, item)
    if not h5py.check_string_dtype(item.dtype) or item.dtype.kind != "O":
        check_size(item.nbytes)
        return np.asarray(item[()])
    texts = item.asstr()
    if not item.shape:
        return np.asarray(texts[()], object)
    # Many elements may refer to one long text: no more of them at a time than memory holds.
    step = max(1, MAX_RECORD_BYTES // size)
    kept: dict[str, str] = {}
    found_texts = [
        kept.setdefault(text, text)
        for start in range(0, len(item), step)
        for text in texts[start : start + step].reshape(-1).tolist()
    ]
    return np.array(found_texts, object).reshape(item.shape)


def _h5_datasets(h5py: Any, file: Any) -> dict[str, Any]:
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


def _check_inside(h5py: Any, name: str, item: Any) -> None:
    """Rejects an array that is stored in another file, before that file is opened."""
    if isinstance(item, h5py.ExternalLink) or item.external or item.is_virtual:
        raise RejectError(f"array {name!r} is in another file, which is never opened")
    # HDF5 unpacks whole chunks, even if an array has only a few of the values.
    check_size(math.prod(item.chunks or ()) * item.dtype.itemsize)
