"""One kill: a job is killed at a step, its power may fail, and the same command must put everything right."""

from __future__ import annotations

import json
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import readers
from tests.campaigns.kills.hooks import VARIABLE
from tests.campaigns.kills.inputs import COMMANDS, OLDER
from tests.campaigns.kills.places import Place, sums_of
from tests.campaigns.kills.power import changes_in, lose_power
from tests.campaigns.kills.steps import Step
from tests.campaigns.values import write_files
from tests.support import forked

# A machine may be busy with other tests.
_SECONDS = 400

# How a run begins: in a new directory, over an older dataset, after a run that was killed before its
# manifest, and after one that was killed while it replaced an older dataset.
STARTS = ("new", "overwrite", "resumed", "moved")


@dataclass(frozen=True)
class Case:
    """A job, where it writes, and what is there before.

    Attributes:
        job: One of `COMMANDS`.
        place: Where it writes.
        start: One of `STARTS`.
        workers: The number of processes that load records; one is the driver itself.
        base: The folder of the inputs.
        quick: Whether the job runs on the runner of engine.py, and not on Beam's own.
        before: The files in the output directory before the job.
        expected: SHA-256 of each file after it.
    """

    job: str
    place: Place
    start: str
    workers: int
    base: Path
    quick: bool
    before: Mapping[str, bytes]
    expected: Mapping[str, str]

    def command(self, root: str) -> list[str]:
        """The command that is killed, and run again."""
        flags = {"new": [], "resumed": [], "older": [*OLDER]}.get(self.start, ["--overwrite"])
        workers = ["--direct_num_workers", str(self.workers)]
        command = [word.replace("{}", str(self.base)) for word in COMMANDS[self.job]]
        return [*command, *workers, *flags, "--output", root]


@dataclass
class Outcome:
    """What came of a kill.

    Attributes:
        fired: Whether the job reached the step.
        state: What was there before the command ran again: "no manifest", "older", "whole" or "moving".
        faults: What does not hold.
        notes: What is worth to know.
    """

    fired: bool = False
    state: str = ""
    faults: list[str] = field(default_factory=list)
    notes: dict[str, int] = field(default_factory=dict)


def _watched(
    case: Case, folder: Path, root: str, fatal: Step | None = None, way: str = "driver"
) -> tuple[int, str]:
    """Runs a job's command under the hooks; returns its exit code and what it said."""
    plan = {"folder": str(folder), "root": root, "fatal": fatal, "power": way == "power"}
    plan["quick"] = case.quick
    plan["way"] = "both" if way == "power" else way
    env = {**os.environ, VARIABLE: json.dumps(plan), "TMPDIR": str(folder / "tmp")}
    (folder / "tmp").mkdir(parents=True)
    command = case.command(root)
    done = forked.run(
        *command, env=env, before="tests.campaigns.kills.hooks:prepare", timeout=_SECONDS
    )
    return done.returncode, done.stderr


