"""The line of a runner's trace, in Java or Python, that says what went wrong."""

from __future__ import annotations

import re

# `at a.B.c(B.java:12) ~[b.jar:1]`, the same without `at`, and `... 12 more`.
_FRAME = re.compile(
    r"\s*(?:at\s+)?[\w.$/<>@-]+\((?:[\w$-]+\.\w+(?::\d+)?|Unknown Source|Native Method)\)"
    r"(?:\s*~?\[[^\]]*\])?|\s*\.\.\. \d+ (?:more|common frames omitted)"
)

_CAUSE = "Caused by: "

_TRACEBACK = "Traceback (most recent call last):"

_MOST = 500


def root_cause(text: str) -> str:
    """The line of a trace that says most about a failure, at most 500 characters; empty without one.

    Of a Python traceback it is the last exception, wherever it is in the text; of a Java trace the
    deepest cause with a message, or else its first line; of any other text the first line.
    """
    lines = [line for line in text.splitlines() if line.strip() and not _FRAME.fullmatch(line)]
    return (_exception(lines) or _deepest(lines) or next(iter(lines), "")).strip()[:_MOST]


def _exception(lines: list[str]) -> str:
    """The exception that ends the last Python traceback."""
    begins = [number for number, line in enumerate(lines) if line.rstrip().endswith(_TRACEBACK)]
    after = lines[begins[-1] + 1 :] if begins else []
    return next((line for line in after if not line[0].isspace()), "")


def _deepest(lines: list[str]) -> str:
    """The deepest cause of a Java trace that is more than the name of a class."""
    causes = [line.strip().removeprefix(_CAUSE) for line in lines if _CAUSE in line[:16]]
    return next((cause for cause in reversed(causes) if ": " in cause), "")
