"""Jobs survive or fail cleanly if parts of a Flink cluster die."""

import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import boto3
import pytest

from beam_jobs.__main__ import main
from beam_jobs.storage.atomic import list_files
from examples.samples import make_samples
from readers.verify import verify
from tests.engines.flink import Flink
from tests.engines.running import engine_of_module
from tests.engines.services import is_alive, pids, start
from tests.support.datasets import files_of

pytestmark = pytest.mark.engines

SHARDS = 30

flink = engine_of_module(Flink)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """The flags of a job that writes for some seconds, and the files of an undisturbed run."""
    folder = tmp_path_factory.mktemp("job")
    make_samples(folder / "samples", per_class=20)
    images = sorted((folder / "samples/images").rglob("*.*"))
    for number, image in enumerate(itertools.islice(itertools.cycle(images), 1200)):
        link = folder / "in" / image.parent.name / f"{number:04}{image.suffix}"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.hardlink_to(image)
    (folder / "in/rings/broken.png").write_bytes(b"not an image")
    flags = ["images", "--input", f"{folder}/in", "--image_size", "256x256", "--encoding", "png"]
    flags += ["--num_shards", str(SHARDS)]
    assert main([*flags, "--output", f"{folder}/out"]) == 0
    return flags, files_of(folder / "out")


class Run:
    """A job on Flink, submitted by a separate process."""

    def __init__(self, flink, flags, out, log=None):
        self.flink, self.out = flink, out
        self._log = log or out.with_suffix(".log")
        known = {job["jid"] for job in flink.jobs()}
        with self._log.open("wb") as log:
            command = [sys.executable, "-m", "beam_jobs", *flags, "--output", str(out)]
            command += [*flink.flags, "--parallelism=2"]
            self.driver = subprocess.Popen(command, stderr=log, stdout=log)
        self.id = ""
        while not self.id:
            self.wait("it was submitted")
            self.id = next((j["jid"] for j in flink.jobs() if j["jid"] not in known), "")

    def until_shards(self, count):
        """Waits until some shards are written; the manifest must not be."""
        while len(self.shards()) < count:
            self.wait(f"it wrote {count} shards")
        assert not (self.out / "manifest.json").exists()

    def shards(self):
        return sorted(self.out.glob("*/*.tfrecord"))

    def wait(self, event):
        assert self.driver.poll() is None, f"the job ended before {event}: {self.printed()}"
        time.sleep(0.02)

    def state(self):
        return self.flink.ask(f"/jobs/{self.id}")["state"]

    def code(self):
        return self.driver.wait(timeout=500)

    def printed(self):
        return self._log.read_text()


@pytest.fixture
def run(flink, job, tmp_path):
    flags, _ = job
    started = Run(flink, flags, tmp_path / "out")
    yield started
    started.driver.kill()
    started.driver.wait()


def assert_undisturbed(out, job):
    assert files_of(out) == job[1]
    assert verify(str(out)).ok


def exceptions(run):
    found = run.flink.ask(f"/jobs/{run.id}/exceptions?maxExceptions=9")
    return found["exceptionHistory"]["entries"]


def waits(run):
    """Yields until a job has ended."""
    deadline = time.monotonic() + 500
    while run.state() not in ("FINISHED", "CANCELED", "FAILED"):
        assert time.monotonic() < deadline, run.state()
        yield
        time.sleep(0.1)


def workers_of(pid):
    """The pids of the Python workers that a process started."""
    found = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in listed.read_text().split():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if b"sdk_worker" in Path(f"/proc/{child}/cmdline").read_bytes():
                    found.append(int(child))
    return found


def test_a_job_survives_a_killed_task_manager(flink, run, job):
    run.until_shards(5)
    victim = pids(flink.folder)["taskmanager1"]
    assert workers_of(victim)
    os.kill(victim, signal.SIGKILL)
    try:
        assert run.code() == 0, run.printed()
        assert not is_alive(victim)
        assert exceptions(run)
        assert_undisturbed(run.out, job)
    finally:
        assert start(flink.folder, flink.services()) == ["taskmanager1"]


def test_a_cancelled_job_resumes_when_it_is_submitted_again(flink, run, job, capsys):
    run.until_shards(8)
    flink.ask(f"/jobs/{run.id}?mode=cancel", "PATCH")
    assert run.code() == 1
    line = run.printed().splitlines()[-1]
    assert line.startswith(
        "error: the job was cancelled; no dataset was written; run the same command"
    )
    assert not (run.out / "manifest.json").exists()
    left = {path.name: path.stat().st_mtime_ns for path in run.shards()}
    flags, _ = job
    assert main([*flags, "--output", str(run.out), *flink.flags, "--parallelism=2"]) == 0
    kept = [p for p in run.shards() if p.stat().st_mtime_ns == left.get(p.name)]
    assert len(kept) >= 5
    assert "shards of an unfinished run" in capsys.readouterr().err
    assert_undisturbed(run.out, job)


