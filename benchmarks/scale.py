"""Costs that grow with the number of records: jobs of two sizes on a Flink cluster.

    python benchmarks/scale.py --json scale.json

`made` generates recordings and passes them to WriteShards; `files` reads a thousand recordings from
disk, each named by many rows of a table; `scattered` writes them to many shards, so that few records
of a block share one; `text` reads lines, with a vocabulary.

The cluster is that of the tests, on this machine: one JobManager, two TaskManagers, and workers in
their own processes. Flink reports the elements and bytes that stages exchange, Beam's workers the
elements of collections and their sizes. docs/scale.md extrapolates to a billion records.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import json
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import apache_beam as beam
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions
from command import parse_names
from environment import prepare
from inputs import write_recording
from job_metrics import Collection, Stage, collections, newest_job, stages
from measure import HERE, BenchmarkError, sample_session

from beam_jobs.__main__ import main as beam_jobs
from beam_jobs.engines.flags import engine_flags
from beam_jobs.pipeline.write_shards import WriteShards
from readers.format.display import format_bytes
from readers.format.manifest import Manifest
from readers.format.schema import Feature, Schema
from readers.verify import verify

sys.path.insert(0, str(HERE.parent))

from tests.engines.flink import Flink
from tests.engines.running import running
from tests.engines.services import pids

SIZES = {
    "made": (200_000, 1_000_000),
    "files": (200_000, 1_000_000),
    "scattered": (50_000, 200_000),
    "text": (1_000_000, 5_000_000),
}
QUICK_SIZES = dict.fromkeys(SIZES, (2_000, 4_000))

_RECORDS_PER_ELEMENT = 1_000
_FILES = 1_000
_WORDS_PER_LINE, _VOCABULARY = 12, 30_000
_LINES_PER_FILE = 250_000
_SHARD_SIZE = {"made": "32MiB", "files": "32MiB", "scattered": "64KiB", "text": "32MiB"}
_SAMPLE_SECONDS = 0.5

# Stages that exchange fewer bytes are not in the tables.
_MIN_STAGE_BYTES = 1_000


@dataclass
class Result:
    """Costs of a job.

    Attributes:
        kind: The kind of job, a key of `SIZES`.
        records: Number of records written.
        seconds: Time from submission to the end.
        cpu_seconds: Processor time of the TaskManagers and their workers.
        worker_bytes: Peak memory of a Python worker.
        dataset_bytes: Total size of the shards.
        shards: Number of shards.
        stages: Flink's stages.
        collections: Beam's collections.
    """

    kind: str
    records: int
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    worker_bytes: int = 0
    dataset_bytes: int = 0
    shards: int = 0
    stages: list[Stage] = field(default_factory=list)
    collections: list[Collection] = field(default_factory=list)


def make_records(number: int) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Yields generated recordings of 64 values."""
    values = np.random.default_rng(number).standard_normal(
        (_RECORDS_PER_ELEMENT, 64), dtype=np.float32
    )
    for row, value in enumerate(values):
        yield f"{number:06}/{row:03}", {"x": value}


