"""Beam jobs that turn raw images, texts and sensor arrays into balanced TFRecord shards.

The packages below are private; `beam-shards --help` describes the command line.

Example:
    >>> schema = Schema({"x": Feature("float32", (8,)), "label": Feature("int64")})
    >>> with beam.Pipeline() as pipeline:
    ...     (
    ...         pipeline
    ...         | beam.Create([("a", {"x": np.zeros(8, np.float32), "label": 1})])
    ...         | WriteShards("shards/made", schema)
    ...     )
"""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING

if sys.platform in ("win32", "cygwin"):
    import readers.format  # noqa: F401  Its parent reports an unsupported system in one line.

from beam_jobs.errors import DataError, JobError, RejectError, UsageError

if TYPE_CHECKING:
    from beam_jobs.jobs.sensors.read_options import ReadOptions
    from beam_jobs.jobs.sensors.recording import Column, Recording
    from beam_jobs.pipeline.read_shards import ReadShards
    from beam_jobs.pipeline.write_shards import WriteShards
    from beam_jobs.writing.write import write
    from readers.format import __version__
    from readers.format.manifest import Manifest
    from readers.format.schema import Feature, Schema

__all__ = [
    "Column",
    "DataError",
    "Feature",
    "JobError",
    "Manifest",
    "ReadOptions",
    "ReadShards",
    "Recording",
    "RejectError",
    "Schema",
    "UsageError",
    "WriteShards",
    "__version__",
    "write",
]

# Tracebacks name an error as it can be imported.
for _error in (DataError, JobError, RejectError, UsageError):
    _error.__module__ = __name__

# Hidden from type checkers, which would otherwise accept any misspelt name.
if not TYPE_CHECKING:
    _MODULES = {
        "Column": "beam_jobs.jobs.sensors.recording",
        "Feature": "readers.format.schema",
        "Manifest": "readers.format.manifest",
        "ReadOptions": "beam_jobs.jobs.sensors.read_options",
        "ReadShards": "beam_jobs.pipeline.read_shards",
        "Recording": "beam_jobs.jobs.sensors.recording",
        "Schema": "readers.format.schema",
        "WriteShards": "beam_jobs.pipeline.write_shards",
        "__version__": "readers.format",
        "write": "beam_jobs.writing.write",
    }

    def __getattr__(name):
        # Everything else is imported only when needed, so that the command starts at once, and can
        # report a package that is not installed in one line.
        if name in _MODULES:
            return getattr(importlib.import_module(_MODULES[name]), name)
        raise AttributeError(f"module 'beam_jobs' has no attribute {name!r}")


def __dir__() -> list[str]:
    # `help` looks at each of them, and Beam is optional.
    if importlib.util.find_spec("apache_beam"):
        return [*__all__]
    return [name for name in __all__ if name not in ("ReadShards", "WriteShards")]
