"""The head of a report: what the dataset is, and the verdict on it."""

from __future__ import annotations

import datetime
import os
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from readers.files.local import is_local
from readers.format.display import counted
from readers.format.findings import SEVERITIES
from readers.format.manifest import MANIFEST, SAMPLE_RATE, join
from readers.page.section import Section
from readers.page.study import Study


def section(study: Study) -> Section:
    """The name, the verdict, sizes and origin of a dataset."""
    manifest = study.manifest
    records = sum(split.records for split in manifest.splits.values())
    return Section.filled(
        "overview",
        directory=study.directory,
        records=records,
        seen=study.checked.seen,
        shards=sum(len(split.shards) for split in manifest.splits.values()),
        size=sum(split.bytes for split in manifest.splits.values()),
        manifest=manifest,
        written=_written(study.directory),
        command=command_of(manifest.options),
        verdict=_verdict(study),
        worst=study.checked.worst() or "good",
        checks=study.checked.checks,
    )


def _verdict(study: Study) -> str:
    """What the checks found, in one line."""
    counts = Counter(finding.severity for finding in study.checked.findings)
    found = [counted(counts[name], name) for name in SEVERITIES if counts[name]]
    return ", ".join(found) if found else "nothing was found that is wrong"


def _written(directory: str) -> str:
    """When the manifest of a dataset on a disk was written; empty elsewhere."""
    if not is_local(directory):
        return ""
    written = os.stat(join(directory, MANIFEST)).st_mtime
    moment = datetime.datetime.fromtimestamp(written, datetime.timezone.utc)
    return moment.strftime("%Y-%m-%d %H:%M UTC")


# Options that are no flags, and values that are the same as without the flag.
_NO_FLAGS = ("job", SAMPLE_RATE)
_UNSET: tuple[Any, ...] = ("", None, False, [], {})


def command_of(options: Mapping[str, Any]) -> str:
    """The command line of a job, one flag a line; empty if no job of the command line wrote the dataset."""
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
