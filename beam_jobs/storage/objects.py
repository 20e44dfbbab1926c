"""Object stores: S3, Google Cloud Storage and Azure, where an object appears whole or not at all.

Each is reached through its own library, with Beam's options. Beam's filesystems are not used,
because their streams complete an upload whenever they are closed, even by the garbage collector, so
half a file of a failed attempt could replace a good one. They also make a client and query the size for
every file, and wait up to ten minutes for missing credentials. docs/design.md compares them with fsspec.

UsageError means that the user can correct the problem, and DataError that the store keeps failing;
neither may count as one bad input. A problem with a single object is an OSError.
"""

from __future__ import annotations

import functools
import io
import os
import re
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any, BinaryIO

from beam_jobs.packages import require
from beam_jobs.storage.ahead import Read, Window, in_background, taken
from beam_jobs.storage.object_store import PART_BYTES, Part, Store, Upload
from beam_jobs.storage.options import storage_options

# Bytes per request: few after a seek, and up to the larger number while reading on.
_FIRST_BYTES = 256 << 10

_WINDOW_BYTES = 8 << 20

# Windows that are requested before the current one is read. A connection brings some 80 MB/s, and
# four of them more than a process decodes.
_WINDOWS_AHEAD = 3

# Most inputs are smaller, so one eager request reads them whole.
EAGER_BYTES = 8 << 20

# The extra that installs the library of a scheme.
_EXTRAS = {"s3": "s3", "gs": "gcs", "az": "azure", "abfs": "azure", "abfss": "azure"}

_STORE = re.compile(rf"({'|'.join(_EXTRAS)})://")

# What the names of a store's options begin with, and those of all stores' environment variables.
_OPTIONS = {"s3": ("s3_",), "gcs": ("",), "azure": ("azure_", "blob_service_endpoint")}

_VARIABLES = ("AWS_", "AZURE_", "STORAGE_EMULATOR_", "GOOGLE_")


def is_store(path: str) -> bool:
    """Whether a path is the URL of an object in one of these stores."""
    return bool(_STORE.match(path))


def store_of(path: str) -> Store:
    """The store of an object's URL.

    Raises:
        UsageError: the store's library is not installed.
    """
    scheme = path.split("://")[0]
    prefixes = _OPTIONS[_EXTRAS[scheme]]
    found = storage_options().items()
    texts = [(name, str(value)) for name, value in found if name.startswith(prefixes)]
    variables = [item for item in os.environ.items() if item[0].startswith(_VARIABLES)]
    return _new_store(scheme, tuple(sorted(texts)), tuple(sorted(variables)))


@functools.lru_cache(maxsize=8)
def _new_store(
    scheme: str, options: tuple[tuple[str, str], ...], variables: tuple[tuple[str, str], ...]
) -> Store:
    """A store; a new one if an environment variable that its library reads has changed."""
    purpose = f"{scheme}:// paths"
    if scheme == "s3":
        require("boto3", "s3", purpose)
        from beam_jobs.storage.s3.store import S3Store

        return S3Store(dict(options))
    if _EXTRAS[scheme] == "azure":
        require("azure.storage.blob", "azure", purpose)
        from beam_jobs.storage.azure.store import AzureStore

        return AzureStore(dict(options))
    require("google.cloud.storage", "gcs", purpose)
    from beam_jobs.storage.gcs import GcsStore

    return GcsStore()


class NewObject:
    """An object that is written sequentially and appears when `publish` is called, or never.

    Small objects take one request; the parts of others are sent as soon as they are full.

    Args:
        path: Its URL.
        replace: Whether it may replace an object.
    """

    def __init__(self, path: str, replace: bool = False) -> None:
        self._path, self._store, self._replace = path, store_of(path), replace
        self._held: list[bytes] = []
        self._size = 0
        self._upload: Upload | None = None

    def write(self, data: bytes) -> None:
        """Appends bytes."""
        self._held.append(data)
        self._size += len(data)
        if self._size <= PART_BYTES:
            return
        held = memoryview(b"".join(self._held))
        cut = (self._size - 1) // PART_BYTES * PART_BYTES  # Keeps bytes for the last part.
        if self._upload is None:
            self._upload = self._store.upload(self._path, self._replace)
        for start in range(0, cut, PART_BYTES):
            self._upload.add(bytes(held[start : start + PART_BYTES]))
        self._held, self._size = [bytes(held[cut:])], self._size - cut

    def publish(self, synced: bool = True) -> None:
        """Makes the object appear; a store keeps what it has acknowledged.

        Raises:
            ExistsError: The path has an object, which may not be replaced.
        """
        data = b"".join(self._held)
        if self._upload is None:
            self._store.put(self._path, data, self._replace)
        else:
            self._upload.add(data)
            self._upload.finish()
        self._upload = None

    def give_up(self) -> None:
        """Drops the parts that were sent; after `publish` it does nothing."""
        upload, self._upload = self._upload, None
        if upload:
            upload.give_up()


