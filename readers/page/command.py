"""The command that wrote a dataset, from the options in its manifest."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from readers.format.manifest import SAMPLE_RATE

# Options that are no flags, and values that are the same as without the flag.
_NO_FLAGS = ("job", SAMPLE_RATE)
_UNSET: tuple[Any, ...] = ("", None, False, [], {})


def command_of(options: Mapping[str, Any]) -> str:
    """The command line of a job, one flag a line; empty if no job of the command line wrote the dataset.

    Args:
        options: The options of a manifest.
    """
    job = options.get("job")
    if not isinstance(job, str) or "input" not in options:
        return ""
    flags = [
        flag
        for name, value in options.items()
        if name not in _NO_FLAGS
        for flag in _flag(name, value)
    ]
    return " \\\n    ".join([f"python -m beam_jobs {shlex.quote(job)}", *flags])


def _flag(name: str, value: Any) -> Iterator[str]:
    if value in _UNSET:
        return
    if value is True:
        yield f"--{name}"
        return
    values = value if isinstance(value, list) else [value]
    yield f"--{name} " + " ".join(shlex.quote(str(each)) for each in values)
