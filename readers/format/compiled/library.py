"""The functions of `kernel.c`, called with ctypes, which releases the interpreter's lock.

What calls them has a way with NumPy that gives the same result and defines it, and takes that way where
there is no library: no compiler when this package was installed, a processor without an instruction for
CRC32C, or an old library beside a newer source.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

# What `kernel.c` calls the forms of a feature: not decoded; bytes; bytes after a header; a TensorProto
# of unknown shape; packed varints; and the shape of another feature.
SKIPPED, BYTES, HEADED, TENSOR, INTEGERS, SHAPE = range(6)

# The work that `read_rows` may ask for: find values, copy them, compare checksums.
WALK, FILL, CHECK = 1, 2, 4

# The version of these functions, `VERSION` of `kernel.c`.
_VERSION = 8

_POINTER, _NUMBER = ctypes.c_void_p, ctypes.c_int64

# Functions of every Python, for `readers_texts`.
_OF_PYTHON = [
    ctypes.cast(getattr(ctypes.pythonapi, name), _POINTER)
    for name in ("PyBytes_FromStringAndSize", "PyBytes_AsString", "Py_DecRef")
]

# Long enough for every loop of the checksum.
_SAMPLE = bytes(range(256)) * 33 + b"\x01\x02\x03"


# `File` of `kernel.c`, which says what its members are.
FILE = np.dtype(
    [
        (name, "i8")
        for name in (
            *("map", "descriptor", "offsets", "itemsize", "index_descriptor", "index_bytes"),
            *("bytes", "present", "call"),
        )
    ]
)


def is_compiled() -> bool:
    """Whether batches of numbers are read by the compiled library, and not by NumPy alone."""
    return library() is not None


@functools.cache
def library() -> Any:
    """The library; None if it was not built, or does not fit this processor."""
    for path in sorted(Path(__file__).parent.glob("kernel*.so")):
        try:
            found = ctypes.CDLL(str(path))
            found.readers_version.argtypes, found.readers_crc32c.argtypes = [], [_POINTER, _NUMBER]
            found.readers_rows.argtypes = [_POINTER, _POINTER, _NUMBER, _POINTER, *[_NUMBER] * 3]
            found.readers_lay_out.argtypes = [_POINTER, _NUMBER, _POINTER, _NUMBER, _NUMBER]
            found.readers_locate.argtypes = [
                *(_POINTER, _NUMBER, _POINTER, _POINTER, _POINTER),
                *(_NUMBER, _NUMBER, _NUMBER, _NUMBER, _POINTER, _POINTER),
            ]
            found.readers_permute.argtypes = [_POINTER, *[_NUMBER] * 3, _POINTER]
            found.readers_texts.argtypes = [*[_POINTER] * 3, _NUMBER, *[_POINTER] * 3]
        except (OSError, AttributeError):  # It is of another system, or of another version.
            continue
        for name in ("version", "crc32c", "rows", "lay_out", "locate", "permute", "texts"):
            getattr(found, f"readers_{name}").restype = _NUMBER
        if sys.byteorder == "little" and found.readers_version() == _VERSION:
            crc = found.readers_crc32c(_SAMPLE, len(_SAMPLE))
            if crc == google_crc32c.value(_SAMPLE):
                return found
    return None


def address(array: np.ndarray) -> int:
    """Where an array is in memory; `array.ctypes.data` takes five times as long."""
    found: int = array.__array_interface__["data"][0]
    return found


def read_rows(
    records: np.ndarray, sizes: np.ndarray, fields: np.ndarray, work: int, threads: int
) -> bool:
    """Does some work with records; false if one of them has another form, or is damaged.

    `intact` and `ColumnDecoder` do the same with NumPy.

    Args:
        records: int64 [B], contiguous, the addresses of framed records.
        sizes: int64 [B], contiguous, their sizes, which must all be readable.
        fields: uint8 [features, bytes], the memory of FIELD [features], all features of each record, in their order.
        work: A sum of `WALK`, which finds the values, whose places the fields then state; `FILL`, which copies
            the values to the `out` of the fields; and with that `CHECK`, which compares checksums.
        threads: How many threads share the work.
    """
    pointers = address(records), address(sizes), len(records), address(fields), len(fields)
    return bool(library().readers_rows(*pointers, work, threads) < 0)


def are_intact(records: np.ndarray, sizes: np.ndarray) -> bool:
    """Whether the lengths and checksums of framed records are all correct; false without a library.

    The arguments are those of `read_rows`; a size is at least that of the framing.
    """
    if library() is None:
        return False
    no_fields, sizes = np.empty((0, 0), np.uint8), np.ascontiguousarray(sizes, np.int64)
    return read_rows(records, sizes, no_fields, FILL | CHECK, 1)


def lay_out(fields: np.ndarray, bounds: np.ndarray, most_padded: int) -> None:
    """Finds where values are to be copied: `out_at`, `out_end` and `pieces` of the fields.

    Args:
        fields: uint8 [features, bytes], the memory of FIELD [features], after a walk unless all features have a
            fixed shape. `pads` becomes 0 if padding would take too much memory.
        bounds: int64 [batches + 1], the row at which each batch begins, and the one at which the last ends.
        most_padded: The most bytes of padded values of a feature.
    """
    pointers = address(fields), len(fields), address(bounds), len(bounds) - 1
    library().readers_lay_out(*pointers, most_padded)


def locate(
    numbers: np.ndarray,
    ends: np.ndarray,
    firsts: np.ndarray,
    files: np.ndarray,
    call: int,
    most_framed: int,
    long_run: int,
) -> tuple[np.ndarray, np.ndarray] | None:
    """The addresses and sizes of records in mapped files, int64 [B] each.

    None if a file was not opened, an index is wrong, a record does not exist, or records are in long runs.

    Args:
        numbers: int64 [B], contiguous, the numbers of the records in all files together.
        ends: int64 [files], the number of the record after the last of each file.
        firsts: int64 [files], the number that the first record of each file would have.
        files: FILE [files].
        call: A number that no other call has.
        most_framed: The largest size of a record.
        long_run: The mean length of runs, in bytes, from which on they are read in another way.
    """
    addresses, sizes = np.empty((2, len(numbers)), np.int64)
    bad = library().readers_locate(
        *(address(numbers), len(numbers), address(ends), address(firsts), address(files)),
        *(len(files), call, most_framed, long_run, address(addresses), address(sizes)),
    )
    return (addresses, sizes) if bad < 0 else None


def permuted(places: np.ndarray, n: int, width: int, keys: np.ndarray) -> np.ndarray | None:
    """The numbers at some places of a `Permutation`, int64 [k]; None without a library.

    Args:
        places: int64 [k].
        n, width: The arguments of `order.permutation.permuted`.
        keys: int64 [rounds], contiguous, the key of each round.
    """
    if library() is None:
        return None
    numbers = np.array(places, np.int64)  # A copy.
    library().readers_permute(address(numbers), len(numbers), n, width, address(keys))
    return numbers


def new_texts(sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bytes objects of some sizes, int64 [B]: object [B], and int64 [B], where their bytes are, which are to be set.

    Nothing else may know these objects before.
    """
    objects, at = np.empty(len(sizes), object), np.empty(len(sizes), np.int64)
    pointers = address(objects), address(at), address(sizes), len(sizes)
    _with_lock()(*pointers, *_OF_PYTHON)
    return objects, at


@functools.cache
def _with_lock() -> Any:
    """`readers_texts`, which must keep the interpreter's lock."""
    found = ctypes.PyDLL(library()._name).readers_texts
    found.argtypes, found.restype = library().readers_texts.argtypes, _NUMBER
    return found
