"""Jobs on Dataflow: what is submitted, how it runs, and how it may end.

`dataflow_service.py` stands in for Google's service, an emulator for its store, and processes that
`beam-shards-worker` starts for its workers.
"""

import io
import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
import time
import types
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from apache_beam.runners.dataflow import dataflow_runner
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from gcp_storage_emulator.server import create_server

from beam_jobs.__main__ import main
from beam_jobs.engines import dataflow, watch
from beam_jobs.errors import DataError, UsageError
from examples.samples import make_samples
from tests.engines.services import Service, free_ports, listens, start, stop
from tests.support.checkout import ROOT
from tests.support.dataflow_service import PASSED_THROUGH, TOKEN, Answer, DataflowService
from tests.support.datasets import files_of, folder_of

IMAGE = "europe-west4-docker.pkg.dev/a-project/images/beam-shards:0.1.0"
QUIET = "--experiments=disable_logging_submission_environment"

JOBS = {
    "text": [
        *("--input", "gs://data/in/text/*.jsonl", "--label_field=label", "--tokens=words"),
        *("--splits", "train=0.8,val=0.2"),
    ],
    "sensors": [
        *("--input", "gs://data/in/sensors/**.npy", "--label=none", "--num_shards=3"),
        *("--splits", "train=0.8,val=0.2"),
    ],
}


