"""The line of a runner's error that says what went wrong."""

from __future__ import annotations

import re

_TRACEBACK = "Traceback (most recent call last):"

# How Beam begins the error of a portable runner.
_STATE = re.compile(r"Pipeline \S+ failed in state [A-Z]+: ")

_MOST = 500


def root_cause(text: str) -> str:
    """The line of an error that says most about a failure, at most 500 characters; empty without one.

    It is the exception that ends the last Python traceback in the text, or else the first line.
    """
    lines = [line for line in _STATE.sub("", text, count=1).splitlines() if line.strip()]
    begins = [number for number, line in enumerate(lines) if line.rstrip().endswith(_TRACEBACK)]
    after = lines[begins[-1] + 1 :] if begins else []
    exceptions = (line for line in after if not line[0].isspace())
    return next(exceptions, next(iter(lines), "")).strip()[:_MOST]
