"""Faults of runners, disks and outputs end a job with an error that has figures, and no manifest."""

import contextlib
import functools
import io
import json
import random
import re
import shutil
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.pvalue import TaggedOutput
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_jobs import Feature, Schema, WriteShards
from beam_jobs.cli.command import parse_command
from beam_jobs.dataset import encoded_records as shard_writer
from beam_jobs.dataset import shard_file as shards
from beam_jobs.dataset import topup
from beam_jobs.errors import find_job_error
from beam_jobs.jobs.text import sample
from beam_jobs.jobs.text import tokens as vocabulary
from beam_jobs.pipeline import (
    commit,
    plan_records,
    plan_references,
    plan_shards,
    plan_strata,
    steps,
    text_steps,
    write_records,
    write_references,
    write_runs,
    write_shards,
)
from beam_jobs.pipeline.commit import _Commit
from beam_jobs.pipeline.near import drop, find
from beam_jobs.pipeline.reading import list_tasks
from beam_jobs.pipeline.steps import STATISTICS
from beam_jobs.pipeline.write_references import _AssignShards
from beam_jobs.plan import run_ranges
from beam_jobs.plan.shards import HeldBlocks
from beam_jobs.records import runs
from beam_jobs.records.spool import HeldLocators, Spool
from beam_jobs.sources.inputs import Inputs
from tests.support import forked
from tests.support.commands import IN_MEMORY, kept_shards, only_error, run
from tests.support.datasets import files_of, npy, write_recordings
from tests.support.lazily import Lazily

SPLITS = ["--splits", "train=0.7,val=0.3", "--num_shards", "train=6,val=2"]


def write_texts(source):
    source.mkdir(parents=True)
    for name in "abc":
        rows = [f'{{"text": "{name} {n % 7} {n % 5} {n}", "label": {n % 3}}}' for n in range(80)]
        rows[3] = "{"
        (source / f"{name}.jsonl").write_text("\n".join(rows))


