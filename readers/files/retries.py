"""Answers of stores that are worth asking again, and how long to ask.

Drivers of fsspec's ask again by themselves, each after other failures: s3fs does not after a 429 or a
500 that has outlasted botocore, some drivers never do. Here every read does, after the same ones.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

_T = TypeVar("_T")

# What a store answers when it is overloaded, or out of order for a moment.
_STATUSES = {408, 429, 500, 502, 503, 504}

# By the root of their module and the name of a base: a driver's library need not be there.
_BROKEN = {
    ("aiohttp", "ClientError"),
    ("botocore", "HTTPClientError"),
    ("botocore", "ResponseParserError"),
    ("gcsfs", "ChecksumError"),
    ("json", "JSONDecodeError"),  # What a driver was told of a file, cut short.
    ("requests", "RequestException"),
    ("urllib3", "HTTPError"),
}

_WITHOUT_CREDENTIALS = {
    ("botocore", "NoCredentialsError"),
    ("botocore", "PartialCredentialsError"),
    ("botocore", "NoAuthTokenError"),
    ("google", "GoogleAuthError"),
}

# Waits of about 0.5, 1, 2, ... seconds, each another one in every process: those that were turned
# away together must not come back together. A driver may have waited as long before each of them.
_TRIES, _SECONDS, _FIRST_WAIT, _LONGEST_WAIT = 6, 60.0, 0.5, 16.0


class StoreError(OSError):
    """A store that did not give what it was asked for; the message says what it said and what to do."""


class ShortBodyError(StoreError):
    """A body that ends before the bytes that were asked for do."""


class Patience:
    """Waits between the tries of one read, and gives up in the end.

    Args:
        path: What is read, for the message.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._tries, self._begin = 0, time.monotonic()

    def after(self, error: Exception) -> None:
        """Waits before another try.

        Raises:
            StoreError: It was the last one.
            Exception: The error, with the path in its message, where another try would not help.
        """
        if not is_passing(error):
            raise named(self._path, error) from error
        self._tries += 1
        seconds = time.monotonic() - self._begin
        if self._tries >= _TRIES or seconds >= _SECONDS:
            raise StoreError(
                f"{self._path}: {_told(error)}, after {self._tries} tries in {seconds:.0f} s; "
                f"{_cure(error)}"
            ) from error
        longest = min(_FIRST_WAIT * 2 ** (self._tries - 1), _LONGEST_WAIT)
        time.sleep(longest * random.uniform(0.5, 1.5))


def retried(path: str, read: Callable[[], _T]) -> _T:
    """What a function returns that reads a file of a store, asked again while that may help.

    Raises:
        StoreError: It did not.
        OSError, ValueError, ImportError: What it raised, with the path in its message.
    """
    patience = Patience(path)
    while True:
        try:
            return read()
        except Exception as error:
            patience.after(error)


def is_passing(error: BaseException) -> bool:
    """Whether the same request may succeed a moment later."""
    status = _status(error)
    if status is not None:
        return status in _STATUSES
    if isinstance(error, (ConnectionError, TimeoutError, ShortBodyError)):
        return True
    return any(_is_any(cause, _BROKEN) for cause in _causes(error))


def named(path: str, error: Exception) -> Exception:
    """The error, as one that is expected here and says which file it is about."""
    told = " ".join(str(error).split()) or type(error).__name__
    if any(_is_any(cause, _WITHOUT_CREDENTIALS) for cause in _causes(error)):
        return PermissionError(
            f"{path}: there are no credentials for the store ({told}); set them in the environment, "
            "as docs/object_stores.md says"
        )
    if isinstance(error, (FileNotFoundError, NotADirectoryError, StoreError)):
        return error
    if isinstance(error, PermissionError) or _status(error) in (401, 403):
        return PermissionError(
            f"{path}: the store refuses it ({told}); check the credentials and what they may read"
        )
    if not isinstance(error, (OSError, ValueError, ImportError)):
        return StoreError(f"{path}: {type(error).__name__}: {told}")
    if path in told:
        return error
    return StoreError(f"{path}: {told}") if isinstance(error, OSError) else error


def _told(error: Exception) -> str:
    status, told = _status(error), " ".join(str(error).split())
    told = told or type(error).__name__
    return f"the store answered {status} ({told})" if status else f"the store broke off ({told})"


def _cure(error: Exception) -> str:
    if _status(error) in (429, 503):
        return (
            "it is overloaded or throttles: try again later, read with fewer processes at once, or "
            "give a cache_dir"
        )
    return "check the endpoint and the network, and try again later"


def _status(error: BaseException) -> int | None:
    """The HTTP status of the answer that an error is about."""
    for cause in _causes(error):
        if type(cause).__module__ == "aiohttp.http_exceptions":
            continue  # Its 400 is no answer: it is about what does not come to its end.
        response = getattr(cause, "response", None)
        if isinstance(response, dict):  # botocore
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        else:  # gcsfs, aiohttp
            status = getattr(cause, "code", None) or getattr(cause, "status", None)
        if isinstance(status, (int, str)) and str(status).isdecimal():
            return int(status)
    return None


def _is_any(error: BaseException, kinds: set[tuple[str, str]]) -> bool:
    return any(
        (kind.__module__.split(".")[0], kind.__name__) in kinds for kind in type(error).__mro__
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
