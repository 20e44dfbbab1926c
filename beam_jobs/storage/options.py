"""What filesystems are told of the command line, in whichever process they are asked.

Beam tells its own workers. Processes of ours, which do without Beam where they can, are given the
same options when they start.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple


class ProcessContext(NamedTuple):
    """What a process has to know to open what its parent can.

    Attributes:
        options: Of Beam, by name; those that are not as they come.
        environment: Variables: a fork server has those of the moment it was started.
    """

    options: Mapping[str, Any]
    environment: Mapping[str, str]


_taken: Mapping[str, Any] | None = None

_last: tuple[Any, Mapping[str, Any]] = (None, {})


def storage_options() -> Mapping[str, Any]:
    """Beam's options by name, without those that are as they come."""
    return _of_beam() if _taken is None else _taken


def _of_beam() -> Mapping[str, Any]:
    global _last
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options.value_provider import RuntimeValueProvider

    # Where Beam's own filesystems find them.
    found: Any = FileSystems._pipeline_options or RuntimeValueProvider.runtime_options or {}
    if found is not _last[0]:
        by_name = isinstance(found, Mapping)
        _last = found, dict(found) if by_name else found.get_all_options(drop_default=True)
    return _last[1]


def process_context() -> ProcessContext:
    """What a process that is started here has to be given."""
    known = _taken is not None or "apache_beam.io.filesystems" in sys.modules
    return ProcessContext(storage_options() if known else {}, dict(os.environ))


def take(given: ProcessContext) -> None:
    """Makes what a parent gave known in this process."""
    global _taken
    os.environ.update(given.environment)
    _taken = given.options


def tell_beam() -> None:
    """Makes what a parent gave known to Beam's filesystems; where there is none, Beam knows."""
    if _taken is None:
        return
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options.pipeline_options import PipelineOptions

    if FileSystems._pipeline_options is None:
        FileSystems.set_options(PipelineOptions.from_dictionary(dict(_taken)))