# Job -> (the folder of its inputs, its flags).
JOBS = {
    "sensors": ("sensors", []),
    "text": ("text", ["--label_field", "label", "--tokens", "words"]),
    "stratified": ("sensors", ["--stratify"]),
    "strata of texts": ("text", ["--label_field", "label", "--stratify"]),
    "duplicates": ("text", ["--drop_duplicates"]),
    "near texts": (
        "text",
        ["--drop_near_duplicates", "0.8", "--stratify", "--label_field", "label"],
    ),
    "near recordings": ("copies", ["--drop_near_duplicates", "0.9"]),
    "bpe": ("text", ["--tokens", "bpe", "--vocabulary_size", "270"]),
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
    shutil.copy(base / "text" / "a.jsonl", base / "text" / "c.jsonl")

    shutil.copytree(base / "sensors", base / "copies")
    for label in "abc":
        for path in sorted((base / "copies" / label).iterdir())[:9]:
            shutil.copy(path, path.with_name(f"copy of {path.name}"))

    def job_of(name):
        source, flags = JOBS[name]
        arguments = ["sensors" if source == "copies" else source]
        for part in sorted((base / source).iterdir()):
            arguments += ["--input", part]
        arguments += [*SPLITS, *flags]
        with contextlib.redirect_stderr(io.StringIO()):  # Tests look at that of their own job.
            assert run(*arguments, "--output", base / "out" / name) == 0
        return arguments, files_of(base / "out" / name)

    return Lazily(job_of)


# A runner that repeats bundles.


@pytest.mark.slow
@pytest.mark.parametrize("job", ["sensors", "text"])
def test_a_runner_that_repeats_every_bundle_writes_the_same_files(jobs, tmp_path, job):
    arguments, expected = jobs[job]
    command = parse_command([*map(str, arguments), "--output", str(tmp_path / "out")])
    with beam.Pipeline(runner=FnApiRunner(bundle_repeat=3)) as pipeline:
        pipeline | command.transform
    assert files_of(tmp_path / "out") == expected


SCHEMA = Schema({"x": Feature("float32", (None,)), "key": Feature("string")})


def both(call):
    """The results of two threads that do the same at the same time."""
    with ThreadPoolExecutor(2) as pool:
        attempts = [pool.submit(call) for _ in range(2)]
        return [attempt.result(60) for attempt in attempts]


@pytest.fixture
def together(monkeypatch):
    """Makes a method wait until two threads call it."""
    meet = threading.Barrier(2)

    def patched(cls, name):
        method = getattr(cls, name)

        def waits(*given):
            meet.wait(30)
            return method(*given)

        monkeypatch.setattr(cls, name, waits)

    return patched


@pytest.mark.slow
def test_shards_written_at_once_do_not_pickle_what_another_one_changes(jobs, tmp_path, monkeypatch):
    arguments, expected = jobs["sensors"]

    def slow_state(self):
        state = {}
        for name, value in self.__dict__.items():
            state[name] = value
            time.sleep(0.02)
        return state

    monkeypatch.setattr(Inputs, "__getstate__", slow_state, raising=False)
    assert run(*arguments, "--output", tmp_path / "out") == 0
    assert files_of(tmp_path / "out") == expected


@pytest.mark.slow(base=["elsewhere"])
@pytest.mark.parametrize("on_disk", [True, False], ids=["disk", "elsewhere"])
def test_two_simultaneous_attempts_at_an_encoded_shard_agree(
    jobs, tmp_path, monkeypatch, together, on_disk
):
    monkeypatch.setattr(Spool, "on_disk", on_disk)
    arguments, expected = jobs["text"]
    once = shard_writer.write_spooled

    def twice(*given):
        first, second = both(lambda: once(*given))
        assert first == second
        return first

    monkeypatch.setattr(write_runs, "write_spooled", twice)
    together(shards.ShardFile, "commit")
    assert run(*arguments, *IN_MEMORY, "--output", tmp_path / "out") == 0
    assert files_of(tmp_path / "out") == expected


def test_two_workers_that_move_the_same_records_agree(jobs, tmp_path, monkeypatch):
    arguments, expected = jobs["sensors"]
    moved = []

    def twice(method, **other):
        def call(*given):
            first, second = both(lambda: method(*given))
            assert replace(first, **other) == replace(second, **other)
            moved.append(first)
            return first

        return call

    # Each attempt has a file of its own.
    monkeypatch.setattr(commit, "prepare_change", twice(topup.prepare_change, intake=""))
    monkeypatch.setattr(commit, "apply_change", twice(topup.apply_change))
    assert run(*arguments, *IN_MEMORY, "--output", tmp_path / "out") == 0
    assert len(moved) >= 6
    assert files_of(tmp_path / "out") == expected


# A runner that loses or repeats elements.

# The figures that an error must give: how many there are, and how many there should be.
NUMBERS = re.compile(
    r"\d+ of \d+ (records|keys|shard boundaries|bytes of training text)|\d+ inputs were listed, \d+ reached"
    r"|found \d+ records, written \d+, rejected \d+, \d+ in the statistics; \d+ of \d+ shards"
    r"|\d+ of \d+ edges of splits|label '.*' was not seen|the same duplicates twice"
    r"|have \d+ texts, \d+ were compared|\d+ of \d+ inputs contributed training text"
    r"|duplicate key of a text|\d+ of \d+ [\w ]+ were compared|\d+ of 1 blocks of \w+"
    r"|have \d+ records, \d+ were compared"
    r"|shards of \d+ to \d+ records|texts have \d+ words, \d+ were counted"
    r"|duplicate key '.*': every record needs a key"
)


def tag_of(output):
    return output.tag if isinstance(output, TaggedOutput) else None


def tamper_with_outputs(patch, cls, method, tag, action, which):
    """Drops or repeats the n-th output of a DoFn with this tag."""
    original, seen = getattr(cls, method), []

    @functools.wraps(original)
    def process(self, *arguments):
        for output in original(self, *arguments) or ():
            if tag_of(output) == tag:
                seen.append(1)
                if len(seen) == which:
                    if action == "repeat":
                        yield output
                        yield output
                    continue
            yield output

    patch.setattr(cls, method, process)
    return seen


def tamper_with_inputs(patch, cls, action, which):
    """Drops or repeats the n-th element that a DoFn processes."""
    original, seen = cls.process, []

    @functools.wraps(original)
    def process(self, element, *sides):
        seen.append(1)
        if len(seen) != which:
            yield from original(self, element, *sides) or ()
        elif action == "repeat":
            for _ in range(2):
                yield from original(self, element, *sides) or ()

    patch.setattr(cls, "process", process)
    return seen


def hand_overs():
    """Yields (name, jobs, function that tampers)."""

    def outputs(cls, tag=None, method="process"):
        return functools.partial(tamper_with_outputs, cls=cls, method=method, tag=tag)

    def inputs(cls):
        return functools.partial(tamper_with_inputs, cls=cls)

    files, texts, every = ["sensors"], ["text"], ["sensors", "text"]
    yield "patterns", every, inputs(steps.CutPatterns)
    yield "numbers of parts", every, outputs(steps.CutPatterns, "cut")
    yield "parts of files", files, inputs(plan_references._ListFiles)
    yield "parts of texts", texts, inputs(list_tasks._ListTasks)
    yield "listed blocks", files, outputs(plan_references._ListFiles)
    yield "listed work", texts, outputs(list_tasks._ListTasks)
    yield "numbers of files", files, outputs(plan_references._ListFiles, "found")
    yield "numbers of chunks", texts, outputs(list_tasks._ListTasks, "found")
    yield "blocks to be summarised", files, inputs(plan_references._Summarise)
    yield "summaries of files", files, outputs(plan_references._Summarise)
    yield "work to be read", texts, inputs(plan_records._FirstPass)
    yield "summaries of texts", texts, outputs(plan_records._FirstPass, "summary", "outputs")
    yield "hashes of texts", texts, outputs(plan_records._FirstPass, None, "outputs")
    yield "words", texts, outputs(plan_records._FirstPass, "learned", "outputs")
    yield "blocks to find boundaries in", every, inputs(plan_shards._SelectHashes)
    yield "hashes by bin", every, outputs(plan_shards._SelectHashes)
    yield "grouped hashes", every, inputs(plan_shards._PickBoundaries)
    yield "boundaries", every, outputs(plan_shards._PickBoundaries)
    yield "blocks to be assigned", files, inputs(_AssignShards)
    yield "assigned blocks", files, outputs(HeldBlocks, None, "release")
    yield "work to be encoded", texts, inputs(write_records._SecondPass)
    yield "runs", texts, outputs(write_records._SecondPass, None, "outputs")
    yield "runs to be located", texts, inputs(write_runs._Locate)
    yield "locators", ["text", "merged"], outputs(HeldLocators, None, "release")
    yield "statistics of texts", texts, outputs(write_records._SecondPass, STATISTICS, "outputs")
    yield "grouped references", files, inputs(write_references._WriteReferences)
    yield "grouped groups", ["merged"], inputs(write_runs._Merge)
    yield "merged runs", ["merged"], outputs(write_runs._Merge)
    yield "grouped locators", texts, inputs(write_runs._Write)
    yield "results of files", files, outputs(write_references._WriteReferences, None, "outputs")
    yield "results of texts", texts, outputs(write_runs._Write, None, "outputs")
    statistics = outputs(write_references._WriteReferences, STATISTICS, "outputs")
    yield "statistics of files", files, statistics
    strata, pieces = ["stratified", "strata of texts"], ["strata of texts"]
    yield "labels of files", ["stratified"], outputs(plan_references._Count)
    yield "blocks to be split", ["stratified"], inputs(plan_references._Resplit)
    yield "split blocks", ["stratified"], outputs(plan_references._Resplit)
    yield "grouped label hashes", strata, inputs(plan_strata._Pick)
    yield "edges of splits", strata, outputs(plan_strata._Pick)
    yield "work whose labels are read", pieces, inputs(plan_records._Count)
    yield "labels of texts", pieces, outputs(plan_records._Count, None, "outputs")
    yield "work to be digested", ["duplicates"], inputs(text_steps.DigestFn)
    yield "digests", ["duplicates"], outputs(text_steps.DigestFn, None, "outputs")
    yield "grouped digests", ["duplicates"], inputs(text_steps._Find)
    yield "duplicates", ["duplicates"], outputs(text_steps._Find)
    yield "tallies", ["duplicates"], outputs(text_steps._Find, "tally")
    near, near_texts, near_files = (
        ["near texts", "near recordings"],
        ["near texts"],
        ["near recordings"],
    )
    yield "work to be sketched", near_texts, inputs(find.SketchTasks)
    yield "keys of texts", near_texts, outputs(find.SketchTasks, None, "outputs")
    yield "probes of texts", near_texts, outputs(find.SketchTasks, "probes", "outputs")
    yield "tallies of texts", near_texts, outputs(find.SketchTasks, "tally", "outputs")
    yield "blocks to be sketched", near_files, inputs(find.SketchReferences)
    yield "keys of files", near_files, outputs(find.SketchReferences, None, "outputs")
    yield "grouped keys", near, inputs(find._Pair)
    yield "pairs", near, outputs(find._Pair)
    yield "tallies of pairs", near, outputs(find._Pair, "tally")
    yield "joined firsts", near, inputs(find._Send)
    yield "probes of firsts", near, outputs(find._Send)
    yield "joined seconds", near, inputs(find._Compare)
    yield "near duplicates", near, outputs(find._Compare)
    yield "numbers to drop", near, outputs(drop._Dropped)
    yield "blocks that are left", near_files, outputs(drop.TakeOut)
    yield "dropped references", near_files, outputs(drop.TakeOut, "gone")
    yield "summaries of what is dropped", near_files, outputs(plan_references._CountGone)
    yield "work to be sampled", ["bpe"], inputs(text_steps._SampleFn)
    yield "samples", ["bpe"], outputs(text_steps._SampleFn, None, "finish_bundle")
    moved = ["sensors"]
    yield "planned changes", moved, outputs(commit._PlanChanges)
    yield "changes to be prepared", moved, inputs(commit._Prepare)
    yield "prepared changes", moved, outputs(commit._Prepare)
    yield "changes to be applied", moved, inputs(commit._Apply)
    yield "changed shards", moved, outputs(commit._Apply)


# Losing the second element or repeating the first gives the same lines.
CASES = [
    pytest.param(job, tamper, action, which, id=f"{name}-{job}-{action}")
    for name, of, tamper in hand_overs()
    for job in of
    for action, which in (("lose", 1), ("repeat", 2))
]


# One case of each kind of element, lost and repeated in turn.
FEW_CASES = [
    "listed blocks-sensors-lose",
    "summaries of texts-text-repeat",
    "hashes by bin-sensors-repeat",
    "grouped locators-text-lose",
    "results of files-sensors-repeat",
]


def assert_failed(error, out, *parts):
    """Asserts that a run failed with one line that has these parts, and wrote no manifest."""
    line = only_error(error)
    assert [part for part in parts if str(part) not in line] == [], line
    assert not (out / "manifest.json").exists()


def assert_failed_or_complete(capsys, code, out, expected):
    """Asserts that a run failed with figures, or wrote the complete dataset."""
    error = capsys.readouterr().err
    if code == 0:
        assert files_of(out) == expected
    else:
        assert code in (1, 2)
        assert_failed(error, out)
        assert NUMBERS.search(error), error


@pytest.mark.slow(base=FEW_CASES)
@pytest.mark.parametrize(("job", "tamper", "action", "which"), CASES)
def test_an_element_lost_or_repeated_between_two_steps_is_noticed_or_harmless(
    jobs, tmp_path, monkeypatch, capsys, job, tamper, action, which
):
    arguments, expected = jobs["text" if job == "merged" else job]
    monkeypatch.setattr(runs, "RUN_BYTES", 500)
    monkeypatch.setattr(sample, "_PART_BYTES", 200)
    if job == "merged":  # As if the output was in a store, and large.
        monkeypatch.setattr(Spool, "on_disk", False)
        monkeypatch.setattr(run_ranges, "MOST_RANGES", 0)
    seen = tamper(monkeypatch, action=action, which=which)
    code = run(*arguments, *IN_MEMORY, "--output", tmp_path / "out")
    assert len(seen) >= which
    assert_failed_or_complete(capsys, code, tmp_path / "out", expected)


@pytest.mark.slow(base=["results-lose"])
@pytest.mark.parametrize("action", ["lose", "repeat"])
@pytest.mark.parametrize("side", ["results", "changed", "statistics"])
def test_inputs_of_the_commit_lost_or_repeated_are_noticed_or_harmless(
    jobs, tmp_path, monkeypatch, capsys, side, action
):
    arguments, expected = jobs["sensors"]
    commit = _Commit.process

    @functools.wraps(commit)
    def tampered(self, _, plan, results, changed, statistics, *others):
        sides = {"results": results, "changed": changed, "statistics": statistics}
        assert sides[side]
        # A changed shard replaces a result, so every other one may go.
        sides[side] = sides[side][1:] if action == "lose" else [*sides[side], sides[side][0]]
        yield from commit(self, _, plan, *sides.values(), *others)

    monkeypatch.setattr(_Commit, "process", tampered)
    code = run(*arguments, *IN_MEMORY, "--output", tmp_path / "out")
    assert_failed_or_complete(capsys, code, tmp_path / "out", expected)


def test_a_vocabulary_that_lacks_the_counts_of_a_partition_is_noticed(
    jobs, tmp_path, monkeypatch, capsys
):
    arguments, expected = jobs["text"]
    rank = vocabulary.rank_words
    monkeypatch.setattr(
        text_steps, "rank_words", lambda _, summary, found, size: rank(_, summary, found[1:], size)
    )
    code = run(*arguments, *IN_MEMORY, "--output", tmp_path / "out")
    assert_failed_or_complete(capsys, code, tmp_path / "out", expected)


@pytest.mark.slow(base=["None-lose"])
@pytest.mark.parametrize("action", ["lose", "repeat"])
@pytest.mark.parametrize("tag", [None, "summary", STATISTICS])
def test_write_shards_notices_an_element_lost_or_repeated(tmp_path, monkeypatch, tag, action):
    records = [(f"r{n}", {"x": np.full(n % 7, n, np.float32)}) for n in range(900)]
    records += [(f"bad{n}", {"x": "none"}) for n in range(20)]

    def write_to(out):
        with beam.Pipeline() as pipeline:
            write = WriteShards(str(out), SCHEMA, num_shards=1, on_reject="skip")
            pipeline | beam.Create(records) | write

    write_to(tmp_path / "complete")
    # Both the end of a bundle and a full block give such elements.
    tamper_with_outputs(monkeypatch, write_shards._EncodeRecords, "finish_bundle", tag, action, 1)
    with pytest.raises(Exception) as caught:
        write_to(tmp_path / "out")
    error = find_job_error(caught.value)
    assert error and NUMBERS.search(error.message), caught.value
    assert not (tmp_path / "out" / "manifest.json").exists()


# Full disks and outputs that cannot be written.


RESUME = "run the same command again: it keeps the shards that are done"


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """(arguments of a job that writes 24 shards of 100 KB and one of 1 MB, its files)."""
    source, out = tmp_path_factory.mktemp("large") / "in", tmp_path_factory.mktemp("large") / "out"
    write_recordings(source, [700] * 600)
    # In one of the last shards.
    (source / "a" / "00543.npy").write_bytes(npy("<i2", (160_000, 3), bytes(960_000)))
    arguments = ["sensors", "--input", f"{source}/*/*", "--num_shards", 25]
    assert run(*arguments, "--output", out) == 0
    return arguments, files_of(out)


@pytest.mark.slow
def test_a_file_over_the_size_limit_ends_the_run_and_the_next_one_resumes(large, tmp_path):
    arguments, expected = large
    arguments = [*arguments, "--output", tmp_path / "out"]
    done = forked.run(*arguments, file_bytes=500_000)
    assert done.returncode == 1
    out = tmp_path / "out"
    assert_failed(done.stderr, out, f"{out}/train-", "File too large", RESUME)
    before = len(list((tmp_path / "out" / ".staging").glob("*.done")))
    done = forked.run(*arguments)
    assert done.returncode == 0
    assert kept_shards(done.stderr) == before >= 1
    assert files_of(tmp_path / "out") == expected


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


def assert_no_room(done, out, cure):
    assert done.returncode == 1
    assert_failed(done.stderr, out, out, "No space left on device", cure)


@pytest.mark.disks
def test_a_full_disk_ends_the_run_and_the_next_one_resumes_when_there_is_room(
    large, tmp_path, disk
):
    arguments, expected = large
    path = disk("disk", "2m")
    arguments = [*arguments, "--output", path / "out"]
    assert_no_room(forked.run(*arguments), path / "out", RESUME)
    before = len(list((path / "out" / ".staging").glob("*.done")))
    subprocess.run(["mount", "-o", "remount,size=64m", str(path)], check=True)
    done = forked.run(*arguments)
    assert done.returncode == 0
    assert kept_shards(done.stderr) == before >= 5
    assert files_of(path / "out") == expected


@pytest.mark.disks
@pytest.mark.parametrize("pages", [1, 2, 4, 7, 11, 15, 20, 25, 30, 35, 40, 45])
def test_a_disk_that_is_full_at_any_step_ends_the_run_with_one_line(jobs, disk, pages):
    arguments, expected = jobs["sensors"]
    path = disk("disk", f"{pages * 4}k")
    arguments = [*arguments, "--output", path / "out"]
    done = forked.run(*arguments)
    if done.returncode:
        assert_no_room(done, path / "out", "make room")
        subprocess.run(["mount", "-o", "remount,size=64m", str(path)], check=True)
        assert forked.run(*arguments).returncode == 0
    assert bool(done.returncode) or pages > 35, "there was room for all of it"
    assert files_of(path / "out") == expected


@pytest.mark.disks
def test_a_full_disk_for_temporary_files_ends_the_run_with_one_line(
    tmp_path, disk, monkeypatch, capsys
):
    path = disk("tmp", "1m")
    (tmp_path / "a.txt").write_text("".join(f"{n} " + "x" * 9000 + "\n" for n in range(600)))
    arguments = ["text", "--input", tmp_path / "a.txt", "--output", tmp_path / "out"]
    # As if the output was not on a disk: otherwise records are read where they are.
    monkeypatch.setattr(Spool, "on_disk", False)
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(path))
        assert run(*arguments, *IN_MEMORY) == 1
    assert_failed(capsys.readouterr().err, tmp_path / "out", "No space left on device", path)
    assert run(*arguments, *IN_MEMORY) == 0


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
@pytest.mark.parametrize("way", ["a file", ".staging", "rejects", "manifest.json"])
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


def test_an_output_that_vanishes_while_it_is_written_ends_the_run_with_one_line(
    jobs, tmp_path, monkeypatch, capsys
):
    arguments, _ = jobs["sensors"]
    out, apply = tmp_path / "out", topup.apply_change

    def vanishes(*given):
        shutil.rmtree(out, ignore_errors=True)
        return apply(*given)

    monkeypatch.setattr(commit, "apply_change", vanishes)
    assert run(*arguments, *IN_MEMORY, "--output", out) == 1
    assert_failed(capsys.readouterr().err, out, out, "cannot be written")


def test_the_traceback_of_an_unexpected_failure_is_in_a_file(jobs, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(commit, "plan_changes", lambda *_: [json.loads("{")])
    assert run(*jobs["sensors"][0], *IN_MEMORY, "--output", tmp_path / "out") == 1
    error = only_error(capsys.readouterr().err, "the pipeline failed.*the traceback is in")
    log = Path(error.split()[-1])
    assert "JSONDecodeError" in log.read_text()
    log.unlink()
