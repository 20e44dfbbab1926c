"""Sizes and bytes of files on any filesystem that fsspec supports, with retries."""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import fsspec

from readers.files.retries import (
    Backoff,
    ShortBodyError,
    StoreError,
    is_transient,
    with_path,
    with_retries,
)

# The extra of this package that installs a protocol's driver.
_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}
_EXTRAS |= {"az": "azure", "abfs": "azure", "abfss": "azure"}

_S3 = ("s3", "s3a")
_S3_PREFIXES = tuple(f"{name}://" for name in _S3)

_AZURE_PREFIXES = ("az://", "abfs://", "abfss://")

# Variables of Microsoft's command line that the driver does not read, and its arguments.
_AZURE_VARIABLES = {"AZURE_STORAGE_ACCOUNT": "account_name", "AZURE_STORAGE_KEY": "account_key"}

# Fetched at a time from a file that is read front to back: a request costs about as long as a MiB
# takes to arrive.
_READ_AHEAD_BYTES = 4 << 20

# One connection to a store delivers some 50 MB/s, so longer ranges are faster in concurrent requests.
REQUEST_BYTES = 8 << 20

# Requests of the S3 driver that run at the same time; by default it holds back all but 10.
_CONNECTIONS = 64

# A range of a file: its path, its name in its filesystem, the first byte, and the end.
Range = tuple[str, str, int, int]


def path_text(path: str | os.PathLike[str]) -> str:
    """A path or URL that a caller gave, as text, with `~` as the home directory."""
    return os.path.expanduser(os.fspath(path))


def local_path(path: str) -> str | None:
    """The path in the local filesystem; None for a path that only fsspec can open."""
    if path.startswith("file://"):
        return path[len("file://") :]
    return None if "://" in path or "::" in path else path


def filesystem_of(path: str) -> tuple[Any, str]:
    """The fsspec filesystem of a path, and the path's name in that filesystem.

    Raises:
        ImportError: The driver is not installed; the message holds the pip command.
        ValueError: The protocol is unknown.
    """
    try:
        return cast(tuple[Any, str], fsspec.core.url_to_fs(path, **_driver_options(path)))
    except ImportError as error:
        protocol = path.split("://")[0].split("::")[-1]
        if protocol not in _EXTRAS:
            raise
        raise ImportError(
            f"{protocol}:// paths need a driver ({error}): "
            f"pip install 'beam-shards[{_EXTRAS[protocol]}]'"
        ) from None
    except (OSError, ValueError) as error:
        if isinstance(error, ValueError) and path.startswith(_AZURE_PREFIXES):
            raise PermissionError(
                f"{path}: no account or no credentials for the store ({error}); set them in the "
                "environment, see docs/object_stores.md"
            ) from None
        raise
    except Exception as error:  # Some drivers look for credentials right away.
        raise with_path(path, error) from error


def _driver_options(path: str) -> dict[str, Any]:
    """The arguments of a path's driver, as far as its user has not set them for fsspec."""
    if path.startswith(_AZURE_PREFIXES):
        return _azure_options(names_account="@" in path.split("/")[2])
    configured = any("config_kwargs" in fsspec.config.conf.get(name, {}) for name in _S3)
    if configured or not path.startswith(_S3_PREFIXES):
        return {}
    return {"config_kwargs": {"max_pool_connections": _CONNECTIONS}}


def _azure_options(names_account: bool) -> dict[str, Any]:
    """What the variables of Microsoft's command line say, where the driver's own say nothing."""
    found = {}
    for variable, argument in _AZURE_VARIABLES.items():
        value, own = os.environ.get(variable), f"AZURE_STORAGE_{argument.upper()}"
        if value and not os.environ.get(own) and not (names_account and argument == "account_name"):
            found[argument] = value
    return found


def file_size(path: str) -> int:
    """The size of a file, in bytes.

    Raises:
        FileNotFoundError: The file does not exist.
        StoreError: (an OSError) The store did not report the size.
    """
    local = local_path(path)
    if local is not None:
        return Path(local).stat().st_size
    return int(query(path, lambda filesystem, name: filesystem.size(name)))


def query(path: str, question: Callable[[Any, str], Any]) -> Any:
    """The answer to a question about a path, retried if its filesystem is a store.

    Args:
        path: Any path or URL that fsspec knows.
        question: A function of the filesystem and the path's name in it.

    Raises:
        ImportError: The filesystem's driver is not installed.
        OSError, ValueError: The question failed; for a store, the message names the path.
    """
    filesystem, name = filesystem_of(path)
    if local_path(path) is not None:
        return question(filesystem, name)
    return with_retries(path, lambda: question(filesystem, name))


def is_file(path: str) -> bool:
    """Whether there is a file; the errors are those of `query`."""
    return bool(query(path, lambda filesystem, name: filesystem.isfile(name)))


def read_file(path: str) -> bytes:
    """All bytes of a file, in memory.

    Raises:
        FileNotFoundError: The file does not exist.
        StoreError: (an OSError) The store did not deliver it.
    """
    if local_path(path) is not None:
        with open_file(path) as file:
            return file.read()
    # A missing file takes one request: the driver would look for a directory of its name, too.
    data = read_head(path, _READ_AHEAD_BYTES)
    if len(data) < _READ_AHEAD_BYTES:
        return data
    with open_file(path) as file:
        file.seek(len(data))
        return data + file.read()


def read_head(path: str, size: int) -> bytes:
    """The first `size` bytes of a file, or all of them if it is smaller.

    The errors are those of `read_file`.
    """
    local = local_path(path)
    if local is not None:
        with open_local(local) as file:
            data: bytes = file.read(size)
            return data
    filesystem, name = filesystem_of(path)
    return read_ranges(filesystem, [(path, name, 0, size)])[0]


