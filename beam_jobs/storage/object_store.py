"""A store's objects: the interface that S3 and Google Cloud Storage implement."""

from __future__ import annotations

import abc
import base64
import random
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import google_crc32c

from beam_jobs.errors import DataError, UsageError

# How often a request is made before a store is said to keep failing: with waits that double from
# about half a second, and end at SECONDS_BETWEEN, it takes about half a minute to give up.
ATTEMPTS = 8

SECONDS_BETWEEN = 16.0

# Of an upload; below that an object is written by one request. S3 takes 10,000 parts: 160 GB.
PART_BYTES = 16 << 20

_USER = re.compile(r"//[^/\s@]+@")


class Listed(NamedTuple):
    """An object.

    Attributes:
        path: Its URL.
        size: In bytes.
        modified: Nanoseconds since the epoch.
    """

    path: str
    size: int
    modified: int


class Part(NamedTuple):
    """Bytes of an object.

    Attributes:
        data: Fewer than were asked for where the object ends.
        total: Bytes of the whole object.
        version: Of the object, for further parts of the same.
    """

    data: bytes
    total: int
    version: Any


class Upload(Protocol):
    """An object under way, in parts."""

    def add(self, data: bytes) -> None:
        """Sends the next part, of `PART_BYTES` unless it is the last."""

    def finish(self) -> None:
        """Makes the object of the parts."""

    def give_up(self) -> None:
        """Drops the parts: no object is made of them."""


class Store(abc.ABC):
    """The buckets of one kind of store.

    Every method raises what the module says.
    """

    @abc.abstractmethod
    def listed(self, prefix: str) -> Iterator[Listed]:
        """Yields the objects whose URLs begin so, in order of their names."""

    @abc.abstractmethod
    def read(self, path: str, start: int, size: int | None, version: Any = None) -> Part:
        """A part of an object; without a size all of it from `start` on.

        Raises:
            OSError: There is no such object, or it may not be read, or is another than `version`.
        """

    @abc.abstractmethod
    def checksum(self, path: str) -> tuple[int, int | None]:
        """(bytes, CRC32C) of an object as the store knows them; None where it knows no CRC32C.

        Raises:
            OSError: There is no such object.
        """

    @abc.abstractmethod
    def put(self, path: str, data: bytes) -> None:
        """Writes an object by one request."""

    @abc.abstractmethod
    def upload(self, path: str) -> Upload:
        """Begins an object of several parts."""

    @abc.abstractmethod
    def delete(self, paths: Sequence[str]) -> None:
        """Deletes objects; those that are gone are passed over."""

    @abc.abstractmethod
    def drop_uploads(self, prefix: str) -> None:
        """Drops what was sent of objects below a prefix that never came to be."""


def bucket_and_key(path: str) -> tuple[str, str]:
    """The two parts of a URL.

    Raises:
        UsageError: It names no bucket.
    """
    bucket, _, key = path.split("://", 1)[1].partition("/")
    if not bucket:
        raise UsageError(f"{path}: expected {path[:2]}://BUCKET/…")
    return bucket, key


def shown(error: object) -> str:
    """What a library says, as one line without whatever an address holds before an @."""
    return _USER.sub("//", " ".join(str(error).split()))[:300]


def failing(path: str, error: object) -> DataError:
    """That a store failed as often as it was asked."""
    return DataError(
        f"{path}: the store keeps failing ({shown(error)}); run the same command again: it keeps the "
        "shards that are done"
    )


def crc32c_text(data: bytes) -> str:
    """The CRC32C of some bytes, as stores write it."""
    return base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode()


def crc32c_number(text: str | None) -> int | None:
    """The number of such a text; None where it is none, or that of parts."""
    if not text or "-" in text:
        return None
    return int.from_bytes(base64.b64decode(text), "big")


def wait(attempt: int) -> None:
    """Waits before attempt number `attempt`, from 1: longer each time, and never as long as others."""
    time.sleep(min(SECONDS_BETWEEN, 2.0**attempt / 2) * random.uniform(0.5, 1))
