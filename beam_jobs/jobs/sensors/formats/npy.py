"""Recordings in .npy and .npz files."""

from __future__ import annotations

import functools
import io
import math
import zipfile

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.formats.stored_arrays import StoredArray, kind_of, read_stored
from beam_jobs.jobs.sensors.read_options import ReadOptions
from beam_jobs.jobs.sensors.recording import Recording
from beam_jobs.storage.limits import check_bytes


def read_npy(data: bytes, options: ReadOptions) -> Recording:
    """The array of a `.npy` file."""
    return Recording({"signal": parse_npy(data)})


def parse_npy(data: bytes) -> np.ndarray:
    """The array that `np.load` reads from the bytes of a `.npy` file; never unpickles.

    Raises:
        RejectError: The array holds Python objects, or a second array follows.
        ValueError: The bytes are not a complete `.npy` file.
    """
    # Cached, because NumPy takes 30 us to parse a header and a dataset has few different ones.
    start = _npy_header_bytes(data)
    shape, fortran_order, dtype = _npy_header(data[:start])
    if dtype.hasobject:
        raise RejectError("it holds pickled objects, which are never loaded")
    count = math.prod(shape)
    array = np.frombuffer(data, dtype, count, start) if count else np.empty(0, dtype)
    array = array.reshape(shape[::-1]).T if fortran_order else array.reshape(shape)
    if data.startswith(np.lib.format.MAGIC_PREFIX, start + array.nbytes):
        raise RejectError("a second array follows: save several as .npz, with np.savez")
    return array


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
    # NumPy appends the dtype's shape to the array's shape, and never saves such a dtype.
    if dtype.subdtype:
        raise ValueError(f"dtype {dtype}")
    return shape, fortran_order, dtype


def read_npz(data: bytes, options: ReadOptions) -> Recording:
    """The chosen arrays of a `.npz` archive, or all that are numbers along time."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        infos = archive.infolist()
        check_bytes(sum(info.file_size for info in infos), options.max_bytes)
        members = [info for info in infos if info.filename.endswith(".npy")]
        stored = {info.filename.removesuffix(".npy"): _stored(archive, info) for info in members}
        return read_stored(stored, options, {})


def _stored(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> StoredArray:
    """A member of an archive."""
    with archive.open(info) as file:
        start = file.read(12)
        shape, _, dtype = _npy_header(start + file.read(_npy_header_bytes(start) - 12))

    def read() -> np.ndarray:
        # At most the stated number of bytes: `ZipFile.read` unpacks whatever is there.
        with archive.open(info) as file:
            return parse_npy(file.read(info.file_size))

    return StoredArray(kind_of(dtype), shape, math.prod(shape) * dtype.itemsize, read)
