"""Google Cloud Dataflow: checks a submission, submits it, and follows the job."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from apache_beam.options.pipeline_options import (
    GoogleCloudOptions,
    PipelineOptions,
    SetupOptions,
    StandardOptions,
    WorkerOptions,
)
from apache_beam.runners.runner import PipelineState

from beam_jobs.engines.watch import Watch
from beam_jobs.errors import AGAIN, DataError, JobError, UsageError, find_job_error, root_cause
from beam_jobs.storage.files import JobErrors
from readers.files.local import is_local
from readers.files.stores.errors import SignIn

_SIGN_IN = SignIn(
    "run `gcloud auth application-default login`, or name a key in GOOGLE_APPLICATION_CREDENTIALS",
    "",
    "",
)

# The time limit of a request for the bucket.
_SECONDS_TO_ANSWER = 5.0

# The loggers of the service's messages and of retries.
_LOGGERS = ("apache_beam.runners.dataflow.dataflow_runner", "apache_beam.utils.retry")

# Beam prints this for every job that sends files, whether or not they are installed.
_ADVICE = "Pipeline has additional dependencies"


def on_dataflow(options: PipelineOptions) -> bool:
    """Whether the pipeline runs on Dataflow."""
    runner = options.view_as(StandardOptions).runner or ""
    return runner.rpartition(".")[2].lower() in ("dataflowrunner", "dataflow")


def prepare_dataflow(options: PipelineOptions, output: str, inputs: Sequence[str]) -> None:
    """Checks for all failures that can be foreseen, before anything is made on this machine or in a cloud.

    Args:
        options: Beam's options; `--setup_file` is made absolute, because Beam builds it elsewhere.
        output: The output directory.
        inputs: Patterns and folders.

    Raises:
        UsageError: A path is on this machine, the workers would lack this package, or the bucket
            for staged files cannot be used.
    """
    try:
        from apache_beam.runners.dataflow.internal import apiclient  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"--runner DataflowRunner: {error.name} is missing: pip install 'beam-shards[dataflow]'"
        ) from None
    paths = [("--output", output), *(("--input", path) for path in inputs)]
    if template := options.view_as(GoogleCloudOptions).template_location:
        paths.append(("--template_location", template))
    for flag, path in paths:
        if is_local(path):
            raise UsageError(
                f"{flag} {path}: Dataflow's workers cannot see paths of this machine; expected a "
                "path such as gs://bucket/folder"
            )
    _check_package(options.view_as(SetupOptions), options.view_as(WorkerOptions))
    _check_bucket(options)


def _check_package(setup: Any, worker: Any) -> None:
    if setup.setup_file:
        path = Path(setup.setup_file).expanduser().absolute()
        if path.name not in ("setup.py", "pyproject.toml") or not path.is_file():
            raise UsageError(
                f"--setup_file {setup.setup_file}: expected the setup.py of a checkout of beam-shards"
            )
        setup.setup_file = str(path)
    sent = (setup.setup_file, setup.extra_packages, setup.requirements_file)
    if not worker.sdk_container_image and not any(sent):
        raise UsageError(
            "--runner DataflowRunner: the workers would not have this package; add "
            "--sdk_container_image with an image made by docker/Dockerfile, or --setup_file with "
            "the setup.py of a checkout (see docs/deploy/engines.md)"
        )


def _check_bucket(options: PipelineOptions) -> None:
    """Checks the bucket of staged files, for which Beam would retry for minutes; makes one if none is named."""
    from google.api_core.exceptions import GoogleAPIError
    from google.auth.exceptions import GoogleAuthError
    from google.cloud.storage.retry import DEFAULT_RETRY

    from readers.files.stores.gcs import new_client

    google = options.view_as(GoogleCloudOptions)
    flag = "staging_location" if google.staging_location else "temp_location"
    location = getattr(google, flag) or ""
    if not location.startswith("gs://"):
        raise UsageError(
            f"--{flag} {location or 'is missing'}: expected a folder for staged files, such as "
            "gs://bucket/tmp"
        )
    bucket = location.removeprefix("gs://").partition("/")[0]
    retry = DEFAULT_RETRY.with_timeout(_SECONDS_TO_ANSWER)
    try:
        client = new_client(options.get_all_options(drop_default=True), JobErrors(_SIGN_IN))
        client.get_bucket(bucket, timeout=_SECONDS_TO_ANSWER, retry=retry)
    except (GoogleAPIError, GoogleAuthError, OSError, ValueError) as error:
        raise UsageError(
            f"--{flag} {location}: bucket {bucket} cannot be used ({root_cause(str(error))}); expected an existing one that "
            f"your account may read and write, a network that reaches it, and credentials: {_SIGN_IN.variables}"
        ) from None


def rejection(error: BaseException | None) -> JobError | None:
    """One line for a job that the service did not accept; None for any other error."""
    from apache_beam.runners.dataflow.internal.apiclient import DataflowJobAlreadyExistsError
    from google.api_core.exceptions import ClientError, GoogleAPICallError
    from google.auth.exceptions import GoogleAuthError

    if isinstance(error, GoogleAuthError):
        return UsageError(
            f"no credentials for Google Cloud ({root_cause(str(error))}); {_SIGN_IN.variables}"
        )
    if isinstance(error, DataflowJobAlreadyExistsError):
        return UsageError(f"Dataflow rejected the job: {error}")
    if isinstance(error, ClientError):
        return UsageError(
            f"Dataflow rejected the job: {int(error.code or 0)} {root_cause(error.message)}; check --project, "
            "--region and your account's permissions there"
        )
    if isinstance(error, GoogleAPICallError):
        return DataError(
            f"Dataflow did not accept the job: {root_cause(str(error))}; no dataset was written; run the same "
            "command again"
        )
    return None


class _Lines(logging.StreamHandler):
    """Prints the line of each message of the service that says most."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.name in _LOGGERS and _ADVICE not in record.getMessage()

    def format(self, record: logging.LogRecord) -> str:
        return root_cause(record.getMessage())


