"""A job that is killed at any step, or loses its power there, leaves no half dataset, and the same command completes it.

These are some of the kills that a campaign draws: `python -m tests.campaigns kills --kills 1000`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.campaigns.kills.campaign import World, world_of
from tests.campaigns.kills.power import Change, lose_power
from tests.campaigns.kills.steps import Step, family_of, thing_at
from tests.campaigns.kills.trial import kill


@pytest.fixture(scope="module")
def on_disk() -> Iterator[World]:
    with world_of(["disk"]) as world:
        yield world


@pytest.fixture(scope="module")
def in_stores() -> Iterator[World]:
    with world_of(["disk", "S3", "GCS"]) as world:
        yield world


def step_of(text: str) -> Step:
    """The step in words such as `after lease: renamed (2)`; `worker` before them is a role."""
    role = "worker" if text.startswith("worker ") else "driver"
    edge, _, name = text.removeprefix("worker ").partition(" ")
    name, _, nth = name.rstrip(")").partition(" (")
    return Step(role, name, edge, int(nth or 1))


# (job, store, start, what is killed, step, whether it is in the base). Seed 0 of a loss of power loses no name, seed 2 all
# that it may.
KILLS = [
    ("sensors", "disk", "new", "driver", "after shard train 1: linked", False),
    ("images", "disk", "new", "driver", "before top-up of shard train 2: written", False),
    ("sensors", "disk", "new", "driver", "after note of shard train 0: deleted", False),
    ("text", "disk", "new", "driver", "half run of records: appended to", False),
    ("text", "disk", "new", "driver", "after vocabulary: linked", False),
    ("images", "disk", "new", "driver", "half second shard train 2: written", False),
    ("images", "disk", "new", "driver", "after shard train 1: deleted", False),
    ("text", "disk", "new", "driver", "after generation: linked", False),
    ("reshard", "disk", "new", "driver", "after manifest: renamed", False),
    ("sensors", "disk", "overwrite", "driver", "before generation: linked", False),
    ("sensors", "disk", "overwrite", "driver", "after generation: linked", True),
    ("sensors", "disk", "resumed", "driver", "after note of shard train 2: renamed", False),
    ("images", "disk", "resumed overwrite", "driver", "after shard val 1: deleted", False),
    ("sensors", "disk", "committed", "driver", "after manifest: renamed", False),
    ("sensors", "disk", "new", "power 0", "after lease: deleted", True),
    ("images", "disk", "new", "power 0", "after top-up of shard train 2: written", False),
    ("sensors", "disk", "new", "power 2", "after manifest: renamed", False),
    ("sensors", "disk", "overwrite", "power 0", "after generation: linked", False),
    ("sensors", "disk", "new", "worker", "worker before task: input read (3)", False),
    ("sensors", "disk", "new", "both", "worker after note of shard train 0: renamed", False),
    ("sensors", "disk", "new", "worker", "worker before shard train 1: linked", False),
    ("sensors", "S3", "new", "driver", "before shard train 1: upload completed", False),
    ("sensors", "S3", "overwrite", "driver", "after generation: put", False),
    ("sensors", "GCS", "new", "driver", "before shard train 1: upload completed", False),
    ("sensors", "GCS", "committed", "driver", "after manifest: put", False),
]


def cases(is_base: bool) -> list[Any]:
    """The parameters of a test."""
    chosen = [kill[:-1] for kill in KILLS if kill[-1] == is_base]
    return [pytest.param(*each, id=" / ".join(each)) for each in chosen]


def check(world: World, job: str, store: str, start: str, way: str, text: str) -> None:
    way, _, seed = way.partition(" ")
    workers = 2 if way in ("worker", "both") else 1
    case = world.case(job, store, start, workers, quick=True)
    outcome = kill(case, step_of(text), way, int(seed or 0))
    assert outcome.fired, "the job never reached this step"
    assert not outcome.faults, "\n".join(outcome.faults)


@pytest.mark.parametrize(("job", "store", "start", "way", "text"), cases(True))
def test_the_same_command_completes_what_was_killed(on_disk, job, store, start, way, text):
    check(on_disk, job, store, start, way, text)


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize(("job", "store", "start", "way", "text"), cases(False))
def test_the_same_command_completes_whatever_was_killed(in_stores, job, store, start, way, text):
    check(in_stores, job, store, start, way, text)


# The harness itself finds what it is there to find.


def test_the_names_of_steps_have_no_part_that_differs_from_run_to_run():
    run, mark = ".staging/0a1b2c3d", "0123456789abcdef" * 2
    names = {
        ".staging": "staging folder",
        run: "staging folder of the run",
        f"{run}/lease": "lease",
        f"{run}/job": "remote note",
        f"{run}/records.{mark}": "run of records",
        f"{run}/lease.{mark}": "staged lease",
        f"{run}/train-00002-of-00003.tfrecord.{mark}": "staged shard train 2",
        f"{run}/val-00000-of-00001.jsonl.{mark}": "staged rejects of shard val 0",
        f"{run}/val-00000-of-00001.tfrecord.index.{mark}": "staged index of shard val 0",
        f"{run}/1.json.{mark}": "staged generation",
        f".staging/manifest.json.{mark}": "staged manifest",
        "01234567": "folder",
        "01234567/rejects": "rejects folder",
        "01234567/train-00002-of-00003.tfrecord.done": "note of shard train 2",
        "01234567/train-00002-of-00003.89abcdef.tfrecord": "second shard train 2",
        "01234567/train-00002-of-00003.89abcdef.tfrecord.index": "index of second shard train 2",
        "01234567/vocabulary.txt": "vocabulary",
        "generations/12.json": "generation",
    }
    assert {name: thing_at(name) for name in names} == names
    assert family_of("staged note of shard train 0: opened") == "note of shard"
    assert family_of("index of second shard train 2: linked") == "index of second shard"


def test_a_loss_of_power_spoils_what_was_not_synced_and_nothing_else(tmp_path: Path):
    staged, file, kept = tmp_path / "staged", tmp_path / "file", tmp_path / "kept"
    file.write_bytes(b"whole")
    kept.write_bytes(b"synced")
    changes = [
        Change("open", "", (str(kept),)),
        Change("fsync", "", (str(kept),)),
        Change("fsync", "", (str(tmp_path),)),
        Change("open", "", (str(staged),)),
        Change("rename", "", (str(staged), str(file))),
    ]
    seen = set()
    for seed in range(100):
        file.write_bytes(b"whole")
        staged.unlink(missing_ok=True)
        lose_power(changes, random.Random(seed))
        assert kept.read_bytes() == b"synced"
        seen.add(file.read_bytes() if file.exists() else None)
    assert {None, b"", b"whole", bytes(5)} <= seen


def test_what_a_rename_replaced_comes_back_with_a_lost_name(tmp_path: Path):
    staged, file, grave = tmp_path / "staged", tmp_path / "file", tmp_path / "grave"
    file.write_bytes(b"new")
    grave.write_bytes(b"old")
    rename = Change("rename", str(grave), (str(staged), str(file)))
    seeds = iter(range(100))
    while not lose_power([rename], random.Random(next(seeds)))["names"]:
        pass
    assert (staged.read_bytes(), file.read_bytes()) == (b"new", b"old")
