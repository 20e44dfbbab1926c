"""The meaning of a store's error responses."""

from __future__ import annotations

import re
from typing import NamedTuple

from readers.files.backoff import may_pass
from readers.files.files import ChangedError, ExistsError, RefusedError, StoreError

# The most characters of a library's message; some list all attempts.
_LONGEST = 300

# A password may contain an `@`.
_USER = re.compile(r"//[^/\s]+@")


class BeyondEndError(OSError):
    """A range begins at or after the end of its object."""


class BodyError(OSError):
    """The body of a response is damaged."""


class SignIn(NamedTuple):
    """How to set credentials: in the environment, by a job's flags (may be empty), for the workers of an engine."""

    variables: str
    flags: str
    workers: str


class Errors:
    """The errors of a store, as readers raise them."""

    def __init__(self, sign_in: SignIn) -> None:
        self.sign_in = sign_in

    def failing(self, path: str, answer: object) -> Exception:
        """The error for a store that failed at every try."""
        return StoreError(f"{path}: the store keeps failing ({one_line(answer)}); try again later")

    def refused(self, text: str) -> Exception:
        """The error for a mistake that the user can fix."""
        return RefusedError(text)

    def missing_package(self, text: str) -> Exception:
        """The error for a library that is not installed."""
        return ImportError(text)

    def how_to_sign_in(self) -> str:
        """Advice for missing or wrong credentials."""
        return self.sign_in.variables

    def no_credentials(self, path: str, error: object) -> Exception:
        """The error for a process that finds no credentials."""
        return self.refused(f"{path}: no credentials ({one_line(error)}): {self.how_to_sign_in()}")

    def no_bucket(self, path: str, kind: str = "bucket") -> Exception:
        """The error for a bucket that does not exist; `kind` is the store's word for it."""
        bucket = path.split("/")[2]
        return self.refused(f"{path}: there is no {kind} {bucket!r}: create it, or name another")

    def aborted(self, path: str) -> Exception:
        """The error for an upload whose parts were dropped."""
        return StoreError(
            f"{path}: its upload was aborted: does another job write to this directory? Run the same command again"
        )

    def refusal(self, path: str, status: int, answer: str, reads: bool) -> Exception:
        """The error for an HTTP status, 401 for wrong credentials; `reads`: only this object may be at fault."""
        if status == 404:
            return FileNotFoundError(f"{path}: no such object")
        if status == 416:
            return BeyondEndError(f"{path}: it ends before")
        if status == 412 and reads:
            return ChangedError(f"{path}: it was replaced while it was read")
        if status == 412:
            return ExistsError(f"{path}: an object with this name exists")
        if status == 403 and reads:
            return PermissionError(
                f"{path}: it may not be read ({answer}); check the credentials and their permissions"
            )
        if status in (401, 403):
            what = (
                "the store rejects the credentials" if status == 401 else "the store denies access"
            )
            return self.refused(f"{path}: {what} ({answer}): {self.how_to_sign_in()}")
        if may_pass(status):
            return self.failing(path, answer)
        return self.refused(f"{path}: the store rejects the request ({answer})")


def one_line(error: object) -> str:
    """A library's message on one line, without user names and passwords in URLs."""
    text = _USER.sub("//", " ".join(str(error).split()))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
