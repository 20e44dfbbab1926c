"""The interface of an object store; S3, Google Cloud Storage and Azure implement it with their libraries."""

from __future__ import annotations

import abc
import base64
import contextlib
import io
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, BinaryIO, NamedTuple, Protocol

import google_crc32c

from readers.files import backoff
from readers.files.files import Draft, FileInfo, Range, WritableFiles
from readers.files.in_threads import map_in_threads
from readers.files.stores.ahead import Part, in_background, taken
from readers.files.stores.errors import BeyondEndError, BodyError, Errors
from readers.files.stores.reading import open_object

# Bytes in each part of an upload; smaller objects are written with one request. S3 accepts up to 10,000 parts, so 160 GB.
PART_BYTES = 16 << 20

# Connections that a client keeps, for as many requests in parallel.
CONNECTIONS = 64

_RECEIVED_BYTES = 1 << 20


class Page(NamedTuple):
    """Part of a listing, in the order of names; there may be more only if it is not empty."""

    files: list[FileInfo]
    more: bool


class Upload(Protocol):
    """An unfinished object that is uploaded in parts."""

    def add(self, data: bytes) -> None:
        """Sends the next part, which has `PART_BYTES` unless it is the last."""

    def finish(self) -> None:
        """Joins the parts to the object; raises ExistsError if its path is taken and may not be replaced."""

    def give_up(self) -> None:
        """Drops the parts, so that they never become an object."""


class Store(WritableFiles):
    """The buckets of one kind of store; Azure calls them containers."""

    def __init__(self, errors: Errors) -> None:
        self.errors = errors

    @abc.abstractmethod
    def objects(self, prefix: str) -> Iterator[FileInfo]:
        """Yields the objects whose URLs begin with the prefix, in the order of their names."""

    @abc.abstractmethod
    def request(self, path: str, start: int, size: int | None, version: Any) -> Part:
        """The bytes received of a range, fewer if the connection breaks; raises BeyondEndError, or BodyError for damage."""

    @abc.abstractmethod
    def delete_object(self, path: str) -> None:
        """Deletes an object, which may be missing."""

    @abc.abstractmethod
    def put(self, path: str, data: bytes, replace: bool) -> None:
        """Writes an object with one request; raises ExistsError if its path is taken and may not be replaced."""

    @abc.abstractmethod
    def upload(self, path: str, replace: bool) -> Upload:
        """Begins an object that is uploaded in parts."""

    def get(self, path: str, start: int, size: int | None, version: Any = None) -> Part:
        """Reads a range of an object, to its end without a size; ChangedError if it no longer has this version."""
        for _ in backoff.tries(backoff.TRIES):
            try:
                part = self.request(path, start, size, version)
            except BeyondEndError:
                return Part(b"", min(self.stat(path).size, start), version)
            except BodyError as error:
                broken = str(error)
                continue
            stop = part.total if size is None else min(start + size, part.total)
            if len(part.data) == max(stop - start, 0):
                return part
            broken = f"the body ended after {len(part.data)} of {stop - start} bytes"
        raise self.errors.failing(path, broken)

    def delete(self, paths: Sequence[str]) -> None:
        map_in_threads(self.delete_object, paths, are_local=False)

    def read(self, path: str, start: int = 0, size: int | None = None) -> bytes:
        if not bucket_and_key(path)[1]:
            raise self.errors.refused(
                f"{path}: this names a bucket; expected a file or folder in it"
            )
        if size == 0:
            return b""
        requested = taken(path, 0, None) if size is None and not start else None
        return requested[1].data if requested else self.get(path, start, size).data

    def read_ranges(self, ranges: Sequence[Range]) -> list[bytes]:
        if len(ranges) == 1:
            return super().read_ranges(ranges)
        requests = [
            in_background(self.read, path, start, stop - start) for path, start, stop in ranges
        ]
        try:
            return [request.result() for request in requests]
        finally:
            for request in requests:
                request.cancel()  # After an error.

    def open(self, path: str) -> io.BufferedReader:
        return open_object(self.get, path)

    def open_seekable(self, path: str) -> BinaryIO:
        return open_object(self.get, path, eager=True)

    def begin(self, path: str) -> Draft:
        return _NewObject(self, path, False)

    def create(self, path: str, staging: str, replace: bool = False) -> Draft:
        return _NewObject(self, path, replace)

    def listed(self, folder: str) -> Iterator[FileInfo]:
        return self.objects(f"{folder}/")


class RangeListed(Store):
    """A store whose listings may begin after any name, so that several parts are listed in parallel."""

    @abc.abstractmethod
    def page(self, prefix: str, after: str) -> Page:
        """The first objects whose URLs begin with the prefix and follow another URL, which may be empty."""

    @abc.abstractmethod
    def folders(self, prefix: str) -> Iterator[list[str]]:
        """Yields pages, some empty, of folders that begin with the prefix, each up to the next slash."""


class _NewObject:
    """An object that appears when published: a small one takes one request; parts of others are sent when full."""

    def __init__(self, store: Store, path: str, replace: bool) -> None:
        self._path, self._store, self._replace = path, store, replace
        self._held: list[bytes] = []
        self._size = 0
        self._upload: Upload | None = None

    def write(self, data: bytes) -> None:
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

    def publish(self, synced: bool = False) -> None:
        data = b"".join(self._held)
        if self._upload is None:
            self._store.put(self._path, data, self._replace)
        else:
            self._upload.add(data)
            self._upload.finish()
        self._upload = None

    def give_up(self) -> None:
        upload, self._upload = self._upload, None
        if upload:
            upload.give_up()


def received(read: Callable[[int], bytes], broken: tuple[type[Exception], ...]) -> bytes:
    """Reads a body until it ends or one of the given errors, by which its library reports a broken connection."""
    parts = list[bytes]()
    with contextlib.suppress(*broken):
        while data := read(_RECEIVED_BYTES):
            parts.append(data)
    return b"".join(parts)


def is_set(variable: str) -> bool:
    """Whether an environment variable is set, and neither empty nor a word for no."""
    return os.environ.get(variable, "").lower() not in ("", "0", "f", "false", "n", "no")


def bucket_and_key(path: str) -> tuple[str, str]:
    """Splits the URL of an object."""
    bucket, _, key = path.split("://", 1)[1].partition("/")
    return bucket, key


def nanoseconds(date: datetime) -> int:
    """A date in nanoseconds since the epoch."""
    return int(date.timestamp() * 1e9)


def crc32c_text(data: bytes) -> str:
    """The CRC32C of some bytes, in the notation of stores."""
    return base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode()


def crc32c_number(text: str | None) -> int | None:
    """The number of a CRC32C in the notation of stores; None if it is missing or covers only parts."""
    if not text or "-" in text:
        return None
    return int.from_bytes(base64.b64decode(text), "big")
