"""The two ways a job fails, and how they survive the trip through a runner.

A runner hands the driver an exception's text, not the exception, usually inside a traceback of its
own. The message is therefore fenced, and `find_job_error` takes it out again.
"""

from __future__ import annotations

import re

_FENCED = re.compile(r"<job error (\d)>(.*?)</job error>", re.DOTALL)


class JobError(Exception):
    """A job that cannot go on; `message` is the one line for the user.

    Attributes:
        exit_code: Of the command: 1 for data that failed, 2 for a user's mistake.
    """

    exit_code = 1

    def __init__(self, message: str) -> None:
        # Beam raises an exception anew with its text, the fence included, and the step's name.
        if fenced := _FENCED.search(message):
            message = fenced[2]
        super().__init__(f"<job error {self.exit_code}>{message}</job error>")
        self.message = message

    def __reduce__(self) -> tuple[type[JobError], tuple[str]]:
        return type(self), (self.message,)


class DataError(JobError):
    """The data failed: lost records, rejects that may not be skipped, nothing left to write."""


class UsageError(JobError):
    """The user's mistake: a flag, an input or an output that cannot be meant so."""

    exit_code = 2


class RejectError(Exception):
    """One input that cannot become a record; it is counted and listed, and the job goes on."""


def find_job_error(error: BaseException) -> JobError | None:
    """The `JobError` that a runner's exception carries in its text, if any."""
    if isinstance(error, JobError):
        return error
    found = _FENCED.search(str(error))
    if not found:
        return None
    kind = UsageError if found[1] == "2" else DataError
    return kind(found[2])
