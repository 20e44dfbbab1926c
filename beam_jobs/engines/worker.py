"""beam-shards-worker: starts Beam's Python worker in this environment, without a container.

A runner's `PROCESS` environment, and the container executable of Beam's worker pool, call a program
with a worker's id and the place where the rest can be asked for. Beam's own program lies in its
container image alone, so this one keeps to the same contract; see docs/engines.md.
"""

from __future__ import annotations

import argparse
import os
import sys

import grpc
from apache_beam.portability.api import (
    beam_provision_api_pb2,
    beam_provision_api_pb2_grpc,
    beam_runner_api_pb2,
    endpoints_pb2,
)
from apache_beam.runners.worker.worker_id_interceptor import WorkerIdInterceptor
from google.protobuf import json_format, text_format

_DESCRIPTION = (
    "Starts Beam's Python worker in this environment; runners call it, people do not: see "
    "docs/engines.md."
)

# A runner that does not answer for so long is gone.
_SECONDS = 60

# Files that a driver sends to have installed, or loaded, before its first step; others, such as a
# list of its packages and the jars of a job server, are not for Python workers.
_INSTALLED = (
    "requirements.txt",
    "extra_packages.txt",
    "workflow.tar.gz",
    "workflow.whl",
    "pickled_main_session",
)


def worker_environment(
    worker_id: str, info: beam_provision_api_pb2.ProvisionInfo, given: dict[str, str]
) -> dict[str, str]:
    """The environment variables that Beam's worker reads.

    Args:
        info: What the runner says to the worker.
        given: Endpoints of the command line, by name; they win over those of `info`.
    """

    def endpoint(name: str) -> str:
        asked = getattr(info, f"{name}_endpoint")
        url = given.get(name) or asked.url
        return text_format.MessageToString(endpoints_pb2.ApiServiceDescriptor(url=url))

    found = {
        "WORKER_ID": worker_id,
        "PIPELINE_OPTIONS": json_format.MessageToJson(info.pipeline_options),
        "LOGGING_API_SERVICE_DESCRIPTOR": endpoint("logging"),
        "CONTROL_API_SERVICE_DESCRIPTOR": endpoint("control"),
        "RUNNER_CAPABILITIES": " ".join(info.runner_capabilities),
    }
    if info.HasField("status_endpoint"):
        found["STATUS_API_SERVICE_DESCRIPTOR"] = endpoint("status")
    return found


def ask(worker_id: str, endpoint: str) -> beam_provision_api_pb2.ProvisionInfo:
    """What the runner says to a worker.

    Raises:
        grpc.RpcError: It does not answer, or does not know the worker.
    """
    with grpc.insecure_channel(endpoint) as channel:
        service = beam_provision_api_pb2_grpc.ProvisionServiceStub(
            grpc.intercept_channel(channel, WorkerIdInterceptor(worker_id))
        )
        request = beam_provision_api_pb2.GetProvisionInfoRequest()
        return service.GetProvisionInfo(request, timeout=_SECONDS).info


def to_be_installed(info: beam_provision_api_pb2.ProvisionInfo) -> list[str]:
    """The names of files that the driver wants installed on workers."""
    names = (
        beam_runner_api_pb2.ArtifactStagingToRolePayload.FromString(
            artifact.role_payload
        ).staged_name
        for artifact in info.dependencies
    )
    return sorted(name for name in names if name in _INSTALLED)


def main(arguments: list[str]) -> int:
    """Asks the runner, then becomes the worker; returns the exit code if that fails."""
    parser = argparse.ArgumentParser(
        prog="beam-shards-worker", description=_DESCRIPTION, allow_abbrev=False
    )
    parser.add_argument("--id", required=True, help="of the worker")
    parser.add_argument("--provision_endpoint", required=True, help="where to ask for the rest")
    for name in ("logging", "control"):
        parser.add_argument(f"--{name}_endpoint", default="", help="(default: as the runner says)")
    flags, _ = parser.parse_known_args(arguments)
    worker_id = flags.id.strip("'")  # Prism quotes it, though no shell is there to take that off.
    try:
        info = ask(worker_id, flags.provision_endpoint)
    except grpc.RpcError as error:
        print(
            f"error: {flags.provision_endpoint} does not tell worker {worker_id} what to do: "
            f"{error.details()}; is it the provision endpoint of a running job?",
            file=sys.stderr,
        )
        return 1
    if wanted := to_be_installed(info):
        print(
            f"error: the driver wants {', '.join(wanted)} installed on workers, which only happens "
            "in a container: install it in this worker's environment, and submit without "
            "--setup_file, --requirements_file, --extra_package and --save_main_session",
            file=sys.stderr,
        )
        return 2
    given = {"logging": flags.logging_endpoint, "control": flags.control_endpoint}
    os.environ.update(worker_environment(worker_id, info, given))
    worker = [sys.executable, "-m", "apache_beam.runners.worker.sdk_worker_main"]
    try:
        os.execv(sys.executable, worker)
    except OSError as error:  # Options longer than the kernel lets a variable be, say.
        print(f"error: Beam's worker cannot be started: {error}", file=sys.stderr)
    return 1
