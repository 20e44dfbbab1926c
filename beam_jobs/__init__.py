"""Beam jobs that turn raw images, texts and sensor arrays into balanced TFRecord shards.

The packages below are private; `python -m beam_jobs --help` describes the command line.

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

import importlib
from typing import TYPE_CHECKING

from beam_jobs.errors import DataError, JobError, RejectError, UsageError
from readers.format.manifest import Manifest
from readers.format.schema import Feature, Schema
from readers.format.version import __version__

if TYPE_CHECKING:
    from beam_jobs.jobs.sensors.inside.columns import Column
    from beam_jobs.jobs.sensors.recording import ReadOptions, Recording
    from beam_jobs.pipeline.write_shards import WriteShards

__all__ = [
    "Column",
    "DataError",
    "Feature",
    "JobError",
    "Manifest",
    "ReadOptions",
    "Recording",
    "RejectError",
    "Schema",
    "UsageError",
    "WriteShards",
    "__version__",
]

# Hidden from type checkers, which would otherwise accept any misspelt name.
if not TYPE_CHECKING:
    _MODULES = {
        "Column": "beam_jobs.jobs.sensors.inside.columns",
        "ReadOptions": "beam_jobs.jobs.sensors.recording",
        "Recording": "beam_jobs.jobs.sensors.recording",
        "WriteShards": "beam_jobs.pipeline.write_shards",
    }

    def __getattr__(name):
        # Beam and the packages of [beam] are imported only when needed, so that the command can report
        # in one line which is not installed.
        if name in _MODULES:
            return getattr(importlib.import_module(_MODULES[name]), name)
        raise AttributeError(f"module 'beam_jobs' has no attribute {name!r}")
