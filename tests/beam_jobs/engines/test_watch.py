"""Jobs on engines: what their commands print, what finds them again, and what Ctrl-C does."""

import io
import json
import time
from types import SimpleNamespace

import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.local_job_service import LocalJobServicer
from apache_beam.runners.portability.portable_runner import PipelineResult
from apache_beam.runners.runner import PipelineState

from beam_jobs.dataset.lease import note_remote
from beam_jobs.dataset.output import Output
from beam_jobs.engines.flags import job_name
from beam_jobs.engines.remote import job as remote_job
from beam_jobs.engines.remote import watch
from beam_jobs.engines.remote.flink import FlinkJob, NoAnswer, Seen
from beam_jobs.engines.remote.job import RemoteJob
from beam_jobs.engines.remote.watch import Follow, Lines, Watch
from beam_jobs.plan.placement import Placement
from beam_jobs.plan.splits import Splits
from readers.format.schema import Schema
from tests.engines.services import free_ports
from tests.support.commands import refused, run

JOB = RemoteJob("mine", "host:8099", "beam-1", FlinkJob("http://host:8081", "12ab"))

FOUND = {"parts/found": 1000, "files/found": 9}


@pytest.mark.parametrize(
    ("counters", "phase"),
    [
        ({}, "running for 00:30"),
        ({"files/found": 7}, "listing: 7 files"),
        ({"files/found": 7, "files/planned": 5}, "planning: 5 of 7 files"),
        (FOUND, "reading: 1,000 records"),
        (FOUND | {"parts/encoded": 400}, "encoding: 400 of 1,000 records"),
        (FOUND | {"shards/records": 3, "shards/rejected": 2}, "writing: 5 of 1,000 records"),
        ({"files/found": 9, "shards/records": 3}, "writing: 3 of 9 records"),
    ],
)
def test_the_phase_of_a_job_is_the_last_one_that_has_counted_something(counters, phase):
    assert Lines(100).line(130, Seen(counters=counters), (0, 0)) == phase


def test_lines_show_what_is_done_how_fast_and_how_long_it_takes():
    lines = Lines(0)
    assert lines.line(0, Seen(0, 14), (0, 0)) == "running for 00:00; 0 of 14 stages"
    lines.line(10, Seen(4, 14, FOUND | {"parts/encoded": 100}), (0, 0))
    line = lines.line(20, Seen(5, 14, FOUND | {"parts/encoded": 400}), (3, 8))
    assert line == (
        "encoding: 400 of 1,000 records, 30/s, 00:20 left; 5 of 14 stages; 3 of 8 shards"
    )
    # A commit deletes the notes of shards.
    assert lines.line(30, Seen(), (0, 0)) == "running for 00:30; 3 of 8 shards"


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(watch, "_LINE_SECONDS", 0.02)
    monkeypatch.setattr(watch, "_POLL_SECONDS", 0.01)
    for name in ("_SECONDS_TO_LIST", "_SECONDS_TO_CANCEL"):
        monkeypatch.setattr(watch, name, 0.05)
    monkeypatch.setattr(remote_job, "_SECONDS_TO_END", 0.0)


class Followed:
    """A job of the name `mine` that was submitted to a job service."""

    def __init__(self, engine, page="", endpoint="host:8099"):
        self.printed, self.notes = io.StringIO(), []
        options = PipelineOptions(["--job_name=mine", f"--job_endpoint={endpoint}"])
        follow = Follow(engine, page, lambda: (1, 4), self.notes.append)
        self.watch = Watch(follow, options, self.printed)
        self.watch.submitted("beam-1")

    def until(self, text):
        deadline = time.monotonic() + 30
        while text not in self.printed.getvalue():
            assert time.monotonic() < deadline, self.printed.getvalue()
            time.sleep(0.01)


def test_a_job_on_flink_is_followed_and_cancelled(service, quick):
    service.add("mine", "an older one", "FINISHED")
    job = Followed("flink", service.address)
    job.watch.begin()
    job.until("; 1 of 4 shards\n")  # Flink does not list it yet.
    service.add("mine", "12ab", files__found=7)
    job.until("listing: 7 files; 1 of 3 stages; 1 of 4 shards\n")
    del service.answers["/jobs/12ab/accumulators"]
    job.until(f"1 of 4 shards; {service.address} does not answer (Not Found)\n")
    assert job.watch.cancel(None) == (
        "interrupted; the job mine (12ab) ended as CANCELED; no dataset was written; run the same command "
        "again: it keeps the shards that are done"
    )
    printed = job.printed.getvalue()
    assert printed.startswith("the job mine (beam-1) was submitted\n")
    page = f"{service.address}/#/job/running/12ab/overview"
    assert f"\nFlink runs the job mine (12ab): {page}\n" in printed
    assert service.cancelled == ["12ab"]
    submitted = RemoteJob("mine", "host:8099", "beam-1")
    flink = FlinkJob(service.address, "12ab")
    assert job.notes == [submitted, submitted._replace(flink=flink)]


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
    job = Followed("flink", "http://localhost:1")
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
    ("flag", "more", "line"),
    [
        ("--check", ["dataflow", "--template_location", "gs://b/t"], "--template_location"),
        ("--report", ["flink", "--output_executable_path", "a.jar"], "--output_executable_path"),
        ("--check", ["spark", *ENDPOINT, "--no_wait_until_finish"], "--no_wait_until_finish"),
    ],
)
def test_a_dataset_is_not_looked_at_before_it_is_complete(
    flags, tmp_path, capsys, flag, more, line
):
    given = [flag] if flag == "--check" else [flag, tmp_path / "report.html"]
    given += ["--engine"]
    said = (
        f"{flag}: with {line} the command ends before the dataset is complete; drop one, and run "
        f"`python -m readers {flag[2:]} DIR` when the job has ended"
    )
    refused(capsys, 2, said, *flags, "--output", tmp_path / "o", *given, *more)


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ([], "the job service that Beam starts ends with the command: add --job_endpoint"),
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
