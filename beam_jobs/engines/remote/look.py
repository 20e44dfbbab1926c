"""Where a job is found, looked at and cancelled, whatever its engine."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Set
from types import ModuleType

from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    PipelineOptions,
    PortableOptions,
    StandardOptions,
)

from beam_jobs.engines.remote import dataflow, flink, job_service, spark
from beam_jobs.engines.remote.job import NoAnswer, RemoteJob, Seen, State
from beam_jobs.engines.remote.rest import page_address

# Engines with a REST interface, and the port that it has by default.
_REST: Mapping[str, tuple[ModuleType, int]] = {"flink": (flink, 8081), "spark": (spark, 4040)}

_RUNNERS = {
    "FlinkRunner": "flink",
    "SparkRunner": "spark",
    "PrismRunner": "prism",
    "DataflowRunner": "dataflow",
}

# How long a cancelled job may take to stop.
_SECONDS_TO_CANCEL = 60.0


def engine_of(options: PipelineOptions, asked: str) -> str:
    """The engine of a job; empty if only its job service is known.

    Args:
        options: Beam's options.
        asked: The value of `--engine`.
    """
    runner = (options.view_as(StandardOptions).runner or "").rpartition(".")[2]
    return _RUNNERS.get(runner) or ("" if asked == "direct" else asked)


def addresses(engine: str, options: PipelineOptions, given: str) -> list[str]:
    """The addresses at which an engine's page may be, the likeliest first.

    Only one that lists the job is believed. Besides the one of the user, these are `--flink_master`, and
    the default port of the job service's machine.

    Args:
        engine: The engine.
        options: Beam's options.
        given: The address that the user gave; empty if they gave no address.
    """
    if engine not in _REST:
        return []
    if given:
        return [page_address(given)]
    _, port = _REST[engine]
    service = options.view_as(PortableOptions).job_endpoint or "localhost"
    likely = [page_address(f"{service.rpartition(':')[0] or service}:{port}")]
    master = options.view_as(FlinkRunnerOptions).flink_master
    if engine == "flink" and not master.startswith("["):
        likely.insert(0, page_address(master))
    return list(dict.fromkeys(likely))


def known_ids(engine: str, address: str) -> set[str] | None:
    """The ids of the jobs that an engine lists; None if it does not answer there."""
    module, _ = _REST[engine]
    try:
        return set(module.job_ids(address))
    except NoAnswer:
        return None


def located(job: RemoteJob, known: Mapping[str, Set[str]]) -> RemoteJob:
    """The job with the engine's own id and address, if one of the addresses lists it.

    Args:
        job: The job.
        known: Address -> the ids of jobs there that are not this one.
    """
    if job.id or job.engine not in _REST:
        return job
    module, _ = _REST[job.engine]
    for address, ids in known.items():
        try:
            if found := module.find(address, job.name, job.submitted, ids):
                return dataclasses.replace(job, address=address, id=found)
        except NoAnswer:
            continue
    return job


def page_of(job: RemoteJob) -> str:
    """The address of the page of a job; empty if it is unknown."""
    if job.engine == "dataflow":
        return dataflow.page(job)
    if not job.id:
        return ""
    module, _ = _REST[job.engine]
    return str(module.page(job.address, job.id))


def look(job: RemoteJob, options: PipelineOptions) -> Seen:
    """What an engine says about a job.

    Args:
        job: The job.
        options: Beam's options, which say how Dataflow is reached.

    Raises:
        NoAnswer: Neither the engine nor its job service says anything.
    """
    if job.engine == "dataflow":
        return dataflow.look(job, options)
    if job.engine == "flink" and job.id:
        try:
            return flink.look(job.address, job.id)
        except NoAnswer:
            if not job.service:
                raise
    seen = job_service.look(job.service, job.service_id)
    if job.engine == "spark" and job.id and seen.is_active:
        # The driver's page does not know whether the job succeeds, and ends with it.
        return dataclasses.replace(spark.look(job.address, job.id), state=seen.state)
    return seen


def cancel(job: RemoteJob, options: PipelineOptions) -> tuple[State, str]:
    """Cancels a job, and waits until it has stopped.

    Returns:
        The state of the job, and one line that says what was done, or what to type.
    """
    try:
        return _cancel(job, options)
    except NoAnswer as error:
        command = cancel_command(job)
        return "running", f"{name_of(job)} may continue: {error}" + (command and f"; {command}")


def _cancel(job: RemoteJob, options: PipelineOptions) -> tuple[State, str]:
    if job.engine == "dataflow":
        state = dataflow.cancel(job, options)
        return state, f"Dataflow was asked to cancel {name_of(job)}, and reports it as {state}"
    if job.engine != "flink" and not job.service:
        return "cancelled", f"{name_of(job)} ended with the job service that Beam started for it"
    if job.engine != "flink":
        state = job_service.cancel(job.service, job.service_id, _SECONDS_TO_CANCEL)
        return state, f"the job service reports {name_of(job)} as {state}"
    if not job.id:
        # It would report the job as cancelled, and let it run.
        raise NoAnswer("Flink's job service does not cancel jobs, and Flink's address is unknown")
    state = flink.cancel(job.address, job.id, _SECONDS_TO_CANCEL)
    if state in ("starting", "running"):
        return state, (
            f"Flink was asked to cancel {name_of(job)}, which has not stopped in "
            f"{_SECONDS_TO_CANCEL:.0f} s: {page_of(job)}; {cancel_command(job)}"
        )
    return state, f"Flink reports {name_of(job)} as {state}"


def name_of(job: RemoteJob) -> str:
    """The job's name and id, for people."""
    return f"the job {job.name} ({job.shown_id})"


def cancel_command(job: RemoteJob) -> str:
    """What to type to cancel a job."""
    if job.engine == "dataflow":
        return f"cancel it with `{dataflow.cancel_command(job)}`"
    if job.engine == "flink" and job.id:
        return f"cancel it with `{flink.cancel_command(job.address, job.id)}`"
    if job.engine == "flink":
        return "cancel it on the cluster with `flink cancel`, or give --engine_page http://JOBMANAGER:8081"
    return ""
