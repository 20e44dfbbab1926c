"""Memory maps of local files that keep no file descriptor open."""

from __future__ import annotations

import ctypes
import errno
import itertools
import mmap
import os
import weakref
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np

# The same on Linux and macOS.
_MAP_FIXED, _MADV_DONTNEED = 0x10, 4

_ADDRESS_SPACE = 1 << 47  # bytes of a process

# Linux allows a process 65,530 maps. With more files, the rest are read into memory.
_MOST_MAPS = 1 << 15

_MAP_FAILED = ctypes.c_void_p(-1).value

_LIBC: Any = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_LIBC.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class MappedFile:
    """A read-only map of a file, which may be closed and replaced; the map lasts as long as any view of it.

    The `mmap` module keeps a descriptor for each map (optional only since Python 3.13), and a process is often limited to 1,024
    descriptors. A shuffle over more shards would open them again and again, which takes eight times as long.
    """

    def __init__(self, file: BinaryIO) -> None:
        size = os.fstat(file.fileno()).st_size
        # An empty file cannot be mapped.
        self._memory = _Range(size, file) if size else None
        self.view = np.asarray(self._memory).data if self._memory else memoryview(b"")

    @property
    def address(self) -> int:
        """The address of the view in memory; 0 if it is empty."""
        return self._memory.address if self._memory else 0

    def release(self, start: int, length: int) -> None:
        """Drops pages that were read; until then they count as memory of the process."""
        if self._memory:
            over = start % mmap.PAGESIZE
            _LIBC.madvise(self._memory.address + start - over, length + over, _MADV_DONTNEED)


class MappedFiles:
    """Files of given sizes in one address range, uint8 `octets`, each from its place in `starts`; zeros until mapped."""

    def __init__(self, sizes: Sequence[int]) -> None:
        if sum(sizes) >= _ADDRESS_SPACE:  # C would truncate the number.
            raise OSError(errno.ENOMEM, f"no range of {sum(sizes)} addresses")
        pages = [-(-size // mmap.PAGESIZE) * mmap.PAGESIZE for size in sizes]
        *self.starts, total = itertools.accumulate(pages, initial=0)
        self._sizes = sizes
        self._memory = _Range(total) if total and len(sizes) <= _MOST_MAPS else None
        self.octets = np.asarray(self._memory) if self._memory else np.zeros(total, np.uint8)

    def map(self, number: int, file: BinaryIO) -> None:
        """Maps a file, which may be closed afterwards; raises OSError if its size differs, or if the system cannot map it."""
        size = self._sizes[number]
        found = os.fstat(file.fileno()).st_size
        if found != size:
            raise OSError(errno.EINVAL, f"it has {found} bytes, expected {size}", file.name)
        start, flags = self.starts[number], mmap.MAP_SHARED | _MAP_FIXED
        if not self._memory:
            file.readinto(self.octets[start : start + size])  # type: ignore[attr-defined]
        elif size:
            _mapped(self._memory.address + start, size, flags, file)


def _mapped(address: int | None, size: int, flags: int, file: BinaryIO | None) -> int:
    descriptor = file.fileno() if file else -1
    found: int = _LIBC.mmap(address, size, mmap.PROT_READ, flags, descriptor, 0)
    if found != _MAP_FAILED:
        return found
    number = ctypes.get_errno()
    reason = os.strerror(number)
    if number == errno.ENOMEM:
        reason += ", or more maps than vm.max_map_count allows"
    raise OSError(number, reason, file and file.name)


class _Range:
    """Owns an address range, of a file or of zeros. A ctypes array would need a new class for every size."""

    def __init__(self, size: int, file: BinaryIO | None = None) -> None:
        flags = mmap.MAP_SHARED if file else mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self.address = _mapped(None, size, flags, file)
        weakref.finalize(self, _LIBC.munmap, self.address, size).atexit = False
        self.__array_interface__ = {
            "version": 3,
            "shape": (size,),
            "typestr": "|u1",
            "data": (self.address, True),
        }
