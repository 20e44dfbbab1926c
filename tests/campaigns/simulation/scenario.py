"""What one seed does to one job, and what must hold after it."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import random
import string
import tempfile
import traceback
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from unittest import mock

import apache_beam as beam
import numpy as np

from beam_jobs import Feature, Schema, WriteShards
from beam_jobs.cli.command import parse_command
from beam_jobs.dataset.directory import RUNNING
from beam_jobs.dataset.output import Output
from beam_jobs.dataset.replace import check_replaced, finish_replacement
from beam_jobs.errors import JobError
from beam_jobs.plan import run_ranges
from beam_jobs.records import runs
from beam_jobs.storage import objects
from tests.campaigns.simulation.graph import Node, nodes_of
from tests.campaigns.simulation.runner import JobFailed, Runner
from tests.campaigns.simulation.world import Crash, Died, Faults, World

OUTPUT = "s3://simulated/out"

# Runs of a command until one must succeed, because nothing disturbs it.
_RUNS = 4

_SCHEMA = Schema({"x": Feature("float32", (None,)), "key": Feature("string")})


@dataclass(frozen=True)
class Job:
    """A job whose pipeline is built once.

    Attributes:
        nodes: Its pipeline.
        output: Where a command writes; None for a program.
        before: The objects of the output before it.
        expected: Name -> SHA-256 of each file after an undisturbed run.
        merges: Whether its runs are merged.
    """

    nodes: list[Node]
    output: Output | None
    before: dict[str, bytes]
    expected: dict[str, str]
    merges: bool


@contextlib.contextmanager
def simulated(world: World, chance: random.Random, merges: bool) -> Iterator[None]:
    """Puts a world in the place of all stores, and makes runs of encoded records small."""
    with (
        mock.patch.object(objects, "_new_store", lambda *_: world),
        mock.patch.object(uuid, "uuid4", lambda: uuid.UUID(int=chance.getrandbits(128))),
        mock.patch.object(runs, "RUN_BYTES", 400),
        mock.patch.object(runs, "_UNKNOWN_BYTES", 100),
        mock.patch.object(run_ranges, "MOST_RANGES", 0 if merges else run_ranges.MOST_RANGES),
    ):
        yield


def files_in(world: World) -> dict[str, str]:
    """Name -> SHA-256 of each file of the dataset, without `.staging/` and the versions of packages."""
    found = {}
    for path, data in sorted(world.objects.items()):
        name = path.removeprefix(f"{OUTPUT}/")
        if name == "manifest.json":
            data = json.dumps(json.loads(data) | {"versions": None, "crc32c": None}).encode()
        if not name.startswith(".staging/"):
            found[name] = hashlib.sha256(data).hexdigest()
    return found


@functools.cache
def _inputs() -> Path:
    """A folder of texts and recordings, some of which become rejects."""
    folder = Path(tempfile.mkdtemp(prefix="simulation-"))
    for name in "ab":
        numbers = [*range(26), *range(4)]  # The last texts are like the first ones.
        lines = [json.dumps({"text": f"{name} {n % 7} {n}", "label": n % 3}) for n in numbers]
        lines[3] = "{"
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    for n in range(14):
        np.save(folder / f"{n}.npy", np.full((n % 5 + 1, 2), n, np.float32))
    (folder / "5.npy").write_bytes(b"not an array")
    (folder / "near").mkdir()
    for name in "ab":
        lines = [json.dumps({"text": text, "label": len(text) % 3}) for text in _alike(name)]
        (folder / "near" / f"{name}.jsonl").write_text("\n".join(lines))
    return folder


def _alike(name: str) -> Iterator[str]:
    """Yields 30 texts, of which some are like another of their file or of the other one."""
    for number in range(30):
        drawn = random.Random(number % 11 if number < 26 else f"{name} {number}")
        words = ["".join(drawn.choices(string.ascii_lowercase, k=6)) for _ in range(40)]
        words[number] = name
        yield " ".join(words)


def _command(*flags: str) -> tuple[beam.PTransform, Output | None]:
    command = parse_command([*flags, "--output", OUTPUT])
    return command.transform, command.output


_TEXT = ("text", "--input", "*.jsonl", "--label_field", "label")
_WORDS = (*_TEXT, "--tokens", "words")
_FEW_WORDS = (*_WORDS, "--vocabulary_size", "9")
_WINDOWS = (*_TEXT, "--tokens", "bpe", "--vocabulary_size", "264", "--window", "3")
_NEAR = ("text", "--input", "near/*.jsonl", "--label_field", "label")
_SENSORS = ("sensors", "--input", "*.npy", "--label", "none")
_SPLITS = ("--splits", "train=0.7,val=0.3", "--num_shards", "train=3,val=2")
_HERE = ("--direct_num_workers", "1")  # No other process, whose store would be another.


# The flags of each command.
_COMMANDS = {
    "text": _WORDS,
    "merged": _WORDS,
    "sensors": _SENSORS,
    "dropped": (*_FEW_WORDS, "--drop_duplicates", "--stratify"),
    "windows": (*_WINDOWS, "--exact_splits"),
    "grouped": (*_SENSORS, "--group_by", r"(\d)\.npy", "--exact_splits"),
    "replaced": (*_WORDS, "--overwrite"),
    "near": (*_NEAR, "--drop_near_duplicates", "0.8"),
}

# Those of the seeds; a seed of a campaign stays what it was if another command is added.
JOBS = [*(name for name in _COMMANDS if name != "near"), "made"]


def flags_of(name: str, *more: str) -> tuple[str, ...]:
    """The flags of a command, without its output."""
    flags = (str(_inputs() / flag) if "*" in flag else flag for flag in _COMMANDS[name])
    return (*flags, *_SPLITS, *_HERE, *more)


class _Made(beam.PTransform):
    """A user's pipeline that ends in `WriteShards`."""

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        records = [(f"k{n}", {"x": np.full(n % 4, n, np.float32)}) for n in range(50)]
        splits = {"train": 0.7, "val": 0.3}
        given = pipeline | "Given" >> beam.Create(records)
        return given | WriteShards(OUTPUT, _SCHEMA, 3, splits=splits)


