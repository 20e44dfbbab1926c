"""Commands as users type them, run in the process of the test."""

from __future__ import annotations

import re
from typing import Any

from beam_jobs.__main__ import main


def run(*arguments: object) -> int:
    """Runs `python -m beam_jobs` with the arguments; returns its exit code."""
    return main([str(argument) for argument in arguments])


def refused(capsys: Any, code: int, pattern: str, *arguments: object) -> str:
    """Runs a command that must fail with one line that matches; returns that line."""
    capsys.readouterr()
    assert run(*arguments) == code
    error = capsys.readouterr().err
    assert re.search(pattern, error), error
    assert error.startswith("error: ") and error.count("\n") == 1, error
    assert "the pipeline failed" not in error
    return error