class Cloud:
    """A store with inputs, a service, and the environment of a driver that uses both."""

    def __init__(self, store, service, key, inputs, workers):
        self.store, self.service, self.inputs = store, service, inputs
        self.workers = workers
        self.environment = {
            "STORAGE_EMULATOR_HOST": store,
            "GOOGLE_APPLICATION_CREDENTIALS": str(key),
            "GRPC_VERBOSITY": "NONE",
        }

    def flags(self, name):
        return [
            "--runner=DataflowRunner",
            "--project=a-project",
            "--region=europe-west4",
            "--temp_location=gs://data/tmp",
            f"--dataflow_endpoint={self.service.url}",
            f"--job_name={name}",
        ]

    def put(self, name, data):
        quoted = urllib.parse.quote(name, safe="")
        url = f"{self.store}/upload/storage/v1/b/data/o?uploadType=media&name={quoted}"
        urllib.request.urlopen(urllib.request.Request(url, data, method="POST")).close()

    def names(self, folder):
        url = f"{self.store}/storage/v1/b/data/o?prefix={folder and f'{folder}/'}"
        with urllib.request.urlopen(url) as answer:
            return {item["name"] for item in json.load(answer).get("items", ())}

    def download(self, folder, directory):
        for name in self.names(folder):
            if "/.staging/" in name:
                continue
            path = directory / name.removeprefix(f"{folder}/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.service.staged(f"gs://data/{name}"))
        return directory


def write_key(path, service):
    """Writes the key of an account that the service accepts."""
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    account = {
        "type": "service_account",
        "project_id": "a-project",
        "private_key_id": "1",
        "private_key": pem.decode(),
        "client_email": "driver@a-project.iam.gserviceaccount.com",
        "token_uri": f"{service.url}/token",
    }
    path.write_text(json.dumps(account))
    return path


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    directory = tmp_path_factory.mktemp("cloud")
    port, workers = free_ports(2)
    store = create_server("localhost", port, in_memory=True, default_bucket="data")
    store.start()
    with DataflowService(f"http://localhost:{port}", f"localhost:{workers}") as service:
        key = write_key(directory / "key.json", service)
        make_samples(directory / "in", per_class=5)
        with next((directory / "in/text").glob("*.jsonl")).open("a") as file:
            file.write("not an object\n")
        found = Cloud(f"http://localhost:{port}", service, key, directory / "in", workers)
        for path in found.inputs.rglob("*"):
            if path.is_file():
                found.put(f"in/{path.relative_to(found.inputs)}", path.read_bytes())
        yield found
        store.stop()


@pytest.fixture
def driver(cloud, monkeypatch):
    """Runs a submission in this process, with Beam polling a hundred times as often."""
    for name, value in cloud.environment.items():
        monkeypatch.setenv(name, value)
    clock = types.SimpleNamespace(time=time.time, sleep=lambda seconds: time.sleep(seconds / 100))
    monkeypatch.setattr(dataflow_runner, "time", clock)

    def run(name, *more, job="sensors", image=f"--sdk_container_image={IMAGE}", output=""):
        # Jobs that never end keep others out of their output.
        output = output or f"gs://data/o{len(cloud.service.jobs)}"
        flags = [*JOBS[job], "--output", output, *cloud.flags(name), QUIET, "--no_auth"]
        return main([job, *flags, *filter(None, [image]), *more])

    run.clock = clock
    return run


def without_inputs(directory):
    """The files of a dataset, without the paths of its inputs in the manifests."""
    for path in (directory / "manifest.json", directory / "generations/1.json"):
        manifest = json.loads(path.read_text())
        del manifest["options"]["input"]
        path.write_text(json.dumps(manifest))
    return files_of(directory)


@pytest.mark.slow
def test_a_whole_submission_writes_the_same_bytes_as_this_machine(cloud, tmp_path):
    """In a process of its own, with the package for workers and without credentials."""
    program = Path(sys.executable).with_name("beam-shards-worker")
    command = [sys.executable, "-m", "apache_beam.runners.worker.worker_pool_main"]
    command += [f"--service_port={cloud.workers}", f"--container_executable={program}"]
    pool = Service("workers", command, lambda: listens(cloud.workers), cloud.environment)
    flags = [*cloud.flags("whole"), f"--setup_file={ROOT}/setup.py", QUIET]
    job = ["text", *JOBS["text"], "--output=gs://data/text", *flags]
    (tmp_path / "workers").mkdir()
    try:
        start(tmp_path / "workers", [pool])
        there = subprocess.run(
            [sys.executable, "-m", "beam_jobs", *job],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={**os.environ, **cloud.environment},
            timeout=600,
        )
    finally:
        stop(tmp_path / "workers")
    assert there.returncode == 0, there.stderr
    here = [flag.replace("gs://data/in", str(cloud.inputs)) for flag in JOBS["text"]]
    assert main(["text", *here, "--output", f"{tmp_path}/here", "--direct_num_workers=1"]) == 0
    downloaded = cloud.download("text", tmp_path / "there")
    folder = folder_of(downloaded).name
    assert without_inputs(downloaded) == without_inputs(tmp_path / "here")
    taken, lines = cloud.service.named("whole"), there.stderr.splitlines()
    page = f"{CONSOLE}{taken.id}?project=a-project"
    assert f"Dataflow runs the job as {taken.id}: {page}" in lines
    assert f"1 rejected, listed in gs://data/text/{folder}/rejects/" in lines
    assert "Traceback" not in there.stderr and "error" not in there.stderr

    assert taken.path == "/v1b3/projects/a-project/locations/europe-west4/jobs"
    assert taken.headers["Authorization"] == f"Bearer {TOKEN}"
    key = json.loads(Path(cloud.environment["GOOGLE_APPLICATION_CREDENTIALS"]).read_text())
    sent = json.dumps(taken.posted).encode() + cloud.service.staged(taken.options["pipelineUrl"])
    for secret in (TOKEN, "PRIVATE KEY", key["private_key"][100:140], key["client_email"]):
        assert secret.encode() not in sent

    (package,) = taken.posted["environment"]["workerPools"][0]["packages"]
    staged = package["location"].replace("storage.googleapis.com", "gs:/")
    with tarfile.open(fileobj=io.BytesIO(cloud.service.staged(staged))) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    code = {"beam_jobs/engines/worker.py", "readers/format/schema.py"}
    assert {"setup.py", "README.md", *code} <= names
    assert not [name for name in names if name.startswith(("tests", "docs", "benchmarks"))]


def error_of(log):
    """The one line about a failure, which comes last."""
    lines = log.splitlines()
    assert [line for line in lines if line.startswith("error: ")] == lines[-1:], log
    assert "Traceback" not in log
    return lines[-1].removeprefix("error: ")


FENCED = (
    "Error message from worker: generic::unknown: Traceback (most recent call last):\n"
    '  File "/usr/local/lib/python3.11/site-packages/beam_jobs/plan.py", line 1, in process\n'
    "beam_jobs.errors.UsageError: --input gs://data/x: no file matches"
    f" [while running 'Sensors/Read/Plan/Draft-ptransform-30']{PASSED_THROUGH}"
)
UNFORESEEN = (
    'Traceback (most recent call last):\n  File "x.py", line 1\n'
    f"KeyError: 'x' [while running 'Write']{PASSED_THROUGH}"
)
STOCKOUT = "Startup of the worker pool in zone europe-west4-a failed: ZONE_RESOURCE_POOL_EXHAUSTED"
# Beam only checks options for Google's own service.
GOOGLES = "--dataflow_endpoint=https://dataflow.googleapis.com"
CONSOLE = "https://console.cloud.google.com/dataflow/jobs/europe-west4/"


@pytest.mark.parametrize(
    ("state", "text", "kind", "line"),
    [
        ("FAILED", FENCED, UsageError, "--input gs://data/x: no file matches"),
        (
            "FAILED",
            UNFORESEEN,
            DataError,
            "the job 7 ended as FAILED: KeyError: 'x' [while running",
        ),
        ("FAILED", STOCKOUT, DataError, f"the job 7 ended as FAILED: {STOCKOUT}; no dataset was"),
        ("FAILED", "", DataError, "the job 7 ended as FAILED: the service gives no reason; no"),
        (
            "CANCELLED",
            "",
            DataError,
            "the job 7 was cancelled; no dataset was written; run the same",
        ),
    ],
    ids=["fenced", "unforeseen", "stockout", "silent", "cancelled"],
)
def test_the_end_of_a_job_is_one_line(state, text, kind, line):
    with pytest.raises(kind) as caught:
        dataflow._check_end(state, "7", "page", text)
    assert caught.value.message.startswith(line)
    dataflow._check_end("DONE", "7", "page", "")


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (Answer(text=UNFORESEEN), "the job {id} ended as FAILED: KeyError: 'x' [while running"),
        (Answer(state="JOB_STATE_DONE"), "the runner reports success, but "),
    ],
    ids=["failed", "nothing-written"],
)
def test_a_job_that_fails_is_reported_in_one_line(cloud, driver, capfd, answer, line):
    cloud.service.answers["ends"] = answer
    assert driver("ends") == 1
    found = error_of(capfd.readouterr().err)
    assert found.startswith(line.format(id=cloud.service.named("ends").id)), found


