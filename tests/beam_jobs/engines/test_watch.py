"""Jobs on engines: what their commands print, what finds them again, and what Ctrl-C does."""

import io
import json
import shutil
import time
from types import SimpleNamespace

import grpc
import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.local_job_service import LocalJobServicer
from apache_beam.runners.portability.portable_runner import PipelineResult
from apache_beam.runners.runner import PipelineState

from beam_jobs.dataset.lease import note_remote
from beam_jobs.dataset.output import Output
from beam_jobs.engines import flink, watch
from beam_jobs.engines.flags import job_name
from beam_jobs.engines.flink import FlinkJob, NoAnswer, RemoteJob
from beam_jobs.engines.watch import Watch, phase_line
from beam_jobs.engines.worker_progress import Phase, WorkerProgress
from beam_jobs.errors import UsageError
from beam_jobs.plan.placement import Placement, Splits
from readers.format.schema import Schema
from tests.engines.services import free_ports
from tests.support.commands import refused, run

JOB = RemoteJob("mine", "host:8099", "beam-1", FlinkJob("http://host:8081", "12ab"))


@pytest.mark.parametrize(
    ("phase", "line"),
    [
        (Phase(began=100), "reading"),
        (Phase("B", 5000, 0, began=100), "reading: 0 B of 4.9 KiB"),
        (
            Phase("records", 1000, 300, 2, began=100),
            "reading: 300 of 1,000 records, 30/s, 00:23 left, 2 rejected",
        ),
        (Phase("files", 0, 70, began=100), "reading: 70 files, 7/s"),
        (Phase("records", 1000, 1000, began=100), "reading: 1,000 of 1,000 records"),
        (Phase("records", 1000, 1200, began=100), "reading: 1,200 records, 120/s"),
    ],
)
def test_lines_show_what_is_done_how_fast_and_how_long_it_takes(phase, line):
    assert phase_line("reading", phase, 110.0) == line


def test_a_line_says_that_nothing_changes():
    phase = Phase("records", 1000, 300, began=100)
    line = "reading: 300 of 1,000 records, nothing new for 00:40"
    assert phase_line("reading", phase, 150.0, unchanged=40.0) == line


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(watch, "_LINE_SECONDS", 0.02)
    monkeypatch.setattr(watch, "_POLL_SECONDS", 0.01)
    for name in ("_SECONDS_TO_LIST", "_SECONDS_TO_CANCEL"):
        monkeypatch.setattr(watch, name, 0.05)
    monkeypatch.setattr(flink, "SECONDS_TO_END", 0.0)


class Followed:
    """A job of the name `mine` that was submitted to a job service, and writes the first of four shards."""

    def __init__(self, engine, page="", staging="", endpoint="localhost:8099"):
        self.printed, self.notes = io.StringIO(), []
        options = PipelineOptions(["--job_name=mine", f"--job_endpoint={endpoint}"])
        follow = engine, page, str(staging), lambda: (1, 4), self.notes.append
        self.watch = Watch(options, *follow, self.printed)
        self.watch.submitted("beam-1")

    def until(self, text):
        deadline = time.monotonic() + 30
        while text not in self.printed.getvalue():
            assert time.monotonic() < deadline, self.printed.getvalue()
            time.sleep(0.01)


def test_a_job_on_flink_is_followed_and_cancelled(service, quick, tmp_path):
    service.add("mine", "an older one", "FINISHED")
    job = Followed("flink", service.address, tmp_path)
    job.watch.begin()
    job.until("\nrunning for 00:")
    service.add("mine", "12ab")
    WorkerProgress(str(tmp_path)).advance("listing", 7, 0)
    job.until("listing: 7 files, nothing new for 00:")
    answer = service.answers.pop("/jobs/12ab")
    job.until(f"\nFlink at {service.address} answers 404 (Not Found); 1 of 4 shards\n")
    service.answers["/jobs/12ab"] = answer
    shutil.rmtree(tmp_path / "progress")
    job.until("\nfinishing; 1 of 4 shards\n")
    assert job.watch.cancel(None) == (
        "interrupted; the job mine (12ab) ended as CANCELED; no dataset was written; run the same command "
        "again: it keeps the shards that are done"
    )
    printed = job.printed.getvalue()
    assert printed.startswith("the job mine (beam-1) was submitted\n")
    page = f"{service.address}/#/job/running/12ab/overview"
    assert f"\nFlink runs the job mine (12ab): {page}\n" in printed
    assert service.cancelled == ["12ab"]
    submitted = RemoteJob("mine", "localhost:8099", "beam-1")
    there = FlinkJob(service.address, "12ab")
    assert job.notes == [submitted, submitted._replace(flink=there)]