def reading_ahead(reads: Iterable[Read]) -> Window:
    """A context in which this thread's reads find their answers requested; nothing for other files.

    Args:
        reads: What will be read, in order.
    """
    wanted = [read for read in reads if is_store(read.path)]
    for path in {read.path[:2]: read.path for read in wanted}.values():
        store_of(path)  # Threads that find no client would make one each, in 60 ms of a processor.
    return Window(wanted, _request)


def _request(read: Read) -> Part:
    return store_of(read.path).read(read.path, read.start, read.size)


def read_object(path: str) -> bytes:
    """Reads a whole object.

    Raises:
        OSError: the object is missing or may not be read.
    """
    found = taken(path, 0, None)
    return found[1].data if found else _request(Read(path)).data


def open_object(path: str, eager: bool = False) -> BinaryIO:
    """Opens an object for reading sequentially, or a little at any position.

    Args:
        path: The object's URL.
        eager: Whether to fetch the first 8 MiB now, for many seeks in a small object.

    Raises:
        OSError: the object is missing or may not be read; without `eager`, reading raises this.
    """
    raw = _ObjectReader(path, EAGER_BYTES if eager else _FIRST_BYTES)
    if eager:
        raw.fetch(0, EAGER_BYTES)
    return io.BufferedReader(raw, _FIRST_BYTES)


class _ObjectReader(io.RawIOBase):
    """An object that is read in windows, which grow while they follow each other.

    Once they have grown, the next ones are requested before they are needed.
    """

    def __init__(self, path: str, first: int) -> None:
        self.name = path
        self._first = first
        self._at = 0
        self._start, self._window = 0, memoryview(b"")
        self._next = first
        self._total: int | None = None
        self._version: Any = None
        # Windows of `_WINDOW_BYTES` that follow the current one, the first by its first byte.
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
            raise OSError(f"{self.name}: seek to before the beginning")
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
        """Makes a range from the current position on the window."""
        while self._ahead:
            start, part = self._ahead.popleft()
            if start <= self._at < start + _WINDOW_BYTES:
                self._keep(start, part.result())
                self._look_ahead()
                return
            part.cancel()
        end = self._start + len(self._window)
        # Members of a tar that are not read are skipped, to the header of the next one.
        follows = bool(end) and 0 <= self._at - end <= self._next
        size = min(2 * self._next, _WINDOW_BYTES) if follows else _FIRST_BYTES
        self._next = size if end else self._first
        known = self.fetch(self._at, max(self._next, wanted))
        if follows and not known and self._next == _WINDOW_BYTES:
            self._look_ahead()

    def _look_ahead(self) -> None:
        """Requests the windows that follow the current one."""
        last = (
            self._ahead[-1][0] if self._ahead else self._start + len(self._window) - _WINDOW_BYTES
        )
        while len(self._ahead) < _WINDOWS_AHEAD and last + _WINDOW_BYTES < (self._total or 0):
            last += _WINDOW_BYTES
            read = store_of(self.name).read
            part = in_background(read, self.name, last, _WINDOW_BYTES, self._version)
            self._ahead.append((last, part))

    def fetch(self, start: int, size: int) -> bool:
        """Makes a range of the object, or one around its first byte that was requested, the window.

        Returns whether it was requested before.
        """
        found = taken(self.name, start, size)
        if found and self._version in (None, found[1].version):
            self._keep(*found)
            self._next = max(self._next, min(len(self._window), _WINDOW_BYTES))
            return True
        self._keep(start, store_of(self.name).read(self.name, start, size, self._version))
        return False

    def _keep(self, start: int, part: Part) -> None:
        self._start, self._window = start, memoryview(part.data)
        self._total, self._version = part.total, part.version

    def close(self) -> None:
        while self._ahead:
            self._ahead.pop()[1].cancel()
        super().close()