def test_a_refused_job_is_reported_in_one_line_and_not_sent_again(cloud, driver, capfd):
    cloud.service.answers["refused"] = Answer(403, "The caller does not have permission")
    posts = cloud.service.posts
    assert driver("refused") == 2
    found = error_of(capfd.readouterr().err)
    assert found.startswith("Dataflow rejected the job: 403 ") and "not have permission" in found
    assert "check --project, --region" in found
    assert cloud.service.posts == posts + 1


def test_an_interrupted_driver_reports_that_the_job_continues(cloud, driver, capfd, monkeypatch):
    monkeypatch.setattr(watch, "_LINE_SECONDS", 0.02)
    monkeypatch.setattr(watch, "_POLL_SECONDS", 0.01)
    cloud.service.answers["long"] = Answer(state="JOB_STATE_RUNNING")
    log = ""

    def wait(_):
        """Presses Ctrl-C once a line was printed."""
        nonlocal log
        log += capfd.readouterr().err
        time.sleep(0.02)
        if "\nrunning for 0" in log:
            signal.raise_signal(signal.SIGINT)

    driver.clock.sleep = wait
    assert driver("long") == 130
    found = error_of(capfd.readouterr().err)
    job = cloud.service.named("long").id
    assert found.startswith(
        f"interrupted, but the job {job} continues: follow it at {CONSOLE}{job}"
    )
    cancel = f"gcloud dataflow jobs cancel {job} --region=europe-west4 --project=a-project"
    assert f"`{cancel}`" in found