def test_a_job_is_not_submitted_while_flink_runs_an_earlier_one_of_the_same_output(service, quick):
    service.add("mine", "12ab")
    with pytest.raises(UsageError) as caught:
        Followed("flink", service.address)
    assert caught.value.message.startswith(
        f"Flink already runs the job mine (12ab) of an earlier command: {service.address}/#/job/running/12ab"
    )
    assert f"or cancel it with `curl -X PATCH '{service.address}/jobs/12ab?mode=" in str(
        caught.value
    )
    service.answers["/jobs/12ab"]["state"] = "FINISHED"  # The list is some seconds old.
    Followed("flink", service.address)


def test_one_of_two_new_jobs_of_a_name_is_not_believed(service, quick):
    job = Followed("flink", service.address)
    for id_ in ("12ab", "34cd"):
        service.add("mine", id_)
    job.watch.locate()
    assert "Flink runs" not in job.printed.getvalue()


def test_a_page_at_which_nothing_answers_is_a_mistake():
    with pytest.raises(UsageError, match=r"^--engine_page: Flink does not answer"):
        Followed("flink", "http://localhost:1")


class Silent(grpc.RpcError):
    """What gRPC raises if a job service has died."""

    def details(self):
        return "failed to connect"


REFUSED = RuntimeError(
    "Pipeline a failed in state FAILED: java.net.ConnectException: Connection refused"
)
WRITTEN = "; 1 of 4 shards are written, and no dataset; "
AGAIN = "run the same command again: it keeps the shards that are done"


def test_one_line_says_that_flink_does_not_answer_what_is_written_and_what_to_type(service, quick):
    job = Followed("flink", service.address)
    service.add("mine", "12ab")
    job.watch.locate()
    assert job.watch.lost(ValueError("its own")) is None
    lost = job.watch.lost(Silent()).message
    there = f"the job mine (12ab) continues: {service.address}/#/job/running/12ab/overview"
    assert lost.startswith(
        f"the job service at localhost:8099 does not answer (failed to connect): {there}{WRITTEN}when it "
        f"has ended, {AGAIN}"
    )
    service.close()
    lost = job.watch.lost(REFUSED).message
    assert lost == (
        f"Flink does not answer at {service.address} (Connection refused): the job mine (12ab) is lost or "
        f"unreachable{WRITTEN}start Flink, and {AGAIN}"
    )


def test_a_cluster_of_unknown_address_that_does_not_answer_is_named_by_its_job_service(quick):
    job = Followed("spark")
    assert job.watch.lost(ValueError("its own")) is None
    assert job.watch.lost(REFUSED).message.startswith(
        f"the cluster does not answer the job service at localhost:8099: the job mine (beam-1) may continue{WRITTEN}"
    )


def test_a_job_that_flink_does_not_stop_may_continue(service, quick, monkeypatch):
    job = Followed("flink", service.address)
    service.add("mine", "12ab")
    monkeypatch.setattr(FlinkJob, "cancel", lambda _: None)
    line = job.watch.cancel(None)
    assert line.startswith("interrupted; the job mine (12ab) may continue: it has not ended in ")
    assert line.endswith(
        f"cancel it with `curl -X PATCH '{service.address}/jobs/12ab?mode=cancel'`"
    )


def test_a_job_on_a_flink_of_unknown_address_may_continue(quick):
    job = Followed("flink", endpoint="localhost:1")
    page = "Flink's page is unknown: add --engine_page http://JOBMANAGER:8081"
    assert page in job.printed.getvalue()
    line = job.watch.cancel(None)
    assert line.startswith("interrupted; the job mine (beam-1) may continue: Beam's job service ")
    assert page in line and line.endswith("cancel this one on the cluster with `flink cancel`")


def test_other_jobs_are_cancelled_by_their_job_service(quick):
    asked = []
    job = Followed("spark")
    job.watch.begin()
    job.until("; 1 of 4 shards\n")
    running = SimpleNamespace(cancel=lambda: asked.append(1), state=PipelineState.RUNNING)
    assert "may continue: it has not ended in" in job.watch.cancel(running)
    ended = SimpleNamespace(cancel=lambda: asked.append(2), state=PipelineState.CANCELLED)
    assert job.watch.cancel(ended).startswith("interrupted; the job mine (beam-1) ended as CANCEL")
    done = SimpleNamespace(cancel=lambda: asked.append(3), state=PipelineState.DONE)
    assert job.watch.cancel(done).endswith(" ended as DONE; the dataset is complete")
    assert asked == [1, 2, 3]


@pytest.mark.parametrize("job", [JOB, JOB._replace(flink=None)])
def test_a_job_is_found_again_from_its_note(job):
    assert RemoteJob.parse(job.to_bytes()) == job


@pytest.mark.parametrize("note", [b"", b"[]", b'{"name": "x"}', b'["a", "b", "c", [3]]', b"\xff"])
def test_anything_else_is_no_note(note):
    assert RemoteJob.parse(note) is None


