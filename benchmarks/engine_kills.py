"""Kills a part of an engine, or the driver, while a job of texts writes into a store; compares the datasets.

    python benchmarks/engine_kills.py --times 20 --victims taskmanager,worker

The clusters and the server of S3 are those of the tests, on this machine. Each kill is a SIGKILL in one of
`--times` equal parts of the run time of a job, at a moment drawn in it. Nobody helps but a deployment, which
starts a new TaskManager, and a user, who runs a command that failed again until the dataset is complete. A
kill that found no running job is drawn again. Afterwards all files must have the SHA-256 of an undisturbed
run, `verify` must find nothing, and `.staging/` must be empty, without parts of uploads.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
from command import parse_names, run_command
from engine_stores import ENGINES, fingerprint
from environment import prepare
from measure import HERE, BenchmarkError
from scale import make_lines

from beam_jobs.storage.atomic import list_files
from readers.verify import verify

sys.path.insert(0, str(HERE.parent))

from tests.engines.flink import Flink
from tests.engines.running import running
from tests.engines.services import pids
from tests.engines.spark import Spark
from tests.support.object_stores import Bucket, bucket_of, s3_running

VICTIMS = {
    "taskmanager": "flink",
    "worker": "flink",
    "executor": "spark",
    "flink-driver": "flink",
    "spark-driver": "spark",
}
# A dead TaskManager is noticed by several stages, and each of them takes one of the restarts: with two, a
# job failed. docs/deploy/flink/cluster.yaml has ten, too.
_SETTINGS = {"flink": {"restarts": 10}, "spark": {"cores": 2}}

PHASES = ["nothing stored", "records stored", "shards stored"]

# A job is taken for hung after this time, which is more than that of ten.
_SECONDS = 360.0
_POLL_SECONDS = 0.05
_MOST_RUNS = 5
_SHARDS = 12

_REFUSED, _COMPLETE = "is writing here on", "a dataset is here already"
_ENDED = ("FINISHED", "CANCELED", "FAILED")


class Hung(Exception):
    """A command, or the job of a killed one, did not end in time."""


@dataclass
class Kill:
    """One kill.

    Attributes:
        victim, part: What was killed, and in which part of the run time.
        second: When, since the job began, or since the command did if that was killed.
        phase: How far the job was, by the files in the store. Records appear there when a run is complete.
        ends: The exit code and the last line of each command, in their order.
        seconds: The time from the first command until the dataset was complete.
        problem: Why it is a fault; empty if it is none.
    """

    victim: str
    part: int
    second: float
    phase: str = ""
    ends: list[tuple[int, str]] = field(default_factory=list)
    seconds: float = 0.0
    problem: str = ""


def wait_until(ready: Callable[[], Any]) -> None:
    """Waits for a condition.

    Raises:
        Hung: It does not come true in time.
    """
    deadline = time.monotonic() + _SECONDS
    while not ready():
        if time.monotonic() > deadline:
            raise Hung
        time.sleep(_POLL_SECONDS)


def children(pid: int, name: str) -> list[int]:
    """Returns the children of a process whose command line has a name in it."""
    found = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in listed.read_text().split():
                if name.encode() in Path(f"/proc/{child}/cmdline").read_bytes():
                    found.append(int(child))
    return found


class Cluster:
    """A cluster and the job that it runs, into one bucket.

    Args:
        engine: The cluster.
        bucket: Takes the datasets.
        lines: The folder of the inputs.
    """

    def __init__(self, engine: Flink | Spark, bucket: Bucket, lines: Path) -> None:
        self.engine, self.bucket = engine, bucket
        self.log = engine.folder / "command.log"
        self._managers = 2
        self._command = [sys.executable, "-m", "beam_jobs", "text", "--input", f"{lines}/*.txt"]
        self._command += ["--tokens=words", f"--num_shards={_SHARDS}", *engine.flags]
        # On Spark, idle workers of one executor would end while those of another start: see the tests.
        own = "--parallelism=4" if isinstance(engine, Flink) else "--environment_cache_millis=20000"
        self._command += [own]

    def start(self, out: str) -> subprocess.Popen[bytes]:
        """Starts the command."""
        with self.log.open("wb") as log:
            return subprocess.Popen(
                [*self._command, "--output", out],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=HERE.parent,
                env={**os.environ, "PYTHONPATH": str(HERE.parent)},
            )

    def end_of(self, process: subprocess.Popen[bytes]) -> tuple[int, str]:
        """Waits for a command; returns its exit code and the last line that it printed.

        Raises:
            Hung: It does not end in time.
        """
        try:
            code = process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            raise Hung from None
        printed = self.log.read_text("utf-8", "replace").split("\n")
        return code, next((line for line in reversed(printed) if line.strip()), "")

    def is_active(self) -> bool:
        """Whether the engine runs a job."""
        if isinstance(self.engine, Flink):
            return any(job["state"] not in _ENDED for job in self.engine.jobs())
        with urllib.request.urlopen(
            f"http://localhost:{self.engine.ports[1]}/json/", timeout=30
        ) as answer:
            return bool(json.load(answer)["activeapps"])

    def is_ready(self) -> bool:
        """Whether no job runs, and the cluster knows the TaskManagers that live, and no other."""
        if self.is_active():
            return False
        if not isinstance(self.engine, Flink):
            return True
        known = {manager["id"] for manager in self.engine.ask("/taskmanagers")["taskmanagers"]}
        return known == {name for name in pids(self.engine.folder) if "taskmanager" in name}

    def kill(self, victim: str, command: subprocess.Popen[bytes], draw: random.Random) -> bool:
        """Kills a victim, and starts a new TaskManager; returns whether there was one while the job ran."""
        if victim.endswith("driver"):
            command.kill()
            return command.wait() == -signal.SIGKILL
        found = self._processes(victim)
        while not found and command.poll() is None:  # The first worker is yet to start.
            time.sleep(_POLL_SECONDS)
            found = self._processes(victim)
        if not found:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(draw.choice(found), signal.SIGKILL)
        struck = command.poll() is None and self.is_active()
        if isinstance(self.engine, Flink) and victim == "taskmanager":
            self._managers += 1
            self.engine.task_manager(self._managers).start(self.engine.folder)
        return struck

    def _processes(self, victim: str) -> list[int]:
        services = pids(self.engine.folder)
        if not isinstance(self.engine, Flink):
            workers = [pid for name, pid in services.items() if name.startswith("worker")]
            return [pid for worker in workers for pid in children(worker, "ExecutorBackend")]
        managers = [pid for name, pid in services.items() if "taskmanager" in name]
        if victim == "taskmanager":
            return managers
        return [pid for manager in managers for pid in children(manager, "sdk_worker")]

    def phase(self, out: str) -> str:
        """How far a job is, by the files that it has written."""
        names = [file.path for file in list_files(out)]
        if any(name.endswith(".tfrecord") for name in names):
            return PHASES[2]
        return PHASES[1] if any("/records." in name for name in names) else PHASES[0]

    def check(self, out: str, expected: str) -> str:
        """Returns what is wrong with a dataset; nothing if it is that of an undisturbed run."""
        try:
            _, found = fingerprint(out)
        except BenchmarkError as error:
            return str(error)
        bucket, _, folder = out.removeprefix("s3://").partition("/")
        client = boto3.client("s3", endpoint_url=self.bucket.proxy.url)
        uploads = client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])
        if parts := [each["Key"] for each in uploads if each["Key"].startswith(f"{folder}/")]:
            return f"parts of {parts[0]} were left behind"
        if not (report := verify(out)).ok:
            return f"verify: {report.problems[0]}"
        return "" if found == expected else f"the files differ: SHA-256 {found}"


@dataclass
class Undisturbed:
    """A job that nobody kills.

    Attributes:
        seconds: The time of the command.
        job_seconds: The time of the job on the engine.
        sha256: Of the names and the SHA-256 of all files.
    """

    seconds: float
    job_seconds: float
    sha256: str


def run_undisturbed(cluster: Cluster, out: str) -> Undisturbed:
    """Runs the job.

    Raises:
        BenchmarkError: It failed.
    """
    wait_until(cluster.is_ready)
    began = time.monotonic()
    process = cluster.start(out)
    wait_until(lambda: cluster.is_active() or process.poll() is not None)
    seen = time.monotonic()
    wait_until(lambda: not cluster.is_active() or process.poll() is not None)
    job_seconds = time.monotonic() - seen
    code, line = cluster.end_of(process)
    if code:
        raise BenchmarkError(f"the undisturbed job failed: {line}")
    return Undisturbed(time.monotonic() - began, job_seconds, fingerprint(out)[1])


def run_killed(cluster: Cluster, out: str, kill: Kill, draw: random.Random, expected: str) -> bool:
    """Runs a job, kills its victim, and runs it again until it is complete; returns whether it struck.

    Raises:
        Hung: Something did not end.
    """
    wait_until(cluster.is_ready)
    began = time.monotonic()
    command = cluster.start(out)
    try:
        if not kill.victim.endswith("driver"):
            wait_until(lambda: cluster.is_active() or command.poll() is not None)
        with contextlib.suppress(subprocess.TimeoutExpired):
            command.wait(kill.second)
        struck = command.poll() is None and cluster.kill(kill.victim, command, draw)
        kill.phase = cluster.phase(out)
        kill.ends.append(cluster.end_of(command))
        while kill.ends[-1][0] and _COMPLETE not in kill.ends[-1][1]:
            if len(kill.ends) > _MOST_RUNS:
                kill.problem = f"no dataset after {len(kill.ends)} commands"
                return struck
            if _REFUSED in kill.ends[-1][1]:
                wait_until(lambda: not cluster.is_active())
            command = cluster.start(out)
            kill.ends.append(cluster.end_of(command))
    finally:
        command.kill()
        command.wait()
    kill.seconds = time.monotonic() - began
    wait_until(lambda: not cluster.is_active())
    kill.problem = cluster.check(out, expected)
    return struck


def keep_logs(cluster: Cluster, kill: Kill, folder: Path) -> None:
    """Copies the logs of an engine and of the last command."""
    target = folder / f"{kill.victim}-{kill.part}"
    shutil.rmtree(target, ignore_errors=True)
    ignored = shutil.ignore_patterns("tmp", "artifacts", "*.jar")
    shutil.copytree(cluster.engine.folder, target, ignore=ignored, dirs_exist_ok=True)
    (target / "kill.json").write_text(json.dumps(dataclasses.asdict(kill), indent=1) + "\n")


def campaign(
    victim: str, parts: list[int], cluster: Cluster, times: int, seed: str, faults: Path
) -> tuple[Undisturbed, list[Kill]]:
    """Kills a victim once in each part of the run time, until a job hangs.

    Args:
        victim: What to kill, one of `VICTIMS`.
        parts: The numbers of the parts.
        cluster: Where.
        times: The number of all parts.
        seed: The seed of the draws.
        faults: The folder for the logs of faults.
    """
    url = cluster.bucket.url
    run_undisturbed(cluster, f"{url}/{victim}-first")  # The engine loads its classes.
    known = run_undisturbed(cluster, f"{url}/{victim}-undisturbed")
    length = known.seconds if victim.endswith("driver") else known.job_seconds
    print(
        f"  {victim}: undisturbed {known.seconds:.1f} s, {known.job_seconds:.1f} s of them the job",
        flush=True,
    )
    kills: list[Kill] = []
    outs: dict[str, Kill] = {}
    for number, part in enumerate(parts, 1):
        draw = random.Random(f"{seed} {victim} {part}")
        struck, attempt = False, 0
        while not struck:
            attempt += 1
            place = (part + draw.random()) / times if attempt == 1 else draw.random()
            kill = Kill(victim, part, place * length)
            out = f"{url}/{victim}-{part}-{attempt}"
            cluster.bucket.proxy.forget()
            try:
                struck = run_killed(cluster, out, kill, draw, known.sha256)
            except Hung:
                kill.problem, struck = f"no end in {_SECONDS:.0f} s", True
            if kill.problem:
                keep_logs(cluster, kill, faults)
            codes = "; ".join(f"{code} {line[:90]!r}" for code, line in kill.ends)
            print(
                f"  {victim} {number} of {len(parts)}, part {part}: {'struck' if struck else 'missed'} at "
                f"{kill.second:.1f} s, {kill.phase}; {kill.seconds:.0f} s; "
                f"{kill.problem or 'the same'}; {codes}",
                flush=True,
            )
            if struck or kill.problem:
                kills.append(kill)
                outs[out] = kill
            if kill.problem.startswith("no "):
                return known, kills
    for file in list_files(url):
        out, inside, _ = file.path.partition("/.staging/")
        if inside and out in outs:
            outs[out].problem = f"{file.path} appeared after its job had ended"
    return known, kills


def format_results(known: dict[str, Undisturbed], kills: list[Kill]) -> str:
    """Formats a row for each victim."""
    lines = [
        f"| victim | kills | {', '.join(PHASES)} | commands | same files | faults | undisturbed, s | "
        "killed, s: median, most |",
        "| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    for victim, each in known.items():
        ours = [kill for kill in kills if kill.victim == victim]
        phases = Counter(kill.phase for kill in ours)
        commands = sorted(Counter(len(kill.ends) for kill in ours).items())
        seconds = [kill.seconds for kill in ours if not kill.problem] or [0.0]
        row = [
            victim,
            str(len(ours)),
            ", ".join(str(phases[phase]) for phase in PHASES),
            ", ".join(f"{count} of {number}" for number, count in commands),
            str(sum(not kill.problem for kill in ours)),
            str(sum(bool(kill.problem) for kill in ours)),
            f"{each.seconds:.0f}",
            f"{statistics.median(seconds):.0f}, {max(seconds):.0f}",
        ]
        lines.append(f"| {' | '.join(row)} |")
    faults = [
        f"- {kill.victim}, {kill.second:.1f} s: {kill.problem}" for kill in kills if kill.problem
    ]
    return "\n".join([*lines, "", *faults])


def main() -> None:
    """Measures, prints the table, and writes the JSON file.

    Raises:
        BenchmarkError: A flag is wrong, or a kill led to a fault.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("benchmark_data"))
    parser.add_argument("--lines", type=int, default=150_000, help="of 12 words")
    parser.add_argument("--victims", default=",".join(VICTIMS), help="(default: %(default)s)")
    parser.add_argument("--times", type=int, default=20, help="kills of each victim")
    parser.add_argument("--seed", default="0", help="of the moments and of the processes")
    parser.add_argument("--faults", type=Path, help="for logs of faults (default: in --data)")
    parser.add_argument("--quick", action="store_true", help="smoke test: tiny inputs, one kill")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    flags = parser.parse_args()
    data = flags.data.absolute() / "engine_kills"
    data.mkdir(parents=True, exist_ok=True)
    faults = flags.faults.absolute() if flags.faults else data / "faults"
    times = 1 if flags.quick else flags.times
    lines = make_lines(data, 2_000 if flags.quick else flags.lines)
    known: dict[str, Undisturbed] = {}
    kills: list[Kill] = []
    # Before the clusters, whose workers have the environment of this process.
    with s3_running(data / "s3.log") as server, bucket_of(server) as bucket:
        for victim in parse_names(list(VICTIMS), flags.victims):
            # In any order, so that also the first of them are spread.
            kind, parts = VICTIMS[victim], random.Random(flags.seed).sample(range(times), times)
            while parts:  # Once more with a new cluster, if a job hung.
                shutil.rmtree(data / kind, ignore_errors=True)
                engine: Flink | Spark
                with running(ENGINES[kind], data / kind, **_SETTINGS[kind]) as engine:
                    cluster = Cluster(engine, bucket, lines)
                    known[victim], found = campaign(
                        victim, parts, cluster, times, flags.seed, faults
                    )
                kills += found
                done = {kill.part for kill in found}
                parts = [part for part in parts if part not in done]
            print(format_results(known, kills), flush=True)
    if flags.json:
        figures = {"undisturbed": known, "kills": kills}
        found_json = json.dumps(
            {**prepare(data, sys.executable), **figures}, default=dataclasses.asdict, indent=1
        )
        flags.json.write_text(found_json + "\n")
    if any(kill.problem for kill in kills):
        raise BenchmarkError("some kills led to faults")


if __name__ == "__main__":
    run_command(main)
