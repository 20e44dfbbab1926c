"""A job on Dataflow, by its service."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions

from beam_jobs.engines.remote.job import NoAnswer, RemoteJob, Seen, State

_STATES: Mapping[str, State] = {
    "JOB_STATE_UNKNOWN": "starting",
    "JOB_STATE_STOPPED": "starting",
    "JOB_STATE_PENDING": "starting",
    "JOB_STATE_QUEUED": "starting",
    "JOB_STATE_DONE": "done",
    "JOB_STATE_UPDATED": "done",
    "JOB_STATE_DRAINED": "failed",  # The step that commits the dataset has not run.
    "JOB_STATE_FAILED": "failed",
    "JOB_STATE_CANCELLED": "cancelled",
}

_ERROR = "JOB_MESSAGE_ERROR"


def page(job: RemoteJob) -> str:
    """The address of a job's page."""
    return (
        f"https://console.cloud.google.com/dataflow/jobs/{job.region}/{job.service_id}"
        f"?project={job.project}"
    )


def cancel_command(job: RemoteJob) -> str:
    """The command that cancels a job."""
    return (
        f"gcloud dataflow jobs cancel {job.service_id} --region={job.region} "
        f"--project={job.project}"
    )


@functools.lru_cache(maxsize=1)
def _client(project: str, region: str, options: PipelineOptions) -> Any:
    """A client of the service for a project and a region.

    Raises:
        NoAnswer: Its package is not installed, or there are no credentials.
    """
    google = options.view_as(GoogleCloudOptions)
    google.project, google.region = project, region
    try:
        from apache_beam.runners.dataflow.internal import apiclient

        return apiclient.DataflowApplicationClient(options)
    except Exception as error:  # Google's libraries have errors of their own.
        raise NoAnswer(f"Dataflow cannot be asked ({error})") from None


def look(job: RemoteJob, options: PipelineOptions) -> Seen:
    """What Dataflow says about a job.

    Args:
        job: The job.
        options: Beam's options, with credentials and the endpoint.

    Raises:
        NoAnswer: The service does not answer, or does not know the job.
    """
    client = _client(job.project, job.region, options)
    try:
        found = client.get_job(job.service_id)
        metrics = client.get_job_metrics(job.service_id).metrics
        state = _STATES.get(found.current_state.name, "running")
        errors = _errors(client, job.service_id) if state == "failed" else [""]
    except Exception as error:  # Google's libraries have errors of their own.
        raise NoAnswer(f"Dataflow does not answer about {job.service_id} ({error})") from None
    return Seen(state, counters=counters_of(metrics), trace=errors[-1])


def _errors(client: Any, id_: str) -> list[str]:
    """The errors among the messages about a job; an empty text before them."""
    messages, _ = client.list_messages(id_, minimum_importance=_ERROR)
    errors = [each for each in messages if each.message_importance.name == _ERROR]
    return ["", *(error.message_text for error in errors)]


def counters_of(metrics: Iterable[Any]) -> dict[str, int]:
    """The job's own counters in the service's metrics, as they are while it runs.

    The service has two values of each: one with, and one without what unfinished work has counted.
    """
    sums: dict[tuple[str, bool], int] = {}
    for metric in metrics:
        context = metric.name.context
        if metric.name.origin != "user" or metric.scalar is None:
            continue
        name = f"{context.get('namespace', '')}/{metric.name.name}"
        key = name, context.get("tentative") == "true"
        sums[key] = sums.get(key, 0) + int(metric.scalar)
    return {name: max(sums.get((name, kind), 0) for kind in (True, False)) for name, _ in sums}


def cancel(job: RemoteJob, options: PipelineOptions) -> State:
    """Asks Dataflow to cancel a job; returns its state then.

    Raises:
        NoAnswer: The service does not answer, or refuses.
    """
    client = _client(job.project, job.region, options)
    try:
        client.modify_job_state(job.service_id, "JOB_STATE_CANCELLED")
        return _STATES.get(client.get_job(job.service_id).current_state.name, "running")
    except Exception as error:  # Google's libraries have errors of their own.
        raise NoAnswer(f"Dataflow does not cancel {job.service_id} ({error})") from None
