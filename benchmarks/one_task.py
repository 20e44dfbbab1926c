"""Whether the memory of a job grows with the bytes that one task reads, encodes and writes.

    python benchmarks/one_task.py --bytes 10_000_000_000
    python benchmarks/one_task.py --bytes 3_000_000_000 --engine flink

The job is `text`, and its only input is a `.txt.gz`, which one task reads from its front in each pass. The
private memory of all processes is sampled: without mapped files, so without pages of the cache. A stage is `read`
(keys and splits of all records), `encode` (records to runs), or `write` (runs to shards), and how far it is follows from the
place in the input, or from the bytes of the shards. Growth is the peak of the last quarter of a stage
less that of its second quarter.

The disk needs room for the records twice. A Flink cluster is that of the tests, with one task.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gzip
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from command import run_command
from environment import prepare
from measure import HERE, BenchmarkError, sample_session
from scale import private_bytes

from readers.format.display import format_bytes
from readers.format.manifest import Manifest

sys.path.insert(0, str(HERE.parent))

from tests.engines.flink import Flink
from tests.engines.running import running
from tests.engines.services import pids

STAGES = ("read", "encode", "write")

# Percent of a stage at which the table has the memory.
MARKS = (10, 25, 50, 75, 100)

_SAMPLE_SECONDS = 0.25

# A part of the input is compressed once, and repeated: its lines have other numbers each time.
_PART_BYTES = 8 << 20

# A line repeats this many letters, so that the input is small beside the shards.
_LETTERS = 50

# Processes that never have more than this are left out of the table.
_LEAST_BYTES = 64 << 20


@dataclass(frozen=True)
class Sample:
    """The memory of the processes at one time.

    Attributes:
        seconds: Time since the start of the job.
        stage: One of `STAGES`; empty before the first.
        share: How much of the stage is done, 0 to 1.
        memory: Name of a process -> its private bytes.
    """

    seconds: float
    stage: str
    share: float
    memory: dict[str, int]


@dataclass
class Result:
    """A run.

    Attributes:
        engine: Where it ran.
        records: The number of records.
        bytes: The size of the shards.
        seconds: The time from the command to its end.
        samples: What was measured meanwhile.
    """

    engine: str
    records: int = 0
    bytes: int = 0
    seconds: float = 0.0
    samples: list[Sample] = field(default_factory=list)


def make_input(data: Path, size: int, line: int) -> Path:
    """Returns a folder with one compressed file of random lines.

    Args:
        data: Where folders of inputs are.
        size: The bytes of all lines, at least.
        line: The bytes of a line.
    """
    folder = data / f"lines-{size}-{line}"
    if folder.exists():
        return folder
    unfinished = folder.with_name(f".{folder.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    rows = max(min(size, _PART_BYTES) // line, 1)
    rng = np.random.default_rng(0)
    letters = rng.integers(ord("a"), ord("z") + 1, (rows, _LETTERS), np.uint8)
    letters = np.tile(letters, -(-line // _LETTERS))[:, :line].copy()
    letters[:, -1] = ord("\n")
    part = gzip.compress(letters.tobytes(), 1)
    with (unfinished / "in.txt.gz").open("wb") as file:
        for _ in range(-(-size // letters.nbytes)):
            file.write(part)
    return unfinished.rename(folder)


class Watch:
    """Samples the memory of sessions of processes, and how far a job is, during the context.

    Args:
        sessions: The processes that began the sessions.
        source: The input.
        out: The output of the job.
        size: The bytes of the shards, roughly.
    """

    def __init__(self, sessions: list[int], source: Path, out: Path, size: int) -> None:
        self._sessions, self._source, self._out, self._size = sessions, source, out, size
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._names: dict[str, str] = {}
        self.samples: list[Sample] = []

    def __enter__(self) -> Watch:
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.monotonic() - self._began
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_SAMPLE_SECONDS):
            found = [pid for each in self._sessions for pid in sample_session(each)[1]]
            memory = {self._name(pid): private_bytes(pid) for pid in found}
            seconds = time.monotonic() - self._began
            self.samples.append(Sample(seconds, *self._progress(found), memory))

    def _name(self, pid: str) -> str:
        if pid not in self._names:
            try:
                command = Path("/proc", pid, "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                return f"ended {pid}"
            self._names[pid] = f"{_kind_of(command)} {pid}"
        return self._names[pid]

    def _progress(self, found: list[str]) -> tuple[str, float]:
        """The stage and how much of it is done."""
        staging = shards = 0
        with contextlib.suppress(OSError):
            for file in self._out.rglob("*"):
                size = file.stat().st_size
                if file.name.startswith("records."):
                    staging += size
                elif ".tfrecord" in file.name and not file.name.endswith(".idx"):
                    shards += size
        if shards:
            return "write", min(shards / self._size, 1.0)
        place = max((_place_in(self._source, pid) for pid in found), default=0)
        if not place:
            return "", 0.0
        return "encode" if staging else "read", place / self._source.stat().st_size


def _kind_of(command: str) -> str:
    kinds = {
        "taskexecutor": "TaskManager",
        "entrypoint": "JobManager",
        "JobServer": "job server",
        "sdk_worker": "Python worker",
        "beam-shards-worker": "Python worker",
        "forkserver": "process of the pool",
    }
    return next((kind for word, kind in kinds.items() if word in command), "job")


def _place_in(file: Path, pid: str) -> int:
    """The offset at which a process reads a file; 0 if it does not."""
    place = 0
    with contextlib.suppress(OSError):
        for descriptor in Path("/proc", pid, "fd").iterdir():
            with contextlib.suppress(OSError):
                if os.readlink(descriptor) == str(file):
                    lines = Path("/proc", pid, "fdinfo", descriptor.name).read_text().split("\n")
                    place = max(place, int(lines[0].split()[1]))
    return place


@contextlib.contextmanager
def engine_running(name: str, folder: Path) -> Iterator[tuple[list[str], list[int]]]:
    """The flags of an engine, and the sessions of its processes, during the context."""
    if name == "direct":
        yield ["--direct_num_workers=1"], []
        return
    shutil.rmtree(folder, ignore_errors=True)
    with running(Flink, folder) as flink:
        flags = [*flink.flags, "--parallelism=1", "--environment_cache_millis=20000"]
        yield flags, [pid for service, pid in pids(folder).items() if service != "jobmanager"]


def measure(engine: str, source: Path, size: int, data: Path) -> Result:
    """Runs the job.

    Raises:
        BenchmarkError: It failed.
    """
    out, log = data / "out", data / f"{engine}.log"
    shutil.rmtree(out, ignore_errors=True)
    result = Result(engine)
    with engine_running(engine, data / engine) as (flags, sessions), log.open("wb") as output:
        pattern = source / "*.txt.gz"
        command = [sys.executable, "-m", "beam_jobs", "text", "--input", pattern, "--label", "none"]
        command += ["--output", out, *flags]
        process = subprocess.Popen(
            list(map(str, command)),
            cwd=HERE.parent,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            with Watch([process.pid, *sessions], source / "in.txt.gz", out, size) as watch:
                code = process.wait()
        finally:
            process.kill()
    if code:
        raise BenchmarkError(f"{engine}: exit code {code} (output: {log})")
    splits = Manifest.read(str(out)).splits.values()
    result.records = sum(split.records for split in splits)
    result.bytes = sum(file.stat().st_size for file in out.glob("*.tfrecord"))
    result.seconds, result.samples = watch.seconds, watch.samples
    shutil.rmtree(out)
    return result


def _peak(samples: list[Sample], name: str, first: float, last: float) -> int | None:
    """The most memory of a process between two shares of a stage; None if it was not sampled then."""
    inside = [
        each.memory[name] for each in samples if first < each.share <= last and name in each.memory
    ]
    return max(inside, default=None)


def format_result(result: Result) -> str:
    """Formats a row for each stage and process."""
    by_stage: dict[str, list[Sample]] = defaultdict(list)
    for sample in result.samples:
        by_stage[sample.stage].append(sample)
    marks = [f"{mark} %" for mark in MARKS]
    header = ["stage", "s", "process", *marks, "peak of 2nd quarter", "of 4th", "growth"]
    rows = [header, ["---"] + ["---:"] + ["---"] + ["---:"] * (len(MARKS) + 3)]
    for stage in filter(by_stage.__contains__, STAGES):
        samples = by_stage[stage]
        seconds = f"{samples[-1].seconds - samples[0].seconds:.0f}"
        for name in dict.fromkeys(name for each in samples for name in each.memory):
            if (_peak(samples, name, -1, 1) or 0) < _LEAST_BYTES:
                continue
            at = [
                next((s for s in samples if s.share >= mark / 100), samples[-1]).memory.get(name)
                for mark in MARKS
            ]
            second, last = (_peak(samples, name, *span) for span in ((0.25, 0.5), (0.75, 1)))
            figures = ["" if size is None else format_bytes(size) for size in (*at, second, last)]
            growth = ""
            if second is not None and last is not None:
                growth = f"{(last - second) / (1 << 20):+.0f} MiB"
            rows.append([stage, seconds, name, *figures, growth])
    lines = [f"| {' | '.join(row)} |" for row in rows]
    title = f"{result.engine}: {result.records:,} records, {format_bytes(result.bytes)} of shards"
    return "\n".join([f"{title}, {result.seconds:.0f} s", "", *lines])


def main() -> None:
    """Measures, prints the table, and writes the JSON file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("benchmark_data"))
    parser.add_argument("--bytes", type=int, default=10_000_000_000, help="of the input's lines")
    parser.add_argument("--line", type=int, default=1_000, help="bytes of a line")
    parser.add_argument("--engine", choices=["direct", "flink"], default="direct")
    parser.add_argument("--quick", action="store_true", help="smoke test: tiny inputs")
    parser.add_argument("--json", type=Path, help="write all samples to this file")
    flags = parser.parse_args()
    data = flags.data.absolute() / "one_task"
    data.mkdir(parents=True, exist_ok=True)
    size = 20_000_000 if flags.quick else flags.bytes
    source = make_input(data, size, flags.line)
    result = measure(flags.engine, source, size, data)
    print(format_result(result))
    if flags.json:
        found = {**prepare(data, sys.executable), "result": dataclasses.asdict(result)}
        flags.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    run_command(main)
