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
from readers.format.manifest import GENERATIONS, MANIFEST, Manifest
from tests.campaigns.kills.hooks import VARIABLE
from tests.campaigns.kills.inputs import COMMANDS, OLDER
from tests.campaigns.kills.places import Place, sums_of
from tests.campaigns.kills.power import changes_in, lose_power
from tests.campaigns.kills.steps import Step
from tests.campaigns.values import write_files
from tests.support import forked

# A machine may be busy with other tests.
_SECONDS = 400

# How a run begins: in a new directory; over an older dataset; after a run that was killed before it committed, in a
# new directory or over an older dataset; and after one that was killed when it had committed over an older dataset.
STARTS = ("new", "overwrite", "resumed", "resumed overwrite", "committed")


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
        repeated: SHA-256 of each file after the same command on that.
    """

    job: str
    place: Place
    start: str
    workers: int
    base: Path
    quick: bool
    before: Mapping[str, bytes]
    expected: Mapping[str, str]
    repeated: Mapping[str, str]

    @property
    def overwrites(self) -> bool:
        """Whether the command has `--overwrite`."""
        return self.start.endswith("overwrite")

    def command(self, root: str) -> list[str]:
        """The command that is killed, and run again."""
        flags = ["--overwrite"] if self.overwrites else [*OLDER] if self.start == "older" else []
        workers = ["--direct_num_workers", str(self.workers)]
        command = [word.replace("{}", str(self.base)) for word in COMMANDS[self.job]]
        return [*command, *workers, *flags, "--output", root]


@dataclass
class Outcome:
    """What came of a kill.

    Attributes:
        fired: Whether the job reached the step.
        state: What was there before the command ran again: "nothing", "older" or "whole", and
            whether there were other files.
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


def newest(files: Mapping[str, bytes]) -> str:
    """The name of the newest generation among the files of a directory; empty without one."""
    numbers = [int(Path(name).stem) for name in files if name.startswith(f"{GENERATIONS}/")]
    return f"{GENERATIONS}/{max(numbers)}.json" if numbers else ""


def _state(case: Case, left: Mapping[str, bytes], faults: list[str]) -> str:
    """What a killed job left: the newest generation must be whole, and what readers see."""
    name, sums = newest(left), sums_of(left)
    with tempfile.TemporaryDirectory(prefix="kills-") as copy:
        write_files(Path(copy), left)
        try:
            seen = Manifest.read(copy).to_bytes()
            faults += [f"a dataset, and {problem}" for problem in readers.verify(copy).problems]
        except Exception as error:
            seen = b""
            if name:
                faults.append(f"{name} cannot be verified: {error}")
    if seen != left.get(name, b""):
        faults.append(f"readers see another generation than {name or 'none'}")
    older, new = newest(case.before), newest(dict.fromkeys(case.expected, b""))
    if not name:
        faults += ["the older dataset is gone"] if older else []
        return "nothing"
    known = {**sums_of(case.before), **case.expected}
    manifests = {new: "whole", older: "older"} if older != new else {new: "whole"}
    if sums[name] != known.get(name) or name not in manifests:
        faults.append(f"{name} is neither the older generation nor the new one")
    of_dataset = {name, *Manifest.from_bytes(left[name]).paths}
    faults += [
        f"a dataset, and not the bytes of {n}"
        for n in sorted(of_dataset)
        if sums.get(n) != known.get(n)
    ]
    is_alone = left.keys() == {*of_dataset, MANIFEST} and left[MANIFEST] == left[name]
    return manifests.get(name, "strange") + ("" if is_alone else " and others")


def _check_end(case: Case, found: Outcome, code: int, error: str, root: str) -> None:
    """Checks what the second run left."""
    was_complete = found.state.startswith("whole")
    if code != 0:
        found.faults.append(f"exit code {code} of the second run: {error[-500:]}")
    if (" is complete already, " in error) != (was_complete and not case.overwrites):
        found.faults.append(f"the second run, after {found.state}, says: {error[-500:]}")
    expected = case.repeated if was_complete else case.expected
    files = sums_of(case.place.files(root))
    for name in sorted(files.keys() | expected.keys()):
        if name not in expected:
            found.faults.append(f"left behind: {name}")
        elif name not in files:
            found.faults.append(f"missing: {name}")
        elif files[name] != expected[name]:
            found.faults.append(f"other bytes: {name}")
    found.faults += [f"left behind: {what}" for what in case.place.unfinished(root)]