@contextlib.contextmanager
def service_log_shown(stream: TextIO) -> Iterator[None]:
    """Prints the service's messages on a stream, and hides everything else that Beam logs.

    Beam logs a rejected job three times, in many lines; the command reports it in one.
    """
    handler, beam = _Lines(stream), logging.getLogger("apache_beam")
    level = beam.level
    beam.addHandler(handler)
    beam.setLevel(logging.INFO)
    beam.propagate = False
    try:
        yield
    finally:
        beam.removeHandler(handler)
        beam.setLevel(level)
        beam.propagate = True


def follow_dataflow(runner: Any, result: Any, options: PipelineOptions, watch: Watch) -> None:
    """Waits for the end of a job that the service has accepted, unless the options say not to.

    Raises:
        JobError: The job failed or was cancelled, or the connection to the service was lost.
        KeyboardInterrupt: The user pressed Ctrl-C; the message states that the job continues.
    """
    google = options.view_as(GoogleCloudOptions)
    if not result.has_job:
        watch.say(f"the job is described in {google.template_location}; nothing has run")
        return
    id_, place = result.job_id(), f"--region={google.region} --project={google.project}"
    page = f"https://console.cloud.google.com/dataflow/jobs/{google.region}/{id_}?project={google.project}"
    watch.say(f"Dataflow runs the job as {id_}: {page}")
    if options.view_as(StandardOptions).no_wait_until_finish:
        return
    watch.begin()
    try:
        # The result's own method polls in a thread, which dies with a traceback.
        runner.poll_for_job_completion(runner, result, None)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"interrupted, but the job {id_} continues: follow it at {page}, or cancel it with "
            f"`gcloud dataflow jobs cancel {id_} {place}`"
        ) from None
    except Exception as error:
        raise DataError(
            f"lost contact with Dataflow about the job {id_} ({root_cause(str(error))}); it may continue: "
            f"follow it at {page}"
        ) from error
    _check_end(result.state, id_, page, getattr(runner, "last_error_msg", None) or "")


def _check_end(state: str, id_: str, page: str, message: str) -> None:
    """Raises the `JobError` of a job that failed or was cancelled."""
    if state == PipelineState.DONE:
        return
    if found := find_job_error(Exception(message)):
        raise found
    if state in (PipelineState.CANCELLED, PipelineState.CANCELLING):
        raise DataError(f"the job {id_} was cancelled; no dataset was written; {AGAIN}")
    raise DataError(
        f"the job {id_} ended as {state}: {root_cause(message) or 'the service gives no reason'}; no "
        f"dataset was written; its log is at {page}"
    )
