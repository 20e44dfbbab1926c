"""Jobs on Dataflow: what is submitted, how it runs, and how it may end.

`dataflow_service.py` stands in for Google's service, an emulator for its store, and processes that
`beam-shards-worker` starts for its workers.
"""

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
import types
import urllib.parse
import urllib.request
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options import pipeline_options
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.dataflow import dataflow_runner
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from gcp_storage_emulator.server import create_server

from beam_jobs.__main__ import main
from beam_jobs.cli.command import parse_command
from beam_jobs.engines.remote import watch
from examples.samples import make_samples
from tests.engines.services import Service, free_ports, listens, start, stop
from tests.support.checkout import ROOT
from tests.support.dataflow_service import PASSED_THROUGH, TOKEN, Answer, DataflowService
from tests.support.datasets import files_of

IMAGE = "europe-west4-docker.pkg.dev/a-project/images/beam-shards:0.1.0"
QUIET = "--experiments=disable_logging_submission_environment"

JOBS = {
    "images": ["--input", "gs://data/in/images/**", "--image_size=16x16", "--num_shards=2"],
    "text": [
        *("--input", "gs://data/in/text/*.jsonl", "--label_field=label", "--tokens=words"),
        *("--splits", "train=0.8,val=0.2"),
    ],
    "sensors": [
        *("--input", "gs://data/in/sensors/**.npy", "--label=none", "--num_shards=3"),
        *("--splits", "train=0.8,val=0.2"),
    ],
}
# The jobs that are run there as a whole: one of files and one of texts.
SENT = {
    "images": [f"--sdk_container_image={IMAGE}"],
    "text": [f"--setup_file={ROOT}/setup.py", QUIET],
}


class Cloud:
    """A store with inputs, a service, and the environment of a driver that uses both."""

    def __init__(self, store, service, key, inputs):
        self.store, self.service, self.inputs = store, service, inputs
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
        (directory / "in/images/rings/bad.png").write_bytes(b"no image")
        found = Cloud(f"http://localhost:{port}", service, key, directory / "in")
        for path in found.inputs.rglob("*"):
            if path.is_file():
                found.put(f"in/{path.relative_to(found.inputs)}", path.read_bytes())
        command = [sys.executable, "-m", "apache_beam.runners.worker.worker_pool_main"]
        command += [f"--service_port={workers}"]
        command += [f"--container_executable={Path(sys.executable).parent}/beam-shards-worker"]
        pool = Service("workers", command, lambda: listens(workers), found.environment)
        try:
            start(directory, [pool])
            yield found
        finally:
            stop(directory)
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


class Submission:
    """A driver in its own process, with its output."""

    def __init__(self, cloud, job):
        self.job, self._cloud = job, cloud
        command = [sys.executable, "-m", "beam_jobs", job, *JOBS[job], *SENT[job]]
        self.process = subprocess.Popen(
            [*command, f"--output=gs://data/{job}", *cloud.flags(f"whole-{job}")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **cloud.environment},
        )

    def end(self):
        self.printed, self.log = self.process.communicate(timeout=600)
        self.code = self.process.returncode
        self.taken = self._cloud.service.named(f"whole-{self.job}")
        self.environment = self.taken.posted["environment"]
        return self


@pytest.fixture(scope="module")
def submitted(cloud):
    """Both jobs, submitted at once."""
    begun = [Submission(cloud, job) for job in SENT]
    try:
        yield {submission.job: submission.end() for submission in begun}
    finally:
        for submission in begun:
            submission.process.kill()


def without_inputs(directory):
    """The files of a dataset, without the paths of its inputs in the manifest."""
    path = directory / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["options"]["input"]
    path.write_text(json.dumps(manifest))
    return files_of(directory)


@pytest.mark.slow
@pytest.mark.parametrize("job", SENT)
def test_a_whole_submission_writes_the_same_bytes_as_this_machine(cloud, submitted, tmp_path, job):
    there = submitted[job]
    assert there.code == 0, there.log
    here = [flag.replace("gs://data/in", str(cloud.inputs)) for flag in JOBS[job]]
    assert main([job, *here, "--output", f"{tmp_path}/here", "--direct_num_workers=1"]) == 0
    downloaded = cloud.download(job, tmp_path / "there")
    assert without_inputs(downloaded) == without_inputs(tmp_path / "here")
    assert len(there.printed.splitlines()) == 1 + len(list(downloaded.glob("*-00000-*.idx")))


