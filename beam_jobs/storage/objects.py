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
from typing import Any, BinaryIO

from beam_jobs.packages import require
from beam_jobs.storage.object_store import PART_BYTES, Store, Upload
from beam_jobs.storage.options import storage_options

# Bytes per request: few after a seek, and up to the larger number while reading on.
_FIRST_BYTES = 256 << 10

_WINDOW_BYTES = 8 << 20

# Most inputs are smaller, so one eager request reads them whole.
_EAGER_BYTES = 8 << 20

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
        from beam_jobs.storage.s3 import S3Store

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
    """

    def __init__(self, path: str) -> None:
        self._path, self._store = path, store_of(path)
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
            self._upload = self._store.upload(self._path)
        for start in range(0, cut, PART_BYTES):
            self._upload.add(bytes(held[start : start + PART_BYTES]))
        self._held, self._size = [bytes(held[cut:])], self._size - cut

    def publish(self) -> None:
        """Makes the object appear, replacing one of the same name."""
        data = b"".join(self._held)
        if self._upload is None:
            self._store.put(self._path, data)
        else:
            self._upload.add(data)
            self._upload.finish()
        self._upload = None

    def give_up(self) -> None:
        """Drops the parts that were sent; after `publish` it does nothing."""
        upload, self._upload = self._upload, None
        if upload:
            upload.give_up()


def read_object(path: str) -> bytes:
    """Reads a whole object.

    Raises:
        OSError: the object is missing or may not be read.
    """
    return store_of(path).read(path, 0, None).data


def open_object(path: str, eager: bool = False) -> BinaryIO:
    """Opens an object for reading sequentially, or a little at any position.

    Args:
        path: The object's URL.
        eager: Whether to fetch the first 8 MiB now, for many seeks in a small object.

    Raises:
        OSError: the object is missing or may not be read; without `eager`, reading raises this.
    """
    raw = _ObjectReader(path, _EAGER_BYTES if eager else _FIRST_BYTES)
    if eager:
        raw.fetch(0, _EAGER_BYTES)
    return io.BufferedReader(raw, _FIRST_BYTES)


class _ObjectReader(io.RawIOBase):
    """An object that is read in windows, which grow while they follow each other."""

    def __init__(self, path: str, first: int) -> None:
        self.name = path
        self._first = first
        self._at = 0
        self._start, self._window = 0, memoryview(b"")
        self._next = first
        self._total: int | None = None
        self._version: Any = None

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
        end = self._start + len(self._window)
        if not self._start <= self._at < end:
            follows = bool(end) and self._at == end
            size = min(2 * self._next, _WINDOW_BYTES) if follows else _FIRST_BYTES
            self._next = size if end else self._first
            self.fetch(self._at, max(self._next, wanted))
        data = self._window[self._at - self._start :][:wanted]
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def fetch(self, start: int, size: int) -> None:
        """Makes a range of the object the current window."""
        part = store_of(self.name).read(self.name, start, size, self._version)
        self._start, self._window = start, memoryview(part.data)
        self._total, self._version = part.total, part.version
