"""A job that is killed at any step, or loses its power there, leaves no half dataset, and the same command completes it.

These are 60 of the kills that a campaign draws: `python -m tests.kills --kills 1000`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from beam_jobs.pipeline import commit
from beam_jobs.storage import atomic
from tests.kills.campaign import World, world_of
from tests.kills.power import Change, lose_power
from tests.kills.steps import Step, family_of, thing_at
from tests.kills.trial import kill


@pytest.fixture(scope="module")
def on_disk() -> Iterator[World]:
    with world_of(["disk"]) as world:
        yield world


@pytest.fixture(scope="module")
def in_stores() -> Iterator[World]:
    with world_of(["disk", "S3", "GCS"]) as world:
        yield world


def step_of(text: str) -> Step:
    """The step in words such as `after marker: renamed (2)`; `worker` before them is a role."""
    role = "worker" if text.startswith("worker ") else "driver"
    edge, _, name = text.removeprefix("worker ").partition(" ")
    name, _, nth = name.rstrip(")").partition(" (")
    return Step(role, name, edge, int(nth or 1))


def check(
    world: World, job: str, store: str, start: str, way: str, text: str, workers: int, seed: int = 0
) -> None:
    case = world.case(job, store, start, workers, quick=True)
    found = kill(case, step_of(text), way, seed)
    assert found.fired, "the job never reached this step"
    assert not found.faults, "\n".join(found.faults)


# The driver of a job that writes into a new folder.
NEW = [
    ("sensors", "before lock: linked"),
    ("images", "after lock: linked"),
    ("text", "before marker: renamed"),
    ("reshard", "half shard train 0: written"),
    ("images", "after index of shard train 1: renamed"),
    ("sensors", "after shard train 1: renamed"),
    ("text", "before note of shard train 1: renamed"),
    ("sensors", "half rejects of shard train 0: written"),
    ("text", "half run of records: appended to"),
    ("reshard", "before run of records: completed"),
    ("images", "before top-up of shard train 2: copied"),
    ("sensors", "after note of shard train 0: deleted"),
    ("text", "half top-up of shard train 2: appended"),
    ("images", "after top-up of shard train 1: cut"),
    ("reshard", "before index of shard train 0: renamed (2)"),
    ("text", "after vocabulary: renamed"),
    ("sensors", "half manifest: written"),
    ("text", "before manifest: renamed"),
    ("reshard", "after manifest: renamed"),
    ("text", "before run of records: deleted"),
    ("images", "before staging folder: removed"),
]

# One that replaces an older dataset, or finds what a killed one left.
OVER = [
    ("overwrite", "sensors", "after next folder: made"),
    ("overwrite", "sensors", "after new manifest: renamed"),
    ("overwrite", "sensors", "after journal: renamed"),
    ("overwrite", "sensors", "after manifest: deleted"),
    ("overwrite", "text", "after shard train 1: renamed"),
    ("overwrite", "sensors", "before manifest: renamed"),
    ("overwrite", "text", "after manifest: renamed"),
    ("overwrite", "sensors", "after journal: deleted"),
    ("resumed", "sensors", "after other lock: linked"),
    ("resumed", "sensors", "before marker: renamed"),
    ("resumed", "sensors", "after note of shard train 2: renamed"),
    ("moved", "sensors", "after shard val 0: renamed"),
    ("moved", "sensors", "after rejects of shard val 0: deleted"),
]

# The power fails: (start, job, step, what decides what is lost). Seed 0 loses no name, seed 2 all that it may.
POWER = [
    ("new", "sensors", "after note of shard train 1: renamed", 0),
    ("new", "text", "after top-up of shard train 2: closed", 0),
    ("new", "images", "after manifest: renamed", 0),
    ("new", "sensors", "after lock: deleted", 0),
    ("new", "sensors", "after manifest: renamed", 2),
    ("overwrite", "sensors", "after new manifest: renamed", 0),
    ("overwrite", "sensors", "after shard train 1: renamed", 0),
    ("overwrite", "sensors", "after lock: deleted", 2),
]

# With two processes: (way, job, step).
PROCESSES = [
    ("worker", "sensors", "worker before task: input read (3)"),
    ("worker", "text", "worker half run of records: appended to (2)"),
    ("worker", "text", "worker before run of records: completed"),
    ("worker", "text", "before phase: checking"),
    ("both", "sensors", "after note of shard train 0: renamed"),
    ("driver", "text", "worker before run of records: completed"),
]

# In S3 and Google Cloud Storage.
STORES = [
    ("S3", "new", "sensors", "after lock: put"),
    ("S3", "new", "sensors", "after shard train 1: part sent"),
    ("S3", "new", "sensors", "before shard train 1: upload completed"),
    ("S3", "new", "sensors", "after shard train 1: upload completed"),
    ("S3", "new", "sensors", "after manifest: put"),
    ("S3", "overwrite", "sensors", "after shard train 1: copied"),
    ("GCS", "new", "sensors", "after shard train 1: upload begun"),
    ("GCS", "new", "sensors", "before shard train 1: upload completed"),
    ("GCS", "new", "text", "before run of records: put"),
    ("GCS", "overwrite", "sensors", "after manifest: deleted"),
]

SLOW = pytest.mark.slow


def cases(kills, base):
    """The parameters of a test; all but the named ones are slow."""
    named = [(each, " / ".join(map(str, each))) for each in kills]
    return [
        pytest.param(*each, id=text, marks=() if text in base else SLOW) for each, text in named
    ]


IN_BASE = {
    "sensors / after shard train 1: renamed",
    "sensors / after note of shard train 0: deleted",
    "overwrite / sensors / after manifest: deleted",
    "new / sensors / after lock: deleted / 0",
}


@pytest.mark.parametrize(("job", "text"), cases(NEW, IN_BASE))
def test_a_killed_driver_is_completed_by_the_same_command(on_disk, job, text):
    check(on_disk, job, "disk", "new", "driver", text, 1)


@pytest.mark.parametrize(("start", "job", "text"), cases(OVER, IN_BASE))
def test_a_killed_driver_leaves_the_older_dataset_or_the_new_one(on_disk, start, job, text):
    check(on_disk, job, "disk", start, "driver", text, 1)


@pytest.mark.parametrize(("start", "job", "text", "seed"), cases(POWER, IN_BASE))
def test_no_manifest_survives_a_loss_of_power_without_its_shards(on_disk, start, job, text, seed):
    check(on_disk, job, "disk", start, "power", text, 1, seed)


@pytest.mark.parametrize(("way", "job", "text"), cases(PROCESSES, IN_BASE))
def test_a_job_of_two_processes_is_completed_by_the_same_command(on_disk, way, job, text):
    check(on_disk, job, "disk", "new", way, text, 2)


@pytest.mark.parametrize(("store", "start", "job", "text"), cases(STORES, IN_BASE))
def test_a_killed_driver_leaves_nothing_behind_in_a_store(in_stores, store, start, job, text):
    check(in_stores, job, store, start, "driver", text, 1)


# The harness itself finds what it is there to find.


def test_the_names_of_steps_have_no_part_that_differs_from_run_to_run():
    mark = "0123456789abcdef" * 2
    names = {
        f".staging/train-00002-of-00003.tfrecord.{mark}": "staged shard train 2",
        "train-00002-of-00003.tfrecord.idx": "index of shard train 2",
        f".staging/rejects-val-00000-of-00001.jsonl.{mark}": "staged rejects of shard val 0",
        f".staging/.staging-UNFINISHED.{mark}": "staged marker",
        f".staging/train-00000-of-00003.tfrecord.{mark}.intake": "intake of shard train 0",
        ".staging/next/.staging/train-00000-of-00003.tfrecord.done": "new note of shard train 0",
        f".staging/records.{mark}{mark}": "run of records",
        f".staging/RUNNING.{mark}": "other lock",
        ".staging/next/manifest.json": "new manifest",
    }
    assert {name: thing_at(name) for name in names} == names
    assert family_of("new note of shard train 0: renamed") == "note of shard"


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


def test_all_files_are_synced_before_the_manifest_has_its_name_and_its_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    done: list[tuple[str, list[str], bool]] = []
    sync, write = commit.sync_files, commit.write_file

    def syncs(directory, names):
        names = sorted(names)
        done.append(("sync", names, (Path(directory) / "manifest.json").exists()))
        sync(directory, names)

    def writes(directory, name, data, seen=None, synced=False):
        done.append((name, [], synced))
        write(directory, name, data, seen, synced)

    monkeypatch.setattr(commit, "sync_files", syncs)
    monkeypatch.setattr(commit, "write_file", writes)
    from tests.support.commands import ONE, run
    from tests.support.datasets import write_recordings

    write_recordings(tmp_path / "in", [3] * 6, [1])
    assert run("sensors", "--input", tmp_path / "in", *ONE, "--output", tmp_path / "out") == 0
    files = sorted(str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*.*"))
    assert done[-3:] == [
        ("sync", [name for name in files if name != "manifest.json"], False),
        ("manifest.json", [], True),
        ("sync", [], True),
    ]


def test_syncing_waits_for_each_file_and_for_the_folders_that_name_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "out" / "rejects").mkdir(parents=True)
    for name in ("shard", "rejects/list"):
        (tmp_path / "out" / name).write_bytes(b"x")
    synced: list[str] = []
    monkeypatch.setattr(atomic, "_sync", synced.append)
    atomic.sync_files(str(tmp_path / "out"), ["shard", "rejects/list"])
    out = str(tmp_path / "out")
    assert set(synced[:2]) == {f"{out}/shard", f"{out}/rejects/list"}
    assert synced[2:] == [str(tmp_path), out, f"{out}/rejects"]
