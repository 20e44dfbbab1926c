"""The errors that end a job, and how their messages survive a runner.

A runner passes only the text of an exception to the driver, usually inside a traceback of its own.
The message is therefore enclosed in tags, from which `find_job_error` extracts it.
"""

from __future__ import annotations

import re

_TAGGED = re.compile(r"<job error (\d)>(.*?)</job error>", re.DOTALL)


class JobError(Exception):
    """An error that ends the job; `message` is the one line shown to the user.

    Attributes:
        exit_code: The command's exit code: 1 for bad data, 2 for a user's mistake.
    """

    exit_code = 1

    def __init__(self, message: str) -> None:
        # Beam re-raises an exception with its text, tags included, and the name of the step.
        if tagged := _TAGGED.search(message):
            message = tagged[2]
        super().__init__(f"<job error {self.exit_code}>{message}</job error>")
        self.message = message

    def __reduce__(self) -> tuple[type[JobError], tuple[str]]:
        return type(self), (self.message,)


class DataError(JobError):
    """Bad data: lost records, rejects with `--on_reject fail`, or nothing left to write."""


class UsageError(JobError):
    """A mistake of the user: a flag, an input or an output that makes no sense."""

    exit_code = 2


class RejectError(Exception):
    """One input that cannot become a record; it is counted and listed, and the job continues."""


def find_job_error(error: BaseException) -> JobError | None:
    """Returns the `JobError` in the text of a runner's exception, if there is one."""
    if isinstance(error, JobError):
        return error
    found = _TAGGED.search(str(error))
    if not found:
        return None
    kind = UsageError if found[1] == "2" else DataError
    return kind(found[2])
