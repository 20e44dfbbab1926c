"""A campaign: which jobs are killed where, and a table of what came of it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.campaigns.kills.inputs import COMMANDS, write_inputs
from tests.campaigns.kills.places import Disk, InBucket, Place, sums_of
from tests.campaigns.kills.steps import Step
from tests.campaigns.kills.trial import STARTS, Case, Outcome, kill, older_dataset, run_through
from tests.support.object_stores import bucket_of, gcs_running, s3_running

STORES = ("disk", "S3", "GCS")


class World:
    """The inputs and places of many kills, and what jobs write when nothing is killed.

    Args:
        base: A folder for all files.
        places: By name.
    """

    def __init__(self, base: Path, places: dict[str, Place]) -> None:
        self._base, self._places = base, places
        self._disk = Disk(base)
        self._expected: dict[str, dict[str, str]] = {}
        self._before: dict[tuple[str, str, str], dict[str, bytes]] = {}
        self._steps: dict[tuple[str, str, str, int], list[Step]] = {}
        write_inputs(base)

    def _make(self, job: str) -> None:
        if job in self._expected:
            return
        if job == "reshard":
            self._make_old()
        case = Case(job, self._disk, "new", 1, self._base, True, {}, {})
        _, files = run_through(case)
        self._expected[job] = sums_of(files)

    def _make_old(self) -> None:
        files = older_dataset("sensors", self._disk, self._base)
        (self._base / "old").mkdir()
        for name, data in files.items():
            if name.endswith(".tfrecord"):
                (self._base / "old" / name).write_bytes(data)

    def _files_before(self, job: str, store: str, start: str) -> dict[str, bytes]:
        known = self._before
        on_disk = store == "disk"
        if start == "new":
            return {}
        # An older dataset is the same everywhere; what a killed job leaves is not.
        key = (job, "" if start == "overwrite" else store, start)
        if key in known:
            return known[key]
        if start == "overwrite":
            known[key] = older_dataset(job, self._disk, self._base)
            return known[key]
        place = self._places[store]
        if start == "resumed":
            name = f"note of shard train 1: {'renamed' if on_disk else 'put'}"
            case = Case(job, place, "new", 1, self._base, True, {}, {})
        else:
            name = f"shard train 1: {'renamed' if on_disk else 'copied'}"
            before = self._files_before(job, store, "overwrite")
            case = Case(job, place, "overwrite", 1, self._base, True, before, {})
        _, known[key] = run_through(case, Step("driver", name, "after", 1))
        return known[key]

    def case(self, job: str, store: str, start: str, workers: int, quick: bool) -> Case:
        """A job at its start."""
        self._make(job)
        before = self._files_before(job, store, start)
        place, expected = self._places[store], self._expected[job]
        return Case(job, place, start, workers, self._base, quick, before, expected)

    def steps(self, case: Case) -> list[Step]:
        """The steps of a job, from an undisturbed run, which does not take Beam's own runner."""
        key = (case.job, case.place.name, case.start, case.workers)
        if key not in self._steps:
            steps, files = run_through(dataclasses.replace(case, quick=True))
            assert sums_of(files) == case.expected, f"{key}: a run that nothing killed differs"
            self._steps[key] = steps
        return self._steps[key]


@contextlib.contextmanager
def world_of(stores: Sequence[str]) -> Iterator[World]:
    """A world with some of `STORES`."""
    with contextlib.ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kills-")))
        places: dict[str, Place] = {"disk": Disk(base)}
        # The server's own limit is 5 MiB.
        os.environ["S3_UPLOAD_PART_MIN_SIZE"] = "1"
        for name, running in (("S3", s3_running), ("GCS", gcs_running)):
            if name in stores:
                server = stack.enter_context(running(base / f"{name}.log"))
                places[name] = InBucket(stack.enter_context(bucket_of(server)))
        yield World(base, places)


@dataclass(frozen=True)
class Kill:
    """A kill of a campaign, as its number decides it.

    Attributes:
        job, store, start, workers, quick: As in `Case`.
        step: Where.
        way: What is killed.
    """

    job: str
    store: str
    start: str
    workers: int
    quick: bool
    step: Step
    way: str


