"""`python -m beam_jobs status`: what becomes of a dataset, from its notes and the engine."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest

from beam_jobs.cli.status import Status, lines_of
from beam_jobs.dataset.directory import note_submitted, submitted
from beam_jobs.dataset.reservation import reserved
from beam_jobs.dataset.resume import noted_shards
from beam_jobs.engines.remote.job import RemoteJob, Seen
from beam_jobs.engines.remote.lines import Shards
from tests.engines.services import free_ports
from tests.support.checkout import ROOT
from tests.support.commands import IN_MEMORY, interrupted, refused, run

JOB = RemoteJob("flink", "beam-shards-text-o", "host:8099", "beam-1", "http://host:8081", "12ab")
RUNS, FAILED = Seen("running"), Seen("failed", trace="a.B: c\n\tat d.E.f(E.java:3)")


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (Status(complete=True), "complete"),
        (Status(complete=True, job=JOB, seen=Seen("done")), "complete"),
        (Status(complete=True, job=JOB, silence="x"), "complete"),
        (Status(complete=True, command="text", command_runs=True), "running"),
        (Status(complete=True, job=JOB, seen=RUNS), "running"),
        (Status(complete=True, leftovers=True), "unfinished"),
        (Status(leftovers=True, command="text", command_runs=True), "running"),
        (Status(leftovers=True, command="text", job=JOB, seen=RUNS), "running"),
        (Status(leftovers=True, command="text"), "unfinished"),
        (Status(leftovers=True, job=JOB, seen=FAILED), "unfinished"),
        (Status(leftovers=True, job=JOB, silence="x"), "unknown"),
        (Status(job=JOB, seen=Seen("starting")), "running"),
    ],
)
def test_the_state_of_a_dataset(status, state):
    assert status.state == state


def test_the_lines_about_a_job_that_failed():
    found = Status(
        complete=True, leftovers=True, shards=Shards(3, 10), command="x", job=JOB, seen=FAILED
    )
    assert lines_of("/o", found, "") == [
        "unfinished: the job beam-shards-text-o (12ab) on Flink, "
        "http://host:8081/#/job/running/12ab/overview",
        "3 of 10 shards noted",
        "Flink reports it as failed: a.B: c",
        "its command was killed: x",
        "the dataset from before is complete",
        "run the same command again: it keeps the shards that are done",
    ]


def test_the_lines_about_a_job_whose_command_has_ended():
    job = RemoteJob("prism", "beam-shards-text-o", "host:8073", "job-1")
    assert lines_of("/o", Status(job=job, seen=RUNS), "encoding: 3 of 4 records") == [
        "running: the job beam-shards-text-o (job-1) on Prism, the job service host:8073",
        "encoding: 3 of 4 records",
        "its command has ended, and the job does not need it",
    ]


def test_shards_are_counted_by_their_notes():
    names = [
        ".staging/train-00000-of-00008.tfrecord.done",
        ".staging/next/.staging/train-00007-of-00008.tfrecord.done",
        ".staging/a-b-00000-of-00001.tfrecord.done",
        ".staging/UNFINISHED",
        "train-00000-of-00008.tfrecord",
        "train-00000-of-00008.tfrecord.idx",
    ]
    assert noted_shards(names) == (3, 9)
    assert noted_shards([]) == (0, 0)


@pytest.fixture
def flags(tmp_path):
    """The flags of a job of ten recordings into four shards, but for its output."""
    for number in range(10):
        np.save(tmp_path / f"{number}.npy", np.zeros(number + 1, np.float32))
    inputs = ["--input", f"{tmp_path}/*.npy", "--label", "none", "--num_shards", 4]
    return ["sensors", *inputs, *IN_MEMORY]


def status(capsys, out, *more):
    """The exit code and the object of `status --json`."""
    capsys.readouterr()
    code = run("status", out, "--json", *more)
    return code, json.loads(capsys.readouterr().out)


def test_a_complete_dataset(flags, tmp_path, capsys):
    out = tmp_path / "out"
    assert run(*flags, "--output", out) == 0
    code, found = status(capsys, out)
    assert (code, found["state"], found["exit_code"]) == (0, "complete", 0)
    assert found["job"] is None and found["engine"] is None
    assert run("status", out) == 0
    shown = capsys.readouterr().out
    assert shown == f"complete: python -m readers head {out} shows records\n"
    assert run("status", out, "--follow") == 0


def test_an_unfinished_dataset(flags, tmp_path, capsys):
    out = tmp_path / "out"
    interrupted(*flags, "--output", out)
    code, found = status(capsys, out)
    assert (code, found["state"]) == (1, "unfinished")
    assert (found["shards_done"], found["shards_planned"]) == (4, 4)
    assert run("status", out) == 1
    first, shards, again = capsys.readouterr().out.splitlines()
    assert (first, shards) == ("unfinished: no job runs", "4 of 4 shards noted")
    assert again == "run the same command again: it keeps the shards that are done"


def test_a_running_command(tmp_path, capsys):
    out = tmp_path / "out"
    with reserved(str(out), "sensors"):
        code, found = status(capsys, out)
        assert (code, found["state"], found["command_runs"]) == (3, "running", True)
        assert run("status", out) == 3
        first, second = capsys.readouterr().out.splitlines()
    assert re.match(r"running: sensors, started at [\d :-]+ as process \d+ of ", first)
    assert second == "running"


KILLED = """
import os, signal, sys
from beam_jobs.dataset.reservation import reserved
with reserved(sys.argv[1], "sensors"):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_command(tmp_path, capsys):
    out = tmp_path / "out"
    subprocess.run([sys.executable, "-c", KILLED, str(out)], cwd=ROOT)
    code, found = status(capsys, out)
    assert (code, found["state"], found["command_runs"]) == (1, "unfinished", False)
    assert found["command"].startswith("sensors, started at ")


