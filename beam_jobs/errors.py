"""The exceptions of a job, which survive the way through a runner.

A runner passes on an exception's text, usually inside a traceback of its own, and not the exception.
The message is therefore fenced, and `find_job_error` extracts it.
"""

from __future__ import annotations

import re

_FENCED = re.compile(r"<job error (\d)>(.*?)</job error>", re.DOTALL)


class JobError(Exception):
    """A job that cannot continue.

    Attributes:
        message: One line for the user.
        exit_code: The exit code of the command: 1 if the data failed, 2 for a mistake of the user.
    """

    exit_code = 1

    def __init__(self, message: str) -> None:
        # Beam raises a new exception with this one's text, the fence included, and the step's name.
        if fenced := _FENCED.search(message):
            message = fenced[2]
        super().__init__(f"<job error {self.exit_code}>{message}</job error>")
        self.message = message

    def __reduce__(self) -> tuple[type[JobError], tuple[str]]:
        return type(self), (self.message,)


class DataError(JobError):
    """The data failed: records were lost, a reject may not be skipped, or no record is left."""


class UsageError(JobError):
    """A mistake of the user: a flag, an input or an output that makes no sense."""

    exit_code = 2


class RejectError(Exception):
    """One input cannot become a record; it is counted and listed, and the job continues."""


def find_job_error(error: BaseException) -> JobError | None:
    """The `JobError` that a runner's exception carries in its text, if any."""
    if isinstance(error, JobError):
        return error
    found = _FENCED.search(str(error))
    if not found:
        return None
    kind = UsageError if found[1] == "2" else DataError
    return kind(found[2])
