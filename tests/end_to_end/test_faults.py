"""Faults of disks and outputs end a job with one line and no manifest.

Those of runners are in `tests/campaigns/simulation`.
"""

import contextlib
import io
import json
import random
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from beam_jobs.dataset import encoded_records, shard_writer
from beam_jobs.pipeline import commit_dataset, write_runs
from beam_jobs.records.spool import Spool
from tests.support import forked
from tests.support.commands import IN_MEMORY, only_error, run
from tests.support.datasets import files_of, write_recordings
from tests.support.lazily import Lazily

SPLITS = ["--splits", "train=0.7,val=0.3", "--num_shards", "train=6,val=2"]


def write_texts(source):
    source.mkdir(parents=True)
    for name in "abc":
        rows = [f'{{"text": "{name} {n % 7} {n % 5} {n}", "label": {n % 3}}}' for n in range(80)]
        rows[3] = "{"
        (source / f"{name}.jsonl").write_text("\n".join(rows))


JOBS = {
    "sensors": ["--max_rejects", "all"],
    "text": ["--label_field", "label", "--tokens", "words"],
}


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """Job -> (its arguments, its files); some recordings move between shards at the end."""
    base = tmp_path_factory.mktemp("jobs")
    write_recordings(
        base / "sensors",
        [1 + n * n % 90 for n in range(240)],
        random.Random(1).sample(range(240), 60),
    )
    write_texts(base / "text")

    def job_of(name):
        arguments = [name, "--input", base / name, *SPLITS, *JOBS[name]]
        with contextlib.redirect_stderr(io.StringIO()):  # Tests look at that of their own job.
            assert run(*arguments, "--output", base / "out" / name) == 0
        return arguments, files_of(base / "out" / name)

    return Lazily(job_of)


@pytest.mark.slow(base=["elsewhere"])
@pytest.mark.parametrize("on_disk", [True, False], ids=["disk", "elsewhere"])
def test_two_simultaneous_attempts_at_an_encoded_shard_agree(jobs, tmp_path, monkeypatch, on_disk):
    arguments, expected = jobs["text"]
    monkeypatch.setattr(Spool, "on_disk", on_disk)
    once, commit_file = encoded_records.write_spooled, shard_writer.ShardFile.commit
    meet = threading.Barrier(2)

    def twice(*given):
        with ThreadPoolExecutor(2) as pool:
            attempts = [pool.submit(once, *given) for _ in range(2)]
            first, second = (attempt.result(60) for attempt in attempts)
        assert first == second
        return first

    def waits(*given):
        meet.wait(30)
        return commit_file(*given)

    # It is pickled by its name.
    twice.__module__, twice.__qualname__ = once.__module__, once.__qualname__
    for module in (encoded_records, write_runs):
        monkeypatch.setattr(module, "write_spooled", twice)
    monkeypatch.setattr(shard_writer.ShardFile, "commit", waits)
    assert run(*arguments, *IN_MEMORY, "--output", tmp_path / "out") == 0
    assert files_of(tmp_path / "out") == expected


def assert_failed(error, out, *parts):
    """Asserts that a run failed with one line that has these parts, and wrote no manifest."""
    line = only_error(error)
    assert [part for part in parts if str(part) not in line] == [], line
    assert not (out / "manifest.json").exists()


# Full disks and outputs that cannot be written.


@pytest.fixture
def disk(tmp_path):
    """Mounts small disks."""
    mounted = []

    def mount(name, size):
        path = tmp_path / name
        path.mkdir()
        arguments = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
        subprocess.run(arguments, check=True)  # as root
        mounted.append(path)
        return path

    yield mount
    for path in mounted:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.mark.disks
@pytest.mark.parametrize("pages", [1, 4, 11, 20, 30, 40])
def test_a_disk_that_is_full_at_any_step_ends_the_run_with_one_line(jobs, disk, pages):
    arguments, expected = jobs["sensors"]
    path = disk("disk", f"{pages * 4}k")
    arguments = [*arguments, "--output", path / "out"]
    done = forked.run(*arguments)
    if done.returncode:
        assert done.returncode == 1
        out = path / "out"
        assert_failed(done.stderr, out, out, "No space left on device", "make room")
        subprocess.run(["mount", "-o", "remount,size=64m", str(path)], check=True)
        assert forked.run(*arguments).returncode == 0
    assert bool(done.returncode) or pages > 35, "there was room for all of it"
    assert files_of(path / "out") == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "processes"), [(500_000, 1), (3_000, 2)], ids=["spool-1", "spool and traceback-2"]
)
def test_files_over_the_size_limit_end_the_run_with_one_line(tmp_path, size, processes):
    (tmp_path / "a.txt").write_text("".join(f"{n} " + "x" * 9000 + "\n" for n in range(600)))
    arguments = ["text", "--input", tmp_path / "a.txt", "--output", tmp_path / "out"]
    arguments += ["--direct_num_workers", processes]
    done = forked.run(*arguments, file_bytes=size)
    assert done.returncode == 1
    assert_failed(
        done.stderr, tmp_path / "out", "File too large", "make room or choose another place"
    )


@pytest.mark.slow(base=["/dev/null/out"])
@pytest.mark.parametrize("place", ["/proc/out", "/dev/null/out"])
def test_an_output_that_cannot_be_written_is_named_in_one_line(jobs, place):
    done = forked.run(*jobs["text"][0], "--output", place)
    assert done.returncode in (1, 2)
    assert_failed(
        done.stderr, Path(place), f"--output {place}", "cannot be written", "another place"
    )


@pytest.mark.slow(base=["a file"])
@pytest.mark.parametrize("way", ["a file", ".staging", "manifest.json"])
def test_a_file_or_folder_in_the_way_of_the_output_is_named_in_one_line(jobs, tmp_path, way):
    out = tmp_path / "out"
    places = [out]
    if way == "a file":
        out.write_text("mine")
        places.append(out / "deeper")
    else:
        out.mkdir()
        (out / way).mkdir() if way == "manifest.json" else (out / way).write_text("in the way")
    for place in places:
        done = forked.run(*jobs["sensors"][0], "--output", place)
        assert done.returncode in (1, 2)
        assert str(place) in only_error(done.stderr)
    assert way != "a file" or out.read_text() == "mine"


def test_the_traceback_of_an_unexpected_failure_is_in_a_file(jobs, tmp_path, monkeypatch, capsys):
    arguments, _ = jobs["sensors"]
    monkeypatch.setattr(commit_dataset, "plan_changes", lambda *_: [json.loads("{")])
    assert run(*arguments, *IN_MEMORY, "--output", tmp_path / "out") == 1
    error = only_error(capsys.readouterr().err, "the pipeline failed.*the traceback is in")
    log = Path(error.split()[-1])
    assert "JSONDecodeError" in log.read_text()
    log.unlink()
