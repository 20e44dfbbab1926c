"""Recordings in MATLAB's .mat files."""

from __future__ import annotations

import io
import zlib
from typing import Any, Literal

import numpy as np
import scipy.io

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.formats.hdf5 import read_h5
from beam_jobs.jobs.sensors.inside.columns import find_values
from beam_jobs.jobs.sensors.recording import (
    ReadOptions,
    Recording,
    choose_arrays,
    name_arrays,
)
from beam_jobs.storage.limits import check_bytes

_HEADER_BYTES = 128
_COMPRESSED, _MATRIX = 15, 14

# The classes of full matrices of numbers, and the types of the elements that hold numbers.
_CLASSES, _NUMBERS = range(6, 16), {1, 2, 3, 4, 5, 6, 7, 9, 12, 13}

# The dtypes of what scipy calls arrays of numbers; the others are text, cells, structs and objects.
_DTYPES = {
    "double": "float64",
    "single": "float32",
    "logical": "bool",
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


def read_mat(data: bytes, options: ReadOptions) -> Recording:
    """Reads the wanted arrays of numbers, or all but single numbers, of a file of version 4 to 7.3.

    MATLAB has no arrays of one dimension: rows [1, n] become [n].
    """
    if data[512:520] == b"\x89HDF\r\n\x1a\n":  # version 7.3
        return read_h5(data, options, _is_internal, _of_hdf5)
    stream = io.BytesIO(data)
    if scipy.io.matlab.matfile_version(stream)[0] == 1:  # versions 5 to 7.2
        stream = io.BytesIO(_numbers_alone(data, options.max_bytes))
    found = {
        name: (shape, _DTYPES[kind])
        for name, shape, kind in scipy.io.whosmat(stream)
        if kind in _DTYPES and not name.startswith("__")
    }
    names = choose_arrays(found, options)
    if not options.arrays:
        names = [name for name in names if max(found[name][0], default=1) > 1]
    wanted = [*names, *(name for name in options.inside if name in found)]
    stored = scipy.io.loadmat(stream, variable_names=wanted) if wanted else {}
    # A double that is a small whole number is stored in a byte; `mat_dtype` would undo that, but
    # drops imaginary parts. Sparse matrices may be called logical.
    arrays = {
        name: _series(stored[name].astype(_dtype(found[name][1], stored[name])))
        for name in wanted
        if isinstance(stored[name], np.ndarray)
    }
    columns, metadata = find_values(options.inside, arrays.get)
    arrays = {name: arrays[name] for name in names if name in arrays}
    if not arrays:
        raise RejectError("it holds no array of numbers")
    return Recording(name_arrays(arrays), columns=columns, metadata=metadata)


def _dtype(stated: str, array: np.ndarray) -> np.dtype:
    return np.result_type(stated, "complex64" if np.iscomplexobj(array) else "bool")


def _numbers_alone(data: bytes, limit: int) -> bytes:
    """Returns a file of version 5 with its arrays of numbers, unpacked, in memory of bounded size.

    SciPy takes the type of an element for an address, and so does not survive damaged files: it gets
    variables of which each element was checked, and none of the others.
    """
    order: Literal["little", "big"] = "little" if data[126:128] == b"IM" else "big"
    parts, at, size = [data[:_HEADER_BYTES]], _HEADER_BYTES, 0
    while at + 8 <= len(data):
        kind, length = (int.from_bytes(data[at + k : at + k + 4], order) for k in (0, 4))
        part = data[at : at + 8 + length]
        if len(part) < 8 + length:
            raise ValueError("a variable is not complete")
        if kind == _COMPRESSED:
            unpack = zlib.decompressobj()
            part = unpack.decompress(part[8:], limit - size + 1)
            if not unpack.eof:
                check_bytes(size + len(part), limit)
                raise ValueError("a variable is not complete")
        if _is_array_of_numbers(part, order):
            parts.append(part)
        size += len(part)
        at += 8 + length
    return b"".join(parts)


def _is_array_of_numbers(variable: bytes, order: Literal["little", "big"]) -> bool:
    """Whether a variable is a full array of numbers.

    Raises:
        ValueError: It is no variable, or its elements are not those of an array of numbers.
    """
    kind, length, flags = (int.from_bytes(variable[k : k + 4], order) for k in (0, 4, 16))
    if kind != _MATRIX:
        raise ValueError(f"a variable is of the type {kind}, expected {_MATRIX}")
    if not length or flags & 0xFF not in _CLASSES:
        return False
    found, at = list[int](), 8
    while at + 8 <= len(variable):
        kind, length = (int.from_bytes(variable[at + k : at + k + 4], order) for k in (0, 4))
        if kind >> 16:  # A small element: its length stands beside its type, its values in the tag.
            kind, length = kind & 0xFFFF, 0
        found.append(kind)
        at += 8 + length + -length % 8
    if at > len(variable):
        raise ValueError("a variable is not complete")
    # Its flags, its dimensions, its name, which may be UTF-8, and its values or those of both parts.
    values = 1 + (flags >> 11 & 1)
    # SciPy reads eight bytes of flags, whatever length they state.
    flags_length = int.from_bytes(variable[12:16], order)
    if (
        flags_length != 8
        or len(found) != 3 + values
        or found[2] not in (1, 16)
        or {*found[:2], *found[3:]} - _NUMBERS
    ):
        raise ValueError(f"an array of numbers has elements of the types {found}")
    return True


def _is_internal(name: str, array: Any) -> bool:
    """Whether an array is a single number, text, or a part of a cell array or an object."""
    return array.size < 2 or name.startswith("#") or array.attrs.get("MATLAB_class") == b"char"


def _of_hdf5(array: Any) -> np.ndarray:
    values = array[()].T  # which are stored in MATLAB's order
    is_logical = array.attrs.get("MATLAB_class") == b"logical"
    return _series(values.astype(bool) if is_logical else values)


def _series(array: np.ndarray) -> np.ndarray:
    return array[0] if array.ndim == 2 and array.shape[0] == 1 else array