def test_an_engine_that_does_not_answer_says_neither_that_a_job_runs_nor_that_it_ended(
    flags, tmp_path, capsys
):
    (port,) = free_ports(1)
    out = tmp_path / "out"
    out.mkdir()
    job = RemoteJob("prism", "beam-shards-text-o", f"localhost:{port}", "job-1")
    note_submitted(str(out), job.to_bytes())
    code, found = status(capsys, out)
    assert (code, found["state"]) == (4, "unknown")
    assert found["silence"].startswith(f"the job service localhost:{port} does not answer")
    assert run("status", out, "--cancel") == 3
    assert "may continue" in capsys.readouterr().out
    # It keeps nobody out, and the next dataset has no note.
    assert run(*flags, "--output", out) == 0
    assert submitted(str(out)) is None and not (out / ".staging").exists()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "the following arguments are required: DIR"),
        (["{out}"], "{out}: no job has written here, and there is no dataset"),
        (["{out}", "--seed", "3"], "unknown argument --seed"),
        (["{out}/*"], "expected a path without"),
    ],
)
def test_mistakes_are_named(tmp_path, capsys, arguments, line):
    out = str(tmp_path / "out")
    found = [argument.format(out=out) for argument in arguments]
    refused(capsys, 2, re.escape(line.format(out=out)), "status", *found)


def test_a_job_that_is_on_no_engine_cannot_be_cancelled(flags, tmp_path, capsys):
    out = tmp_path / "out"
    assert run(*flags, "--output", out) == 0
    refused(capsys, 2, "no job on an engine is noted here", "status", out, "--cancel")


def test_the_help_states_the_exit_codes(capsys):
    with pytest.raises(SystemExit) as caught:
        run("status", "--help")
    shown = capsys.readouterr().out
    assert caught.value.code == 0 and "3 a job runs" in shown and "--follow" in shown


@pytest.mark.parametrize(
    ("flags_", "line"),
    [
        ([], "--detach: a job on this machine ends with its command: add --engine"),
        (["--engine", "flink"], "--detach: the job service that Beam starts ends with the command"),
        (
            ["--engine", "flink", "--job_endpoint", "h:1", "--environment_type", "LOOPBACK"],
            "--detach: the workers of --environment_type LOOPBACK end with the command",
        ),
    ],
)
def test_a_job_that_would_end_with_its_command_is_not_left(flags, tmp_path, capsys, flags_, line):
    arguments = [*flags[:7], *flags_, "--output", tmp_path / "o", "--detach"]
    refused(capsys, 2, re.escape(line), *arguments)
