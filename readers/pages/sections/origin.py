"""The origin of a dataset: its directory, and the command and packages that wrote it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any
from xml.etree.ElementTree import Element

from readers.format.display import without_credentials
from readers.format.manifest import FACTS
from readers.pages.markup import element
from readers.pages.study import Study

# Options that are not flags, and values that equal the default.
_NO_FLAGS = ("job", *FACTS)
_UNSET: tuple[Any, ...] = ("", None, False, [], {})


def section(study: Study) -> list[Element]:
    """The directory, the command, the versions of packages, and the remarks about the inputs."""
    directory = without_credentials(study.directory)
    parts = [element("p", "Directory: ", element("code", directory))]
    if command := "".join(_command(study.manifest.options, directory)):
        parts.append(element("pre", command))
    if remarks := study.manifest.remarks.lines():
        parts.append(element("p", "Records with remarks about their inputs:"))
        parts.append(element("ul", *(element("li", remark) for remark in remarks)))
    if versions := study.manifest.versions:
        packages = ", ".join(f"{name} {version}" for name, version in versions.items())
        parts.append(element("p", f"Written with {packages}.", class_="soft"))
    return parts


def _command(options: Mapping[str, Any], directory: str) -> Iterator[str]:
    """Yields the command line of a job, one flag per line; nothing for a dataset that no command wrote."""
    job = options.get("job")
    if not isinstance(job, str) or not ("input" in options or "table" in options):
        return
    yield f"beam-shards {shlex.quote(job)}"
    for name, value in (*options.items(), ("output", directory)):
        if name not in _NO_FLAGS and value not in _UNSET:
            values = [] if value is True else value if isinstance(value, list) else [value]
            words = (f"--{name}", *map(str, values))  # Names may be hostile, too.
            yield " ".join([" \\\n   ", *map(shlex.quote, words)])
