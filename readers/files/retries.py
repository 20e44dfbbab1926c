"""Which store errors are worth retrying, and for how long.

The fsspec drivers retry by themselves, but each after different errors: s3fs gives up after a 429
or a 500 that botocore could not outlast, and some drivers never retry. Here every read is retried,
after the same errors for every store.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from readers.files import backoff

_T = TypeVar("_T")

# Error classes are identified by the root of their module and their name (or that of a base class),
# because the driver's library may not be installed.
_TRANSIENT_ERRORS = {
    ("aiohttp", "ClientError"),
    ("azure", "IncompleteReadError"),
    ("azure", "ServiceRequestError"),
    ("azure", "ServiceResponseError"),
    ("botocore", "HTTPClientError"),
    ("botocore", "ResponseParserError"),
    ("gcsfs", "ChecksumError"),
    ("json", "JSONDecodeError"),  # File metadata that arrived truncated.
    ("requests", "RequestException"),
    ("urllib3", "HTTPError"),
}

_MISSING_CREDENTIALS = {
    ("azure", "ClientAuthenticationError"),
    ("botocore", "NoCredentialsError"),
    ("botocore", "PartialCredentialsError"),
    ("botocore", "NoAuthTokenError"),
    ("google", "GoogleAuthError"),
}

# Fewer tries than for writing: before each, the driver itself may have waited as long.
_TRIES, _SECONDS = 6, 60.0


class StoreError(OSError):
    """A store did not deliver; the message holds the store's answer and what to do about it."""


class ShortBodyError(StoreError):
    """A response body ended before the requested bytes were complete."""


class Backoff:
    """Waits between the tries of one read, and gives up in the end.

    Args:
        path: The file being read, for error messages.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._tries, self._begin = 0, time.monotonic()

    def wait(self, error: Exception) -> None:
        """Waits before the next try.

        Args:
            error: What the last try raised.

        Raises:
            StoreError: All tries, or the time for them, are used up.
            Exception: The error itself, with the path in its message, if a retry cannot help.
        """
        if not is_transient(error):
            raise with_path(self._path, error) from error
        self._tries += 1
        seconds = time.monotonic() - self._begin
        if self._tries >= _TRIES or seconds >= _SECONDS:
            raise StoreError(
                f"{self._path}: {_description(error)}, after {self._tries} tries in "
                f"{seconds:.0f} s; {_advice(error)}"
            ) from error
        backoff.wait(self._tries)


def with_retries(path: str, read: Callable[[], _T]) -> _T:
    """The result of `read`, called again after transient errors; `Backoff.wait` raises the others."""
    waits = Backoff(path)
    while True:
        try:
            return read()
        except Exception as error:
            waits.wait(error)


def is_transient(error: BaseException) -> bool:
    """Whether the same request may succeed a moment later."""
    status = _status(error)
    if status is not None:
        return backoff.may_pass(status)
    if isinstance(error, (ConnectionError, TimeoutError, ShortBodyError)):
        return True
    return any(_is_any(cause, _TRANSIENT_ERRORS) for cause in _causes(error))


def with_path(path: str, error: Exception) -> Exception:
    """A driver's error as one that callers expect, with the file's path in its message.

    Returns:
        A PermissionError for missing or refused credentials; the error itself if its message
        already names the file or if it is a ValueError or ImportError; a StoreError otherwise.
    """
    text = _one_line(error)
    is_denied = _status(error) in (401, 403)
    if not is_denied and any(_is_any(cause, _MISSING_CREDENTIALS) for cause in _causes(error)):
        return PermissionError(
            f"{path}: no credentials for the store ({text}); set them in the environment, see "
            "docs/object_stores.md"
        )
    if isinstance(error, (FileNotFoundError, NotADirectoryError, StoreError)):
        return error
    if isinstance(error, PermissionError) or is_denied:
        return PermissionError(
            f"{path}: the store denies access ({text}); check the credentials and their read "
            "permissions"
        )
    if not isinstance(error, (OSError, ValueError, ImportError)):
        return StoreError(f"{path}: {type(error).__name__}: {text}")
    if path in text:
        return error
    return StoreError(f"{path}: {text}") if isinstance(error, OSError) else error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _description(error: Exception) -> str:
    status, text = _status(error), _one_line(error)
    return f"the store answered {status} ({text})" if status else f"the transfer failed ({text})"


def _advice(error: Exception) -> str:
    if _status(error) in (429, 503):
        return (
            "the store is overloaded or throttling: try again later, read with fewer processes at "
            "once, or set cache_dir"
        )
    return "check the endpoint and the network, and try again later"


def _status(error: BaseException) -> int | None:
    """The HTTP status of the response that caused an error; None without one."""
    for cause in _causes(error):
        if type(cause).__module__ == "aiohttp.http_exceptions":
            continue  # Its 400 is not the server's: it reports a truncated response.
        response = getattr(cause, "response", None)
        if isinstance(response, dict):  # botocore
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        else:  # gcsfs, aiohttp, azure
            names = ("code", "status", "status_code")
            status = next(filter(None, (getattr(cause, name, None) for name in names)), None)
        if isinstance(status, (int, str)) and str(status).isdecimal():
            return int(status)
    return None


def _is_any(error: BaseException, kinds: set[tuple[str, str]]) -> bool:
    return any(
        (kind.__module__.split(".")[0], kind.__name__) in kinds for kind in type(error).__mro__
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error itself, its cause, the cause of that, and so on."""
    while error is not None:
        yield error
        error = error.__cause__
