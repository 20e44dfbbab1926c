"""Memory maps of local files that hold no file descriptor."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import weakref
from typing import Any, BinaryIO

import numpy as np

_PROT_READ = _MAP_SHARED = 1

_MADV_DONTNEED = 4  # The same on Linux and macOS.

_MAP_FAILED = ctypes.c_void_p(-1).value

_LIBC: Any = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_LIBC.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class MappedFile:
    """A read-only memory map of a file. It keeps its content even if another file takes the name.

    The `mmap` module keeps a descriptor for each map (optional only since Python 3.13), and a
    process is often limited to 1,024 descriptors. A shuffle over more shards than that would open
    them again and again, which takes eight times as long.

    Args:
        file: An open file. It may be closed once the map exists.

    Attributes:
        view: The bytes of the file. They stay mapped as long as any view of them exists.

    Raises:
        OSError: The kernel refuses to map the file.
    """

    def __init__(self, file: BinaryIO) -> None:
        size = os.fstat(file.fileno()).st_size
        # An empty file cannot be mapped.
        self._memory = _MappedMemory(file, size) if size else None
        self.view = np.asarray(self._memory).data if self._memory else memoryview(b"")

    @property
    def address(self) -> int:
        """Where the view begins in memory; 0 if it is empty."""
        return self._memory.address if self._memory else 0

    def release(self, start: int, length: int) -> None:
        """Drops pages that were read; until then they count as memory of the process."""
        if self._memory:
            over = start % mmap.PAGESIZE
            _LIBC.madvise(self._memory.address + start - over, length + over, _MADV_DONTNEED)


class _MappedMemory:
    """The owner of the mapped memory. A ctypes array would need a new class for every size."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.address: int = _LIBC.mmap(None, size, _PROT_READ, _MAP_SHARED, file.fileno(), 0)
        if self.address == _MAP_FAILED:
            number = ctypes.get_errno()
            reason = os.strerror(number)
            if number == errno.ENOMEM:
                reason += ", or more maps than vm.max_map_count allows"
            raise OSError(number, reason, file.name)
        weakref.finalize(self, _LIBC.munmap, self.address, size).atexit = False
        self.__array_interface__ = {
            "version": 3,
            "shape": (size,),
            "typestr": "|u1",
            "data": (self.address, True),
        }
