"""Beam's DirectRunner: what it needs to be fast and to lose nothing."""

from __future__ import annotations

import os
from collections.abc import Sequence

from apache_beam.options.pipeline_options import (
    DirectOptions,
    PipelineOptions,
    StandardOptions,
    TypeOptions,
)


def on_this_machine(options: PipelineOptions) -> bool:
    """Whether the pipeline runs on the DirectRunner."""
    runner = options.view_as(StandardOptions).runner
    return runner is None or runner == "DirectRunner"


def cores() -> int:
    """The cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return os.cpu_count() or 1


def processes_of(options: PipelineOptions, flags: Sequence[str]) -> int:
    """How many processes of ours load and encode in each of the runner's workers.

    All cores of this machine, or `--direct_num_workers`, on the DirectRunner as it comes; none
    but the worker itself where a runner, or a `--direct_running_mode`, is asked for.

    Args:
        flags: What `options` were parsed from: they do not tell a default from the same value.
    """
    given = {flag.split("=")[0] for flag in flags}
    if not on_this_machine(options) or "--direct_running_mode" in given:
        return 1
    workers: int = options.view_as(DirectOptions).direct_num_workers
    return workers if workers and "--direct_num_workers" in given else cores()


def prepare_direct_runner(options: PipelineOptions) -> None:
    """Sets what the DirectRunner needs to be fast and to lose nothing; the user's own flags stay."""
    from apache_beam.runners.portability.fn_api_runner import worker_handlers

    # The timed flush of a worker's data channel drops what is written meanwhile; 0 turns the timer
    # off. Every job checks its counts all the same.
    worker_handlers.DATA_BUFFER_TIME_LIMIT_MS = 0
    options.view_as(StandardOptions).runner = "DirectRunner"
    # Otherwise DirectRunner tries to download Prism, another runner, and runs the job there.
    options.view_as(TypeOptions).allow_unsafe_triggers = True
    direct = options.view_as(DirectOptions)
    if direct.direct_running_mode == "in_memory":
        # One worker of Beam's; processes of ours do the work (see processes_of).
        direct.direct_num_workers = 1
