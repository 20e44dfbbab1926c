"""A file's bytes in memory, with no file descriptor."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import weakref
from typing import Any, BinaryIO

import numpy as np

_PROT_READ = _MAP_SHARED = 1

_DONTNEED = 4  # On Linux and macOS alike.

_FAILED = ctypes.c_void_p(-1).value

_LIBC: Any = ctypes.CDLL(None, use_errno=True)

_LIBC.mmap.restype = ctypes.c_void_p

_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]

_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

_LIBC.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Mapped:
    """The bytes of a file, which stay what they are when its name is given to another one.

    The module `mmap` keeps a descriptor for each map (until Python 3.13, where it need not), and a
    process often may have but 1,024: a shuffle of more shards than that opens them again and again,
    which takes eight times as long.

    Args:
        file: An open one; it may be closed then.

    Attributes:
        view: Its bytes. They are there as long as a view of them.

    Raises:
        OSError: The kernel refuses.
    """

    def __init__(self, file: BinaryIO) -> None:
        size = os.fstat(file.fileno()).st_size
        # An empty file cannot be mapped.
        self._memory = _Memory(file, size) if size else None
        self.view = np.asarray(self._memory).data if self._memory else memoryview(b"")

    def forget(self, start: int, length: int) -> None:
        """Lets go of pages that were read, which count as memory of the process until then."""
        if self._memory:
            over = start % mmap.PAGESIZE
            _LIBC.madvise(self._memory.address + start - over, length + over, _DONTNEED)


class _Memory:
    """What a view of a map refers to. An array of ctypes would be of a new class for each size."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.address: int = _LIBC.mmap(None, size, _PROT_READ, _MAP_SHARED, file.fileno(), 0)
        if self.address == _FAILED:
            number = ctypes.get_errno()
            told = os.strerror(number)
            if number == errno.ENOMEM:
                told += ", or more maps than vm.max_map_count allows"
            raise OSError(number, told, file.name)
        weakref.finalize(self, _LIBC.munmap, self.address, size).atexit = False
        self.__array_interface__ = {
            "version": 3,
            "shape": (size,),
            "typestr": "|u1",
            "data": (self.address, True),
        }
