"""Makes Beam's DirectRunner fast, and keeps it from losing records."""

from __future__ import annotations

from collections.abc import Sequence

from apache_beam.options.pipeline_options import (
    DirectOptions,
    PipelineOptions,
    StandardOptions,
    TypeOptions,
)

from readers.files.processors import processors


def on_this_machine(options: PipelineOptions) -> bool:
    """Whether the pipeline runs on the DirectRunner."""
    runner = options.view_as(StandardOptions).runner
    return runner is None or runner == "DirectRunner"


def processes_of(options: PipelineOptions, flags: Sequence[str]) -> int:
    """The number of our own processes that load and encode in each of the runner's workers.

    On the DirectRunner it is `--direct_num_workers`, or by default the number of
    processors that it may use. With another runner or a `--direct_running_mode` it is 1: the worker itself.

    Args:
        options: Beam's options.
        flags: The arguments they were parsed from, which show whether a flag was given.
    """
    given = {flag.split("=")[0] for flag in flags}
    if not on_this_machine(options) or "--direct_running_mode" in given:
        return 1
    workers: int = options.view_as(DirectOptions).direct_num_workers
    return workers if workers and "--direct_num_workers" in given else processors()


def prepare_direct_runner(options: PipelineOptions) -> None:
    """Sets the options with which the DirectRunner is fast and safe; the user's own flags stay."""
    from apache_beam.runners.portability.fn_api_runner import worker_handlers

    # The timed flush of a worker's data channel drops data that is written meanwhile; 0 turns the
    # timer off. Every job checks its counts in any case.
    worker_handlers.DATA_BUFFER_TIME_LIMIT_MS = 0
    options.view_as(StandardOptions).runner = "DirectRunner"
    # Otherwise DirectRunner tries to download Prism, another runner, and runs the job there.
    options.view_as(TypeOptions).allow_unsafe_triggers = True
    direct = options.view_as(DirectOptions)
    if direct.direct_running_mode == "in_memory":
        # One worker of Beam's; our own processes do the work (see processes_of).
        direct.direct_num_workers = 1