def test_an_interrupted_driver_cancels_the_job_and_reports_it(run):
    run.until_shards(3)
    run.driver.send_signal(signal.SIGINT)
    assert run.code() == 130
    line = run.printed().splitlines()[-1]
    name = f"the job {run.flink.ask(f'/jobs/{run.id}')['name']} ({run.id})"
    assert line.startswith(f"error: interrupted; {name} ended as CANCELED; no dataset was written")
    assert "Traceback" not in run.printed()
    assert run.state() == "CANCELED"
    assert not (run.out / "manifest.json").exists()


def test_a_job_whose_driver_is_killed_keeps_others_out_and_ends_with_a_complete_dataset(
    flink, run, job, capsys
):
    run.until_shards(3)
    run.driver.kill()
    run.driver.wait()
    assert main([*job[0], "--output", str(run.out), *flink.flags]) == 2
    assert f"({run.id}) of an earlier command: {flink.address}" in capsys.readouterr().err
    for _ in waits(run):
        if (run.out / "manifest.json").exists():
            assert verify(str(run.out)).ok  # notes of its shards are deleted later
    assert run.state() == "FINISHED"
    assert main([*job[0], "--output", str(run.out)]) == 0  # It deletes the lease of the killed one.
    assert "is complete already, from the same options" in capsys.readouterr().err
    assert_undisturbed(run.out, job)


def test_a_killed_job_manager_is_one_line_and_the_same_command_resumes(flink, run, job, capsys):
    run.until_shards(3)
    os.kill(pids(flink.folder)["jobmanager"], signal.SIGKILL)
    try:
        assert run.code() == 1
    finally:
        assert start(flink.folder, flink.services()) == ["jobmanager"]
    *lines, line = run.printed().splitlines()
    silent = f"Flink does not answer at {flink.address} (Connection refused)"
    assert any(line.startswith(f"{silent}; ") for line in lines)
    assert (
        line.startswith(f"error: {silent}: the job ")
        and f"({run.id}) is lost or unreachable" in line
    )
    written = re.search(
        rf"(\d+) of {SHARDS} shards are written, and no dataset; start Flink, and", line
    )
    assert int(written[1]) >= 3
    assert main([*job[0], "--output", str(run.out), *flink.flags, "--parallelism=2"]) == 0
    assert "shards of an unfinished run" in capsys.readouterr().err
    assert_undisturbed(run.out, job)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """The flags of a job that encodes texts for some seconds, and the files of an undisturbed run."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "in").mkdir()
    for file in range(4):
        lines = (f"{file} {n} " + "many words " * (n % 40) for n in range(60_000))
        (folder / f"in/{file}.txt").write_text("\n".join(lines))
    flags = ["text", "--input", f"{folder}/in", "--tokens", "words", "--num_shards", "12"]
    assert main([*flags, "--output", f"{folder}/out"]) == 0
    return flags, files_of(folder / "out")


def test_a_job_into_a_store_survives_a_killed_worker(flink, texts, s3, tmp_path):
    flags, expected = texts
    store = ["--s3_endpoint_url", s3.proxy.url, "--s3_region_name", "us-east-1"]
    store += ["--s3_access_key_id", "testing", "--s3_secret_access_key", "testing"]
    out = f"{s3.url}/out"
    run = Run(flink, [*flags, *store], out, log=tmp_path / "log")
    try:
        while not [r for r in s3.proxy.seen(r"\d\.tfrecord$", None) if r.method in ("PUT", "POST")]:
            run.wait("a request for a shard")
        os.kill(workers_of(pids(flink.folder)["taskmanager1"])[0], signal.SIGKILL)
        assert run.code() == 0, run.printed()
        assert exceptions(run)
    finally:
        run.driver.kill()
    for file in list_files(out):
        copy = tmp_path / "copy" / file.path.removeprefix(f"{out}/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(s3.get(file.path))
    assert files_of(tmp_path / "copy") == expected  # Nothing is left in `.staging/`.
    client = boto3.client("s3", endpoint_url=s3.proxy.url)
    assert not client.list_multipart_uploads(Bucket=s3.url[5:]).get("Uploads")
