"""Recordings in HDF5 files."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from typing import Any

import h5py
import numpy as np

from beam_jobs.jobs.sensors.formats.stored_arrays import COMPLEX, StoredArray, kind_of, read_stored
from beam_jobs.jobs.sensors.read_options import ReadOptions
from beam_jobs.jobs.sensors.recording import Recording


def datasets(file: Any) -> dict[str, Any]:
    """Datasets sorted by path; None for one in another file, which is never opened; soft links are skipped."""
    items: dict[str, Any] = {}

    def visit(path: str, link: Any) -> None:
        if isinstance(link, h5py.ExternalLink):
            items[path] = None
        elif isinstance(link, h5py.HardLink) and isinstance(item := file[path], h5py.Dataset):
            items[path] = None if item.external or item.is_virtual else item

    file.visititems_links(visit)
    return dict(sorted(items.items()))


def stored_dataset(item: Any) -> StoredArray:
    """The array of a dataset."""
    kind = "empty" if item.shape is None else kind_of(item.dtype)
    unit = item.attrs.get("units", item.attrs.get("unit"))
    unit = unit.decode(errors="replace") if isinstance(unit, bytes) else unit
    read = functools.partial(_values, item)
    stated = unit if isinstance(unit, str) else ""
    return StoredArray(kind, item.shape or (), item.nbytes, read, unit=stated)


def _values(item: Any) -> np.ndarray:
    values = np.asarray(item[()])
    is_complex = values.dtype.names == COMPLEX
    return values.view(f"{values.dtype[0].str[0]}c{values.itemsize}") if is_complex else values


def read_h5(
    data: bytes, options: ReadOptions, describe: Callable[[Any], StoredArray] = stored_dataset
) -> Recording:
    """The chosen arrays of an HDF5 file by their paths, or all that are numbers along time."""
    with h5py.File(io.BytesIO(data), "r") as file:
        stored = {
            path: describe(item) if item else StoredArray("in another file", ())
            for path, item in datasets(file).items()
            if path[0] != "#"  # MATLAB keeps the parts of cells and objects below such names.
        }
        return read_stored(stored, options, file.attrs)