@functools.cache
def job_of(name: str) -> Job:
    """A job, after an undisturbed run of it."""
    world, chance, merges = World(), random.Random(name), name == "merged"
    with simulated(world, chance, merges):
        if name == "replaced":
            older, _ = _command(*flags_of("text", "--seed", "9"))
            Runner(world, chance).run(nodes_of(older))
        before = dict(world.objects)
        transform, output = (_Made(), None) if name == "made" else _command(*flags_of(name))
        nodes = nodes_of(transform)
        Runner(world, chance).run(nodes)
    assert not [path for path in world.objects if "/.staging/" in path], world.objects
    return Job(nodes, output, before, files_in(world), merges)


def _drawn_faults(chance: random.Random) -> Faults:
    """Some faults of a job, each rare or frequent."""
    rates = {
        each.name: 10 ** chance.uniform(-3, -0.5) if chance.random() < 0.4 else 0.0
        for each in fields(Faults)
    }
    rates["crash"] /= 5
    return Faults(**rates)


def _check(job: Job, world: World, what: str) -> None:
    """Asserts that there is a whole dataset, the older or the new one, or no manifest."""
    if f"{OUTPUT}/manifest.json" not in world.objects:
        return
    before = World()
    before.objects = job.before
    older, found = files_in(before), files_in(world)
    manifest = found["manifest.json"]
    whole = job.expected if manifest == job.expected["manifest.json"] else older
    differing = {name for name in whole if found.get(name) != whole[name]}
    assert not differing, f"{what}: a manifest, but {sorted(differing)} are not as it says"


def simulate(seed: int, name: str = "") -> Counter[str]:
    """Runs a job under faults until it is complete; returns how often each fault struck.

    Args:
        seed: Decides what fails.
        name: The job; by default, the seed decides which one of `JOBS`.

    Raises:
        AssertionError: Something does not hold.
    """
    chance = random.Random(seed)
    name = name or JOBS[seed % len(JOBS)]
    job, world, struck = job_of(name), World(), Counter[str]()
    world.objects = dict(job.before)
    runner = Runner(world, chance)
    with simulated(world, chance, job.merges):
        for number in range(_RUNS):
            last = number == _RUNS - 1
            faults = Faults() if last else _drawn_faults(chance)
            what = f"seed {seed}, {name}, run {number}, {faults}"
            world.disturb(seed * _RUNS + number, faults)
            if last:
                runner.let_zombies_end()
                _check(job, world, f"{what}: after zombies")
            ended = _run(job, world, runner, what)
            if ended != "complete":
                # A note would show that its process is dead, which here is the process of all runs.
                for path in [path for path in world.objects if RUNNING in path]:
                    del world.objects[path]
            struck += world.struck
            struck[f"runs: {ended}"] += 1
            _check(job, world, what)
            if ended == "complete" or files_in(world) == job.expected:
                break
        world.calm()
        assert files_in(world) == job.expected, f"{what}: {ended}, and other files"
        if ended == "complete" and not runner.left_by_zombies:
            left = [path for path in world.objects if "/.staging/" in path]
            assert not left and not world.uploads, f"{what}: left behind {left}, {world.uploads}"
        runner.let_zombies_end()
        assert files_in(world) == job.expected, f"{what}: zombies changed files"
    return struck


def _run(job: Job, world: World, runner: Runner, what: str) -> str:
    """Runs the command once; returns how it ended."""
    try:
        finish_replacement(OUTPUT)
        runner.run(job.nodes)
        # As the command does when the runner reports success.
        if job.output:
            check_replaced(job.output)
        if f"{OUTPUT}/manifest.json" not in world.objects:
            return "failed"
    except (Crash, Died):
        return "crashed"
    except JobError:
        return "refused"
    except JobFailed as failed:
        cause: Any = failed.__cause__
        assert isinstance(cause, JobError | Died), f"{what}: {failed} failed with {cause!r}"
        return "failed"
    return "complete"


def outcome(seed: int, name: str = "") -> tuple[int, Counter[str], str]:
    """Simulates a seed; returns it, what struck, and the traceback if something does not hold."""
    try:
        return seed, simulate(seed, name), ""
    except Exception:
        return seed, Counter(), traceback.format_exc()