@pytest.mark.slow
@pytest.mark.parametrize("job", SENT)
def test_the_driver_prints_the_address_of_the_job_and_the_messages_of_the_service(submitted, job):
    there = submitted[job]
    console = f"https://console.cloud.google.com/dataflow/jobs/europe-west4/{there.taken.id}"
    lines = there.log.splitlines()
    assert f"Dataflow runs the job as {there.taken.id}: {console}?project=a-project" in lines
    assert any("Worker configuration: n1-standard-1" in line for line in lines)
    assert "Traceback" not in there.log and "error" not in there.log
    rejected = ["1 rejected, listed in gs://data/images/rejects/"] if job == "images" else []
    assert [line for line in lines if "rejected" in line] == rejected


@pytest.mark.slow
@pytest.mark.parametrize("job", SENT)
def test_a_job_is_posted_with_its_image_files_and_options(submitted, job):
    there = submitted[job]
    assert there.taken.path == "/v1b3/projects/a-project/locations/europe-west4/jobs"
    assert there.taken.headers["Authorization"] == f"Bearer {TOKEN}"
    (pool,) = there.environment["workerPools"]
    (image,) = pool["sdkHarnessContainerImages"]
    beams = "gcr.io/cloud-dataflow/v1beta3/beam_python3.11_sdk:"
    assert image["containerImage"].startswith(beams if job == "text" else IMAGE)
    names = sorted(package["name"] for package in pool.get("packages", ()))
    packages = {"images": ["submission_environment_dependencies.txt"], "text": ["workflow.tar.gz"]}
    assert names == packages.get(job, [])
    options = there.taken.options
    assert options["pipelineUrl"].startswith(f"gs://data/tmp/whole-{job}.")
    assert options["save_main_session"] is False


@pytest.mark.slow
@pytest.mark.parametrize("job", SENT)
def test_no_credentials_are_sent(cloud, submitted, job):
    key = json.loads(Path(cloud.environment["GOOGLE_APPLICATION_CREDENTIALS"]).read_text())
    there = submitted[job]
    sent = json.dumps(there.taken.posted).encode() + cloud.service.staged(
        there.taken.options["pipelineUrl"]
    )
    for secret in (TOKEN, "PRIVATE KEY", key["private_key"][100:140], key["client_email"]):
        assert secret.encode() not in sent


@pytest.mark.slow
def test_setup_file_stages_only_the_package(cloud, submitted):
    (package,) = submitted["text"].environment["workerPools"][0]["packages"]
    staged = package["location"].replace("storage.googleapis.com", "gs:/")
    with tarfile.open(fileobj=io.BytesIO(cloud.service.staged(staged))) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    code = {"beam_jobs/engines/worker.py", "readers/format/schema.py"}
    assert {"setup.py", "README.md", *code} <= names
    assert not [name for name in names if name.startswith(("tests", "docs", "benchmarks"))]


def described(cloud, job):
    """The pipeline that would be submitted, from a dry run of Beam's."""
    flags = [*JOBS[job], f"--output=gs://data/dry-{job}", *cloud.flags("dry")]
    command = parse_command([job, *flags, QUIET])
    command.beam.view_as(pipeline_options.TestOptions).dry_run = True
    command.beam.view_as(pipeline_options.SetupOptions).save_main_session = False
    pipeline = beam.Pipeline(options=command.beam)
    pipeline | job.capitalize() >> command.transform
    return pipeline.run().job.proto_pipeline


