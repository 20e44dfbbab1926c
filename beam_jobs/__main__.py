"""python -m beam_jobs [plan] images|text|sensors|reshard."""

from __future__ import annotations

import contextlib
import logging
import sys

_PACKAGES = {
    "apache_beam": "beam-shards[beam]",
    "PIL": "beam-shards[beam]",
    "tqdm": "beam-shards[beam]",
    "orjson": "beam-shards[beam]",
    "google_crc32c": "beam-shards",
    "grpc": "beam-shards[beam]",
}

_STARTING = "starting ..."


def _missing(error: ImportError) -> int:
    """Prints one line with the package to install; returns the exit code.

    Raises:
        ImportError: The missing module belongs to none of the packages in `_PACKAGES`.
    """
    package = _PACKAGES.get((error.name or "").split(".")[0])
    if package is None:
        raise error
    print(f"error: {error.name} is missing: pip install '{package}'", file=sys.stderr)
    return 2


def main(arguments: list[str]) -> int:
    """Runs one job; returns the exit code."""
    # Runners and their workers log every exception in full; the command prints one line instead. The
    # level is set on the handler because Beam passes workers' logs to it whatever the loggers' levels.
    handler = logging.StreamHandler()
    handler.setLevel(logging.CRITICAL)
    logging.basicConfig(level=logging.ERROR, handlers=[handler])
    try:
        from beam_jobs.cli.command import parse_command
        from beam_jobs.cli.parser import build_parser
        from beam_jobs.cli.report import format_error
        from beam_jobs.cli.run import main_job
        from beam_jobs.errors import JobError
    except ImportError as error:
        return _missing(error)
    if arguments in ([], ["plan"]):
        build_parser().print_help(sys.stderr)
        return 2
    if arguments[:1] == ["plan"]:
        arguments = [*arguments[1:], "--dry_run"]
    try:
        main_job(parse_command(arguments))
    except JobError as error:
        print(format_error(error), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt as interrupt:
        message = str(interrupt) or (
            "interrupted, no dataset was written; run the same command again: it keeps the shards "
            "that are done"
        )
        print(f"error: {message}", file=sys.stderr)
        return 130
    return 0


def worker() -> int:
    """Runs the command `beam-shards-worker`; returns its exit code."""
    try:
        from beam_jobs.engines.worker import main as boot
    except ImportError as error:
        return _missing(error)
    return boot(sys.argv[1:])


def _import_jobs() -> None:
    """Imports the jobs, which takes seconds; until then a terminal shows that the command starts."""
    terminal = sys.stderr.isatty()
    if terminal:
        print(_STARTING, end="", file=sys.stderr, flush=True)
    with contextlib.suppress(ImportError):  # `main` reports it.
        import beam_jobs.cli.run  # noqa: F401
    if terminal:
        print(f"\r{' ' * len(_STARTING)}\r", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    _import_jobs()
    sys.exit(main(sys.argv[1:]))
