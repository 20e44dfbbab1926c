"""Files of every other protocol that fsspec knows, such as `https://` and `hf://`."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import fsspec

from readers.files import backoff
from readers.files.files import Files, Range, Stat, StoreError
from readers.files.in_threads import map_in_threads
from readers.files.stores.ahead import Part
from readers.files.stores.reading import open_object

_T = TypeVar("_T")

# Errors that another try cannot change. What else a driver raises may pass, whatever its class.
_LASTING = (
    FileNotFoundError,
    ImportError,
    IsADirectoryError,
    NotADirectoryError,
    NotImplementedError,
    PermissionError,
    TypeError,
    ValueError,
)

_TRIES = 4


class FsspecFiles(Files):
    """Files of the other protocols that fsspec has drivers for, which retry by themselves or not at all."""

    def stat(self, path: str) -> Stat:
        # All that the driver says: its `ukey` may take another request, and over HTTP never changes.
        info = _ask(path, lambda filesystem, name: filesystem.info(name))
        version = sorted((key, str(value)) for key, value in info.items())
        return Stat(_stated(info.get("size")), version)

    def exists(self, path: str) -> bool:
        return bool(_ask(path, lambda filesystem, name: filesystem.isfile(name)))

    def open(self, path: str) -> io.BufferedReader:
        total = self.stat(path).size

        def get(path: str, start: int, size: int, _: object) -> Part:
            return Part(self.read(path, start, min(size, total - start)), total, None)

        return open_object(get, path)

    def read(self, path: str, start: int = 0, size: int | None = None) -> bytes:
        stop = None if size is None else start + size

        def whole(filesystem: Any, name: str) -> bytes:
            try:
                data: bytes = filesystem.cat_file(name, start or None, stop)
            except Exception as error:
                # Servers refuse a range that begins at the end.
                if isinstance(error, _LASTING) or start < _stated(filesystem.size(name)):
                    raise
                return b""
            if stop is None or len(data) == size:
                return data
            expected = max(min(stop, _stated(filesystem.size(name))) - start, 0)
            if len(data) > expected:
                raise ValueError(
                    f"{path}: got {len(data)} bytes for a range of {expected}: the server does not support range "
                    "requests; copy the files to a disk or a store that does"
                )
            if len(data) < expected:
                raise StoreError(f"got {len(data)} of {expected} bytes")
            return data

        return _ask(path, whole)

    def read_ranges(self, ranges: Sequence[Range]) -> list[bytes]:
        def read(wanted: Range) -> bytes:
            return self.read(wanted.path, wanted.start, wanted.stop - wanted.start)

        return map_in_threads(read, ranges, are_local=False)

    def is_folder(self, path: str) -> bool:
        return bool(_ask(path, lambda filesystem, name: filesystem.isdir(name)))

    def glob(self, pattern: str) -> list[str]:
        def matching(filesystem: Any, name: str) -> list[str]:
            return [str(filesystem.unstrip_protocol(found)) for found in filesystem.glob(name)]

        return sorted(_ask(pattern, matching))


def _stated(size: Any) -> int:
    if size is None:
        raise ValueError("the server does not say how long the file is")
    return int(size)


def _ask(path: str, question: Callable[[Any, str], _T]) -> _T:
    """The answer about a path, given its filesystem and its name there, after errors that may pass again."""
    failed: Exception | None = None
    for _ in backoff.tries(_TRIES):
        try:
            filesystem, name = fsspec.core.url_to_fs(path)
            filesystem.invalidate_cache()
            return question(filesystem, name)
        except _LASTING as error:
            if "Protocol not known" in str(error):
                raise ValueError(
                    "unknown scheme: expected a path, s3://, gs://, az://, abfs://, or one of fsspec's"
                ) from None
            raise _error(path, error) from error
        except Exception as error:
            failed = error
    assert failed
    raise _error(path, failed) from failed


def _error(path: str, error: Exception) -> Exception:
    """A driver's error as one that callers expect, with the file's path in its message."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, (FileNotFoundError, NotADirectoryError, StoreError)) and path in text:
        return error
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(f"{path}: no such file")
    if isinstance(error, PermissionError):
        return PermissionError(f"{path}: it may not be read ({text})")
    if isinstance(error, _LASTING):
        return error
    return StoreError(f"{path}: the transfer failed ({text}); try again later")
