"""python -m beam_jobs [plan] images|text|sensors|reshard."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_PACKAGES = {
    "apache_beam": "beam-shards[beam]",
    "PIL": "beam-shards[beam]",
    "tqdm": "beam-shards[beam]",
    "orjson": "beam-shards[beam]",
    "google_crc32c": "beam-shards",
    "grpc": "beam-shards[beam]",
}

_STARTING = "starting ..."

_INTERRUPTED = "interrupted before the job started; nothing was written"


def _missing(error: ImportError, as_json: bool = False) -> int:
    """Prints one line with the package to install, and with --json an object; returns the exit code.

    Raises:
        ImportError: The missing module belongs to none of the packages in `_PACKAGES`.
    """
    package = _PACKAGES.get((error.name or "").split(".")[0])
    if package is None:
        raise error
    return _failed(f"{error.name} is missing: pip install '{package}'", 2, as_json)


def _failed(message: str, code: int, as_json: bool) -> int:
    """Prints one line, and with --json an object; returns the exit code."""
    print(f"error: {message}", file=sys.stderr)
    if as_json:
        print(json.dumps({"error": message, "warnings": [], "exit_code": code}))
    return code


def main(
    arguments: list[str],
    starting: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
) -> int:
    """Runs one job; returns the exit code.

    Args:
        arguments: Those after `python -m beam_jobs`.
        starting: A context that shows that the command starts, for the seconds before the job can
            report progress.
    """
    # Runners and their workers log every exception in full; the command prints one line instead. The
    # level is set on the handler because Beam passes workers' logs to it whatever the loggers' levels.
    handler = logging.StreamHandler()
    handler.setLevel(logging.CRITICAL)
    logging.basicConfig(level=logging.ERROR, handlers=[handler])
    try:
        with starting():
            from beam_jobs.cli.command import parse_command
            from beam_jobs.cli.parser import build_parser
            from beam_jobs.cli.report import explain
            from beam_jobs.cli.run import Report, main_job
            from beam_jobs.errors import JobError
    except ImportError as error:
        return _missing(error, "--json" in arguments)
    except KeyboardInterrupt:
        return _failed(_INTERRUPTED, 130, "--json" in arguments)
    if arguments in ([], ["plan"]):
        build_parser().print_help(sys.stderr)
        return 2
    if arguments[:1] == ["plan"]:
        arguments = [*arguments[1:], "--dry_run"]
    report = Report("--json" in arguments)
    try:
        with starting():
            command = parse_command(arguments)
        main_job(command, report)
    except JobError as error:
        report.fail(error.exit_code, explain(error))
    except KeyboardInterrupt as interrupt:
        message = str(interrupt) or (
            "interrupted, no dataset was written; run the same command again: it keeps the shards "
            "that are done"
        )
        report.fail(130, message)
    return report.end()


def worker() -> int:
    """Runs the command `beam-shards-worker`; returns its exit code."""
    try:
        from beam_jobs.engines.worker import main as boot
    except ImportError as error:
        return _missing(error)
    return boot(sys.argv[1:])


class _Stderr(io.FileIO):
    """Drops what cannot be written, as to a full disk or to `head`: notes keep no job from its end."""

    def write(self, data: ReadableBuffer) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def _open_streams() -> None:
    """Opens stdout and stderr if they are closed, as by `2>&-`; makes stderr a stream that does not fail.

    Otherwise the next file, such as a shard, gets the number of a closed one, and what a library prints.
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


def _program() -> int:
    """Runs `python -m beam_jobs`; returns its exit code."""
    arguments = sys.argv[1:]
    _open_streams()
    try:
        os.getcwd()
    except OSError:
        message = "the working directory does not exist any more; change to another one"
        return _failed(message, 2, "--json" in arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal or a locale in ASCII cannot show all labels.
        sys.stdout.reconfigure(errors="backslashreplace")
    if not arguments or {"-h", "--help", "--version"} & set(arguments):
        return main(arguments)
    if sys.stderr.isatty():
        return main(arguments, _starting)
    print(_STARTING, file=sys.stderr, flush=True)
    return main(arguments)


@contextlib.contextmanager
def _starting() -> Iterator[None]:
    """Shows on a terminal that the command starts, while the context is open."""
    print(_STARTING, end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        print(f"\r{' ' * len(_STARTING)}\r", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(_program())
