"""Beam jobs that turn raw images, texts and sensor arrays into balanced TFRecord shards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from readers.format.schema import Feature, Schema

if TYPE_CHECKING:
    from beam_jobs.errors import DataError, JobError, UsageError
    from beam_jobs.write import WriteShards

__all__ = ["DataError", "Feature", "JobError", "Schema", "UsageError", "WriteShards"]


def __getattr__(name: str) -> Any:
    # Beam is imported when it is asked for, so that the command can say in one line that it is
    # not installed.
    if name == "WriteShards":
        from beam_jobs.write import WriteShards

        return WriteShards
    if name in ("DataError", "JobError", "UsageError"):
        from beam_jobs import errors

        return getattr(errors, name)
    raise AttributeError(f"module 'beam_jobs' has no attribute {name!r}")
