"""The interface of an object store, which S3, Google Cloud Storage and Azure implement."""

from __future__ import annotations

import abc
import base64
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import google_crc32c

from beam_jobs.errors import DataError, UsageError
from readers.files.backoff import may_pass

# Bytes in each part of an upload; smaller objects are written with one request. S3 takes up to 10,000
# parts, so 160 GB.
PART_BYTES = 16 << 20

_USER = re.compile(r"//[^/\s@]+@")


class FileInfo(NamedTuple):
    """A file or an object in a listing.

    Attributes:
        path: Its path or URL.
        size: Its length in bytes.
        modified: Time of its last change, in nanoseconds since the epoch; 0 if unknown.
    """

    path: str
    size: int
    modified: int


class Page(NamedTuple):
    """A part of a listing.

    Attributes:
        files: Objects in the order of their names.
        more: Whether there may be objects after these; then there is one at least here.
    """

    files: list[FileInfo]
    more: bool


class Part(NamedTuple):
    """A range of an object's bytes.

    Attributes:
        data: The bytes; fewer than requested if the object ends before.
        total: The length of the whole object in bytes.
        version: Identifies the object's content, to read further ranges of the same content.
    """

    data: bytes
    total: int
    version: Any


class Upload(Protocol):
    """An unfinished object that is uploaded in parts."""

    def add(self, data: bytes) -> None:
        """Sends the next part, which has `PART_BYTES` unless it is the last."""

    def finish(self) -> None:
        """Turns the parts into the object.

        Raises:
            ExistsError: the path has an object, which may not be replaced.
        """

    def give_up(self) -> None:
        """Drops the parts, so that they never become an object."""


class ExistsError(OSError):
    """A file has the name of one that may replace no other."""


class ChangedError(OSError):
    """An object does not have the version that a request demanded."""


class Store(abc.ABC):
    """The buckets of one kind of store; Azure calls them containers.

    All methods raise UsageError for what the user can correct, such as a missing bucket or wrong
    credentials; DataError if the store keeps failing; and OSError for a problem with one object.
    """

    @abc.abstractmethod
    def listed(self, prefix: str) -> Iterator[FileInfo]:
        """Yields the objects whose URLs begin with the prefix, in the order of their names."""

    @abc.abstractmethod
    def read(self, path: str, start: int, size: int | None, version: Any = None) -> Part:
        """Reads a range of an object; without a size, everything from `start` on.

        Raises:
            OSError: the object is missing, may not be read, or no longer has this version.
        """

    @abc.abstractmethod
    def checksum(self, path: str) -> tuple[int, int | None]:
        """Returns the length and the CRC32C that the store keeps of an object; None if it keeps none.

        Raises:
            OSError: the object is missing.
        """

    @abc.abstractmethod
    def put(self, path: str, data: bytes, replace: bool) -> None:
        """Writes an object with one request.

        Raises:
            ExistsError: the path has an object, which may not be replaced.
        """

    @abc.abstractmethod
    def upload(self, path: str, replace: bool) -> Upload:
        """Begins an object that is uploaded in parts."""

    @abc.abstractmethod
    def delete(self, paths: Sequence[str]) -> None:
        """Deletes objects; missing ones are ignored."""

    @abc.abstractmethod
    def drop_uploads(self, prefix: str) -> None:
        """Drops the parts of unfinished objects whose URLs begin with the prefix."""


class RangeListed(Store):
    """A store whose listings may begin after any name, so that several parts are listed at once."""

    @abc.abstractmethod
    def page(self, prefix: str, after: str) -> Page:
        """The first objects whose URLs begin with the prefix and follow another URL, which may be empty."""

    @abc.abstractmethod
    def folders(self, prefix: str) -> Iterator[list[str]]:
        """Yields pages of folders whose URLs begin with the prefix, in order.

        A folder's URL ends with the first slash after the prefix. Pages with objects alone are empty.
        """


def bucket_and_key(path: str) -> tuple[str, str]:
    """Splits the URL of an object.

    Raises:
        UsageError: the URL names no bucket.
    """
    bucket, _, key = path.split("://", 1)[1].partition("/")
    if not bucket:
        raise UsageError(f"{path}: expected {path.split('://')[0]}://BUCKET/…")
    return bucket, key


def one_line(error: object) -> str:
    """A library's message on one line, without the user name and password of any URL in it."""
    return _USER.sub("//", " ".join(str(error).split()))[:300]


class SignIn(NamedTuple):
    """How to give a process the credentials of a store.

    Attributes:
        here: On the machine of the command.
        on_workers: On the workers of an engine, which have none of the command's variables.
    """

    here: str
    on_workers: str

    def __str__(self) -> str:
        # Beam's boot programs and ours set it, so a process that has it is a worker of an engine.
        if "WORKER_ID" not in os.environ:
            return self.here
        return (
            "this is a worker of the engine, which variables and profiles of your shell do not reach: "
            + self.on_workers
        )


def failing(path: str, error: object) -> DataError:
    """The error of a store that failed at every try."""
    return DataError(
        f"{path}: the store keeps failing ({one_line(error)}); run the same command again: it keeps the "
        "shards that are done"
    )


def refusal(path: str, status: int, answer: str, sign_in: SignIn, reads: bool) -> Exception:
    """The error that a store's answer means to a job.

    Args:
        path: URL of the object.
        status: HTTP status of the answer, 401 for wrong credentials of any kind.
        answer: The answer, for the message.
        sign_in: How to give the store credentials, for the message.
        reads: Whether the request reads an object, so that only this object may be affected.
    """
    if status == 404:
        return FileNotFoundError(f"{path}: no such object")
    if status == 412 and reads:
        return ChangedError(f"{path}: it was replaced while it was read")
    if status == 412:
        return ExistsError(f"{path}: an object of this name exists")
    if status == 401:
        return UsageError(f"{path}: the store refuses the credentials ({answer}): {sign_in}")
    if status == 403 and reads:
        return PermissionError(f"{path}: it may not be read ({answer})")
    if status == 403:
        return UsageError(f"{path}: the store refuses ({answer}): {sign_in}")
    if may_pass(status):
        return failing(path, answer)
    return UsageError(f"{path}: the store refuses ({answer})")


def aborted(path: str) -> DataError:
    """The error of an upload whose parts somebody has dropped."""
    return DataError(
        f"{path}: its upload was aborted: does another job write to this directory? Run the same command "
        "again"
    )


def no_bucket(path: str, kind: str = "bucket") -> UsageError:
    """The error of a bucket, in the words of its store, that does not exist."""
    bucket, _ = bucket_and_key(path)
    return UsageError(f"{path}: there is no {kind} {bucket!r}: create it, or name another")


def no_credentials(path: str, error: object, sign_in: SignIn) -> UsageError:
    """The error of a process that finds no credentials."""
    return UsageError(f"{path}: no credentials ({one_line(error)}): {sign_in}")


def crc32c_text(data: bytes) -> str:
    """The CRC32C of some bytes, in the notation of stores."""
    return base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode()


def crc32c_number(text: str | None) -> int | None:
    """The CRC32C in the notation of stores as a number; None if it is missing or covers parts only."""
    if not text or "-" in text:
        return None
    return int.from_bytes(base64.b64decode(text), "big")
