"""A file's bytes in memory, with no file descriptor."""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any

_PROT_READ = _MAP_SHARED = 1
_FAILED = ctypes.c_void_p(-1).value

_LIBC: Any = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    *[ctypes.c_int] * 3,
    ctypes.c_long,
]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def mapped(descriptor: int) -> memoryview:
    """The bytes of an open file, uint8 [size]. They go when nothing refers to a view of them.

    The module `mmap` keeps a descriptor for each map (until Python 3.13, where it need not), and a
    process often may have but 1,024: a shuffle of more shards than that opens them again and again,
    which takes eight times as long.

    Raises:
        OSError: The kernel refuses.
    """
    size = os.fstat(descriptor).st_size
    if not size:
        return memoryview(b"")
    address = _LIBC.mmap(None, size, _PROT_READ, _MAP_SHARED, descriptor, 0)
    if address == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    array = (ctypes.c_ubyte * size).from_address(address)
    weakref.finalize(array, _LIBC.munmap, address, size).atexit = False
    return memoryview(array).cast("B").toreadonly()
