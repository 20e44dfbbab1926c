"""Commands as users type them, run in the process of the test."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from beam_jobs.__main__ import main
from beam_jobs.cli.command import Command, command_of
from beam_jobs.cli.config import with_config
from beam_jobs.cli.parser import parse_flags
from beam_jobs.errors import DataError
from beam_jobs.writing import commit

IN_MEMORY = ["--direct_running_mode", "in_memory"]
ONE = ["--direct_num_workers", "1"]
TWO = ["--direct_num_workers", "2"]
BEAM_WORKERS = ["--direct_running_mode", "multi_processing", *TWO]

_PROGRESS = re.compile(
    r"[\w ]+: [\d.,]+( [KM]?i?B)?( of [\d.,]+( [KM]?i?B)?)?( files?| records?|)(, [\d.,]+( \w+)?/s|$)"
    r"|starting \.\.\.$|time: starting |written to |[\d.]+ [KMGT]?i?B of records from "
)


def parse_command(arguments: Sequence[str]) -> Command:
    """The command of a command line, as `main` makes it."""
    flags = parse_flags(with_config(arguments))
    flags.validate()
    return command_of(flags)


def run(*arguments: object) -> int:
    """Runs `python -m beam_jobs` with the arguments; returns its exit code."""
    return main([str(argument) for argument in arguments])


def without_progress(stderr: str) -> list[str]:
    """The lines of stderr, without those of a job's progress, its phases and its directory."""
    return [line for line in stderr.splitlines() if not _PROGRESS.match(line)]


def only_error(stderr: str, pattern: str = "") -> str:
    """The only line of stderr, which must be an error that matches."""
    (line,) = without_progress(stderr)
    assert line.startswith("error: "), line
    assert re.search(pattern, line), line
    return line


def refused(capsys: Any, code: int, pattern: str, *arguments: object) -> str:
    """Runs a command that must fail with one line that matches; returns that line."""
    capsys.readouterr()
    assert run(*arguments) == code
    line = only_error(capsys.readouterr().err, pattern)
    assert "the pipeline failed" not in line
    return line


def interrupted(*arguments: object) -> None:
    """Runs a job that fails after all shards are written, before its manifest is."""

    def fails(*_: object) -> None:
        raise DataError("interrupted")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit, "check_files", fails)
        assert run(*arguments) == 1
    assert not (Path(str(arguments[-1])) / "manifest.json").exists()


def kept_shards(stderr: str) -> int:
    """How many shards of an unfinished run a command reports to have kept."""
    found = re.search(r"^kept ([\d,]+) shards? of an unfinished run$", stderr, re.M)
    return int(found[1].replace(",", "")) if found else 0


def resumed(capsys: Any, *arguments: object) -> int:
    """Runs a command that must succeed; returns how many shards of an unfinished run it kept."""
    capsys.readouterr()
    assert run(*arguments) == 0
    return kept_shards(capsys.readouterr().err)
