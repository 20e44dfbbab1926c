"""A campaign: which jobs are killed where, and a table of what came of it."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.campaigns.kills.inputs import COMMANDS, write_inputs
from tests.campaigns.kills.places import Disk, InBucket, Place, sums_of
from tests.campaigns.kills.steps import Step
from tests.campaigns.kills.trial import STARTS, Case, kill, run_through
from tests.campaigns.tally import Tally
from tests.campaigns.values import write_files
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
        self._files = functools.cache(self._make_files)
        self._before = functools.cache(self._make_before)
        self._steps = functools.cache(self._make_steps)
        write_inputs(base)
        shards = self._before("sensors", "disk", "overwrite").items()
        write_files(base / "old", {Path(n).name: s for n, s in shards if n.endswith(".tfrecord")})

    def _run(
        self,
        job: str,
        store: str,
        start: str,
        before: Mapping[str, bytes] | None = None,
        fatal: Step | None = None,
    ) -> dict[str, bytes]:
        """The files after a job of which nobody knows yet what it writes, or which is killed."""
        case = Case(job, self._places[store], start, 1, self._base, True, before or {}, {}, {})
        return run_through(case, fatal)[1]

    def _make_files(self, job: str, times: int) -> dict[str, bytes]:
        """The files after a job in a new directory, or after so many over an older dataset."""
        if not times:
            return self._run(job, "disk", "new")
        there = self._files(job, times - 1) if times > 1 else self._before(job, "disk", "overwrite")
        return self._run(job, "disk", "overwrite", there)

    def _make_before(self, job: str, store: str, start: str) -> dict[str, bytes]:
        if start == "new":
            return {}
        if start == "overwrite":
            # An older dataset is the same everywhere; what a killed job leaves is not.
            return self._run(job, "disk", "older")
        over = "new" if start == "resumed" else "overwrite"
        thing, verb = {
            "resumed": ("note of shard train 1", "renamed"),
            "resumed overwrite": ("index of shard train 1", "linked"),
            "committed": ("generation", "linked"),
        }[start]
        step = Step("driver", f"{thing}: {verb if store == 'disk' else 'put'}", "after", 1)
        return self._run(job, store, over, self._before(job, store, over), step)

    def _make_steps(self, job: str, store: str, start: str, workers: int) -> list[Step]:
        case = self.case(job, store, start, workers, quick=True)
        steps, files = run_through(case)
        assert sums_of(files) == case.expected, f"{case}: a run that nothing killed differs"
        return steps

    def case(self, job: str, store: str, start: str, workers: int, quick: bool) -> Case:
        """A job at its start."""
        times = 0 if start in ("new", "resumed") else 1
        expected = sums_of(self._files(job, times))
        repeats = start.endswith("overwrite")
        repeated = sums_of(self._files(job, 2)) if repeats else expected
        before, place = self._before(job, store, start), self._places[store]
        return Case(job, place, start, workers, self._base, quick, before, expected, repeated)

    def steps(self, case: Case) -> list[Step]:
        """The steps of a job, from an undisturbed run, which does not take Beam's own runner."""
        return self._steps(case.job, case.place.name, case.start, case.workers)


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


def drawn(
    world: World, number: int, jobs: Sequence[str], stores: Sequence[str]
) -> tuple[Case, Step, str]:
    """The kill with a number: a job, where it is killed, and what is killed."""
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
    # Each family of steps is as likely as the others.
    families: defaultdict[str, list[Step]] = defaultdict(list)
    for step in world.steps(case):
        of_worker = step.role == "worker" or step.family == "pool"
        if way != "worker" or of_worker or chance.random() < 0.2:
            families[f"{step.role} {step.family}"].append(step)
    return case, chance.choice(families[chance.choice(sorted(families))]), way


def run_campaign(numbers: range, jobs: Sequence[str], stores: Sequence[str], tally: Tally) -> None:
    """Kills many jobs, and counts what came of it."""
    with world_of(stores) as world:
        for number in numbers:
            try:
                case, step, way = drawn(world, number, jobs, stores)
                outcome = kill(case, step, way, number)
            except Exception as error:
                tally.fault(f"kill {number}: {error!r}")
                continue
            job, store, start, workers = case.job, case.place.name, case.start, case.workers
            state = outcome.state if outcome.fired else "step not reached"
            rows = [f"job: {job}", f"store: {store}", f"start: {start}", f"killed: {way}"]
            rows += [f"processes: {workers}", f"step: {step.family}", "all"]
            counts = {"kills": int(outcome.fired), state: 1, "faults": int(bool(outcome.faults))}
            tally.add(counts, *rows, number=number, step=step, quick=case.quick)
            for loss, times in outcome.notes.items():
                tally.add({"lost": times}, f"lost with the power: {loss}")
            for fault in outcome.faults:
                tally.fault(
                    f"kill {number}: {job} on {store}, {start}, {workers} process(es), {way} killed at: {step}: {fault}"
                )
            if number % 50 == 49:
                print(f"kill {number}: {len(tally.faults)} faults", flush=True)


JOBS = tuple(COMMANDS)
