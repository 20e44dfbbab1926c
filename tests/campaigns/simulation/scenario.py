"""What one seed does to one job, and what must hold after it."""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import json
import random
import re
import tempfile
import traceback
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from unittest import mock

import apache_beam as beam
import numpy as np

from beam_jobs import Feature, Schema, WriteShards
from beam_jobs.dataset import generations
from beam_jobs.dataset.generations import begun
from beam_jobs.dataset.lease import leased, refuse_if_busy
from beam_jobs.dataset.output import Output
from beam_jobs.errors import CompleteError, JobError
from beam_jobs.plan import shards as plan_shards
from beam_jobs.records import runs
from beam_jobs.records.spool import Spool
from readers.files.stores import clients, store
from readers.files.stores.per_process import PerProcess
from readers.format.manifest import Manifest, newest_manifest
from tests.campaigns.simulation.graph import Node, nodes_of_pipeline
from tests.campaigns.simulation.runner import JobFailed, Runner
from tests.campaigns.simulation.world import Crash, Died, Faults, World
from tests.support.commands import parse_command
from tests.support.datasets import write_recordings

OUTPUT = "s3://simulated/out"

# Runs of a command before one that nothing disturbs.
_RUNS = 3

_SCHEMA = Schema({"x": Feature("float32", (None,)), "key": Feature("string")})

# What may have another content later: notes of shards, and the copy of the newest manifest.
_CHANGING = re.compile(r"\.staging/.*|.*\.done|manifest\.json")

_MANIFEST = re.compile(r"(?:generations/(\d+)|manifest)\.json")

_NOTHING = b"{}", Manifest(_SCHEMA, {}, generation=0)


@contextlib.contextmanager
def simulated(world: World, chance: random.Random, name: str) -> Iterator[None]:
    """Puts a world in the place of all stores, and makes runs of encoded records small."""
    with (
        mock.patch.object(clients, "_stores", PerProcess(8)),
        mock.patch.object(clients, "_new_store", lambda *_: world),
        mock.patch.object(store, "PART_BYTES", 2000),
        mock.patch.object(uuid, "uuid4", lambda: uuid.UUID(int=chance.getrandbits(128))),
        mock.patch.object(runs, "RUN_BYTES", 400),
        mock.patch.object(runs, "_UNKNOWN_BYTES", 100),
        mock.patch.object(plan_shards, "MOST_RANGES", 0 if name == "merged" else 1 << 40),
        mock.patch.object(Output, "__deepcopy__", _of_run, create=True),
        mock.patch.object(Spool, "__deepcopy__", _of_run, create=True),
    ):
        yield


def _of_run(value: Output | Spool, run: dict[str, Output]) -> Output | Spool:
    """What a copy of a pipeline has for its output and its spool: those of a run, if it is copied for one."""
    output = run.get("output", value)
    return Spool(output.staging) if isinstance(value, Spool) and output is not value else output


class Reader:
    """Looks at the dataset of a world after each change, as readers do.

    Attributes:
        newest: The number of the newest generation; 0 if there is none.
        wrong: What must not be seen.
    """

    def __init__(self, world: World) -> None:
        self.world, self.newest, self.wrong = world, 0, list[str]()
        self._first: dict[str, bytes] = {}
        self._content, self._manifest = _NOTHING
        world.after_change = self._look
        self._look(f"{OUTPUT}/manifest.json")

    def _look(self, path: str) -> None:
        name, objects = path.removeprefix(f"{OUTPUT}/"), self.world.contents
        data = objects.get(path)
        if data and self._first.setdefault(name, data) != data and not _CHANGING.fullmatch(name):
            self.wrong.append(f"{name} has two contents")
        if name not in self._manifest.paths and not _MANIFEST.fullmatch(name):
            return
        self._content, self._manifest = newest_manifest(OUTPUT, self.world.content) or _NOTHING
        seen, names = self._manifest.generation, self._names()
        numbers = [0, *(int(n[1]) for n in map(_MANIFEST.fullmatch, names) if n and n[1])]
        if not seen == max(numbers) >= self.newest:
            self.wrong.append(f"{name}: {seen} is seen of {numbers}, {self.newest} was the newest")
        self.newest = max(numbers)
        self.wrong += [f"{n} is missing" for n in self._manifest.paths.difference(names)]

    def _names(self) -> list[str]:
        return [path.removeprefix(f"{OUTPUT}/") for path in self.world.contents]

    def files(self) -> dict[str, str]:
        """Name -> SHA-256 of each file of the newest generation and of its manifest, whatever its folder and number."""
        folder = next((shard.path.split("/")[0] for shard in self._manifest.shards), "FOLDER")
        values = json.loads(self._content) | dict.fromkeys(("versions", "crc32c", "generation"))
        found = {"manifest": json.dumps(values).replace(folder, "FOLDER").encode()}
        for name in self._manifest.paths:
            found[name.replace(folder, "FOLDER")] = self.world.content(f"{OUTPUT}/{name}")
        return {name: hashlib.sha256(data).hexdigest() for name, data in found.items()}

    def left(self) -> list[str]:
        """The files that are of no use, but those of a late attempt in a folder whose notes are deleted."""
        used = {*self._manifest.paths, "manifest.json", f"generations/{self.newest}.json"}
        left = [name for name in self._names() if name not in used]
        folders = {name[:8] for name in [*used, *(name for name in left if name.endswith(".done"))]}
        return [name for name in left if name[8:9] != "/" or name[:8] in folders]