def write_made(records: int, out: Path, flags: list[str]) -> None:
    """Runs a user's pipeline, which generates its records."""
    schema = Schema({"key": Feature("string"), "x": Feature("float32", (64,))})
    with beam.Pipeline(options=PipelineOptions(flags)) as pipeline:
        _ = (
            pipeline
            | beam.Create(range(records // _RECORDS_PER_ELEMENT))
            | beam.Reshuffle()
            | "Make" >> beam.FlatMap(make_records)
            | WriteShards(str(out), schema, shard_size=_SHARD_SIZE["made"])
        )


def make_table(data: Path, rows: int) -> Path:
    """Returns a table with this number of rows, which name a thousand recordings in turn."""
    folder = data / "scale" / "recordings"
    if not folder.exists():
        unfinished = folder.with_name(".recordings")
        unfinished.mkdir(parents=True, exist_ok=True)
        for number in range(_FILES):
            write_recording(unfinished / f"{number:04}.npy", number)
        unfinished.rename(folder)
    table = folder / f"{rows}.csv"
    if not table.exists():
        lines = (f"{row % _FILES:04}.npy,{row % 10}\n" for row in range(rows))
        table.write_text("".join(["path,label\n", *lines]))
    return table


def make_lines(data: Path, lines: int) -> Path:
    """Returns a folder of text files with short lines, whose word frequencies resemble a language."""
    folder = data / "scale" / f"lines-{lines}"
    if folder.exists():
        return folder
    unfinished = folder.with_name(f".{folder.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    names = np.array([np.base_repr(word, 36).lower() for word in range(_VOCABULARY)])
    for number, first in enumerate(range(0, lines, _LINES_PER_FILE)):
        rng = np.random.default_rng(number)
        count = min(_LINES_PER_FILE, lines - first)
        words = (_VOCABULARY ** rng.random((count, _WORDS_PER_LINE))).astype(np.int64) - 1
        text = "\n".join(map(" ".join, names[words].tolist()))
        (unfinished / f"{number:03}.txt").write_text(text + "\n")
    return unfinished.rename(folder)


def run_job(*arguments: str) -> None:
    """Runs a job of the command line.

    Raises:
        BenchmarkError: The job failed.
    """
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(printed):
        code = beam_jobs(list(arguments))
    if code:
        raise BenchmarkError(f"exit code {code}: {printed.getvalue()[-500:]}")


class Watch:
    """Measures a cluster's processor time, and its workers' memory, while a block runs."""

    def __init__(self, folder: Path) -> None:
        self._sessions = [pid for name, pid in pids(folder).items() if "taskmanager" in name]
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._cpu: dict[str, float] = {}
        self.worker_bytes = 0

    def __enter__(self) -> Watch:
        self._before = sum(sum(sample_session(pid)[1].values()) for pid in self._sessions)
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.monotonic() - self._began
        self._ended.set()
        self._thread.join()

    @property
    def cpu_seconds(self) -> float:
        """Processor time of all processes, each up to its last sample."""
        return sum(self._cpu.values()) - self._before

    def _sample(self) -> None:
        while not self._ended.wait(_SAMPLE_SECONDS):
            for session in self._sessions:
                _, cpu = sample_session(session)
                self._cpu |= cpu
                for pid in cpu:
                    if int(pid) != session:
                        self.worker_bytes = max(self.worker_bytes, private_bytes(pid))


def private_bytes(pid: str) -> int:
    """Returns the memory of a process without mapped files, and with its share of shared pages."""
    try:
        lines = Path("/proc", pid, "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:"))


def measure(flink: Flink, kind: str, records: int, data: Path, parallelism: int) -> Result:
    """Runs a job, and collects its costs.

    Raises:
        BenchmarkError: The job failed, or its dataset is incomplete.
    """
    print(f"  {kind}, {records:,} records", file=sys.stderr, flush=True)
    out = data / "scale" / "out"
    shutil.rmtree(out, ignore_errors=True)
    endpoint = flink.flags[1]
    if kind == "made":
        own = [endpoint, f"--parallelism={parallelism}"]
        flags = [*engine_flags("flink", own), *own]
        job = partial(write_made, records, out, flags)
    else:
        if kind == "text":
            own = ["text", "--input", f"{make_lines(data, records)}/*.txt", "--tokens=words"]
        else:
            own = ["sensors", "--table", str(make_table(data, records)), "--key=row"]
            own += ["--label=column:label"]
        own += ["--output", str(out), f"--shard_size={_SHARD_SIZE[kind]}", *flink.flags]
        job = partial(run_job, *own, f"--parallelism={parallelism}")
    with Watch(flink.folder) as watch:
        job()
    splits = Manifest.read(str(out)).splits.values()
    written = sum(split.records for split in splits)
    if not verify(out).ok or written != records:
        raise BenchmarkError(f"{kind}: {out} is damaged, or has {written:,} of {records:,} records")
    service = endpoint.partition("=")[2]
    return Result(
        kind,
        records,
        watch.seconds,
        watch.cpu_seconds,
        watch.worker_bytes,
        sum(split.bytes for split in splits),
        sum(len(split.shards) for split in splits),
        stages(flink.ask(f"/jobs/{flink.jobs()[0]['jid']}")["vertices"]),
        collections(service, newest_job(service)),
    )


def _markdown(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _pairs(small: Result, large: Result) -> Iterator[tuple[Stage, Stage]]:
    """Yields the corresponding stages of two jobs; those of one name are paired by bytes read."""

    def by_name(stages: list[Stage]) -> list[Stage]:
        return sorted(stages, key=lambda each: (each.name, each.grouped, each.read_bytes))

    pairs = zip(by_name(small.stages), by_name(large.stages), strict=True)
    # Flink lists stages in no fixed order: that of the larger job is kept.
    order = {id(stage): place for place, stage in enumerate(large.stages)}
    yield from sorted(pairs, key=lambda pair: order[id(pair[1])])


def _growth(small: float, large: float, added: int) -> str:
    """Returns the growth of a figure for each added record."""
    return f"{(large - small) / added:,.2f}"


def format_stages(small: Result, large: Result) -> str:
    """Formats the stages that exchange many bytes at the larger size, and the growth per record."""
    added = large.records - small.records
    rows = [
        [
            f"`{b.name}`",
            f"{b.read:,} → {b.written:,}",
            f"{format_bytes(b.read_bytes)} → {format_bytes(b.written_bytes)}",
            _growth(a.read_bytes, b.read_bytes, added),
            _growth(a.written_bytes, b.written_bytes, added),
            f"{b.seconds:.1f}",
        ]
        for a, b in _pairs(small, large)
        if max(b.read_bytes, b.written_bytes) > _MIN_STAGE_BYTES
    ]
    header = ["stage", "elements", "bytes", "in B/record", "out B/record", "seconds"]
    return _markdown(header, rows)


def format_held(small: Result, large: Result) -> str:
    """Formats the data that a worker holds as a whole: side inputs, and the values of a key."""
    before = {each.name: each for each in small.collections}
    rows = []
    for collection in large.collections:
        smaller = before.get(collection.name)
        if collection.side and smaller:
            sizes = (format_bytes(each.size) for each in (smaller, collection))
            rows.append([f"side input `{collection.name}`", *sizes])
    for a, b in _pairs(small, large):
        if b.grouped and b.written:
            sizes = (format_bytes(each.read_bytes / max(each.written, 1)) for each in (a, b))
            rows.append([f"values of a key, `{b.name}`", *sizes])
    return _markdown(["held", f"{small.records:,}", f"{large.records:,}"], rows)


def format_largest(small: Result, large: Result, count: int = 8) -> str:
    """Formats the collections with the largest elements."""
    before = {each.name: each for each in small.collections}
    found = sorted(large.collections, key=lambda each: -each.largest)[:count]
    rows = [
        [
            f"`{b.name}`",
            f"{before[b.name].elements:,}" if b.name in before else "",
            f"{b.elements:,}",
            format_bytes(before[b.name].largest) if b.name in before else "",
            format_bytes(b.largest),
        ]
        for b in found
    ]
    names = [
        f"{name}, {each.records:,}" for name in ("elements", "largest") for each in (small, large)
    ]
    return _markdown(["written by", *names], rows)


def format_cost(results: list[Result]) -> str:
    """Formats a row for each job, with the marginal cost of a record."""
    rows, last = [], None
    for result in results:
        row = [
            result.kind,
            f"{result.records:,}",
            f"{result.seconds:.0f}",
            f"{result.cpu_seconds:.0f}",
            format_bytes(result.worker_bytes),
            format_bytes(result.dataset_bytes),
            str(result.shards),
        ]
        margin = ["", ""]
        if last and last.kind == result.kind:
            millions = (result.records - last.records) / 1e6
            margin[0] = f"{(result.seconds - last.seconds) / millions:.1f}"
            margin[1] = f"{(result.cpu_seconds - last.cpu_seconds) / millions:.1f}"
        rows.append(row + margin)
        last = result
    header = ["job", "records", "s", "CPU s", "worker", "dataset", "shards", "µs/record", "CPU µs"]
    return _markdown(header, rows)


def main() -> int:
    """Measures, prints tables, and writes the JSON file; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--data", type=Path, default=Path("benchmark_data"), help="folder for inputs and outputs"
    )
    parser.add_argument("--kinds", default=",".join(SIZES), help=f"some of {', '.join(SIZES)}")
    parser.add_argument(
        "--records", type=int, nargs=2, help="two numbers of records, to replace the default sizes"
    )
    parser.add_argument("--parallelism", type=int, default=2, help="of the jobs on Flink")
    parser.add_argument("--quick", action="store_true", help="smoke test: tiny inputs")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    flags = parser.parse_args()
    data = flags.data.absolute()
    folder = data / "scale" / "flink"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    sizes = QUICK_SIZES if flags.quick else SIZES
    if flags.records:
        sizes = dict.fromkeys(SIZES, tuple(flags.records))
    results: list[Result] = []
    try:
        kinds = parse_names(list(SIZES), flags.kinds)
        with running(Flink, folder) as flink:
            for kind in kinds:
                for records in sizes[kind]:
                    results.append(measure(flink, kind, records, data, flags.parallelism))
                small, large = results[-2:]
                print(f"## {kind}\n\n{format_stages(small, large)}\n")
                print(
                    f"{format_held(small, large)}\n\n{format_largest(small, large)}\n", flush=True
                )
    except BenchmarkError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(format_cost(results))
    if flags.json:
        found = {**prepare(data, sys.executable), "results": results}
        flags.json.write_text(json.dumps(found, default=dataclasses.asdict, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
