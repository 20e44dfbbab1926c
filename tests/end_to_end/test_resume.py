"""A killed run leaves no manifest, and the next one resumes to the bytes of an undisturbed run."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.metrics import MetricsFilter

from beam_jobs import Feature, Schema, WriteShards
from beam_jobs.dataset import shard_writer, topup
from beam_jobs.errors import DataError, find_job_error
from beam_jobs.pipeline import commit
from readers.format.manifest import Manifest
from tests.support import forked
from tests.support.commands import IN_MEMORY, TWO, interrupted, only_error, resumed, run
from tests.support.datasets import files_of, npy, write_recordings


def notes(out):
    return sorted(path.name for path in (out / ".staging").rglob("*.done"))


def assert_resumes(capsys, arguments, out, expected):
    """Runs an interrupted job to its end; returns how many shards it kept."""
    before = len(notes(out))
    kept = resumed(capsys, *arguments)
    assert kept <= before
    assert files_of(out) == expected
    assert not (out / ".staging").exists()
    return kept


SHARDS = 12


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """(arguments, output with all shards but no manifest, complete output, its files)."""
    source, base = tmp_path_factory.mktemp("done") / "in", tmp_path_factory.mktemp("outputs")
    write_recordings(source, [1 + n % 9 for n in range(300)])
    arguments = ["sensors", "--input", f"{source}/*/*.npy", "--num_shards", SHARDS]
    interrupted(*arguments, "--output", base / "unfinished")
    assert len(notes(base / "unfinished")) == SHARDS
    assert run(*arguments, "--output", base / "complete") == 0
    return arguments, base / "unfinished", base / "complete", files_of(base / "complete")


@pytest.fixture
def unfinished(done, tmp_path):
    """(arguments, a copy of the output without a manifest, the files of the complete one)."""
    arguments, unfinished, _, expected = done
    shutil.copytree(unfinished, tmp_path / "out")
    return [*arguments, "--output", tmp_path / "out"], tmp_path / "out", expected


# Killed at any moment.


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """(arguments of a job with 40 shards that exchange records, its files, its seconds).

    The seconds are those between the first file in its output and its end.
    """
    source, out = tmp_path_factory.mktemp("many") / "in", tmp_path_factory.mktemp("many") / "out"
    bad = random.Random(0).sample(range(3000), 120)
    write_recordings(source, [10 + n % 40 for n in range(3000)], bad)
    arguments = ["sensors", "--input", f"{source}/*/*.npy", "--num_shards", 40]
    process = forked.Job(*arguments, "--output", out)
    while not (out / ".staging" / "UNFINISHED").exists():
        time.sleep(0.001)
    began = time.monotonic()
    _, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    assert Manifest.read(str(out)).rejected == 120
    return arguments, files_of(out), time.monotonic() - began


def within(part, parts):
    """A random moment in one of the equal parts of a run."""
    return random.Random(part).uniform(part, part + 1) / parts


def wait_for(out, process, seconds):
    """Waits until a run has been writing for some seconds, or has ended."""
    while not (out / ".staging").exists() and process.poll() is None:
        time.sleep(0.001)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)


def children(pid):
    return [
        int(child)
        for task in Path(f"/proc/{pid}/task").glob("*")
        for child in (task / "children").read_text().split()
    ]


def loading_processes(pid):
    """The processes that load records for a driver: the children of its fork server."""
    with contextlib.suppress(OSError):
        return [grandchild for child in children(pid) for grandchild in children(child)]
    return []


def is_unfinished(out, *expected):
    """Whether there is no manifest; with one, the files must be as expected."""
    if (out / "manifest.json").exists():
        found = {n: sha for n, sha in files_of(out).items() if not n.startswith(".staging/")}
        assert found in expected
        return False
    return True


# Negative moments are before the first file in the output; the others are while references are
# planned and grouped, shards written, records moved, files checked, the manifest written and the
# notes removed.
@pytest.mark.slow
@pytest.mark.parametrize("moment", range(-1, 9, 3))
def test_the_next_run_completes_one_killed_at_any_moment(many, tmp_path, capsys, moment):
    arguments, expected, seconds = many
    out = tmp_path / "out"
    arguments = [*arguments, "--output", out]
    process = forked.Job(*arguments)
    if moment < 0:
        time.sleep(-0.1 * moment)
    else:
        wait_for(out, process, 1.05 * seconds * within(moment, 10))
    process.kill()
    process.communicate(timeout=60)
    if is_unfinished(out, expected):
        before = len(notes(out))
        assert assert_resumes(capsys, arguments, out, expected) == before


# While the processes start, work and end.
@pytest.mark.slow
@pytest.mark.parametrize("moment", range(0, 10, 3))
def test_a_loading_process_killed_at_any_moment_ends_the_run_with_one_line(
    many, tmp_path, capsys, moment
):
    arguments, expected, seconds = many
    out = tmp_path / "out"
    arguments = [*arguments, "--output", out, *TWO]
    process = forked.Job(*arguments)
    wait_for(out, process, 0.7 * seconds * within(moment, 10))
    while process.poll() is None and not loading_processes(process.pid):
        time.sleep(0.001)
    if victims := loading_processes(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(victims[moment % len(victims)], signal.SIGKILL)
    _, error = process.communicate(timeout=60)
    if not is_unfinished(out, expected):
        assert process.returncode == 0
        return
    assert process.returncode == 1
    only_error(error, "a process that loads records was killed")
    before = len(notes(out))
    assert assert_resumes(capsys, arguments, out, expected) == before


# Changes between the runs.


@pytest.fixture
def few(tmp_path):
    """(arguments, output with all shards but no manifest) of a job whose inputs may change."""
    source, out = tmp_path / "in", tmp_path / "out"
    write_recordings(source, [1 + n % 9 for n in range(300)])
    arguments = ["sensors", "--input", f"{source}/*/*.npy", "--num_shards", SHARDS]
    interrupted(*arguments, "--output", out)
    assert len(notes(out)) == SHARDS
    return arguments, out


def fresh(arguments, tmp_path):
    assert run(*arguments, "--output", tmp_path / "fresh") == 0
    return files_of(tmp_path / "fresh")


def test_a_run_that_failed_at_its_end_keeps_every_shard(unfinished, capsys):
    arguments, out, expected = unfinished
    assert assert_resumes(capsys, arguments, out, expected) == SHARDS


def test_the_shard_of_a_changed_input_is_rewritten(few, tmp_path, capsys):
    arguments, out = few
    path = tmp_path / "in" / "a" / "00000.npy"
    before = path.stat()
    path.write_bytes(npy("<i2", (1, 3), b"abcdef"))
    assert path.stat().st_size == before.st_size and path.stat().st_mtime_ns != before.st_mtime_ns
    expected = fresh(arguments, tmp_path)
    assert assert_resumes(capsys, [*arguments, "--output", out], out, expected) == SHARDS - 1


@pytest.mark.slow
@pytest.mark.parametrize("change", ["added", "removed", "renamed"])
def test_adding_or_removing_an_input_gives_the_files_of_a_fresh_run(few, tmp_path, capsys, change):
    arguments, out = few
    path = tmp_path / "in" / "b" / "00001.npy"
    if change == "added":
        shutil.copy(path, path.with_name("more.npy"))
    elif change == "removed":
        path.unlink()
    else:
        path.rename(path.with_name("other.npy"))
    expected = fresh(arguments, tmp_path)
    # The boundaries of shards move by one record at most, and not before the change.
    assert assert_resumes(capsys, [*arguments, "--output", out], out, expected) < SHARDS


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags",
    [
        ["--seed", 1],
        ["--on_reject", "fail"],
        ["--dtype", "int32"],
    ],
    ids=lambda flags: flags[0],
)
def test_with_other_flags_nothing_is_kept(unfinished, done, tmp_path, capsys, flags):
    arguments, out, _ = unfinished
    expected = fresh([*done[0], *flags], tmp_path)
    assert assert_resumes(capsys, [*arguments, *flags], out, expected) == 0


def test_a_run_with_other_workers_keeps_the_shards(unfinished, capsys):
    arguments, out, expected = unfinished
    modes = ["--direct_running_mode", "multi_threading", "--direct_num_workers", 2]
    assert assert_resumes(capsys, [*arguments, *modes], out, expected) == SHARDS


def test_partial_files_are_deleted_before_a_run_resumes(unfinished, capsys, monkeypatch):
    arguments, out, expected = unfinished
    half = out / ".staging" / f"train-00003-of-{SHARDS:05d}.tfrecord.0123456789abcdef"
    half.write_bytes(b"half")
    (out / ".staging" / notes(out)[3]).unlink()
    write, there = shard_writer.ShardWriter.write, []

    def looks(*given):
        there.append(half.exists())
        return write(*given)

    monkeypatch.setattr(shard_writer.ShardWriter, "write", looks)
    assert assert_resumes(capsys, arguments, out, expected) == SHARDS - 1
    assert there == [False]


# Failures while records move between shards.


@pytest.fixture(scope="module")
def uneven(tmp_path_factory):
    """(arguments, files) of a job whose shards exchange records at the end."""
    source, out = tmp_path_factory.mktemp("uneven") / "in", tmp_path_factory.mktemp("u") / "out"
    bad = random.Random(3).sample(range(300), 90)
    write_recordings(source, [1 + n % 9 for n in range(300)], bad)
    arguments = ["sensors", "--input", f"{source}/*/*.npy", "--num_shards", SHARDS]
    assert run(*arguments, "--output", out) == 0
    return arguments, files_of(out)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [0, 3])
@pytest.mark.parametrize("half", [False, True], ids=["between", "within"])
def test_a_run_that_fails_while_records_move_is_completed(
    uneven, tmp_path, monkeypatch, capsys, changes, half
):
    arguments, expected = uneven
    out = tmp_path / "out"
    apply, write, done = topup.apply_change, topup.write_file, []

    def fails(*change):
        if len(done) == changes:
            if half:
                monkeypatch.setattr(topup, "write_file", no_write)
                apply(*change)  # changes the shard, but not its index
            raise DataError("interrupted")
        done.append(change)
        return apply(*change)

    def no_write(*_):
        raise DataError("interrupted")

    monkeypatch.setattr(commit, "apply_change", fails)
    assert run(*arguments, *IN_MEMORY, "--output", out) == 1
    assert len(done) == changes
    assert not (out / "manifest.json").exists()
    monkeypatch.setattr(commit, "apply_change", apply)
    monkeypatch.setattr(topup, "write_file", write)
    before = len(notes(out))
    assert before <= SHARDS - changes - half
    assert assert_resumes(capsys, [*arguments, "--output", out], out, expected) == before


# Jobs whose records arrive encoded.


def write_lines(path):
    lines = [f'{{"text": "line {n % 7} of {n % 13}", "label": {n % 3}}}' for n in range(400)]
    lines[5] = "{"
    path.write_text("\n".join(lines))


TEXT_FLAGS = ["--label_field", "label", "--splits", "train=0.8,val=0.2"]


@pytest.mark.slow
@pytest.mark.parametrize("tokens", ["none", "words"])
def test_the_text_job_keeps_its_shards(tmp_path, dying_after, capsys, tokens):
    out = tmp_path / "out"
    write_lines(tmp_path / "a.jsonl")
    arguments = ["text", "--input", tmp_path / "a.jsonl", *TEXT_FLAGS, "--tokens", tokens]
    arguments += ["--num_shards", "train=9,val=3"]
    expected = fresh(arguments, tmp_path)
    with dying_after(5):
        assert run(*arguments, "--output", out) == 1
    assert len(notes(out)) == 5
    assert assert_resumes(capsys, [*arguments, "--output", out], out, expected) == 5


SCHEMA = Schema({"x": Feature("float32", (None,)), "key": Feature("string")})


def write_shards(out, count=200, changed=-1, **arguments):
    """Writes a dataset with WriteShards; returns how many shards it kept."""
    records = [
        (f"r{n}", {"x": np.full(n % 7, n + (n == changed), np.float32)}) for n in range(count)
    ]
    records.append(("bad", {"x": "no array"}))
    pipeline = beam.Pipeline()
    write = WriteShards(str(out), SCHEMA, num_shards=8, on_reject="skip", **arguments)
    pipeline | beam.Create(records) | write
    result = pipeline.run()
    result.wait_until_finish()
    found = result.metrics().query(MetricsFilter().with_name("kept"))["counters"]
    return sum(counter.result for counter in found)


@pytest.mark.slow
def test_write_shards_keeps_its_shards(tmp_path, dying_after):
    assert write_shards(tmp_path / "fresh") == 0
    out = tmp_path / "out"
    with dying_after(3), pytest.raises(Exception) as caught:
        write_shards(out)
    assert find_job_error(caught.value).message == "interrupted"
    assert len(notes(out)) == 3 and not (out / "manifest.json").exists()
    assert write_shards(out) == 3
    assert files_of(out) == files_of(tmp_path / "fresh")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "expected"), [({"changed": 5}, 7), ({"seed": 1}, 0), ({"count": 150}, 0)]
)
def test_write_shards_rewrites_changed_shards(tmp_path, monkeypatch, arguments, expected):
    out = tmp_path / "out"
    with monkeypatch.context() as patch, pytest.raises(Exception, match="division by zero"):
        patch.setattr(commit, "check_files", lambda *_: 1 / 0)
        write_shards(out)
    assert len(notes(out)) == 8
    assert write_shards(out, **arguments) == expected
    write_shards(tmp_path / "fresh", **arguments)
    assert files_of(out) == files_of(tmp_path / "fresh")