@functools.cache
def _inputs() -> Path:
    """A folder of texts and recordings, some of which become rejects."""
    folder = Path(tempfile.mkdtemp(prefix="simulation-"))
    (folder / "near").mkdir()
    for name in "ab":
        numbers = [*range(26), *range(4)]  # The last texts are like the first ones.
        lines = [json.dumps({"text": f"{name} {n % 7} {n}", "label": n % 3}) for n in numbers]
        lines[3] = "{"
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
        drawn = [random.Random(n % 11 if n < 26 else f"{name} {n}") for n in range(30)]
        texts = [" ".join([*map(str, each.choices(range(9999), k=40)), name]) for each in drawn]
        lines = [json.dumps({"text": text, "label": len(text) % 3}) for text in texts]
        (folder / "near" / f"{name}.jsonl").write_text("\n".join(lines))
    write_recordings(folder, [n % 5 + 1 for n in range(14)], bad=[5])
    return folder


_TEXT = ("text", "--input", "*.jsonl", "--label_field", "label")
_WORDS = (*_TEXT, "--tokens", "words")
_WINDOWS = (*_TEXT, "--tokens", "bpe", "--vocabulary_size", "264", "--window", "3")
_SENSORS = ("sensors", "--input", "[a-c]/*.npy", "--label", "none", "--max_rejects", "all")
_SPLITS = ("--splits", "train=0.7,val=0.3", "--num_shards", "train=3,val=2")
_OTHER, _OVERWRITE = "--num_shards=2", "--overwrite"
_RIVALS = ((), (_OVERWRITE,), (_OTHER,), (_OTHER, _OVERWRITE))
# The lease of a run whose command was killed.
_EXPIRED = b""
_HERE = ("--direct_num_workers", "1")  # No other process, whose store would be another.


_COMMANDS = {
    "text": _WORDS,
    "merged": _WORDS,
    "sensors": _SENSORS,
    "dropped": (*_WORDS, "--vocabulary_size", "9", "--drop_duplicates", "--stratify"),
    "windows": (*_WINDOWS, "--exact_splits"),
    "grouped": (*_SENSORS, "--group_by", r"(\d)\.npy", "--exact_splits"),
    "near": (*_TEXT[:2], "near/*.jsonl", *_TEXT[3:], "--drop_near_duplicates", "0.8"),
}

JOBS = [*(name for name in _COMMANDS if name != "near"), "made"]


def flags_of(name: str, *more: str) -> tuple[str, ...]:
    """The flags of a command, without its output."""
    flags = (str(_inputs() / flag) if "*" in flag else flag for flag in _COMMANDS[name])
    return (*flags, *_SPLITS, *_HERE, *more)


def _made(*more: str) -> WriteShards:
    shards, splits = 2 if _OTHER in more else 3, {"train": 0.7, "val": 0.3}
    return WriteShards(OUTPUT, _SCHEMA, shards, splits=splits, overwrite=_OVERWRITE in more)


@functools.cache
def _nodes(name: str) -> list[Node]:
    """The pipeline of a command, or of a user's program that ends in `WriteShards`."""
    pipeline = beam.Pipeline()
    records = [(f"k{n}", {"x": np.full(n % 4, n, np.float32)}) for n in range(50)]
    with simulated(World(), random.Random(0), name):
        if name == "made":
            _ = pipeline | "Given" >> beam.Create(records) | _made()
        else:
            _ = pipeline | parse_command([*flags_of(name), "--output", OUTPUT]).transform
    return nodes_of_pipeline(pipeline)


@functools.cache
def _output(name: str, *more: str) -> Output:
    """The output of a command, before its run begins."""
    with mock.patch.object(generations, "begun", lambda output, **_: output):
        return parse_command([*flags_of(name, *more), "--output", OUTPUT]).output


