"""Where a dataset comes from: its directory, when it was written, by which command and packages."""

from __future__ import annotations

import datetime
import os
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from readers.files.local import is_local
from readers.format.manifest import MANIFEST, SAMPLE_RATE, join
from readers.pages.section import Section
from readers.pages.study import Study

# Options that are no flags, and values that are the same as without the flag.
_NO_FLAGS = ("job", SAMPLE_RATE)
_UNSET: tuple[Any, ...] = ("", None, False, [], {})

# Options that say what the inputs are.
_INPUTS = ("input", "table")


def section(study: Study) -> Section:
    """The directory, the command and the versions."""
    return Section.filled(
        "origin",
        directory=study.directory,
        written=_written(study.directory),
        command=command_of(study.manifest.options, study.directory),
        versions=study.manifest.versions,
    )


def _written(directory: str) -> str:
    """When the manifest of a dataset on a disk was written; empty elsewhere."""
    if not is_local(directory):
        return ""
    written = os.stat(join(directory, MANIFEST)).st_mtime
    moment = datetime.datetime.fromtimestamp(written, datetime.timezone.utc)
    return moment.strftime("%Y-%m-%d %H:%M UTC")


def command_of(options: Mapping[str, Any], directory: str) -> str:
    """The command line of a job, one flag a line; empty if no job of the command line wrote the dataset."""
    job = options.get("job")
    if not isinstance(job, str) or not any(name in options for name in _INPUTS):
        return ""
    flags = [
        flag
        for name, value in (*options.items(), ("output", directory))
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
