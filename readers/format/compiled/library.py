"""The functions of `kernel.c`, called with ctypes, which releases the interpreter's lock."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np

# The forms of a feature in `kernel.c`: not decoded; bytes; bytes after a header; a TensorProto
# of unknown shape; packed varints; and the shape of another feature.
SKIPPED, BYTES, HEADED, TENSOR, INTEGERS, SHAPE = range(6)

# The work that `read_rows` can do: find values, copy them, compare checksums.
WALK, FILL, CHECK = 1, 2, 4

# The version of this interface, `VERSION` in `kernel.c`.
_VERSION = 14

_POINTER, _NUMBER = ctypes.c_void_p, ctypes.c_int64

_ARGUMENTS = {
    "version": [],
    "rows": [_POINTER, _POINTER, _NUMBER, _POINTER, *[_NUMBER] * 3, _POINTER],
    "frames": [_POINTER, _NUMBER, _NUMBER, _POINTER],
    "lay_out": [_POINTER, _NUMBER, _POINTER, _NUMBER, _NUMBER],
    "locate": [_POINTER, _NUMBER, *[_POINTER] * 3, *[_NUMBER] * 4, _POINTER, _POINTER],
    "permute": [_POINTER, _NUMBER, *[_POINTER] * 4],
    "rows_seen": [_POINTER, _NUMBER, _NUMBER, _POINTER, _POINTER, _NUMBER],
    "texts": [*[_POINTER] * 3, _NUMBER, *[_POINTER] * 3],
}

# Functions of the Python interpreter, for `readers_texts`.
_OF_PYTHON = [
    ctypes.cast(getattr(ctypes.pythonapi, name), _POINTER)
    for name in ("PyBytes_FromStringAndSize", "PyBytes_AsString", "Py_DecRef")
]

# `File` of `kernel.c`, which documents its members.
FILE = np.dtype(
    [
        *((name, "i8") for name in ("map", "offsets", "itemsize", "before", "checked")),
        *((name, "i8") for name in ("index_bytes", "bytes", "present", "call")),
        *((name, "i8", 4) for name in ("of_file", "of_index")),
    ]
)


class RefusedRecords(Exception):
    """Some records are damaged, or have another form or values that do not fit; `good`, bool [B], marks the others."""

    def __init__(self, good: np.ndarray) -> None:
        super().__init__()
        self.good = good


def load(folder: Path) -> tuple[Any, Any]:
    """Loads the library in a folder twice: the functions of one release the interpreter's lock, those of the other keep it.

    Raises ImportError if it is missing, has another version, or cannot be loaded.
    """
    path = folder / "kernel.so"
    try:
        library, with_lock = ctypes.CDLL(str(path)), ctypes.PyDLL(str(path))
        for name, arguments in _ARGUMENTS.items():
            for function in (getattr(of, f"readers_{name}") for of in (library, with_lock)):
                function.argtypes, function.restype = arguments, _NUMBER
    except (OSError, AttributeError) as error:
        reason = f"cannot be loaded ({error})" if path.exists() else "is missing"
    else:
        if library.readers_version() == _VERSION:
            return library, with_lock
        reason = f"is of version {library.readers_version()}, expected {_VERSION}"
    raise ImportError(
        f"the compiled part of beam-shards in {folder} {reason}: "
        "pip install --force-reinstall beam-shards, or in a checkout: python setup.py build_ext --inplace",
        name="readers.format.compiled.kernel",
    )


LIBRARY, WITH_LOCK = load(Path(__file__).parent)


def address(array: np.ndarray) -> int:
    """The address of an array in memory; `array.ctypes.data` takes five times as long."""
    found: int = array.__array_interface__["data"][0]
    return found


def read_rows(
    records: np.ndarray, sizes: np.ndarray, fields: np.ndarray, work: int, threads: int
) -> None:
    """Walks, checks or copies records.

    Args:
        records: int64 [B], contiguous, the addresses of framed records.
        sizes: int64 [B], contiguous, their sizes; all of these bytes must be readable.
        fields: uint8 [features, bytes], the memory of FIELD [features]: all features of each record, in order.
        work: A sum of `WALK`, which finds the values and stores their places in the fields; `FILL`, which copies
            the values to the `out` of the fields; and, only with `FILL`, `CHECK`, which compares checksums.
        threads: The number of threads.

    Raises:
        RefusedRecords: Some records are damaged or have another form; all others are done.
    """
    refused = np.empty(len(records), bool)
    pointers = address(records), address(sizes), len(records), address(fields), len(fields)
    if LIBRARY.readers_rows(*pointers, work, threads, address(refused)):
        raise RefusedRecords(~refused)


def intact(records: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Whether each framed record has correct lengths and checksums, bool [B]; arguments as for `read_rows`."""
    try:
        read_rows(records, sizes, np.empty((0, 0), np.uint8), FILL | CHECK, 1)
    except RefusedRecords as refused:
        return refused.good
    return np.ones(len(records), bool)


