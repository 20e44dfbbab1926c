"""Files of any filesystem that fsspec knows: their sizes and bytes, asked for until they are whole."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import fsspec

from readers.files.retries import Patience, ShortBodyError, StoreError, is_passing, named, retried

# Of the package's extras, by the protocol that needs one.
_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}

# Of a file that is read from its front: a request costs about as long as a MiB takes to arrive.
_AHEAD_BYTES = 4 << 20


def local_path(path: str) -> str | None:
    """The path in the local filesystem, or None for one that only fsspec can open."""
    if path.startswith("file://"):
        return path[len("file://") :]
    return None if "://" in path or "::" in path else path


def filesystem_of(path: str) -> tuple[Any, str]:
    """The filesystem of a path, and what it calls the path.

    Raises:
        ImportError: Its driver is not installed; the message has the pip command.
        ValueError: There is none of the protocol.
    """
    try:
        return cast(tuple[Any, str], fsspec.core.url_to_fs(path))
    except ImportError as error:
        protocol = path.split("://")[0].split("::")[-1]
        if protocol not in _EXTRAS:
            raise
        raise ImportError(
            f"{protocol}:// paths need a driver ({error}): "
            f"pip install 'beam-shards[{_EXTRAS[protocol]}]'"
        ) from None
    except (OSError, ValueError):
        raise
    except Exception as error:  # A driver that looks for credentials at once.
        raise named(path, error) from error


def file_size(path: str) -> int:
    """The size of a file, in bytes.

    Raises:
        FileNotFoundError: There is no such file.
        StoreError: (an OSError) The store does not say it.
    """
    local = local_path(path)
    if local is not None:
        return Path(local).stat().st_size
    filesystem, name = filesystem_of(path)
    return int(retried(path, lambda: filesystem.size(name)))


def ask(path: str, question: Callable[[Any, str], Any]) -> Any:
    """What a function says of a path's filesystem and of what this calls the path.

    Raises:
        OSError, ValueError, ImportError: As `retried` and `filesystem_of`.
    """
    filesystem, name = filesystem_of(path)
    if local_path(path) is not None:
        return question(filesystem, name)
    return retried(path, lambda: question(filesystem, name))


def read_file(path: str) -> bytes:
    """All bytes of a file that fits memory.

    Raises:
        FileNotFoundError: There is no such file.
        StoreError: (an OSError) The store does not give it.
    """
    with open_file(path) as file:
        return file.read()


def open_file(path: str, ahead: int = _AHEAD_BYTES) -> io.BufferedReader:
    """A file, to be read from its front, in pieces.

    Args:
        ahead: Bytes that are asked of a store at a time.

    Raises:
        FileNotFoundError: There is no such file.
        StoreError: (an OSError) The store does not give it; also raised by its reads.
    """
    local = local_path(path)
    if local is not None:
        return Path(local).open("rb")
    filesystem, name = filesystem_of(path)
    size = retried(path, lambda: filesystem.size(name))
    if size is None:  # A server that does not tell.
        return cast(io.BufferedReader, retried(path, lambda: filesystem.open(name, "rb")))
    return io.BufferedReader(_Ranges(filesystem, name, path, int(size)), ahead)


class _Ranges(io.RawIOBase):
    """A file that is read by ranges, each of which is whole or an error."""

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

    def readinto(self, buffer: Any) -> int:
        stop = min(self._at + len(buffer), self._size)
        if stop <= self._at:
            return 0
        wanted = (self._path, self._name, self._at, stop)
        (data,) = read_ranges(self._filesystem, [wanted])
        if len(data) < stop - self._at:
            raise StoreError(
                f"{self._path}: it had {self._size} bytes and was cut or replaced while it was read; "
                "read it again"
            )
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


# What to read of a file: its path, what its filesystem calls it, and the first byte and the one
# behind the last.
Range = tuple[str, str, int, int]


def read_ranges(filesystem: Any, ranges: Sequence[Range]) -> list[bytes]:
    """The bytes of ranges of one filesystem's files, all asked for at once where it can.

    What is shorter than its range ends where the file does: a body that was cut on its way is asked
    for again.

    Raises:
        StoreError: (an OSError) The store gives an error, or too little, again and again.
        FileNotFoundError, PermissionError: A file is missing, or not for us.
    """
    found: list[bytes] = [b""] * len(ranges)
    left, patience = list(range(len(ranges))), None
    while left:
        wanted = [ranges[number] for number in left]
        failed = dict[int, Exception]()
        for number, blob in zip(left, _asked(filesystem, wanted), strict=True):
            _, _, first, last = ranges[number]
            if isinstance(blob, Exception) or len(blob) != last - first:
                if isinstance(blob, Exception) and is_passing(blob):
                    failed[number] = blob
                    continue
                try:
                    blob = _short(filesystem, ranges[number], blob)
                except ShortBodyError as error:
                    failed[number] = error
                    continue
            found[number] = bytes(blob)
        left = list(failed)
        if left:
            patience = patience or Patience(ranges[left[0]][0])
            patience.after(failed[left[0]])
    return found


def _asked(filesystem: Any, ranges: Sequence[Range]) -> Sequence[Any]:
    """The bytes of each range, or an error."""
    _, names, firsts, lasts = zip(*ranges, strict=True)
    try:
        blobs = filesystem.cat_ranges(list(names), list(firsts), list(lasts), on_error="return")
        return cast(Sequence[Any], blobs)
    except Exception as error:
        return [error] * len(ranges)


def _short(filesystem: Any, wanted: Range, blob: Any) -> bytes:
    """The bytes of a range whose answer is an error, or not of its length, if the file is as short.

    Raises:
        ShortBodyError: It is not.
        Exception: The error, where the file is not as short.
    """
    path, name, first, last = wanted
    if not isinstance(blob, Exception) and len(blob) > last - first:
        raise StoreError(
            f"{path}: {len(blob)} bytes for a range of {last - first}: the server does not know "
            "ranges; copy the files to a disk or a store that does"
        )
    if isinstance(blob, FileNotFoundError):
        raise blob

    def size() -> int:
        # What was listed before may be of another file.
        filesystem.invalidate_cache()
        return int(filesystem.size(name))

    there = max(min(last, retried(path, size)) - first, 0)
    if isinstance(blob, Exception):
        # A store has an error for what lies behind the end of a file that was cut.
        if there:
            raise named(path, blob) from blob
        return b""
    if len(blob) < there:
        raise ShortBodyError(f"{len(blob)} of {there} bytes came from byte {first} on")
    return bytes(blob[:there])