@pytest.fixture
def flags(tmp_path):
    """The flags of a job of ten recordings into four shards, but for its output."""
    for number in range(10):
        np.save(tmp_path / f"{number}.npy", np.zeros(number + 1, np.float32))
    return ["sensors", "--input", f"{tmp_path}/*.npy", "--label", "none", "--num_shards", 4]


def test_a_second_command_is_refused_while_the_job_of_an_ended_one_runs(
    flags,
    tmp_path,
    capsys,
    service,
    quick,
):
    out = tmp_path / "out"
    service.add("mine", "12ab")
    job = JOB._replace(flink=FlinkJob(service.address, "12ab"))
    schema = Schema({"x": ("int64", ())})
    ended = Output(str(out), schema, Placement(0, Splits()), (0,), run="0123abcd")
    note_remote(ended, job.to_bytes())
    said = rf"the job mine \(12ab\) is writing here, .*; {service.address}/#/job/running/12ab"
    refused(capsys, 2, said, *flags, "--output", out)
    service.answers["/jobs/12ab"]["state"] = "FAILED"
    assert not job.runs()


@pytest.fixture
def job_server():
    servicer = LocalJobServicer()
    port = servicer.start_grpc_server()
    yield f"localhost:{port}"
    servicer.stop()


def test_a_job_service_that_does_not_know_a_job_or_does_not_answer_says_nothing(job_server):
    for service_ in (job_server, f"localhost:{free_ports(1)[0]}", ""):
        with pytest.raises(NoAnswer, match=f"^{service_} does not answer "):
            RemoteJob("mine", service_, "beam-1").runs()


LOOPBACK = ["--environment_type", "LOOPBACK"]


@pytest.fixture
def there(job_server, monkeypatch):
    """The flags that send a job to a job service, whose lines appear at once."""
    monkeypatch.setattr(watch, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(watch, "_LINE_SECONDS", 0.05)
    return ["--runner", "PortableRunner", "--job_endpoint", job_server, *LOOPBACK]


def test_a_job_behind_a_job_service_says_that_it_runs(flags, tmp_path, capsys, there, monkeypatch):
    out, wait, said = tmp_path / "out", PipelineResult.wait_until_finish, ""

    def noted_late(result):
        nonlocal said
        wait(result)
        (own,) = (out / ".staging").iterdir()
        (own / "job").write_bytes(JOB.to_bytes())
        deadline = time.monotonic() + 60
        while "\nrunning for 0" not in said:
            assert time.monotonic() < deadline, said
            said += capsys.readouterr().err
            time.sleep(0.01)

    monkeypatch.setattr(PipelineResult, "wait_until_finish", noted_late)
    assert run(*flags, "--output", out, *there) == 0
    assert not (out / ".staging").exists()
    first, *_ = said.splitlines()
    assert first.startswith("the job beam-shards-sensors-") and first.endswith(" was submitted")


def test_an_interrupted_command_has_its_job_service_cancel_the_job(
    flags, tmp_path, capsys, there, monkeypatch
):
    def interrupted(result):
        raise KeyboardInterrupt

    monkeypatch.setattr(PipelineResult, "wait_until_finish", interrupted)
    assert run(*flags, "--output", tmp_path / "out", *there) == 130
    assert " ended as CANCELLED; no dataset was written; run the same" in capsys.readouterr().err


def test_a_job_that_nobody_waits_for_is_completed(flags, tmp_path, capsys, there, monkeypatch):
    # Its workers are those of the test, which does not end.
    monkeypatch.setattr("beam_jobs.cli.command.NO_WAIT", "")
    out = tmp_path / "out"
    assert run(*flags, "--output", out, *there, "--no_wait_until_finish", "--json") == 0
    assert json.loads(capsys.readouterr().out)["complete"] is False
    deadline = time.monotonic() + 60
    while not (out / "manifest.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


ENDPOINT = ["--job_endpoint", "h:1"]


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ([], "Beam's job service ends with the command: add --job_endpoint"),
        ([*ENDPOINT, *LOOPBACK], "the workers of --environment_type LOOPBACK end with the command"),
    ],
)
def test_a_job_that_would_end_with_its_command_is_not_left(flags, tmp_path, capsys, more, line):
    left = ["--engine", "flink", "--no_wait_until_finish", *more]
    refused(capsys, 2, f"--no_wait_until_finish: {line}", *flags, "--output", tmp_path / "o", *left)


@pytest.mark.parametrize(
    ("output", "name"),
    [
        ("/data/Shards_1", "beam-shards-text-data-shards-1"),
        ("gs://bucket/a.b/", "beam-shards-text-gs-bucket-a-b"),
        ("/日本", "beam-shards-text"),
    ],
)
def test_the_name_of_a_job_has_the_characters_that_dataflow_allows(output, name):
    assert job_name("text", output) == name
