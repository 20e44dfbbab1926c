"""The jobs' part of the command `beam-shards`, which is also python -m beam_jobs."""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from beam_jobs.errors import AGAIN, JobError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_PACKAGES = {
    "google_crc32c": "beam-shards",
    **dict.fromkeys(("apache_beam", "PIL", "tqdm", "orjson", "grpc"), "beam-shards[beam]"),
}

# The compiled part, whose error names the command to type.
_KERNEL = "readers.format.compiled.kernel"

_NOTHING = "interrupted before the job started; nothing was written"


def _missing(error: ImportError, changes: bool = False) -> str:
    """The line with the package to install; raises the error of a module that is in none of `_PACKAGES`.

    Commands that change a dataset need less than jobs.
    """
    if error.name == _KERNEL:
        return str(error)
    package = _PACKAGES.get((error.name or "").split(".")[0])
    if package is None:
        raise error
    if changes and error.name in ("tqdm", "orjson"):
        package = "beam-shards[write]"
    return f"{error.name} is missing: pip install '{package}'"


def failed(message: str, code: int, as_json: bool) -> int:
    """Prints one line, and with --json an object; returns the exit code."""
    from beam_jobs.cli.parser import Report

    report = Report(as_json)
    report.fail(code, message)
    return report.end()


def show(text: str) -> int:
    """Prints a text on stdout; returns the exit code, which is 0 for a closed pipe, as after `head`."""
    from beam_jobs.cli.parser import print_text

    error = print_text(text)
    return failed(f"stdout cannot be written: {error}", 1, as_json=False) if error else 0


def main(arguments: list[str]) -> int:
    """Runs the command in `arguments`, which follow `beam-shards`; returns the exit code."""
    from beam_jobs.changes.command import CHANGES, change
    from beam_jobs.cli.config import with_config
    from beam_jobs.cli.parser import Report, help_for, parse_flags

    report = Report("--json" in arguments)
    changes = bool(arguments) and arguments[0] in CHANGES
    stopped = _NOTHING
    try:
        if changes:
            stopped = "interrupted; the dataset is as it was: run the same command again"
            return show(change(arguments))
        # Help and mistakes need no Beam.
        if arguments in ([], ["plan"]):
            print(help_for([*arguments, "--help"]), file=sys.stderr)
            return 2
        if text := help_for(arguments):
            return show(text)
        if arguments[0] == "plan":
            arguments = [*arguments[1:], "--dry_run"]
        flags = parse_flags(with_config(arguments))
        flags.validate()
        _silence_logs()
        from beam_jobs import progress

        with progress.early("starting", counted=False):
            from beam_jobs.cli.command import command_of
            from beam_jobs.cli.run import main_job

            stopped = f"interrupted, no dataset was written; {AGAIN}"
            command = command_of(flags)
        main_job(command, report)
    except JobError as error:
        report.fail(error.exit_code, error.message)
    except ImportError as error:
        report.fail(2, _missing(error, changes))
    except (ValueError, OSError) as error:
        if not changes:
            raise
        from readers.format.tfrecord import CorruptRecordError

        is_mistake = isinstance(error, ValueError) and not isinstance(error, CorruptRecordError)
        report.fail(2 if is_mistake else 1, " ".join(str(error).split()))
    except KeyboardInterrupt as interrupt:
        report.fail(130, str(interrupt) or stopped)
    return report.end()


def _silence_logs() -> None:
    """Keeps logs off stderr; before Beam is imported, because it may log then, and the first log sets a handler.

    Runners and their workers log every exception in full; the command prints one line instead. The
    level is set on the handler because Beam passes workers' logs to it whatever the loggers' levels.
    """
    handler = logging.StreamHandler()
    handler.setLevel(logging.CRITICAL)
    logging.basicConfig(level=logging.ERROR, handlers=[handler])


def worker() -> int:
    """Runs the command `beam-shards-worker`; returns its exit code."""
    try:
        from beam_jobs.engines.worker import main as boot
    except ImportError as error:
        return failed(_missing(error), 2, as_json=False)
    return boot(sys.argv[1:])


class _Stderr(io.FileIO):
    """A stream that drops what cannot be written, as to a full disk or to `head`, so that the job goes on."""

    def write(self, data: ReadableBuffer) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def _open_streams() -> None:
    """Opens stdout and stderr if they are closed, as by `2>&-`; makes stderr a stream that does not fail.

    Otherwise the next opened file, such as a shard, takes the number of a closed stream, and gets its prints.
    """
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_WRONLY)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
            setattr(sys, name, os.fdopen(number, "w", closefd=False))
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(_Stderr(2, "w", closefd=False)),
        sys.stderr.encoding,
        "backslashreplace",
        line_buffering=True,
    )


def program(run: Callable[[list[str]], int] = main) -> int:
    """Opens the streams of this process, and runs a function of its arguments; returns the exit code."""
    arguments = sys.argv[1:]
    _open_streams()
    try:
        os.getcwd()
    except OSError:
        message = "the working directory no longer exists; change to another one"
        return failed(message, 2, "--json" in arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal or a locale in ASCII cannot show all labels.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return run(arguments)
    except KeyboardInterrupt:  # While the first modules were imported.
        return failed(_NOTHING, 130, "--json" in arguments)


if __name__ == "__main__":
    sys.exit(program())
