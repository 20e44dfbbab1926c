"""What grows with the number of records, and what it costs: jobs at two sizes on a Flink cluster.

    python benchmarks/scale.py --json scale.json

`made` are recordings made on the fly and passed to WriteShards; `files` are a thousand recordings
on disk, named again and again by the rows of a table; `scattered` are the same in so many shards
that hardly two records of a block share one; `text` are lines, with a vocabulary.

The cluster (one JobManager, two TaskManagers, workers in processes of their own) is that of the
tests, on this machine. What is counted comes from Flink (elements and bytes that stages hand over)
and from Beam's workers (elements of collections, and how large they are). docs/scale.md says what
follows for a billion records.
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import apache_beam as beam
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions
from environment import HERE, machine, parse_names, versions
from inputs import write_recording
from job_metrics import Collection, Stage, collections, newest_job, stages
from measure import BenchmarkError, sample_session

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

_TOGETHER = 1_000  # records that are made by one element
_FILES = 1_000  # recordings, which the rows of a table name again and again
_WORDS = 12, 30_000  # of a line, and of all lines
_LINES_A_FILE = 250_000
_SHARD_SIZE = {"made": "32MiB", "files": "32MiB", "scattered": "64KiB", "text": "32MiB"}
_SAMPLE_SECONDS = 0.5

# Of less than this nobody needs to know: a line of the tables for each.
_WORTH_TELLING = 1_000


@dataclass
class Result:
    """What a job has cost.

    Attributes:
        kind: Of records.
        records: Written.
        seconds: From submission to end.
        cpu_seconds: Of the TaskManagers and their workers.
        worker_bytes: The most memory of a Python worker.
        dataset_bytes: Of all shards.
        shards: How many.
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
    """Yields recordings of 64 values that no file holds."""
    values = np.random.default_rng(number).standard_normal((_TOGETHER, 64), dtype=np.float32)
    for row, value in enumerate(values):
        yield f"{number:06}/{row:03}", {"x": value}