def find_frames(data: np.ndarray, most: int, sizes: np.ndarray) -> int:
    """Finds the frames that some bytes, uint8 [n], begin with; returns their number, and stores their sizes, int64 [n / 16].

    It stops at the first frame whose header is damaged, whose record has more than `most` bytes, or that is cut off.
    Checksums of records are not compared.
    """
    found: int = LIBRARY.readers_frames(address(data), len(data), most, address(sizes))
    return found


def lay_out(fields: np.ndarray, bounds: np.ndarray, most_padded: int) -> None:
    """Computes where to copy values: `out_at`, `out_end` and `pieces` of the fields.

    Args:
        fields: uint8 [features, bytes], the memory of FIELD [features], after a walk unless all features have a
            fixed shape. `pads` becomes 0 if padding would take too much memory.
        bounds: int64 [batches + 1], the row at which each batch begins, and the row at which the last one ends.
        most_padded: The most bytes of padded values of a feature.
    """
    pointers = address(fields), len(fields), address(bounds), len(bounds) - 1
    LIBRARY.readers_lay_out(*pointers, most_padded)


def locate(
    numbers: np.ndarray,
    ends: np.ndarray,
    firsts: np.ndarray,
    files: np.ndarray,
    call: int,
    most_framed: int,
    long_run: int,
) -> tuple[int, np.ndarray, np.ndarray]:
    """Finds records in mapped files: the number of records found, from the first on, and their addresses and sizes, int64 [B].

    It stops at a record whose file is not open, whose index block is not checked, or that does
    not exist. The number is -1 if records are in long runs.

    Args:
        numbers: int64 [B], contiguous, the numbers of the records in all files together.
        ends: int64 [files], the number of the record after the last of each file.
        firsts: int64 [files], the number of the first record of each file.
        call: A number that is different for every call.
        most_framed: The largest size of a record.
        long_run: The mean length of runs, in bytes, from which on another way of reading is faster.
    """
    addresses, sizes = np.empty((2, len(numbers)), np.int64)
    found: int = LIBRARY.readers_locate(
        *(address(numbers), len(numbers), address(ends), address(firsts), address(files)),
        *(len(files), call, most_framed, long_run, address(addresses), address(sizes)),
    )
    return found, addresses, sizes


def permuted(
    places: np.ndarray,
    sizes: np.ndarray,
    widths: np.ndarray,
    keys: np.ndarray,
    orders: np.ndarray | None,
) -> np.ndarray:
    """The numbers at some places, int64 [k], of a `Permutation`, int64 [k].

    Args:
        sizes: int64 [orders], how many numbers n each order has.
        widths: int64 [orders], the smallest number whose square is at least n; at least 1.
        keys: int64 [orders, 8], contiguous, the key of each round.
        orders: int64 [k], contiguous, the order of each place; None if there is only one.
    """
    numbers = np.array(places, np.int64)  # A copy.
    of = None if orders is None else address(orders)
    of_orders = address(sizes), address(widths), address(keys), of
    LIBRARY.readers_permute(address(numbers), numbers.size, *of_orders)
    return numbers


def rows_seen(
    numbers: np.ndarray, seen: int, before: np.ndarray, first: np.ndarray, shift: int
) -> np.ndarray:
    """The rows with some numbers, int64 [k], among those that a reader sees.

    Args:
        numbers: int64 [k].
        seen: The number of seen rows.
        before: int64 [n], ascending, the number of seen rows before each row that is gone.
        first: uint32, how many of these numbers are below k << shift, for each k to beyond `seen`.

    Raises:
        IndexError: A number is not from 0 to before `seen`.
    """
    rows = np.array(numbers, np.int64)  # A copy.
    arguments = address(rows), rows.size, seen, address(before), address(first), shift
    if LIBRARY.readers_rows_seen(*arguments) >= 0:
        raise IndexError(f"expected numbers from 0 to before {seen}")
    return rows


def new_texts(sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Creates bytes objects of some sizes, int64 [B]: object [B], and the addresses of their bytes, int64 [B].

    The caller must write the bytes before any other code can see the objects.
    """
    objects, at = np.empty(len(sizes), object), np.empty(len(sizes), np.int64)
    pointers = address(objects), address(at), address(sizes), len(sizes)
    WITH_LOCK.readers_texts(*pointers, *_OF_PYTHON)
    return objects, at
