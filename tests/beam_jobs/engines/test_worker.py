"""Workers without a container: the answers they get from a runner, and a job on such workers."""

import json
import os
import sys
from concurrent import futures

import grpc
import pytest
from apache_beam.portability.api import (
    beam_provision_api_pb2,
    beam_provision_api_pb2_grpc,
    beam_runner_api_pb2,
    endpoints_pb2,
)
from google.protobuf import json_format, text_format

from beam_jobs.__main__ import main
from beam_jobs.engines import worker as boot
from examples.samples import make_samples
from tests.engines.services import free_ports

OPTIONS = {"beam:option:s3_endpoint_url:v1": "http://store", "beam:option:job_name:v1": "ünal"}


class Runner(beam_provision_api_pb2_grpc.ProvisionServiceServicer):
    """A runner's provision service, which records the ids of workers that ask."""

    def __init__(self):
        self.info = beam_provision_api_pb2.ProvisionInfo(
            pipeline_options=json_format.ParseDict(
                OPTIONS, beam_provision_api_pb2.ProvisionInfo().pipeline_options
            ),
            logging_endpoint=endpoints_pb2.ApiServiceDescriptor(url="logs:1"),
            control_endpoint=endpoints_pb2.ApiServiceDescriptor(url="control:2"),
            runner_capabilities=["one", "two"],
        )
        self.asked_by = []

    def GetProvisionInfo(self, request, context):
        self.asked_by.append(dict(context.invocation_metadata())["worker_id"])
        return beam_provision_api_pb2.GetProvisionInfoResponse(info=self.info)

    def send(self, name):
        payload = beam_runner_api_pb2.ArtifactStagingToRolePayload(staged_name=name)
        self.info.dependencies.add(role_payload=payload.SerializeToString())


@pytest.fixture
def runner():
    server, service = grpc.server(futures.ThreadPoolExecutor(1)), Runner()
    beam_provision_api_pb2_grpc.add_ProvisionServiceServicer_to_server(service, server)
    service.endpoint = f"localhost:{server.add_insecure_port('localhost:0')}"
    server.start()
    yield service
    server.stop(None)


@pytest.fixture
def replaced(monkeypatch):
    """Commands and environments that replace the program, which only records them."""
    found = []
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(os, "execv", lambda _, command: found.append((command, dict(os.environ))))
    return found


def url(described):
    return text_format.Parse(described, endpoints_pb2.ApiServiceDescriptor()).url


def test_a_worker_gets_its_options_and_endpoints(runner, replaced):
    boot.main(["--id=w-1", f"--provision_endpoint={runner.endpoint}", "--semi_persist_dir=/x"])
    ((command, environment),) = replaced
    assert command == [sys.executable, "-m", "apache_beam.runners.worker.sdk_worker_main"]
    assert runner.asked_by == ["w-1"] == [environment["WORKER_ID"]]
    assert json.loads(environment["PIPELINE_OPTIONS"]) == OPTIONS
    assert url(environment["LOGGING_API_SERVICE_DESCRIPTOR"]) == "logs:1"
    assert url(environment["CONTROL_API_SERVICE_DESCRIPTOR"]) == "control:2"
    assert "STATUS_API_SERVICE_DESCRIPTOR" not in environment
    assert environment["RUNNER_CAPABILITIES"] == "one two"


def test_endpoints_on_the_command_line_take_precedence(runner, replaced):
    runner.info.status_endpoint.url = "status:3"
    flags = ["--id", "'job[a]_1'", "--provision_endpoint", runner.endpoint]
    boot.main([*flags, "--logging_endpoint=here:4", "--control_endpoint=here:5"])
    ((_, environment),) = replaced
    assert runner.asked_by == ["job[a]_1"] == [environment["WORKER_ID"]]
    assert url(environment["LOGGING_API_SERVICE_DESCRIPTOR"]) == "here:4"
    assert url(environment["CONTROL_API_SERVICE_DESCRIPTOR"]) == "here:5"
    assert url(environment["STATUS_API_SERVICE_DESCRIPTOR"]) == "status:3"


def test_files_that_a_worker_cannot_install_are_refused_by_name(runner, replaced, capsys):
    runner.send("submission_environment_dependencies.txt")
    runner.send("beam-runners-flink-job-server.jar")
    boot.main(["--id=w-1", f"--provision_endpoint={runner.endpoint}"])
    assert len(replaced) == 1
    runner.send("workflow.tar.gz")
    assert boot.main(["--id=w-1", f"--provision_endpoint={runner.endpoint}"]) == 2
    assert len(replaced) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: the driver wants workflow.tar.gz installed on workers")


def test_a_runner_that_does_not_answer_is_reported_in_one_line(replaced, capsys):
    endpoint = f"localhost:{free_ports(1)[0]}"
    assert boot.main(["--id=w-1", f"--provision_endpoint={endpoint}"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {endpoint} does not answer worker w-1: ")
    assert not replaced


def test_a_job_service_that_does_not_answer_is_reported_before_anything_is_written(
    tmp_path, capsys
):
    make_samples(tmp_path / "in", per_class=2)
    endpoint = f"localhost:{free_ports(1)[0]}"
    flags = ["--input", f"{tmp_path}/in/sensors", "--output", f"{tmp_path}/out"]
    service = ["--runner=PortableRunner", f"--job_endpoint={endpoint}"]
    assert main(["sensors", *flags, *service]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: --job_endpoint {endpoint}: no job service answers")
    assert not (tmp_path / "out").exists()
