"""Files of every other protocol that fsspec supports, such as `https://` and `hf://`."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import fsspec

from readers.files import backoff
from readers.files.files import Files, Range, Stat, StoreError
from readers.files.in_threads import map_in_threads
from readers.files.stores.ahead import Part
from readers.files.stores.errors import one_line
from readers.files.stores.reading import open_object

_T = TypeVar("_T")

# Errors that a retry cannot fix, unless an HTTP status says otherwise. Other errors of a driver may be temporary.
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
    """Files of the other protocols that fsspec has drivers for; some drivers retry, others do not."""

    def stat(self, path: str) -> Stat:
        # All fields of the driver's info: its `ukey` may take another request, and never changes over HTTP.
        info = _ask(path, lambda filesystem, name: filesystem.info(name))
        version = sorted((key, str(value)) for key, value in info.items())
        return Stat(_stated(info.get("size")), version)

    def exists(self, path: str) -> bool:
        try:  # The driver's `isfile` cannot distinguish a failing server from a missing file.
            return bool(
                _ask(path, lambda filesystem, name: filesystem.info(name)["type"] == "file")
            )
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return False

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
                # Servers reject a range that begins at the end.
                if _status(error) != 416 or start < _stated(filesystem.size(name)):
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
        read = super().read_ranges
        return map_in_threads(lambda wanted: read([wanted])[0], ranges, are_local=False)

    def is_folder(self, path: str) -> bool:
        return bool(_ask(path, lambda filesystem, name: filesystem.isdir(name)))

    def glob(self, pattern: str) -> list[str]:
        def matching(filesystem: Any, name: str) -> list[str]:
            return [str(filesystem.unstrip_protocol(found)) for found in filesystem.glob(name)]

        return sorted(_ask(pattern, matching))


def _stated(size: Any) -> int:
    if size is None:
        raise ValueError("the server does not state the file's length")
    return int(size)


def _ask(path: str, question: Callable[[Any, str], _T]) -> _T:
    """Asks a filesystem about a path, given its name there; repeats the question after errors that may be temporary."""
    failed: Exception | None = None
    for _ in backoff.tries(_TRIES):
        try:
            filesystem, name = fsspec.core.url_to_fs(path)
            filesystem.invalidate_cache()
            return question(filesystem, name)
        except Exception as error:
            if "Protocol not known" in str(error):
                raise ValueError(
                    "unknown scheme: expected a path, s3://, gs://, az://, abfs://, or one of fsspec's"
                ) from None
            failed = _cause(error)
            if not _may_pass(failed):
                break
    assert failed
    raise _error(path, failed) from failed


def _cause(error: Exception) -> Exception:
    """The cause of a FileNotFoundError, which the HTTP driver raises for any failure; other errors unchanged."""
    cause = error.__cause__
    if not isinstance(error, FileNotFoundError) or not isinstance(cause, Exception):
        return error
    return error if isinstance(cause, (*_LASTING, LookupError)) else cause


def _status(error: Exception) -> int:
    """The HTTP status of an error, as the libraries of drivers store it; 0 without one."""
    response = getattr(error, "response", None)
    return getattr(error, "status", None) or getattr(response, "status_code", None) or 0


def _may_pass(error: Exception) -> bool:
    """Whether the same request may succeed a moment later."""
    status = _status(error)
    return backoff.may_pass(status) if status else not isinstance(error, _LASTING)


def _error(path: str, error: Exception) -> Exception:
    """Converts a driver's error to one that callers expect, with the file's path in its message."""
    text, status = one_line(error) or type(error).__name__, _status(error)
    if isinstance(error, FileNotFoundError) or status in (404, 410):
        return FileNotFoundError(f"{path}: no such file")
    if isinstance(error, PermissionError) or status in (401, 403):
        return PermissionError(f"{path}: it may not be read ({text}); check the credentials")
    if isinstance(error, _LASTING):
        return error
    advice = "; try again later" if _may_pass(error) else ""
    return StoreError(f"{path}: the transfer failed ({text}){advice}")
