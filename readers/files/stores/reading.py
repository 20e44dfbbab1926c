"""Reads an object of a store as a file: in windows, where the next ones are requested in advance."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from readers.files.files import ChangedError
from readers.files.stores.ahead import Part, in_background, taken

# Bytes per request: few after a seek, and up to the larger number when reading sequentially.
_FIRST_BYTES = 256 << 10

_WINDOW_BYTES = 8 << 20

# Windows that are requested before the current one is read. A connection delivers about 80 MB/s, and
# four deliver more than a process decodes.
_WINDOWS_AHEAD = 3

# Most inputs are smaller, so one eager request reads them completely.
EAGER_BYTES = 8 << 20

# Requests a range of an object: URL, first byte, number of bytes, version.
Get = Callable[[str, int, int, Any], Part]


def open_object(get: Get, path: str, eager: bool = False) -> io.BufferedReader:
    """Opens an object; `eager` fetches its first 8 MiB, for many seeks in a small object, and raises errors here."""
    raw = _ObjectReader(get, path, EAGER_BYTES if eager else _FIRST_BYTES)
    if eager:
        raw.fetch(0, EAGER_BYTES)
    return io.BufferedReader(raw, _FIRST_BYTES)


class _ObjectReader(io.RawIOBase):
    """An object read in windows that grow while reading sequentially; then the next ones are requested ahead."""

    def __init__(self, get: Get, path: str, first: int) -> None:
        self.name, self._get = path, get
        self._first = self._next = first
        self._at = self._start = 0
        self._window = memoryview(b"")
        self._total: int | None = None
        self._version: Any = None
        # Windows of `_WINDOW_BYTES` that follow the current one, by their first byte.
        self._ahead: deque[tuple[int, Future[Part]]] = deque()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_END and self._total is None:
            self.fetch(0, self._first)
        bases = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._total or 0}
        at = bases[whence] + offset
        if at < 0:
            raise OSError(f"{self.name}: seek before the beginning")
        self._at = at
        return at

    def readinto(self, buffer: Any) -> int:
        wanted = len(buffer)
        if not wanted or (self._total is not None and self._at >= self._total):
            return 0
        if not self._start <= self._at < self._start + len(self._window):
            self._move(wanted)
        data = self._window[self._at - self._start :][:wanted]
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def _move(self, wanted: int) -> None:
        """Makes a range at the current position the window."""
        while self._ahead:
            start, part = self._ahead.popleft()
            if start <= self._at < start + _WINDOW_BYTES:
                self._keep(start, part.result())
                self._look_ahead()
                return
            part.cancel()
        end = self._start + len(self._window)
        # Members of a tar that are not read are skipped, up to the next header.
        follows = bool(end) and 0 <= self._at - end <= self._next
        size = min(4 * self._next, _WINDOW_BYTES) if follows else _FIRST_BYTES
        self._next = size if end else self._first
        known = self.fetch(self._at, max(self._next, wanted))
        if follows and not known and self._next == _WINDOW_BYTES:
            self._look_ahead()

    def _look_ahead(self) -> None:
        following = self._start + len(self._window) + len(self._ahead) * _WINDOW_BYTES
        while len(self._ahead) < _WINDOWS_AHEAD and following < (self._total or 0):
            part = in_background(self._get, self.name, following, _WINDOW_BYTES, self._version)
            self._ahead.append((following, part))
            following += _WINDOW_BYTES

    def fetch(self, start: int, size: int) -> bool:
        """Makes a range, or one already requested around its first byte, the window; returns whether it was requested already."""
        found = taken(self.name, start, size)
        if found and self._version in (None, found[1].version):
            self._keep(*found)
            self._next = max(self._next, min(len(self._window), _WINDOW_BYTES))
            return True
        self._keep(start, self._get(self.name, start, size, self._version))
        return False

    def _keep(self, start: int, part: Part) -> None:
        if self._total not in (None, part.total):
            raise ChangedError(f"{self.name}: it was replaced while it was read")
        self._start, self._window = start, memoryview(part.data)
        self._total, self._version = part.total, part.version

    def close(self) -> None:
        while self._ahead:
            self._ahead.pop()[1].cancel()
        super().close()
