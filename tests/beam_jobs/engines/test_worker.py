"""Workers without a container: what they are told by a runner, and a job on such workers."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent import futures
from pathlib import Path

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
from readers.verify import verify
from tests.support.datasets import files_of

BIN = Path(sys.executable).parent
OPTIONS = {"beam:option:s3_endpoint_url:v1": "http://store", "beam:option:job_name:v1": "ünal"}


class Runner(beam_provision_api_pb2_grpc.ProvisionServiceServicer):
    """What a runner's provision service says, and who has asked."""

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
def becomes(monkeypatch):
    """What the program becomes, instead of becoming it: commands and environments."""
    found = []
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(os, "execv", lambda _, command: found.append((command, dict(os.environ))))
    return found


def url(described):
    return text_format.Parse(described, endpoints_pb2.ApiServiceDescriptor()).url


def test_a_worker_knows_its_options_and_where_to_report(runner, becomes):
    boot.main(["--id=w-1", f"--provision_endpoint={runner.endpoint}", "--semi_persist_dir=/x"])
    ((command, environment),) = becomes
    assert command == [sys.executable, "-m", "apache_beam.runners.worker.sdk_worker_main"]
    assert runner.asked_by == ["w-1"] == [environment["WORKER_ID"]]
    assert json.loads(environment["PIPELINE_OPTIONS"]) == OPTIONS
    assert url(environment["LOGGING_API_SERVICE_DESCRIPTOR"]) == "logs:1"
    assert url(environment["CONTROL_API_SERVICE_DESCRIPTOR"]) == "control:2"
    assert "STATUS_API_SERVICE_DESCRIPTOR" not in environment
    assert environment["RUNNER_CAPABILITIES"] == "one two"


def test_endpoints_of_the_command_line_win(runner, becomes):
    runner.info.status_endpoint.url = "status:3"
    flags = ["--id", "'job[a]_1'", "--provision_endpoint", runner.endpoint]
    boot.main([*flags, "--logging_endpoint=here:4", "--control_endpoint=here:5"])
    ((_, environment),) = becomes
    assert runner.asked_by == ["job[a]_1"] == [environment["WORKER_ID"]]
    assert url(environment["LOGGING_API_SERVICE_DESCRIPTOR"]) == "here:4"
    assert url(environment["CONTROL_API_SERVICE_DESCRIPTOR"]) == "here:5"
    assert url(environment["STATUS_API_SERVICE_DESCRIPTOR"]) == "status:3"


def test_what_a_worker_cannot_install_is_refused_by_name(runner, becomes, capsys):
    runner.send("submission_environment_dependencies.txt")
    runner.send("beam-runners-flink-job-server.jar")
    boot.main(["--id=w-1", f"--provision_endpoint={runner.endpoint}"])
    assert len(becomes) == 1
    runner.send("workflow.tar.gz")
    assert boot.main(["--id=w-1", f"--provision_endpoint={runner.endpoint}"]) == 2
    assert len(becomes) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: the driver wants workflow.tar.gz installed on workers")


def test_a_runner_that_does_not_answer_is_told_in_one_line(becomes, capsys):
    with socket.socket() as unused:
        unused.bind(("localhost", 0))
        endpoint = f"localhost:{unused.getsockname()[1]}"
    assert boot.main(["--id=w-1", f"--provision_endpoint={endpoint}"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {endpoint} does not answer worker w-1: ")
    assert not becomes


def test_a_worker_that_cannot_be_started_is_told_in_one_line(runner, monkeypatch, capsys):
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(sys, "executable", "/no/python")
    assert boot.main(["--id=w-1", f"--provision_endpoint={runner.endpoint}"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: Beam's worker cannot be started: ")


def free_port():
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("localhost", port)) == 0


@contextlib.contextmanager
def job_service(directory, worker=sys.executable):
    """Beam's job service and worker pool, each a process; gives the flags of a job.

    Args:
        directory: For their logs, and to run in.
        worker: The Python of the workers' environment.
    """
    service, pool = free_port(), free_port()
    program = Path(worker).parent / "beam-shards-worker"
    modules = {
        "service": [sys.executable, "portability.local_job_service_main", "-p", service],
        "pool": [
            *(worker, "worker.worker_pool_main", f"--service_port={pool}"),
            f"--container_executable={program}",
        ],
    }
    environment = dict(os.environ)
    if worker != sys.executable:
        environment.pop("PYTHONPATH", None)  # It has the package, or nobody has.
    processes = []
    try:
        for name, (python, module, *flags) in modules.items():
            command = [str(python), "-m", f"apache_beam.runners.{module}", *map(str, flags)]
            with (directory / f"{name}.log").open("wb") as log:
                process = subprocess.Popen(
                    command,
                    stdout=log,
                    stderr=log,
                    cwd=directory,
                    env=environment,
                    start_new_session=True,
                )
            processes.append(process)
        deadline = time.monotonic() + 60
        while not (listens(service) and listens(pool)):
            assert time.monotonic() < deadline, (directory / "service.log").read_text()
            time.sleep(0.1)
        yield [
            "--runner=PortableRunner",
            f"--job_endpoint=localhost:{service}",
            "--environment_type=EXTERNAL",
            f"--environment_config=localhost:{pool}",
        ]
    finally:
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def workers(tmp_path):
    with job_service(tmp_path) as flags:
        yield flags


@pytest.mark.slow
def test_a_job_on_workers_that_runners_start_writes_the_same_bytes(workers, tmp_path):
    make_samples(tmp_path / "in", per_class=20)
    (tmp_path / "in/sensors/bad.npy").write_bytes(b"no array")
    flags = ["sensors", "--input", f"{tmp_path}/in/sensors/**.npy", "--label", "none"]
    flags += ["--splits", "train=0.8,val=0.2", "--num_shards", "3"]
    assert main([*flags, "--output", f"{tmp_path}/here"]) == 0
    assert main([*flags, "--output", f"{tmp_path}/there", *workers]) == 0
    here, there = files_of(tmp_path / "here"), files_of(tmp_path / "there")
    assert here == there and len(here) == 14
    assert verify(f"{tmp_path}/there").ok
    assert "beam-shards-worker" in (tmp_path / "pool.log").read_text()


@pytest.mark.parametrize("endpoint", ["localhost:{free}", "localhost:99999", "localhost", ":x"])
def test_a_job_service_that_does_not_answer_is_told_before_anything_is_written(
    tmp_path, capsys, endpoint
):
    make_samples(tmp_path / "in", per_class=2)
    endpoint = endpoint.format(free=free_port())
    flags = ["--input", f"{tmp_path}/in/sensors", "--output", f"{tmp_path}/out"]
    service = ["--runner=PortableRunner", f"--job_endpoint={endpoint}"]
    assert main(["sensors", *flags, *service]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: --job_endpoint {endpoint}: no job service answers")
    assert not (tmp_path / "out").exists()