def test_lost_contact_with_the_service_is_reported_in_one_line(cloud, driver, capfd, monkeypatch):
    cloud.service.answers["long"] = Answer(state="JOB_STATE_RUNNING")
    monkeypatch.setattr(cloud.service, "get", lambda _: (403, {"error": {"message": "expired"}}))
    assert driver("long") == 1
    job = cloud.service.named("long").id
    found = error_of(capfd.readouterr().err)
    assert (
        found.startswith(f"lost contact with Dataflow about the job {job} (") and "expired" in found
    )
    assert found.endswith(f"it may continue: follow it at {CONSOLE}{job}?project=a-project")


def test_a_driver_need_not_wait(cloud, driver, capfd):
    cloud.service.answers["long"] = Answer(state="JOB_STATE_RUNNING")
    assert driver("long", "--no_wait_until_finish") == 0
    printed, log = capfd.readouterr()
    job = cloud.service.named("long").id
    assert printed == ""
    (page,) = log.splitlines()[-1:]
    assert page.startswith(f"Dataflow runs the job as {job}: {CONSOLE}{job}?project=")


def test_a_template_is_described_and_not_run(cloud, driver, capfd):
    posts = cloud.service.posts
    assert driver("described", "--template_location=gs://data/templates/job") == 0
    log = capfd.readouterr().err
    assert log == "the job is described in gs://data/templates/job; nothing has run\n"
    assert cloud.service.posts == posts
    described = json.loads(cloud.service.staged("gs://data/templates/job"))
    assert described["name"] == "described"
    assert described["environment"]["workerPools"][0]["workerHarnessContainerImage"] == IMAGE


@pytest.mark.parametrize(
    ("arguments", "more", "line"),
    [
        ({"output": "{here}/o"}, [], "--output {here}/o: Dataflow's workers cannot see paths"),
        ({}, ["--input={here}/x"], "--input "),
        ({"image": ""}, [], "--runner DataflowRunner: the workers would not have this package"),
        ({"image": ""}, ["--setup_file=setup.cfg"], "--setup_file setup.cfg: expected the"),
        ({}, ["--temp_location=gs://nowhere/t"], "--temp_location gs://nowhere/t: bucket nowhere"),
        (
            {},
            ["--temp_location=gs://no!/t"],
            "--temp_location gs://no!/t: bucket no! cannot be used",
        ),
        ({}, ["--project=A Project", GOOGLES], "Invalid Project ID (A Project)."),
    ],
)
def test_a_job_that_cannot_run_is_refused_before_anything_is_sent(
    cloud, driver, capfd, tmp_path, arguments, more, line
):
    before, posts = cloud.names("tmp"), cloud.service.posts
    arguments = {name: value.format(here=tmp_path) for name, value in arguments.items()}
    code = driver("mistaken", *(flag.format(here=tmp_path) for flag in more), **arguments)
    assert code == 2
    assert error_of(capfd.readouterr().err).startswith(line.format(here=tmp_path))
    assert (cloud.names("tmp"), cloud.service.posts) == (before, posts)


@pytest.mark.parametrize(
    ("arguments", "more"),
    [
        ({"output": "{here}/o"}, []),
        ({}, ["--input={here}/x"]),
        ({"image": ""}, []),
        ({}, ["--temp_location="]),
    ],
)
def test_no_bucket_is_made_for_a_job_that_is_refused(
    driver, tmp_path, monkeypatch, arguments, more
):
    def made(options):
        raise AssertionError("a bucket was made")

    monkeypatch.setattr("apache_beam.io.gcp.gcsio.get_or_create_default_gcs_bucket", made)
    arguments = {name: value.format(here=tmp_path) for name, value in arguments.items()}
    flags = ["--temp_location=none", GOOGLES, *(flag.format(here=tmp_path) for flag in more)]
    assert driver("mistaken", *flags, **arguments) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_does_not_answer_is_one_line_in_seconds(driver, capfd, monkeypatch):
    monkeypatch.setattr(dataflow, "_SECONDS_TO_ANSWER", 0.2)
    with socket.create_server(("localhost", 0)) as silent:  # It accepts requests, and is silent.
        address = f"http://localhost:{silent.getsockname()[1]}"
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", address)
        assert driver("silent") == 2
    found = error_of(capfd.readouterr().err)
    assert found.startswith(
        "--temp_location gs://data/tmp: bucket data cannot be used (Timeout of 0.2s"
    )
    assert "a network that reaches it, and credentials: run `gcloud auth" in found
