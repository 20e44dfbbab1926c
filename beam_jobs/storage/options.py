"""The command line's options for filesystems, in every process of a job.

Beam passes them to its own workers. Our own processes, which avoid importing Beam, receive the same
options when they start.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple


class ProcessContext(NamedTuple):
    """Everything a process needs to open the files that its parent can open.

    Attributes:
        options: Beam's options by name, except those with their default value.
        environment: Environment variables. A fork server would pass on older ones, from its start.
    """

    options: Mapping[str, Any]
    environment: Mapping[str, str]


_adopted: Mapping[str, Any] | None = None

_last: tuple[Any, Mapping[str, Any]] = (None, {})


def storage_options() -> Mapping[str, Any]:
    """Beam's options by name, except those with their default value."""
    global _last
    if _adopted is not None:
        return _adopted
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options.value_provider import RuntimeValueProvider

    # Where Beam's own filesystems look, too.
    found: Any = FileSystems._pipeline_options or RuntimeValueProvider.runtime_options or {}
    if found is not _last[0]:
        by_name = isinstance(found, Mapping)
        _last = found, dict(found) if by_name else found.get_all_options(drop_default=True)
    return _last[1]


def process_context() -> ProcessContext:
    """The context for processes that this one starts."""
    known = _adopted is not None or "apache_beam.io.filesystems" in sys.modules
    return ProcessContext(storage_options() if known else {}, dict(os.environ))


def adopt(given: ProcessContext) -> None:
    """Applies the parent's context to this process."""
    global _adopted
    os.environ.update(given.environment)
    _adopted = given.options


def set_beam_options() -> None:
    """Passes the parent's options to Beam's filesystems; without a parent, Beam has them already."""
    if _adopted is None:
        return
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options.pipeline_options import PipelineOptions

    if FileSystems._pipeline_options is None:
        FileSystems.set_options(PipelineOptions.from_dictionary(dict(_adopted)))