@pytest.fixture(scope="module")
def graphs(cloud):
    """The graphs of all jobs, from dry runs, which leave store and service untouched."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in cloud.environment.items():
            patch.setenv(name, value)
        found = {job: described(cloud, job) for job in JOBS}
    assert not [name for name in cloud.names("") if "dry" in name]
    assert "dry" not in [job.posted["name"] for job in cloud.service.jobs]
    return found


def steps_of(graph):
    return {step.unique_name: step for step in graph.components.transforms.values()}


def is_beams(name):
    """Whether Beam named the step, not this package."""
    return name.startswith(("FlatMap(<lambda at core.py", "Map(decode)"))


@pytest.mark.slow
@pytest.mark.parametrize("job", JOBS)
def test_the_steps_of_a_graph_have_readable_names(graphs, job):
    graph = graphs[job]
    names = [name for name in steps_of(graph) if name.startswith(job.capitalize())]
    write = "Write" if job != "text" else "WriteRuns/Write"
    assert {write, "CommitDataset/Commit", "CommitDataset/TopUp/PlanMoves"} <= {
        name.partition("/")[2] for name in names
    }
    own = [name for name in names if not is_beams(name.rpartition("/")[2])]
    assert not [name for name in own if "lambda" in name or "object at" in name]


@pytest.mark.parametrize("job", JOBS)
def test_a_graph_contains_no_inputs_and_nothing_large(cloud, graphs, job):
    graph = graphs[job]
    largest = max(len(step.spec.payload) for step in graph.components.transforms.values())
    assert largest < 16 << 10
    assert len(graph.SerializeToString()) < 256 << 10
    assert not [
        p for p in cloud.inputs.rglob("*.*") if p.name.encode() in graph.SerializeToString()
    ]


# The steps whose outputs every worker of another step holds: plans, names, words, counts, figures of
# shards, and a summary of each bundle of listed inputs, but never records or references to them.
SMALL = {
    *("Read/Plan/Summarise", "Read/Plan/Draft", "Read/Plan/PickBoundaries", "Read/Plan/Finish"),
    *("Read/Plan/CheckPasses", "Read/List", "Read/LabelNames", "Read/Vocabulary", "Read/Schema"),
    *(
        "Read/Cut",
        "Read/ListTasks/Cut",
        "Read/ListTasks/List",
        "Read/Plan/CutDraft",
        "Read/Plan/CutPlan",
        "Write",
        "WriteRuns/Write",
        "CommitDataset",
    ),
}


def test_side_inputs_are_plans_names_and_figures(graphs):
    for graph in graphs.values():
        makers = {
            pcollection: step.unique_name.partition("/")[2]
            for step in graph.components.transforms.values()
            if not step.subtransforms
            for pcollection in step.outputs.values()
        }
        for step in graph.components.transforms.values():
            if step.spec.urn == common_urns.primitives.PAR_DO.urn:
                payload = beam_runner_api_pb2.ParDoPayload.FromString(step.spec.payload)
                for tag in payload.side_inputs:
                    maker = makers[step.inputs[tag]]
                    cut = maker.endswith("/Cut")  # Something small in pieces.
                    assert cut or any(f"{maker}/".startswith(f"{s}/") for s in SMALL), maker


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


@pytest.mark.slow(base=["fenced", "drained"])
@pytest.mark.parametrize(
    ("answer", "code", "line"),
    [
        (Answer(text=FENCED), 2, "--input gs://data/x: no file matches"),
        (Answer(text=UNFORESEEN), 1, "the job {id} ended as FAILED: KeyError: 'x' [while running"),
        (Answer(text=STOCKOUT), 1, f"the job {{id}} ended as FAILED: {STOCKOUT}; no dataset was"),
        (Answer(), 1, "the job {id} ended as FAILED: the service does not say why; no dataset"),
        (Answer(state="JOB_STATE_CANCELLED"), 1, "the job {id} was cancelled; no dataset was"),
        (Answer(state="JOB_STATE_DRAINED"), 1, "the job {id} ended as DRAINED: "),
        (Answer(state="JOB_STATE_DONE"), 1, "the runner reports success, but "),
    ],
    ids=["fenced", "unforeseen", "stockout", "silent", "cancelled", "drained", "nothing-written"],
)
def test_a_job_that_fails_is_reported_in_one_line(cloud, driver, capfd, answer, code, line):
    cloud.service.answers["ends"] = answer
    assert driver("ends") == code
    found = error_of(capfd.readouterr().err)
    assert found.startswith(line.format(id=cloud.service.named("ends").id)), found


@pytest.mark.parametrize(
    ("status", "reason"), [(403, "The caller does not have permission"), (400, "bad image")]
)
def test_a_refused_job_is_reported_in_one_line_and_not_sent_again(
    cloud, driver, capfd, status, reason
):
    cloud.service.answers["refused"] = Answer(status, reason)
    posts = cloud.service.posts
    assert driver("refused") == 2
    found = error_of(capfd.readouterr().err)
    assert found.startswith(f"Dataflow refuses the job: {status} ") and reason in found
    assert "check --project, --region" in found
    assert cloud.service.posts == posts + 1


def test_an_interrupted_driver_reports_that_the_job_continues(cloud, driver, capfd):
    cloud.service.answers["long"] = Answer(state="JOB_STATE_RUNNING")
    driver.clock.sleep = lambda _: signal.raise_signal(signal.SIGINT)
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
    page, last = log.splitlines()[-2:]
    assert page.startswith(f"Dataflow runs the job as {job}: {CONSOLE}{job}?project=")
    assert last.startswith("not waiting for it; follow it with `python -m beam_jobs status gs://")


def status_of(cloud, capfd, output, *more):
    """The exit code and the object of `status --json` of a job on the service."""
    capfd.readouterr()
    reached = [f"--dataflow_endpoint={cloud.service.url}", "--no_auth"]
    code = main(["status", output, "--json", *reached, *more])
    return code, json.loads(capfd.readouterr().out)


def test_the_status_of_a_job_is_that_of_the_service(cloud, driver, capfd):
    cloud.service.answers["left"] = Answer(state="JOB_STATE_RUNNING")
    assert driver("left", "--detach", output="gs://data/left") == 0
    job = cloud.service.named("left")
    for name, value in {"records": 30, "bytes": 4096}.items():
        for tentative in ("true", "false"):
            context = {"namespace": "shards", "step": "s1", "tentative": tentative}
            counted = value if tentative == "true" else value // 2
            named = {"origin": "user", "name": name, "context": context}
            job.counters.append({"name": named, "scalar": counted})
    code, found = status_of(cloud, capfd, "gs://data/left")
    assert (code, found["state"], found["job"]["name"]) == (3, "running", "left")
    assert found["job"]["page"].startswith(f"{CONSOLE}{job.id}?project=a-project")
    assert found["engine"]["counters"] == {"shards/records": 30, "shards/bytes": 4096}
    assert driver("left", output="gs://data/left") == 2
    assert f"the job left ({job.id}) is writing here on Dataflow" in capfd.readouterr().err
    job.state = "JOB_STATE_FAILED"
    job.report(3, UNFORESEEN)
    code, found = status_of(cloud, capfd, "gs://data/left")
    assert (code, found["state"], found["engine"]["state"]) == (1, "unfinished", "failed")
    assert found["engine"]["cause"].startswith("KeyError: 'x' [while running 'Write']")


def test_a_job_that_is_followed_prints_lines(cloud, driver, capfd, monkeypatch):
    monkeypatch.setattr(watch, "_LINE_SECONDS", 0.1)
    monkeypatch.setattr(watch, "_POLL_SECONDS", 0.05)
    cloud.service.answers["counted"] = Answer(state="JOB_STATE_RUNNING")

    def wait(_):
        """Lets time pass, and ends the job once the counters were shown."""
        job = cloud.service.named("counted")
        if not job.counters:
            named = {"origin": "user", "name": "found", "context": {"namespace": "files"}}
            job.counters.append({"name": named, "scalar": 120})
        time.sleep(0.5)
        job.state = "JOB_STATE_CANCELLED"

    driver.clock.sleep = wait
    assert driver("counted") == 1
    assert "\nlisting: 120 files" in capfd.readouterr().err


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
        ({"output": "{here}/o"}, [], "--output {here}/o: this path is on this machine"),
        ({}, ["--input={here}/x"], "--input "),
        ({}, ["--template_location={here}/t"], "--template_location {here}/t: this path is"),
        ({"image": ""}, [], "--runner DataflowRunner: the workers would not have this package"),
        ({"image": ""}, ["--setup_file=setup.cfg"], "--setup_file setup.cfg: expected the"),
        ({}, ["--temp_location=gs://nowhere/t"], "--temp_location gs://nowhere/t: bucket nowhere"),
        ({}, ["--temp_location="], "--temp_location is missing: expected a folder"),
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
