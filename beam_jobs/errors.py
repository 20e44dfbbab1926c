"""Errors of jobs, and how they survive a runner.

A runner gives the driver the text of an exception, usually inside a traceback, and not the exception
itself. So the message is placed between markers, and `find_job_error` extracts it.
"""

from __future__ import annotations

import re

_MARKED = re.compile(r"<job error (\d)>(.*?)</job error>", re.DOTALL)


class JobError(Exception):
    """A job that cannot continue.

    Attributes:
        message: One line for the user.
        exit_code: Exit code of the command: 1 if the data failed, 2 for a user's mistake.
    """

    exit_code = 1

    def __init__(self, message: str) -> None:
        # Beam raises the exception again, with its text, markers included, and the step's name.
        if marked := _MARKED.search(message):
            message = marked[2]
        super().__init__(f"<job error {self.exit_code}>{message}</job error>")
        self.message = message

    def __reduce__(self) -> tuple[type[JobError], tuple[str]]:
        return type(self), (self.message,)


class DataError(JobError):
    """The data failed: records were lost, a reject may not be skipped, or nothing is left to write."""


class UsageError(JobError):
    """The user's mistake: a flag, an input or an output that makes no sense."""

    exit_code = 2


class RejectError(Exception):
    """One input that cannot become a record: it is counted and listed, and the job continues."""


def find_job_error(error: BaseException) -> JobError | None:
    """The `JobError` in the text of a runner's exception, if any."""
    if isinstance(error, JobError):
        return error
    found = _MARKED.search(str(error))
    if not found:
        return None
    kind = UsageError if found[1] == "2" else DataError
    return kind(found[2])