def open_file(path: str, read_ahead: int = _READ_AHEAD_BYTES) -> io.BufferedReader:
    """Opens a file for reading from front to back.

    Args:
        path: A local path or any URL that fsspec knows.
        read_ahead: How many bytes to request from a store at a time.

    Raises:
        FileNotFoundError: The file does not exist.
        OSError: It is a pipe or a device, whose end may never come.
        StoreError: (an OSError) The store did not deliver it; reads of the file raise it as well.
    """
    local = local_path(path)
    if local is not None:
        return cast(io.BufferedReader, open_local(local))
    filesystem, name = filesystem_of(path)
    size = with_retries(path, lambda: filesystem.size(name))
    if size is None:  # The server does not report sizes.
        return cast(io.BufferedReader, with_retries(path, lambda: filesystem.open(name, "rb")))
    return io.BufferedReader(_RangeReader(filesystem, name, path, int(size)), read_ahead)


def open_local(path: str, buffering: int = -1) -> Any:
    """Opens a file of this machine, but no pipe, which would wait for a writer, and no device.

    Args:
        path: The path of the file.
        buffering: As for `open`.
    """
    file = open(path, "rb", buffering, opener=_open_at_once)  # noqa: SIM115 - the caller closes it
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise OSError(errno.EINVAL, "expected a regular file, found a pipe or a device", path)


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


class _RangeReader(io.RawIOBase):
    """A remote file read by ranges, each of which arrives complete or raises an error."""

    def __init__(self, filesystem: Any, name: str, path: str, size: int) -> None:
        self._filesystem, self._name, self._path, self._size = filesystem, name, path, size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = begin + offset
        return self._at

    def readall(self) -> bytes:
        # By default it would read 8 KiB at a time, each with a request.
        ranges = [
            (self._path, self._name, first, min(first + REQUEST_BYTES, self._size))
            for first in range(self._at, self._size, REQUEST_BYTES)
        ]
        return b"".join(self._read(ranges))

    def readinto(self, buffer: Any) -> int:
        stop = min(self._at + len(buffer), self._size)
        if stop <= self._at:
            return 0
        (data,) = self._read([(self._path, self._name, self._at, stop)])
        buffer[: len(data)] = data
        return len(data)

    def _read(self, ranges: Sequence[Range]) -> list[bytes]:
        """The bytes of ranges that follow one another from the current position on."""
        found = read_ranges(self._filesystem, ranges)
        for (_, _, first, last), data in zip(ranges, found, strict=True):
            if len(data) < last - first:
                raise StoreError(
                    f"{self._path}: the file had {self._size} bytes and was truncated or replaced "
                    "while it was being read; read it again"
                )
            self._at = last
        return found


def read_ranges(filesystem: Any, ranges: Sequence[Range]) -> list[bytes]:
    """The bytes of file ranges on one filesystem, requested together if the filesystem can do that.

    A result is shorter than its range only if the file ends there. A response that was truncated on
    its way is requested again.

    Raises:
        StoreError: (an OSError) The store kept answering with errors or truncated responses.
        FileNotFoundError: A file does not exist.
        PermissionError: The store denies access to a file.
    """
    found: list[bytes] = [b""] * len(ranges)
    left, waits = list(range(len(ranges))), None
    while left:
        failed = dict[int, Exception]()
        answers = _request(filesystem, [ranges[number] for number in left])
        for number, answer in zip(left, answers, strict=True):
            if isinstance(answer, Exception) and is_transient(answer):
                failed[number] = answer
                continue
            try:
                found[number] = _body(filesystem, ranges[number], answer)
            except ShortBodyError as error:
                failed[number] = error
        left = list(failed)
        if left:
            waits = waits or Backoff(ranges[left[0]][0])
            waits.wait(failed[left[0]])
    return found


def _request(filesystem: Any, ranges: Sequence[Range]) -> Sequence[Any]:
    """The bytes of each range, or the error in their place."""
    _, names, firsts, lasts = zip(*ranges, strict=True)
    try:
        answers = filesystem.cat_ranges(list(names), list(firsts), list(lasts), on_error="return")
        return cast(Sequence[Any], answers)
    except Exception as error:
        return [error] * len(ranges)


def _body(filesystem: Any, wanted: Range, answer: Any) -> bytes:
    """The bytes of a range, from the answer of the filesystem; fewer if the file ends within it.

    Raises:
        ShortBodyError: The answer is shorter than what the file holds of the range.
        StoreError: The answer is longer than the range.
        Exception: The answer is an error, and the file does not end before the range.
    """
    path, name, first, last = wanted
    if not isinstance(answer, Exception) and len(answer) == last - first:
        return bytes(answer)
    if not isinstance(answer, Exception) and len(answer) > last - first:
        raise StoreError(
            f"{path}: got {len(answer)} bytes for a range of {last - first}: the server does not "
            "support range requests; copy the files to a disk or a store that does"
        )
    if isinstance(answer, FileNotFoundError):
        raise answer

    def size() -> int:
        # A size that was listed earlier may be that of another version of the file.
        filesystem.invalidate_cache()
        return int(filesystem.size(name))

    available = max(min(last, with_retries(path, size)) - first, 0)
    if isinstance(answer, Exception):
        # Stores answer with an error if a range begins after the end of a truncated file.
        if available:
            raise with_path(path, answer) from answer
        return b""
    if len(answer) < available:
        raise ShortBodyError(f"got {len(answer)} of {available} bytes from byte {first} on")
    return bytes(answer[:available])
