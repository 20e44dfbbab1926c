"""What the answers of a store mean to whoever asked."""

from __future__ import annotations

import re
from typing import NamedTuple

from readers.files.backoff import may_pass
from readers.files.files import ChangedError, ExistsError, RefusedError, StoreError

# Characters of a library's message; some list all that they tried.
_LONGEST = 300

# A password may have an `@` itself.
_USER = re.compile(r"//[^/\s]+@")


class BeyondEndError(OSError):
    """A range that begins at or after the end of its object."""


class BodyError(OSError):
    """An answer whose body is damaged."""


class SignIn(NamedTuple):
    """How to give credentials: in the environment, by a job's flags (may be empty), to the workers of an engine."""

    variables: str
    flags: str
    workers: str


class Errors:
    """The errors of a store, as readers raise them."""

    def __init__(self, sign_in: SignIn) -> None:
        self.sign_in = sign_in

    def failing(self, path: str, answer: object) -> Exception:
        """The error of a store that failed at every try."""
        return StoreError(f"{path}: the store keeps failing ({one_line(answer)}); try again later")

    def refused(self, text: str) -> Exception:
        """The error of a mistake that the user can correct."""
        return RefusedError(text)

    def missing_package(self, text: str) -> Exception:
        """The error of a library that is not installed."""
        return ImportError(text)

    def how_to_sign_in(self) -> str:
        """What to do about missing or wrong credentials."""
        return self.sign_in.variables

    def no_credentials(self, path: str, error: object) -> Exception:
        """The error of a process that finds no credentials."""
        return self.refused(f"{path}: no credentials ({one_line(error)}): {self.how_to_sign_in()}")

    def no_bucket(self, path: str, kind: str = "bucket") -> Exception:
        """The error of a bucket, in the words of its store, that does not exist."""
        bucket = path.split("/")[2]
        return self.refused(f"{path}: there is no {kind} {bucket!r}: create it, or name another")

    def aborted(self, path: str) -> Exception:
        """The error of an upload whose parts somebody has dropped."""
        return StoreError(
            f"{path}: its upload was aborted: does another job write to this directory? Run the same command "
            "again"
        )

    def refusal(self, path: str, status: int, answer: str, reads: bool) -> Exception:
        """The error that an HTTP status means, 401 for wrong credentials; `reads`: only this object may be at fault."""
        if status == 404:
            return FileNotFoundError(f"{path}: no such object")
        if status == 416:
            return BeyondEndError(f"{path}: it ends before")
        if status == 412 and reads:
            return ChangedError(f"{path}: it was replaced while it was read")
        if status == 412:
            return ExistsError(f"{path}: an object of this name exists")
        if status == 401:
            return self.refused(
                f"{path}: the store refuses the credentials ({answer}): {self.how_to_sign_in()}"
            )
        if status == 403 and reads:
            return PermissionError(
                f"{path}: it may not be read ({answer}); check the credentials and their permissions"
            )
        if status == 403:
            return self.refused(f"{path}: the store refuses ({answer}): {self.how_to_sign_in()}")
        if may_pass(status):
            return self.failing(path, answer)
        return self.refused(f"{path}: the store refuses ({answer})")


def one_line(error: object) -> str:
    """A library's message on one line, without the user name and password of any URL in it."""
    text = _USER.sub("//", " ".join(str(error).split()))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
