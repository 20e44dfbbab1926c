"""beam-shards-worker: starts Beam's Python worker in this environment, without a container.

A runner's `PROCESS` environment and Beam's worker pool (as its container executable) call a program
with a worker's id and the endpoint of everything else that it needs. Beam's own program exists only in
its container image, so this one follows the same contract; see docs/deploy/engines.md.
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
    "Starts Beam's Python worker in this environment. Runners call it, not people: see "
    "docs/deploy/engines.md."
)

# A runner that does not answer for this long has ended.
_SECONDS = 60

# Files that a driver sends to be installed or loaded before its first step. Others, such as a list
# of its packages or the jars of a job server, are not for Python workers.
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
        worker_id: The worker's id.
        info: The runner's answer to the worker.
        given: Name -> endpoint on the command line; these take precedence over those of `info`.
    """
    endpoints = {
        name: given.get(name) or getattr(info, f"{name}_endpoint").url
        for name in ("logging", "control", "status")
    }
    return {
        "WORKER_ID": worker_id,
        "PIPELINE_OPTIONS": json_format.MessageToJson(info.pipeline_options),
        "RUNNER_CAPABILITIES": " ".join(info.runner_capabilities),
        **{
            f"{name.upper()}_API_SERVICE_DESCRIPTOR": text_format.MessageToString(
                endpoints_pb2.ApiServiceDescriptor(url=url)
            )
            for name, url in endpoints.items()
            if url
        },
    }


def ask(worker_id: str, endpoint: str) -> beam_provision_api_pb2.ProvisionInfo:
    """Asks the runner for everything that a worker needs to know.

    Raises:
        grpc.RpcError: The runner does not answer, or does not know the worker.
    """
    with grpc.insecure_channel(endpoint) as channel:
        service = beam_provision_api_pb2_grpc.ProvisionServiceStub(
            grpc.intercept_channel(channel, WorkerIdInterceptor(worker_id))
        )
        request = beam_provision_api_pb2.GetProvisionInfoRequest()
        return service.GetProvisionInfo(request, timeout=_SECONDS).info


def to_be_installed(info: beam_provision_api_pb2.ProvisionInfo) -> list[str]:
    """The names of files that the driver wants installed on workers."""
    staged = beam_runner_api_pb2.ArtifactStagingToRolePayload
    names = {staged.FromString(file.role_payload).staged_name for file in info.dependencies}
    return sorted(names.intersection(_INSTALLED))


def main(arguments: list[str]) -> int:
    """Asks the runner, then becomes the worker; returns the exit code if either fails."""
    parser = argparse.ArgumentParser(
        prog="beam-shards-worker", description=_DESCRIPTION, allow_abbrev=False
    )
    parser.add_argument("--id", required=True, help="the worker's id")
    parser.add_argument(
        "--provision_endpoint", required=True, help="the endpoint that has everything else"
    )
    for name in ("logging", "control"):
        parser.add_argument(f"--{name}_endpoint", default="", help="(default: the runner's)")
    flags, _ = parser.parse_known_args(arguments)
    worker_id = flags.id.strip("'")  # Prism quotes it, though no shell removes the quotes.
    try:
        info = ask(worker_id, flags.provision_endpoint)
    except grpc.RpcError as error:
        print(
            f"error: {flags.provision_endpoint} does not answer worker {worker_id}: {error.details()}; "
            "is it the provision endpoint of a running job?",
            file=sys.stderr,
        )
        return 1
    if wanted := to_be_installed(info):
        print(
            f"error: the driver wants {', '.join(wanted)} installed on workers, which happens only "
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
    except OSError as error:  # For example, options longer than the kernel allows for a variable.
        print(f"error: Beam's worker cannot be started: {error}", file=sys.stderr)
    return 1