@functools.cache
def files_of_job(name: str) -> list[dict[str, str]]:
    """What `Reader.files` returns after undisturbed runs of a job, and of its rival."""
    world, chance = World(), random.Random(name)
    reader, runner = Reader(world), Runner(world, chance)
    with simulated(world, chance, name):
        assert _run(runner, reader, name) == "complete"
        expected = reader.files()
        assert _run(runner, reader, name, _OTHER, _OVERWRITE) == "complete"
    assert not reader.wrong and not reader.left(), f"{reader.wrong}, {reader.left()}"
    return [expected, reader.files()]


def _drawn_faults(chance: random.Random) -> Faults:
    """Some faults of a job, each rare or frequent."""
    rates = {
        each.name: 10 ** chance.uniform(-3, -0.5) if chance.random() < 0.4 else 0.0
        for each in fields(Faults)
    }
    rates["crash"] /= 5
    return Faults(**rates)


# After these faults a runner tries a bundle again, maybe that of the commit.
_AGAIN = ("dies", "retried", "refused", "unanswered", "full")


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
    (expected, other), world, struck = files_of_job(name), World(), Counter[str]()
    reader, runner = Reader(world), Runner(world, chance)
    world.before_request = runner.step_zombie
    with simulated(world, chance, name):
        for number in range(_RUNS):
            faults = _drawn_faults(chance)
            what = f"seed {seed}, {name}, run {number}, {faults}"
            world.disturb(seed * _RUNS + number, faults)
            has_rival = chance.random() < 0.3
            if has_rival:
                struck["rival"] += 1
                rival, more = Runner(world, chance), chance.choice(_RIVALS)
                rival.beside = runner.beside  # type: ignore[method-assign]
                runner.beside(functools.partial(_run, rival, reader, name, *more, leases=False))
            replaces = bool(reader.newest) and chance.random() < 0.5
            ended = _run(runner, reader, name, *[_OVERWRITE] * replaces)
            for path in [path for path in world.contents if path.endswith("/lease")]:
                world.contents[path] = _EXPIRED  # All runs are of one process, which lives.
            struck += world.struck
            struck[f"runs: {ended}"] += 1
            found = reader.files()
            assert not reader.wrong, f"{what}: {reader.wrong}"
            assert not reader.newest or found in (expected, other), f"{what}: other files"
            if ended == "complete" and runner.is_alone:
                if reader.left() and (has_rival or any(map(world.struck.get, _AGAIN))):
                    # The next command deletes what a commit leaves that dies, is tried again, or sees another run.
                    world.calm()
                    _run(runner, reader, name)
                assert not reader.left(), f"{what}: left {reader.left()}"
            if found == expected and chance.random() < 0.7:
                break
        world.calm()
        runner.let_zombies_end()
        found = reader.files()
        _run(runner, reader, name)
        assert reader.newest and reader.files() in (found, expected), f"{what}: afterwards"
        ended = _run(runner, reader, name, _OVERWRITE), reader.files() == expected
        wrong = [*reader.left(), *reader.wrong, *world.uploads.values()]
        assert ended == ("complete", True) and not wrong, f"{what}: at last {ended}, {wrong}"
    return struck


def _run(runner: Runner, reader: Reader, name: str, *more: str, leases: bool = True) -> str:
    """Runs a command once, of which others see a lease, or one that has expired; returns how it ended."""
    generation, lease = reader.newest + 1, contextlib.nullcontext()
    try:
        if name == "made":
            refuse_if_busy(OUTPUT)  # As `WriteShards.expand` does.
            output = begun(_made(*more)._output)
        else:
            output = begun(_output(name, *more), repeats=True)
            lease = leased(output, name, keeps=False) if leases else lease
        run = {"output": output}
        if not leases:
            reader.world.contents[f"{output.staging}/lease"] = _EXPIRED
        with lease:
            runner.run(
                replace(n, step=copy.deepcopy(n.step, run), sides=copy.deepcopy(n.sides, run))
                for n in _nodes(name)
            )
    except (Crash, Died):
        return "crashed"
    except (JobError, OSError):
        return "refused"
    except JobFailed as failed:
        cause = failed.__cause__
        if isinstance(cause, CompleteError):
            return "complete"
        if not isinstance(cause, JobError | Died):
            reader.wrong.append(f"{failed} failed with {cause!r}")
        return "failed"
    # As the command finds when the runner reports success.
    return "complete" if reader.newest >= generation else "failed"


def outcome(seed: int, name: str = "") -> tuple[int, Counter[str], str]:
    """Simulates a seed; returns it, what struck, and the traceback if something does not hold."""
    try:
        return seed, simulate(seed, name), ""
    except Exception:
        return seed, Counter(), traceback.format_exc()