def write_made(records: int, out: Path, flags: list[str]) -> None:
    """A pipeline of one's own, whose records are made on the fly."""
    schema = Schema({"key": Feature("string"), "x": Feature("float32", (64,))})
    with beam.Pipeline(options=PipelineOptions(flags)) as pipeline:
        _ = (
            pipeline
            | beam.Create(range(records // _TOGETHER))
            | beam.Reshuffle()
            | "Make" >> beam.FlatMap(make_records)
            | WriteShards(str(out), schema, shard_size=_SHARD_SIZE["made"])
        )


def make_table(data: Path, rows: int) -> Path:
    """A table of recordings: as many records as it has rows, of a thousand files."""
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
    """A folder of text files of short lines, whose words are as rare as those of a language."""
    folder = data / "scale" / f"lines-{lines}"
    if folder.exists():
        return folder
    unfinished = folder.with_name(f".{folder.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    length, vocabulary = _WORDS
    names = np.array([np.base_repr(word, 36).lower() for word in range(vocabulary)])
    for number, first in enumerate(range(0, lines, _LINES_A_FILE)):
        rng = np.random.default_rng(number)
        count = min(_LINES_A_FILE, lines - first)
        words = (vocabulary ** rng.random((count, length))).astype(np.int64) - 1
        text = "\n".join(map(" ".join, names[words].tolist()))
        (unfinished / f"{number:03}.txt").write_text(text + "\n")
    return unfinished.rename(folder)


def write_job(*arguments: str) -> None:
    """A job of the command line.

    Raises:
        BenchmarkError: It failed.
    """
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        code = beam_jobs(list(arguments))
    if code:
        raise BenchmarkError(f"exit code {code}: {said.getvalue()[-500:]}")


class Watch:
    """Processor time of a cluster, and memory of its workers, while a block runs."""

    def __init__(self, folder: Path) -> None:
        self._sessions = [pid for name, pid in pids(folder).items() if "taskmanager" in name]
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._cpu: dict[str, float] = {}
        self.worker_bytes = 0

    def __enter__(self) -> Watch:
        self._before = sum(sum(sample_session(of)[1].values()) for of in self._sessions)
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.monotonic() - self._began
        self._ended.set()
        self._thread.join()

    @property
    def cpu_seconds(self) -> float:
        """Of processes that began and ended in between, but for what they did since last seen."""
        return sum(self._cpu.values()) - self._before

    def _look(self) -> None:
        while not self._ended.wait(_SAMPLE_SECONDS):
            for session in self._sessions:
                _, cpu = sample_session(session)
                self._cpu |= cpu
                for pid in cpu:
                    if int(pid) != session:
                        self.worker_bytes = max(self.worker_bytes, _anonymous(pid))


def _anonymous(pid: str) -> int:
    """Memory of a process in bytes, without files it has mapped; shared pages count by shares."""
    try:
        lines = Path("/proc", pid, "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:"))


def measure(flink: Flink, kind: str, records: int, data: Path, parallelism: int) -> Result:
    """Runs a job, and asks what it cost.

    Raises:
        BenchmarkError: It failed, or its dataset is not whole.
    """
    print(f"  {kind}, {records:,} records", file=sys.stderr, flush=True)
    out = data / "scale" / "out"
    shutil.rmtree(out, ignore_errors=True)
    endpoint = flink.flags[1]
    job: Callable[[], None]
    if kind == "made":
        given = [endpoint, f"--parallelism={parallelism}"]
        flags = [*engine_flags("flink", given), *given]
        job = lambda: write_made(records, out, flags)  # noqa: E731
    else:
        if kind == "text":
            own = ["text", "--input", f"{make_lines(data, records)}/*.txt", "--tokens=words"]
        else:
            own = ["sensors", "--table", str(make_table(data, records)), "--key=row"]
            own += ["--label=column:label"]
        own += ["--output", str(out), f"--shard_size={_SHARD_SIZE[kind]}", *flink.flags]
        job = lambda: write_job(*own, f"--parallelism={parallelism}")  # noqa: E731
    with Watch(flink.folder) as watch:
        job()
    splits = Manifest.read(str(out)).splits.values()
    written = sum(split.records for split in splits)
    if not verify(out).ok or written != records:
        raise BenchmarkError(f"{kind}: {written:,} of {records:,} records are in {out}")
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
    """Yields each stage of both; those of one name by what they read, as Flink keeps no order."""

    def by_name(stages: list[Stage]) -> list[Stage]:
        return sorted(stages, key=lambda each: (each.name, each.grouped, each.read_bytes))

    pairs = zip(by_name(small.stages), by_name(large.stages), strict=True)
    order = {id(stage): place for place, stage in enumerate(large.stages)}
    yield from sorted(pairs, key=lambda pair: order[id(pair[1])])


def _each(small: float, large: float, more: int) -> str:
    """How much a figure grows with a record, where it does."""
    return f"{(large - small) / more:,.2f}"


def format_stages(small: Result, large: Result) -> str:
    """The stages that get or give much, at the larger size, and what a record more adds."""
    more = large.records - small.records
    rows = [
        [
            f"`{b.name}`",
            f"{b.read:,} → {b.written:,}",
            f"{format_bytes(b.read_bytes)} → {format_bytes(b.written_bytes)}",
            _each(a.read_bytes, b.read_bytes, more),
            _each(a.written_bytes, b.written_bytes, more),
            f"{b.seconds:.1f}",
        ]
        for a, b in _pairs(small, large)
        if max(b.read_bytes, b.written_bytes) > _WORTH_TELLING
    ]
    header = ["stage", "elements", "bytes", "in B/record", "out B/record", "seconds"]
    return _markdown(header, rows)


def format_held(small: Result, large: Result) -> str:
    """What somebody holds as a whole: side inputs, and values of one key."""
    before = {each.name: each for each in small.collections}
    rows = []
    for b in large.collections:
        a = before.get(b.name)
        if b.side and a:
            where = f"side input `{b.name}`"
            rows.append([where, format_bytes(a.size), format_bytes(b.size)])
    for a, b in _pairs(small, large):
        if b.grouped and b.written:
            sizes = (each.read_bytes / max(each.written, 1) for each in (a, b))
            rows.append([f"values of a key, `{b.name}`", *map(format_bytes, sizes)])
    return _markdown(["held", f"{small.records:,}", f"{large.records:,}"], rows)


def format_largest(small: Result, large: Result, count: int = 8) -> str:
    """The collections of the largest elements."""
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
    return _markdown(["made by", *names], rows)


def format_cost(results: list[Result]) -> str:
    """A row for each job, and what a record costs at the margin."""
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
            more = (result.records - last.records) / 1e6
            margin[0] = f"{(result.seconds - last.seconds) / more:.1f}"
            margin[1] = f"{(result.cpu_seconds - last.cpu_seconds) / more:.1f}"
        rows.append(row + margin)
        last = result
    header = ["job", "records", "s", "CPU s", "worker", "dataset", "shards", "µs/record", "CPU µs"]
    return _markdown(header, rows)


def main() -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--data", type=Path, default=Path("benchmark_data"), help="inputs, outputs")
    parser.add_argument("--kinds", default=",".join(SIZES), help=f"of {', '.join(SIZES)}")
    parser.add_argument(
        "--records", type=int, nargs=2, help="a small and a large number instead of the usual ones"
    )
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="tiny inputs: does it run?")
    parser.add_argument("--json", type=Path, help="takes every figure")
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
        found = {
            "machine": machine(),
            "versions": versions({"ours": sys.executable}),
            "results": results,
        }
        flags.json.write_text(json.dumps(found, default=dataclasses.asdict, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
