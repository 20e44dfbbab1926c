"""Recordings in .npy and .npz files."""

from __future__ import annotations

import functools
import io
import math
import zipfile

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.inside.columns import find_values
from beam_jobs.jobs.sensors.recording import (
    ReadOptions,
    Recording,
    choose_arrays,
    name_arrays,
    single_signal,
)
from beam_jobs.storage.limits import check_bytes


def read_npy(data: bytes, options: ReadOptions) -> Recording:
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


def read_npz(data: bytes, options: ReadOptions) -> Recording:
    """Reads the wanted arrays of a `.npz` archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        check_bytes(sum(member.file_size for member in archive.infolist()), options.max_bytes)
        members = {
            member.filename.removesuffix(".npy"): member
            for member in archive.infolist()
            if member.filename.endswith(".npy")
        }

        def unpacked(name: str) -> bytes:
            # At most the bytes that it states: `ZipFile.read` unpacks all that are there.
            with archive.open(members[name]) as file:
                return file.read(members[name].file_size)

        def read(name: str) -> np.ndarray | None:
            return parse_npy(unpacked(name)) if name in members else None

        columns, metadata = find_values(options.inside, read)
        names = choose_arrays(members, options)
        arrays = {name: parse_npy(unpacked(name)) for name in names}
        return Recording(name_arrays(arrays), columns=columns, metadata=metadata)
