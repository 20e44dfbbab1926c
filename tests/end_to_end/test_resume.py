"""An unfinished run leaves no manifest, and the next one resumes to the bytes of an undisturbed run.

Runs that are killed at any step are in `tests/campaigns/kills`.
"""

import random
import shutil

import pytest

from beam_jobs.dataset import shard_writer
from beam_jobs.errors import DataError
from beam_jobs.pipeline import commit_dataset
from tests.support.commands import IN_MEMORY, ONE, interrupted, resumed, run
from tests.support.datasets import files_of, write_recordings


def notes(out):
    return sorted(out.rglob("*.done"))


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
    """(arguments, output with all shards but no manifest, the files of a complete one)."""
    source, base = tmp_path_factory.mktemp("done") / "in", tmp_path_factory.mktemp("outputs")
    write_recordings(source, [1 + n % 9 for n in range(300)])
    arguments = ["sensors", "--input", f"{source}/*/*.npy", "--num_shards", SHARDS]
    interrupted(*arguments, "--output", base / "unfinished")
    assert len(notes(base / "unfinished")) == SHARDS
    assert run(*arguments, "--output", base / "complete") == 0
    return arguments, base / "unfinished", files_of(base / "complete")


@pytest.fixture
def unfinished(done, tmp_path):
    """(arguments, a copy of the output without a manifest, the files of the complete one)."""
    arguments, unfinished, expected = done
    shutil.copytree(unfinished, tmp_path / "out")
    return [*arguments, "--output", tmp_path / "out"], tmp_path / "out", expected


# Changes between the runs.


def fresh(arguments, tmp_path):
    assert run(*arguments, "--output", tmp_path / "fresh") == 0
    return files_of(tmp_path / "fresh")


def test_a_run_with_other_workers_keeps_shards_and_deletes_partial_files_before_it_resumes(
    unfinished, capsys, monkeypatch
):
    arguments, out, expected = unfinished
    arguments += ["--direct_running_mode", "multi_threading", "--direct_num_workers", 2]
    half = out / ".staging/0123abcd" / f"train-00003-of-{SHARDS:05d}.tfrecord.{'0' * 32}"
    half.parent.mkdir(parents=True)
    half.write_bytes(b"half")
    notes(out)[3].unlink()
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
    arguments += ["--max_rejects", "all"]
    assert run(*arguments, "--output", out) == 0
    return arguments, files_of(out)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [0, 3])
def test_a_run_that_fails_while_records_move_is_completed(
    uneven, tmp_path, monkeypatch, capsys, changes
):
    arguments, expected = uneven
    out = tmp_path / "out"
    apply, done = commit_dataset.apply_change, []

    def fails(*change):
        if len(done) == changes:
            raise DataError("interrupted")
        done.append(change)
        return apply(*change)

    monkeypatch.setattr(commit_dataset, "apply_change", fails)
    assert run(*arguments, *IN_MEMORY, "--output", out) == 1
    assert len(done) == changes
    assert not (out / "manifest.json").exists()
    monkeypatch.setattr(commit_dataset, "apply_change", apply)
    assert len(notes(out)) == SHARDS
    assert assert_resumes(capsys, [*arguments, "--output", out], out, expected) == SHARDS


# Jobs whose records arrive encoded.


def write_lines(path):
    lines = [f'{{"text": "line {n % 7} of {n % 13}", "label": {n % 3}}}' for n in range(400)]
    lines[5] = "{"
    path.write_text("\n".join(lines))


def test_the_text_job_keeps_its_shards(tmp_path, dying_after, capsys):
    out = tmp_path / "out"
    write_lines(tmp_path / "a.jsonl")
    arguments = ["text", "--input", tmp_path / "a.jsonl", "--label_field", "label"]
    arguments += ["--splits", "train=0.8,val=0.2", "--num_shards", "train=9,val=3"]
    arguments += ["--tokens", "words"]
    expected = fresh(arguments, tmp_path)
    with dying_after(5):
        assert run(*arguments, *ONE, "--output", out) == 1
    assert len(notes(out)) == 5
    assert assert_resumes(capsys, [*arguments, "--output", out], out, expected) == 5