def run_through(case: Case, fatal: Step | None = None) -> tuple[list[Step], dict[str, bytes]]:
    """The steps of an undisturbed run, or of one up to a kill of its driver; and the files it left."""
    with tempfile.TemporaryDirectory(prefix="kills-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        root = case.place.new(case.before)
        code, error = _watched(case, folder, root, fatal)
        assert code == (-9 if fatal else 0), error
        steps = []
        for log in sorted(folder.glob("*-*")):
            if log.name.startswith(("driver-", "worker-")):
                lines = map(json.loads, log.read_text().splitlines())
                steps += [Step(*line[1:]) for line in lines if line[0] == "steps"]
        files = case.place.files(root)
        case.place.forget(root)
        return list(dict.fromkeys(steps)), files


def kill(case: Case, step: Step, way: str, seed: int = 0) -> Outcome:
    """Kills a job at a step, runs the command again, and says what does not hold.

    Args:
        seed: Decides what a loss of power leaves.
    """
    found = Outcome()
    with tempfile.TemporaryDirectory(prefix="kills-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        root = case.place.new(case.before)
        code, error = _watched(case, folder, root, step, way)
        found.fired = (folder / "fired").exists()
        found.faults += _survivors(folder)
        if "Traceback" in error:
            found.faults.append(f"a traceback: {error[-500:]}")
        if way == "worker" and found.fired and code not in (0, 1):
            found.faults.append(f"exit code {code} after a worker was killed: {error[-500:]}")
        if way != "worker" and found.fired and code != -9:
            found.faults.append(f"exit code {code} of a killed driver: {error[-500:]}")
        if way == "power" and found.fired:
            found.notes |= _lose_power(folder, seed)
        left = case.place.files(root)
        found.state = _state(case, left, found.faults)
        code, error = _watched(case, folder / "again", root)
        _check_end(case, found, code, error, root)
        case.place.forget(root)
    return found


def _lose_power(folder: Path, seed: int) -> dict[str, int]:
    """Loses what the processes of a job have not synced; those of the driver in order, then the workers'."""
    logs = sorted(folder.glob("worker-*")) + sorted(folder.glob("driver-*"))
    chance, lost = random.Random(seed), Counter[str]()
    for log in reversed(logs):
        lost.update(lose_power(changes_in(log), chance))
    return lost


def _survivors(folder: Path) -> list[str]:
    """The processes of a job that do not end with it."""
    pids = [path.name.split("-")[1] for path in folder.glob("*-*") if path.name[0] in "dws"]
    end = time.monotonic() + 60
    while alive := [pid for pid in pids if _runs(pid)]:
        if time.monotonic() > end:
            return [f"processes of a killed job still run: {alive}"]
        time.sleep(0.005)
    return []


def _runs(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _state(case: Case, left: Mapping[str, bytes], faults: list[str]) -> str:
    """What a killed job left; a manifest must be that of a whole dataset."""
    if "manifest.json" not in left:
        has_older = "manifest.json" in case.before
        if has_older and ".staging/next/manifest.json" not in left:
            faults.append("neither the older dataset is there nor the new one")
        return "moving" if has_older else "no manifest"
    dataset = {name: data for name, data in left.items() if not name.startswith(".staging/")}
    with tempfile.TemporaryDirectory(prefix="kills-") as copy:
        write_files(Path(copy), dataset)
        try:
            report = readers.verify(copy)
            faults += [f"a manifest, and {problem}" for problem in report.problems]
        except Exception as error:
            faults.append(f"a manifest that cannot be verified: {error}")
    sums = sums_of(dataset)
    if sums == case.expected:
        return "whole"
    older = {name: data for name, data in case.before.items() if not name.startswith(".staging/")}
    if sums == sums_of(older):
        return "older"
    manifest = sums["manifest.json"]
    if manifest not in (case.expected["manifest.json"], sums_of(older).get("manifest.json")):
        faults.append("a manifest that is neither the older one nor the new one")
    return "whole and others" if manifest == case.expected["manifest.json"] else "older and others"


def _check_end(case: Case, found: Outcome, code: int, error: str, root: str) -> None:
    """Checks what the second run left."""
    complete = found.state in ("whole", "whole and others") and "--overwrite" not in case.command(
        root
    )
    if complete:
        if code != 2 or "a dataset is here already" not in error:
            found.faults.append(f"exit code {code} over a complete dataset: {error[-500:]}")
    elif code != 0:
        found.faults.append(f"exit code {code} of the second run: {error[-500:]}")
    files = sums_of(case.place.files(root))
    for name in sorted(files.keys() | case.expected.keys()):
        if name not in case.expected:
            found.faults.append(f"left behind: {name}")
        elif name not in files:
            found.faults.append(f"missing: {name}")
        elif files[name] != case.expected[name]:
            found.faults.append(f"other bytes: {name}")
    found.faults += [f"left behind: {what}" for what in case.place.unfinished(root)]