def drawn(
    world: World, number: int, jobs: Sequence[str], stores: Sequence[str]
) -> tuple[Case, Kill]:
    """The kill with a number."""
    chance = random.Random(number)
    job, store = jobs[number % len(jobs)], stores[number // len(jobs) % len(stores)]
    # Two processes take two seconds longer than none.
    workers = 2 if chance.random() < 0.3 else 1
    start = chance.choice(STARTS)
    if workers == 2:
        way = chance.choice(["worker", "worker", "both", "driver"])
    else:
        way = "power" if store == "disk" and chance.random() < 0.6 else "driver"
    # Beam's own runner takes three times as long, so it is one in ten.
    quick = chance.random() < 0.9
    case = world.case(job, store, start, workers, quick)
    return case, Kill(
        job, store, start, workers, quick, _drawn_step(world.steps(case), way, chance), way
    )


def _drawn_step(steps: Sequence[Step], way: str, chance: random.Random) -> Step:
    """A step of a family, each of which is as likely as the others."""
    families: defaultdict[str, list[Step]] = defaultdict(list)
    for step in steps:
        if (
            way != "worker"
            or step.role == "worker"
            or step.family == "pool"
            or chance.random() < 0.2
        ):
            families[f"{step.role} {step.family}"].append(step)
    found = families[chance.choice(sorted(families))]
    return chance.choice(found)


class Table:
    """What came of many kills."""

    def __init__(self) -> None:
        self._rows: defaultdict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
        self._steps: defaultdict[str, set[Step]] = defaultdict(set)
        self.faults: list[str] = []
        self.fired = self.missed = 0

    def add(self, what: Kill, number: int, outcome: Outcome) -> None:
        """Adds a kill."""
        self.fired += outcome.fired
        self.missed += not outcome.fired
        state = outcome.state if outcome.fired else "not reached"
        kinds = {
            "job": what.job,
            "store": what.store,
            "start": what.start,
            "way": what.way,
            "runner": "quick" if what.quick else "Beam's own",
            "processes": str(what.workers),
            "step": what.step.family,
        }
        for kind, value in kinds.items():
            row = self._rows[kind, value]
            row["kills"] += outcome.fired
            row[state] += 1
            row["faults"] += bool(outcome.faults)
        if outcome.fired:
            self._steps[what.job].add(what.step)
        for loss, times in outcome.notes.items():
            self._rows["lost with the power", loss]["kills"] += 1
            self._rows["lost with the power", loss]["lost"] += times
        for fault in outcome.faults:
            self.faults.append(f"kill {number}: {describe(what)}: {fault}")

    def lines(self) -> list[str]:
        """The table as text."""
        names = sorted({name for row in self._rows.values() for name in row} - {"kills", "faults"})
        names = ["kills", *names, "faults"]
        lines, last = [], ""
        for (kind, value), row in sorted(self._rows.items()):
            if kind != last:
                lines += ["", f"{kind:<34}" + "".join(f"{name:>18}" for name in names)]
                last = kind
            lines.append(f"  {value:<32}" + "".join(f"{row[name]:>18,}" for name in names))
        steps = {step for found in self._steps.values() for step in found}
        named = {(step.role, step.name, step.edge) for step in steps}
        lines += ["", f"{self.fired:,} kills at {len(steps):,} steps of {len(named):,} names"]
        lines += [f"{self.missed:,} steps were not reached; {len(self.faults):,} faults"]
        return lines


def describe(what: Kill) -> str:
    """A kill in words."""
    return (
        f"{what.job} on {what.store}, {what.start}, {what.workers} process(es), {what.way} killed at: "
        f"{what.step}"
    )


def run_campaign(
    numbers: range, jobs: Sequence[str], stores: Sequence[str], say: Callable[[str], None]
) -> Table:
    """Kills many jobs; says each fault as it is found, and the table now and then."""
    table, began = Table(), time.monotonic()
    with world_of(stores) as world:
        for done, number in enumerate(numbers, 1):
            try:
                case, what = drawn(world, number, jobs, stores)
                outcome = kill(case, what.step, what.way, number)
            except Exception as error:
                say(f"FAULT {number}: {error!r}")
                table.faults.append(f"kill {number}: {error!r}")
                continue
            table.add(what, number, outcome)
            say(f"{number}: {describe(what)}: {outcome.state}, {outcome.notes or ''}")
            for fault in outcome.faults:
                say(f"FAULT {number}: {describe(what)}: {fault}")
            if done % 50 == 0 or done == len(numbers):
                say("\n".join([f"{done:,} after {time.monotonic() - began:.0f} s", *table.lines()]))
    return table


JOBS = tuple(COMMANDS)
