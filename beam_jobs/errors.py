"""The errors that fail a job, and how their messages survive a runner.

A runner passes only the text of an exception to the driver, usually at the end of a traceback, whose
last line names the class and the message. `find_job_error` finds both. It looks only at the beginnings
of lines: within a line, the name of a file or folder could read like an error of this module.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import re
import traceback
from collections.abc import Iterable, Iterator

_IN_A_TRACEBACK = re.compile(
    r"^beam_jobs(?:\.errors)?\.(UsageError|DataError|TakenError|CompleteError): (.*?)"
    r"(?: \[while running '[^']*'\](?:passed through:)?)?$",
    re.MULTILINE,
)


# What to do after most failures.
AGAIN = "run the same command again: it keeps the shards that are done"


class JobError(Exception):
    """An error that fails the job.

    Attributes:
        message: Its text, on one line.
        exit_code: The command's exit code: 1 for bad data, 2 for a user's mistake, 0 if all is done.
    """

    exit_code = 1

    # Beam would log the error, and raise a copy whose text names the step.
    _tagged_with_step = True

    def __init__(self, message: str) -> None:
        # Otherwise nothing in a traceback would show where the message ends.
        self.message = " ".join(message.splitlines())
        super().__init__(self.message)


class DataError(JobError):
    """Bad data: lost records, rejects that may not be skipped, or nothing left to write."""


def loss_error(what: str, found: int | None = None, expected: int | None = None) -> DataError:
    """The error of a runner that lost or repeated something; states how many arrived if that is known."""
    counts = "" if found is None else f": {found} of {expected} arrived"
    return DataError(
        f"the runner lost or repeated {what}{counts}; no dataset was written, run the same command again"
    )


class TakenError(DataError):
    """A file with the name of a new one has other bytes."""


class UsageError(JobError):
    """A user's mistake: an option, an input or an output that is not valid."""

    exit_code = 2


class CompleteError(JobError):
    """The job has nothing to do: an earlier run completed its dataset."""

    exit_code = 0


_KINDS = {kind.__name__: kind for kind in (DataError, TakenError, UsageError, CompleteError)}


class RejectError(Exception):
    """One input that cannot become a record; it is counted and listed, and the job continues."""


def reason_of(error: Exception) -> str:
    """Why a file cannot be read, without its path, which the rest of a message names."""
    reason = (isinstance(error, OSError) and error.strerror) or str(error)
    return "no such file" if reason == os.strerror(errno.ENOENT) else reason


def did_you_mean(name: str, names: Iterable[str], before: str = "", after: str = "") -> str:
    """The end of an error about a name that is unknown: `; did you mean NAME?`, or nothing if none is close.

    Args:
        name: The unknown name.
        names: The known names, best first.
        before, after: Text around a name, such as `--`.
    """
    import difflib  # A name is rarely wrong.

    known = {each.lower(): each for each in names}
    typed = name.lower()
    close = difflib.get_close_matches(typed, known, 1, 0.6)
    begins = [each for each in known if typed and each.startswith(typed)]
    found = [*(begins if len(begins) == 1 or len(typed) == 1 else ()), *close]
    return f"; did you mean {before}{known[found[0]]}{after}?" if found else ""


def find_job_error(error: BaseException) -> JobError | None:
    """Returns the `JobError` in the text of a runner's exception, if there is one."""
    if isinstance(error, JobError):
        return error
    found = _IN_A_TRACEBACK.search(str(error))
    return _KINDS[found[1]](found[2]) if found else None


# How Beam begins the error of a portable runner, and what Dataflow adds to the text of a worker's exception.
_ADDED = re.compile(r"Pipeline \S+ failed in state [A-Z]+: |\s+passed through:\s.*", re.DOTALL)

TRACEBACK = "Traceback (most recent call last):"

_MOST = 500


def root_cause(text: str) -> str:
    """The most informative line of an error, at most 500 characters; empty without one.

    It is the exception that ends the last Python traceback in the text, or else the first line.
    """
    lines = [line for line in _ADDED.sub("", text).splitlines() if line.strip()]
    begins = [number for number, line in enumerate(lines) if line.rstrip().endswith(TRACEBACK)]
    after = lines[begins[-1] + 1 :] if begins else []
    exceptions = (line for line in after if not line[0].isspace())
    return next(exceptions, next(iter(lines), "")).strip()[:_MOST]


def portable(error: Exception) -> Exception:
    """The exception itself if it survives pickling, else one with the text of its traceback."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError("".join(traceback.format_exception(error)))
    return error


# An option in a message that the command line and Python share.
_FLAG = re.compile(r"(?<!\S)--(\w+)")

# Flag -> argument in Python; other flags belong to Beam, and keep their names.
_ARGUMENTS = {
    "output": "directory",
    "overwrite": "overwrite=True",
    "append": "append=True",
    "split_column": "splits",
    "direct_num_workers": "processes",
    **{n: n for n in ("existing", "max_rejects", "num_shards", "seed", "shard_size", "splits")},
}


@contextlib.contextmanager
def named_as_arguments() -> Iterator[None]:
    """Replaces flags of the command line in an error by the arguments of `write` and `WriteShards`."""
    try:
        yield
    except JobError as error:
        message = _FLAG.sub(lambda flag: _ARGUMENTS.get(flag[1], flag[0]), error.message)
        raise type(error)(message) from error.__cause__
